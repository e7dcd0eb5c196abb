"""Imports that the architecture allows, read from the source. Those in functions and for types count too."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import harness

ROOT = Path(harness.__file__).parent

LAYERS = (
    ("errors", "numbers"),
    ("system",),
    ("config",),
    ("records",),
    ("suite",),
    ("harness",),
    ("judgement",),
    ("device",),
    ("measure",),
    ("history",),
    ("init",),
    ("run",),
    ("report",),
    ("integrations",),
    ("ci",),
    ("cli",),
    ("__main__",),
)
"""Layers, the lowest first. A module imports from lower layers only; the modules of a folder may import one
another. `harness` is the package itself with the public names.
"""

ONLY_HERE = {
    "pycuda": "harness.device.backends.cuda",
    "pyopencl": "harness.device.backends.opencl",
    "moderngl": "harness.device.backends.opengl",
    "glcontext": "harness.device.backends.opengl",
    "pynvml": "harness.device.telemetry.nvml",
    "asv": "harness.integrations.asv",
    "asv_runner": "harness.integrations.asv",
    "pytest": "harness.integrations.pytest",
    "click": "harness.cli",
    "rich": "harness.report.terminal",
    # HTML and Markdown with escapes; a suite.py without.
    "jinja2": "harness.report.templates harness.init.written_files",
    "markupsafe": "harness.report.templates",
    "platformdirs": "harness.system.cache",
    "packaging": "harness.system.packages",
    "dask": "harness.run.sweep",
    "distributed": "harness.run.sweep",
}
"""A library and the one place that knows of it."""

PURE = (
    "errors",
    "numbers",
    "records.types",
    "judgement.statistics",
    "suite.case_id",
    "suite.kernel",
    "suite.problem",
    "suite.suite",
    "suite.tuning",
    "suite.planning",
    "device.peaks",
    "measure.verify",
    "measure.injection",
    "judgement.attribution",
    "judgement.case_trial",
    "judgement.gates",
    "judgement.judge",
    "judgement.saved_runs",
    "run.rejudge",
    "run.doctor.checks",
    "run.doctor.machine_facts",
    "report.words.of_verdict",
    "report.table",
    "report.terminal.sweeps",
    "report.pull_request.faces",
    "report.document.outcome",
    "report.pull_request.comment_markdown",
    "report.document.check",
)
EFFECTS = {"os", "shutil", "socket", "subprocess", "sys", "tempfile", "threading", "time"}

GPU_LIBRARIES = {"moderngl", "pycuda", "pynvml", "pyopencl"}

PUBLIC = {
    "Axis",
    "Case",
    "CupyFunction",
    "DeviceFacts",
    "Generated",
    "HostFunction",
    "HostLibrary",
    "InOut",
    "Input",
    "Kernel",
    "Ladder",
    "NumbaFunction",
    "Output",
    "Problem",
    "ReferenceFunction",
    "Rung",
    "Scalar",
    "Step",
    "Suite",
    "TorchFunction",
    "TritonFunction",
    "Tuning",
    "__version__",
    "ceil_div",
    "report",
}


def module_names() -> list[str]:
    return ["harness", *sorted(found.name for found in pkgutil.walk_packages([str(ROOT)], "harness."))]


MODULES = module_names()


def file_of(module: str) -> Path:
    place = ROOT.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(file_of(module).read_text(encoding="utf-8"))


@cache
def imports_of(module: str) -> set[str]:
    """Full names of the modules that a module imports; of a name imported from a package, the package's
    module of that name if there is one, else the package.
    """
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            place = node.module
            if module.startswith(f"{COPIED}."):
                assert not str(place).startswith("harness"), f"{module} is copied to where no harness is"
                place = ".".join(filter(None, (COPIED, place))) if node.level else place
            else:
                assert node.level == 0, f"{module} has a relative import"
            full = {f"{place}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(place) for name in full}
    return found


COPIED = "harness.run.scripts.recorder"
"""The package that is copied into an author's Python."""


def test_what_is_copied_into_an_authors_python_imports_the_standard_library_alone():
    copied = [module for module in MODULES if module.startswith(f"{COPIED}.")]
    top = {name.split(".")[0] for module in copied for name in imports_of(module) if COPIED not in name}
    assert top - set(sys.stdlib_module_names) == {"numpy", "pandas"}, "frameworks that the script has loaded"


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def own_imports(module: str) -> set[str]:
    return {name for name in imports_of(module) if name.split(".")[0] == "harness"}


def test_every_module_has_its_layer_and_every_layer_its_modules():
    assert {part_of(module) for module in MODULES} == {part for layer in LAYERS for part in layer}


def test_every_room_says_what_belongs_there():
    rooms = [module for module in MODULES if file_of(module).name == "__init__.py"]
    assert not [module for module in rooms if not ast.get_docstring(tree_of(module))]


def test_imports_point_one_way():
    level = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    against = [
        (module, name)
        for module in MODULES
        for name in own_imports(module)
        if part_of(name) != part_of(module) and not level[part_of(name)] < level[part_of(module)]
    ]
    assert not against


def test_only_the_command_line_imports_what_guesses_suites():
    assert {
        part_of(module) for module in MODULES if any(part_of(n) == "init" for n in own_imports(module))
    } == {
        "init",
        "cli",
    }


def test_a_file_name_means_one_thing():
    """Exceptions are the plugin of each tool, and the base of each family of classes."""
    names = Counter(file_of(module).name for module in MODULES)
    assert {name for name, count in names.items() if count > 1} <= {"__init__.py", "base.py", "plugin.py"}


def test_there_is_no_cycle():
    graph = {module: own_imports(module) - {module} for module in MODULES}
    while free := [module for module, needs in graph.items() if not needs]:
        for module in free:
            del graph[module]
        graph = {module: needs - set(free) for module, needs in graph.items()}
    assert not graph


def test_a_class_name_means_one_thing():
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_a_foreign_library_is_known_in_one_place():
    astray = [
        (module, name)
        for module in MODULES
        for name in imports_of(module)
        if (homes := ONLY_HERE.get(name.split(".")[0]))
        and not f"{module}.".startswith(tuple(f"{home}." for home in homes.split()))
    ]
    assert not astray


def test_types_are_decoded_in_one_place():
    """Two threads in which msgspec looks at one type for the first time end the process."""
    typed = re.compile(r"msgspec\.(convert|json\.Decoder)\(|msgspec\.json\.decode\([^)]*type=")
    found = [path for path in ROOT.rglob("*.py") if typed.search(path.read_text())]
    assert found == [ROOT / "system" / "decoding.py"]


def test_the_middle_touches_nothing_outside():
    outside = [
        (name, imported)
        for name in PURE
        for imported in imports_of(f"harness.{name}")
        if imported.split(".")[0] in EFFECTS
    ]
    assert not outside


def test_a_process_of_its_own_is_started_and_never_imported():
    started = {"harness.measure.worker", "harness.suite.suite_server"}
    assert started <= set(MODULES)
    assert not [module for module in MODULES if started & imports_of(module)]


def test_statistics_stand_alone():
    for module in MODULES:
        if module.startswith("harness.judgement.statistics"):
            assert all(name.startswith("harness.judgement.statistics") for name in own_imports(module))


def is_command(module: str) -> bool:
    return module.endswith("_command")


def command_modules() -> dict[str, str]:
    """Return the module of each command, by the command's words. The commands of `ci` share a module."""
    report = importlib.import_module("harness.cli.report_command")
    commands = [
        *importlib.import_module("harness.cli").COMMANDS,
        *(f"report {name}" for name in report.COMMANDS),
    ]
    return {words: f"harness.cli.{words.replace(' ', '_')}_command" for words in commands}


def test_every_command_has_its_module_and_every_module_its_command():
    assert set(command_modules().values()) == {module for module in MODULES if is_command(module)}


def test_a_command_module_is_named_for_its_command():
    for words, module in command_modules().items():
        assert importlib.import_module(module).command.name == words.split()[-1]


def test_the_public_names_are_these_and_stay():
    """A suite.py at an old commit imports them from a newer harness."""
    assert set(harness.__all__) == PUBLIC
    assert set(re.findall(r"`(\w+)`", harness.__doc__ or "")) == PUBLIC - {"__version__"}
    assert {*harness._HOMES} == PUBLIC - {"__version__"}
    assert all(getattr(harness, name) for name in PUBLIC)
    assert not hasattr(harness, "Graph")


def test_the_version_is_the_distributions():
    text = (ROOT.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{harness.__version__}"\n' in text


def loaded_by(code: str) -> set[str]:
    """The top-level modules in a fresh interpreter after it ran `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n', file=sys.stderr)"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )
    return {name.split(".")[0] for name in done.stderr.split()}


CALL = "from harness.cli import cli\ncli.main({arguments!r}, standalone_mode=False)"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        pytest.param("import harness", {"numpy", "msgspec", "click"}, id="import harness"),
        pytest.param("import harness.cli", {"numpy", "msgspec", "rich"}, id="import harness.cli"),
        pytest.param(CALL.format(arguments=["--help"]), {"numpy", "msgspec", "rich"}, id="harness --help"),
        pytest.param(CALL.format(arguments=["list"]), {"numpy", "rich"}, id="harness list"),
        pytest.param(CALL.format(arguments=["list", "--json"]), {"numpy", "rich"}, id="harness list --json"),
    ],
)
def test_what_needs_no_device_loads_no_gpu_library(project, code, heavy):
    assert not loaded_by(code) & (GPU_LIBRARIES | {"asv", "scipy"} | heavy)


def test_backends_are_imported_without_their_libraries():
    names = ", ".join(
        f"harness.device.backends.{name}" for name in ("cuda", "opencl", "opengl", "cpu", "null")
    )
    assert not loaded_by(f"import {names}") & GPU_LIBRARIES
