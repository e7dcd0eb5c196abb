"""Finds a repository's existing benchmarks: scripts that call a timer, and tests with pytest-benchmark.

They are read as text and never imported. Each has the command that measures it unchanged.
"""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from harness.init.guessed_suite import TOO_DEEP
from harness.init.repository import Repository

KNOWN_TIMERS: Mapping[str, str] = {
    "do_bench": "do_bench",
    "do_bench_cudagraph": "do_bench_cudagraph",
    "bench_gpu_time": "bench_gpu_time",
    "perf_report": "perf_report",
    "blocked_autorange": "torch.utils.benchmark.Timer",
    "adaptive_autorange": "torch.utils.benchmark.Timer",
}
"""Functions and methods that are known by name to time their argument, with a word for each."""
_MODULES: Mapping[str, str] = {
    "torch.utils.benchmark": "torch.utils.benchmark.Timer",
    "cupyx.profiler": "cupyx.profiler.benchmark",
    "cutlass.cute.testing": "cutlass.cute.testing.benchmark",
}
"""Words for the modules whose function `benchmark` or class `Timer` times device code."""
_OF_MODULES = {"benchmark", "Timer"}
_OWN_TIMER = re.compile(
    r"_*(?:do_|run_|cuda_|gpu_|kernel_)*(?:bench(?:mark)?(?:_\w+)?|timeit|time_?it|time_\w+|profile_\w+)"
)
"""Names of an author's own timing functions."""
_FUNCTION = re.compile(r"_?(?:fn?|func(?:tion)?|call(?:able|back)?|op|run|kernel)(?:_\w+)?")
"""Names of parameters that are functions."""
_CLOCKS = {"time", "perf_counter", "perf_counter_ns", "monotonic", "elapsed_time"}
_FIXTURES = {"benchmark", "gpubenchmark"}
_PYTEST_SETTINGS = {"pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"}
_TEST_FILE = re.compile(r"(?:test_|bench).*\.py|.*_test\.py")
_MARKS = re.compile(rb"(?i)bench|time|profile|perf_")
_RANKS = re.compile(rb"init_process_group|nvshmem|mpi4py")
_OF_GPU = re.compile(rb"\b(?:torch|triton|cupyx?|cuda|numba|jax|warp|tilelang|flashinfer|cutlass)\b")


@dataclass(frozen=True)
class OwnBenchmark:
    """A script or the tests of a folder that time something, with the command that measures them."""

    path: str
    kind: str
    """script, pytest, or inline for a script that times between two of its own lines."""
    timers: tuple[str, ...]
    """Timers that it calls, by their usual names."""
    command: str
    """Command; empty for inline."""
    tests: int = 0
    """Number of tests with pytest-benchmark's fixture."""


def own_benchmarks(repository: Repository) -> list[OwnBenchmark]:
    """Return the benchmarks of a repository: scripts, tests by folder, and scripts that time inline."""
    scripts: list[OwnBenchmark] = []
    tests: dict[str, dict[str, list[str]]] = {}
    for file in repository.every_file:
        content = repository.bytes_of(file) if fnmatchcase(file, "*.py") else b""
        if not _MARKS.search(content) or _RANKS.search(content):
            continue
        has_tests = _TEST_FILE.fullmatch(posixpath.basename(file)) and b"benchmark" in content
        tree = _parsed(content) if has_tests or _OF_GPU.search(content) else ast.Module([], [])
        if names := _benchmark_tests(tree) if has_tests else []:
            tests.setdefault(posixpath.dirname(file), {})[file] = names
        elif run := _command(file, tree):
            scripts += _of_script(file, tree, run)
    scripts.sort(key=lambda each: "--timer" in each.command)
    configured = any(
        b"python_functions" in repository.bytes_of(file)
        for file in repository.every_file
        if posixpath.basename(file) in _PYTEST_SETTINGS
    )
    return [
        *(each for each in scripts if each.command),
        *(_of_folder(folder, files, configured=configured) for folder, files in sorted(tests.items())),
        *(each for each in scripts if not each.command),
    ]


def _of_script(file: str, tree: ast.Module, run: str) -> list[OwnBenchmark]:
    known, own = _timers(tree, file)
    if not known and not own:
        is_inline = _reads_clock(tree) and re.search(r"bench|perf|time|speed|profil", file)
        return [OwnBenchmark(file, "inline", (), "")] if is_inline else []
    words = shlex.quote(" ".join((run, *_needed_options(tree))))
    named = "".join(f" --timer {name}" for name in ([] if known else own))
    plain = (name.rpartition(":")[2] for name in own)
    return [OwnBenchmark(file, "script", (*known, *plain), f"harness compare HEAD~1 --script {words}{named}")]


def _of_folder(folder: str, files: Mapping[str, Sequence[str]], *, configured: bool) -> OwnBenchmark:
    """Return the tests of a folder.

    pytest ignores files and functions not named test_*, unless options or (if `configured`) the project's
    settings name them.
    """
    paths = [folder or "."]
    if len(files) == 1 or not all(fnmatchcase(posixpath.basename(file), "test_*.py") for file in files):
        paths = list(files)
    names = [name for each in files.values() for name in each]
    are_tests = configured or all(name.startswith("test") for name in names)
    functions = [] if are_tests else ["-o", "python_functions=test bench"]
    command = f"pytest {shlex.join([*functions, *paths])} --perf-base HEAD~1"
    path = paths[0] if len(paths) == 1 else folder
    return OwnBenchmark(path, "pytest", ("pytest-benchmark",), command, tests=len(names))


def _parsed(content: bytes) -> ast.Module:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, *TOO_DEEP):
        return ast.Module([], [])


def _benchmark_tests(tree: ast.Module) -> list[str]:
    """Return the names of tests with pytest-benchmark's fixture."""
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [
        node.name
        for node in functions
        if node.name.startswith(("test", "bench")) and any(each.arg in _FIXTURES for each in node.args.args)
    ]


def _timers(tree: ast.AST, file: str) -> tuple[list[str], list[str]]:
    """Return the words for library timers that a file calls, and the author's own timers as `module:name`."""
    imported = _imported(tree, file)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    here = {node.name for node in functions if _times_what_it_gets(node)}
    called = [_name_of(node.func, imported) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called += [_name_of(each, imported) for node in functions for each in node.decorator_list]
    known = dict.fromkeys(word for module, name in called if (word := _known_timer(module, name)))
    own = dict.fromkeys(
        f"{module}:{name}" if module else name
        for module, name in called
        if not _known_timer(module, name) and (_is_own(module, name) if module else name in here)
    )
    return list(known), list(own)


def _is_own(module: str, name: str) -> bool:
    """Return whether an imported function is an author's timer by its name, and not a library's."""
    is_library = module.partition(".")[0] in {"pytest", "torch", "time", "timeit"}
    return not is_library and _OWN_TIMER.fullmatch(name) is not None


def _imported(tree: ast.AST, file: str) -> dict[str, str]:
    """Return the origin of each imported name, such as `torch.utils.benchmark` for `benchmark`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = PurePosixPath(file).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            found |= {each.asname or each.name: f"{module}.{each.name}" for each in node.names}
    return found


def _name_of(function: ast.expr, imported: Mapping[str, str]) -> tuple[str, str]:
    """Return the module (empty if unknown) and the name of a called function."""
    words: list[str] = []
    while isinstance(function, ast.Attribute):
        words.insert(0, function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        words.insert(0, function.id)
    for count in range(len(words), 0, -1):
        if module := imported.get(".".join(words[:count])):
            *before, name = (*module.split("."), *words[count:])
            return ".".join(before), name
    return "", words[-1] if words else ""


def _known_timer(module: str, name: str) -> str:
    if name in _OF_MODULES:
        return next((told for known, told in _MODULES.items() if module.startswith(known)), "")
    return KNOWN_TIMERS.get(name, "")


def _times_what_it_gets(node: ast.FunctionDef) -> bool:
    """Return whether a function is a timer: it reads a clock, and calls its function argument."""
    given = {each.arg for each in (*node.args.posonlyargs, *node.args.args)}
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    called = {each.id for each in calls if isinstance(each, ast.Name)} & given
    named = _OWN_TIMER.fullmatch(node.name) or any(map(_FUNCTION.fullmatch, called))
    return bool(called and named and _reads_clock(node))


def _reads_clock(tree: ast.AST) -> bool:
    calls = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    return any(isinstance(each, ast.Attribute) and each.attr in _CLOCKS for each in calls)


# --- running a script ----------------------------------------------------------------------------


def _command(file: str, tree: ast.Module) -> str:
    """Return the command that runs a file from the repository's top; empty for a helper module."""
    if _runs(tree):
        if _is_of_package(file, tree):
            return f"python -m {'.'.join(PurePosixPath(file).with_suffix('').parts)}"
        return f"python {shlex.quote(file)}"
    tests = [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_timing_test(node, file)
    ]
    return f"python -m pytest {shlex.join(f'{file}::{name}' for name in tests)}" if tests else ""


def _is_timing_test(node: ast.FunctionDef, file: str) -> bool:
    return node.name.startswith("test") and bool(_timers(node, file)[0])


def _runs(tree: ast.Module) -> bool:
    """Return whether running a file does something: it tests `__main__`, or has calls and loops."""
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            return True
        if isinstance(node, (ast.For, ast.With)):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            if re.search(r"run|main|bench|print|time", called.rpartition(".")[2]):
                return True
    return False


def _is_of_package(file: str, tree: ast.Module) -> bool:
    """Return whether a script imports modules by their path below the repository's top, including itself."""
    first = PurePosixPath(file).parts[0]
    return (
        any(
            isinstance(node, ast.ImportFrom)
            and (node.level > 0 or (node.module or "").split(".")[0] == first)
            for node in ast.walk(tree)
        )
        and "/" in file
    )


def _needed_options(tree: ast.Module) -> Iterator[str]:
    """Yield the required arguments of a script's parser, with a placeholder for each value."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument")):
            continue
        names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        given = {each.arg: each.value for each in node.keywords if each.arg}
        name = next((each for each in reversed(names) if isinstance(each, str)), "")
        required = isinstance(found := given.get("required"), ast.Constant) and found.value is True
        value = name.strip("-").replace("-", "_").upper()
        if name.startswith("-") and required:
            yield f"{name} {value}"
        elif name and not name.startswith("-") and not {"nargs", "default"} & given.keys():
            yield value


# --- frameworks without a suite ---------------------------------------------------------------------

_BY_FUNCTION = "a benchmark script (--script), a test (gpu_benchmark), a suite of yours (TorchFunction)"
_BY_SCRIPT = "a benchmark script (--script), a test (gpu_benchmark)"
_BY_PROGRAM = "a benchmark program (--with-command)"
_BY_NUMBA = "a benchmark script (--script), a test (gpu_benchmark), a suite of yours (NumbaFunction)"
_BY_TEXT = "a suite of yours, once the kernel's text is in a .cu file"
_BY_SHADER = "a suite of yours (Kernel with a .glsl or .comp source)"
_CPP = ".h .hpp .cuh .cu .cpp .cc .cxx .c"
_IMPORT = r"(?m)^\s*(?:from|import)\s+"
_FRAMEWORKS: Sequence[tuple[str, str, str, str]] = (
    ("cuTile", _BY_FUNCTION, ".py", rf"{_IMPORT}cuda(?:\.|\s+import\s+(?:.*\W)?)tile\b"),
    ("CuTe DSL", _BY_FUNCTION, ".py", rf"{_IMPORT}cutlass(?:\.|\s+import\s+(?:.*\W)?)cute\b"),
    ("TileLang", _BY_FUNCTION, ".py", rf"{_IMPORT}tilelang\b"),
    ("Helion", _BY_FUNCTION, ".py", rf"{_IMPORT}helion\b"),
    ("Warp", _BY_FUNCTION, ".py", rf"{_IMPORT}warp\b"),
    ("Gluon", _BY_FUNCTION, ".py", rf"{_IMPORT}triton\.experimental(?:\.|\s+import\s+)gluon\b"),
    ("Taichi", _BY_FUNCTION, ".py", rf"{_IMPORT}taichi\b"),
    ("JAX Pallas", _BY_FUNCTION, ".py", rf"{_IMPORT}jax\.experimental(?:\.|\s+import\s+(?:.*\W)?)pallas\b"),
    ("torch.compile", _BY_FUNCTION, ".py", r"(?m)^[^#\n]*\btorch\.compile\b"),
    ("numba-cuda", _BY_NUMBA, ".py", r"(?m)^[^#\n]*@(?:numba\.)?cuda\.jit\b"),
    ("PyCUDA", _BY_TEXT, ".py", rf"{_IMPORT}pycuda\.compiler\s+import\s+.*SourceModule\b"),
    ("cuda.core", _BY_TEXT, ".py", rf"{_IMPORT}cuda\.core\S*\s+import\s+(?:\([^)]*|.*)\bProgram\b"),
    ("CUDA graphs", _BY_SCRIPT, ".py", r"(?m)^[^#\n]*\b(?:CUDAGraph|cuda\.graph|make_graphed_callables)\b"),
    ("CUDA graphs", _BY_PROGRAM, _CPP, r"(?m)^(?!\s*//).*\bcu(?:da)?(?:GraphLaunch|StreamBeginCapture)\b"),
    ("SYCL", _BY_PROGRAM, _CPP, r"#\s*include\s*[<\"](?:CL/)?sycl(?:/sycl)?\.hpp"),
    ("Kokkos", _BY_PROGRAM, _CPP, r"#\s*include\s*[<\"]Kokkos_Core"),
    ("OpenMP offloading", _BY_PROGRAM, _CPP, r"#\s*pragma\s+omp\s+target\b"),
    ("OpenACC", _BY_PROGRAM, _CPP, r"#\s*pragma\s+acc\s"),
    ("CUDA.jl", _BY_PROGRAM, ".jl", r"(?m)^\s*using\s+CUDA\b"),
    ("Metal", _BY_PROGRAM, ".metal", ""),
    ("Mojo", _BY_PROGRAM, ".mojo .🔥", ""),
    ("WGSL", _BY_PROGRAM, ".wgsl", ""),
    ("HLSL", _BY_PROGRAM, ".hlsl", ""),
    ("Slang", _BY_PROGRAM, ".slang", ""),
    ("GLSL", _BY_SHADER, ".comp", ""),
)
"""Frameworks for which no suite is written: name, what measures it, endings and text of its files."""


@dataclass(frozen=True)
class OtherFramework:
    """A framework for whose kernels no suite is proposed."""

    name: str
    measured_by: str
    """The ways to measure such a kernel."""
    files: tuple[str, ...]


def other_frameworks(repository: Repository, measured: Collection[str]) -> list[OtherFramework]:
    """Return the frameworks of a repository without a suite. The files `measured` by suites do not count for
    languages of Python, which such a suite calls.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for file in repository.files:
        for name, measured_by, suffixes, pattern in _FRAMEWORKS:
            is_measured = file in measured and measured_by in (_BY_FUNCTION, _BY_NUMBA)
            if is_measured or not file.endswith(tuple(suffixes.split())):
                continue
            if re.search(pattern.encode(), repository.bytes_of(file)):
                found.setdefault((name, measured_by), []).append(file)
    if hip := [file for file in repository.sources if repository.hip_of(file)]:
        found["HIP", _BY_PROGRAM] = hip
    return [OtherFramework(*key, tuple(files)) for key, files in found.items()]
