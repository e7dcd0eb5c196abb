"""Functions of Python frameworks as kernels: found without being imported, given what they ask for, and each
commit's own. What needs a card is in test_gpu_python.py.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.device.frameworks import Cupy, ExecutionContext, Framework, FrameworkFunction, Numba, Torch
from harness.errors import HarnessError, LaunchError, SuiteError
from harness.measure import protocol
from harness.measure.quads import PairSettings
from harness.measure.timing import MeasureSettings
from harness.measure.worker import Worker
from harness.records.types import Launch
from harness.suite.layout import Layout, Parameter, numpy_dtype
from harness.suite.loader import load_folder
from harness.suite.python_functions import PythonCall
from harness.suite.suite_data import DefinitionCall
from harness.suite.suite_files import definition_sha256
from harness.system.file_access import watch
from harness.system.files import try_lock
from tests.pairs import Built, Pair, opened_worker
from tests.support import IMPORT_PATH, run_command, write_files

SUITE = """\
from harness import Axis, Input, Kernel, NumbaFunction, Output, Problem, Suite, TorchFunction, TritonFunction


class Scale(Problem):
    n = Axis(default=(1000,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


suite = Suite("py", Scale(), headline="GB/s", kernels=[{kernels}])
"""
ON_CPU = "Kernel({name!r}, {{'cpu': {kind}Function({file!r})}}, {more})"


def suite_of(
    folder: Path, names: list[str], files: dict[str, str], kind: str = "Numba", more: str = ""
) -> Path:
    file = next(iter(files))
    kernels = ", ".join(ON_CPU.format(name=name, kind=kind, file=file, more=more) for name in names)
    return write_files(folder, {"suite.py": SUITE.format(kernels=kernels), **files})


def checked(folder: Path) -> list[tuple[str, str, str]]:
    """Status, reason and message of each kernel, in one process."""
    with tempfile.TemporaryDirectory() as scratch:
        worker = opened_worker(protocol.Open(device="cpu:0", suite=str(folder), scratch=scratch))
        return [checked_by(worker, kernel.name) for kernel in worker.suite.kernels]


def checked_by(worker: Worker, kernel: str) -> tuple[str, str, str]:
    sizes = next(worker.suite.problem.points())
    try:
        row = worker.run(protocol.Measure(kernel=kernel, sizes=sizes, seed=1, settings=None))
    except HarnessError as error:
        return "failed", error.reason, error.message
    return row.status, row.reason, row.message


SQUARE = Layout((4, 4), "float32")
PARAMETERS = (
    Parameter("a", "float32", SQUARE),
    Parameter("b", "float32", SQUARE),
    Parameter("c", "float32", SQUARE),
    Parameter("m", "int32"),
)


def bound(source: str):
    names: dict[str, object] = {}
    exec(source, names)
    call = PythonCall("numba", Path("f.py"), "f", PARAMETERS, ("c",), {"BLOCK": 64}, Path(), "")
    return call.bind(cast("Callable[..., object]", names["f"]))


@pytest.mark.parametrize(
    ("source", "keywords", "returned"),
    [
        ("def f(a, b, c): ...", {"a": "a", "b": "b", "c": "c"}, ()),
        ("def f(c, b, a, m): ...", {"c": "c", "b": "b", "a": "a", "m": "m"}, ()),
        ("def f(a, b): ...", {"a": "a", "b": "b"}, ("c",)),
        ("def f(x, w, out): ...", {"x": "a", "w": "b", "out": "c"}, ()),
        ("def f(x, w, dim=-1): ...", {"x": "a", "w": "b"}, ("c",)),
        ("def f(x, w, BLOCK=128, **others): ...", {"x": "a", "w": "b", "BLOCK": "BLOCK"}, ("c",)),
        ("def f(a, *, BLOCK, m): ...", {"a": "a", "BLOCK": "BLOCK", "m": "m"}, ("c",)),
    ],
)
def test_a_parameter_gets_what_its_name_or_place_says(source, keywords, returned):
    binding = bound(source)
    assert (binding.positional, binding.keywords, binding.returned) == ((), keywords, returned)


def test_a_name_that_a_file_with_a_byte_order_mark_lacks_is_told(tmp_path, monkeypatch):
    """Only importing tells what `import *` brings."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "with_mark.py"
    file.write_text("from math import *\n", encoding="utf-8-sig")
    call = PythonCall("numba", file, "absent", PARAMETERS, ("c",), {}, tmp_path, "")
    with pytest.raises(SuiteError, match=r"with_mark\.py has nothing named 'absent'"):
        call.load()


def test_positional_parameters_are_given_by_position():
    binding = bound("def f(x, w, /, m): ...")
    assert (binding.positional, binding.keywords, binding.returned) == (("a", "b"), {"m": "m"}, ("c",))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(*arrays): ...", r"takes \*arrays: name the arrays"),
        ("def f(x): ...", r"takes \(x\); expected the arrays \(a, b, c\), or \(a, b\) and a result"),
        ("def f(b, x): ...", "'b' stands where the problem has 'a'"),
        ("f = max", "does not tell its parameters"),
    ],
)
def test_what_nobody_can_tell_is_refused(source, said):
    with pytest.raises(SuiteError, match=said):
        bound(source)


NUMBA = """\
import json

import numba
import numpy as np
from beside import twice


@numba.njit
def given(x, y, n, FACTOR):
    for i in range(n):
        y[i] = FACTOR * x[i]


def returned(x):
    return twice(x)


def importing(x):
    import beside

    return beside.twice(x)


def short(x):
    return 2 * x[1:]


def wide(x):
    return 2 * x.astype(np.float64)


def nothing(x):
    2 * x


def same(x):
    return x


def strided(x):
    return np.stack([2 * x, x], axis=1)[:, 0]


def two(x):
    return 2 * x, x


def raising(x):
    raise ValueError("no table for this size")


def unfit(x):
    json.dump({}, None)


def untypable(x, y):
    _untypable(x)


@numba.njit
def _untypable(x):
    return x.no_such_thing
"""
NAMES = [
    "given",
    "returned",
    "importing",
    "short",
    "wide",
    "nothing",
    "same",
    "strided",
    "two",
    "raising",
    "unfit",
    "untypable",
    "absent",
]


def test_a_function_gets_arrays_and_values_and_its_mistakes_are_told(tmp_path):
    pytest.importorskip("numba")
    files = {"ops.py": NUMBA, "beside.py": "def twice(x):\n    return 2 * x\n"}
    rows = checked(suite_of(tmp_path / "py", NAMES, files, more="macros={'FACTOR': 2}"))
    assert [(status, reason) for status, reason, _ in rows] == [
        *[("verified", "")] * 2,
        *[("failed", "launch-refused")] * 9,
        ("failed", "build-failed"),
        ("failed", "suite"),
    ], rows
    said = {name: message for name, (_, _, message) in zip(NAMES, rows, strict=True)}
    assert "returned float32 of shape (999,) for y; expected float32 of shape (1000,)" in said["short"]
    assert "returned float64 of shape (1000,) for y; expected float32" in said["wide"]
    assert "returned nothing; expected y, which it does not ask for" in said["nothing"]
    assert "returned memory of its argument x for y: nothing was computed there" in said["same"]
    assert "not in row order in memory; expected numpy.ascontiguousarray(result)" in said["strided"]
    assert "returned 2 results; expected y" in said["two"]
    assert "raising of ops.py raised ValueError: no table for this size" in said["raising"]
    assert said["unfit"].endswith("AttributeError: 'NoneType' object has no attribute 'write', in json")
    assert "No module named 'beside'. Import it at the top of ops.py" in said["importing"]
    assert "raised TypingError" in said["untypable"]
    assert "ops.py has nothing named 'absent'; it has json, numba, np, twice, given" in said["absent"]


COLUMNS = """\
from harness import Axis, Input, Kernel, NumbaFunction, Output, Problem, Suite, TorchFunction


class Larger(Problem):
    m = Axis(default=(30,))
    n = Axis(default=(20,))
    x = Input("m", "n", order="F")
    wide = Input("m", "n", ld=lambda c: c.n + 3)
    y = Output("m", "n", order="F")

    def reference(self, case, x, wide):
        import numpy as np

        return np.maximum(x, wide)


suite = Suite("py", Larger(), headline="GB/s", kernels=[{kernels}])
"""
LARGER = {
    "Numba": """\
import numpy as np


def given(x, wide, y):
    np.maximum(x, wide, out=y)


def returned(x, wide):
    return np.asfortranarray(np.maximum(x, wide))


def by_rows(x, wide):
    return np.ascontiguousarray(np.maximum(x, wide))
""",
    "Torch": """\
import torch


def given(x, wide, y):
    torch.maximum(x, wide, out=y)


def returned(x, wide):
    return torch.maximum(x, wide).mT.contiguous().mT


def by_rows(x, wide):
    return torch.maximum(x, wide).contiguous()
""",
}


@pytest.mark.parametrize(
    ("kind", "hint"), [("Numba", "numpy.asfortranarray"), ("Torch", "result.mT.contiguous")]
)
def test_arrays_lie_as_the_problem_says(tmp_path, kind, hint):
    pytest.importorskip(kind.lower())
    names = ["given", "returned", "by_rows"]
    kernels = ", ".join(ON_CPU.format(name=name, kind=kind, file="ops.py", more="") for name in names)
    files = {"suite.py": COLUMNS.format(kernels=kernels), "ops.py": LARGER[kind]}
    rows = checked(write_files(tmp_path / "py", files))
    assert [status for status, _, _ in rows] == ["verified", "verified", "failed"], rows
    assert f"not in column order in memory; expected {hint}" in rows[2][2]


def test_an_output_with_room_between_its_lines_cannot_be_returned():
    padded = Parameter("y", "float32", Layout((2, 2), "float32", ld=4))
    framework = Framework(cast("Any", None))
    with pytest.raises(LaunchError, match="ask for y as a parameter"):
        framework.found(np.zeros((2, 2), np.float32), padded)


def test_a_function_gets_the_numbers_of_each_call(tmp_path, monkeypatch):
    """Base's problem may pass another scalar than head's to a kernel, with the same arrays."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = write_files(tmp_path, {"scaled.py": "def fill(y, s):\n    y[:] = s\n"}) / "scaled.py"
    parameters = Parameter("y", "float32", Layout((4,), "float32")), Parameter("s", "float32")
    call = PythonCall("numba", file, "fill", parameters, ("y",), {}, tmp_path, "")
    function, y = FrameworkFunction(call, ExecutionContext()), np.zeros(16, np.uint8)
    for value in (0.25, 0.75, float("-inf"), float("nan")):
        function([y, np.float32(value)])
        np.testing.assert_array_equal(y.view(np.float32), np.float32(value))


class Whole(np.ndarray):
    def __iter__(self):
        raise AssertionError("a list of its elements takes longer than the kernel")


@pytest.mark.parametrize("cards", [1, 2])
def test_only_a_function_that_spans_cards_gets_lists_of_rows(tmp_path, monkeypatch, cards):
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "given = []\n\n\ndef keep(x, y):\n    given.extend((x, y))\n"
    file = write_files(tmp_path, {f"kept{cards}.py": text}) / f"kept{cards}.py"
    parameters = [Parameter(name, "float32", Layout((cards, 4), "float32")) for name in "xy"]
    call = PythonCall("numba", file, "keep", tuple(parameters), ("y",), {}, tmp_path, "", cards=cards)
    kind = np.ndarray if cards > 1 else Whole
    monkeypatch.setattr(Numba, "tensor", lambda _, argument, __: argument.view(kind))
    function = FrameworkFunction(call, ExecutionContext())
    function([np.zeros((cards, 4), np.float32), np.ones((cards, 4), np.float32)])
    _, y = sys.modules[f"kept{cards}"].given
    assert [len(y), type(y)] == ([2, list] if cards > 1 else [1, Whole])


def test_a_function_gets_what_a_setup_gave(tmp_path):
    file = {"planned.py": "def planned(x, y, plan):\n    plan.run(x, y)\n"}
    made = """
class Plan:
    def run(self, x, y):
        y[:] = 2 * x


"""
    given = "args=('x', 'y', 'plan'), setup=lambda case, arrays: {'plan': Plan()}"
    kernel = f"Kernel('planned', {{'cpu': NumbaFunction('planned.py')}}, {given})"
    text = SUITE.replace("suite = ", f"{made}suite = ").format(kernels=kernel)
    assert checked(write_files(tmp_path, {"suite.py": text, **file})) == [("verified", "", "")]


def test_a_result_that_is_kept_is_found_out(tmp_path):
    """Nothing is poisoned but the output that it is copied to, and other inputs lead to another."""
    pytest.importorskip("numba")
    body = "    KEPT.append(KEPT[0] if len(KEPT) > 6 else 2 * x)\n    return KEPT[-1]\n"
    ops = f"KEPT = []\n\n\ndef scale(x):\n{body}"
    folder = suite_of(tmp_path / "py", ["scale"], {"ops.py": ops})
    worker = opened_worker(protocol.Open(device="cpu:0", suite=str(folder), scratch=str(tmp_path)))
    quick = MeasureSettings(max_time_s=0.05, min_time_s=0.01, warmup_min_s=0.001, warmup_max_s=0.01)
    with pytest.raises(HarnessError) as caught:
        worker.run(protocol.Measure(kernel="scale", sizes={"n": 1000}, seed=1, settings=quick))
    assert caught.value.reason == "wrong-when-timed"


DOUBLING = "def scale(x):\n    return 2 * x\n"
LAZY = "        import ops\n        return 2 * x"


@pytest.mark.parametrize(
    ("suite", "more", "same"),
    [
        ({}, {}, True),
        ({"'scale'": "'ops'", "    n = Axis": "    'of ops'\n    n = Axis"}, {}, True),
        ({"        return 2 * x": LAZY}, {}, False),
        ({"class Scale": "from beside import *\n\n\nclass Scale"}, {"beside.py": "import ops\n"}, False),
        ({"class Scale": "HERE = __file__\n\n\nclass Scale"}, {}, False),
        ({"    n = Axis": "    ops = 'ops.py', 'ops'\n    n = Axis"}, {}, False),
        (
            {"class Scale": "import glob\nREAD = [*map(open, glob.glob('FOLDER/*/o*.py'))]\n\n\nclass Scale"},
            {},
            False,
        ),
    ],
    ids=[
        "only a kernel",
        "a kernel of its name",
        "a lazy import",
        "an import by another file",
        "its place",
        "its name",
        "its text",
    ],
)
def test_a_file_of_functions_is_of_the_problem_if_other_code_may_reach_it(tmp_path, suite, more, same):
    watch()
    found = []
    for side, text in (("base", DOUBLING), ("head", f"# another\n{DOUBLING}")):
        folder = suite_of(tmp_path / side, ["scale"], {"ops.py": text, **more})
        file = folder / "suite.py"
        for old, new in suite.items():
            assert old in file.read_text()
            file.write_text(file.read_text().replace(old, new).replace("FOLDER", str(tmp_path)))
        found.append(definition_sha256(load_folder(folder)))
    assert (found[0] == found[1]) == same


def test_a_function_that_replaces_the_reference_of_its_own_suite_is_judged_by_the_other(tmp_path):
    pytest.importorskip("numba")
    replaced = """\
from harness import Problem
for each in Problem.__subclasses__():
    if hasattr(each, "bait"):
        each.reference = lambda self, case, x: 3 * x


def scale(x):
    return 3 * x
"""
    folders = {
        side: suite_of(tmp_path / side, ["scale"], {"ops.py": text})
        for side, text in (("base", DOUBLING), ("head", replaced))
    }
    for folder in folders.values():
        text = (folder / "suite.py").read_text().replace("    n = Axis", "    bait = True\n    n = Axis")
        (folder / "suite.py").write_text(text)
    pair = Pair(folders["base"], folders["head"], tmp_path / "scratch", "cpu:0")
    base, head = (pair.loadings[side].answer(DefinitionCall()) for side in ("base", "head"))
    assert base == head
    compare = protocol.Compare(pair=pair.of("scale", n=1000), seed=1, order_seed=1, settings=PairSettings())
    worker = pair.worker("head")
    worker.turns.join(protocol.Join(compare=compare, side="head"))
    assert worker.suite.problem.reference(None, x=1) == 3  # in the process that runs it
    with pytest.raises(HarnessError) as caught:
        worker.turns.verify(protocol.Verify())
    assert (caught.value.side, caught.value.reason) == ("head", "wrong-result")


def test_a_suite_is_listed_and_its_names_checked_without_the_framework(tmp_path):
    file = "import a_framework_that_nobody_has\ndef right(x): ...\n"
    kernels = ", ".join(f"Kernel({name!r}, TritonFunction('k.py'))" for name in ("right", "wrong"))
    write_files(tmp_path / "kernels/py", {"suite.py": SUITE.format(kernels=kernels), "k.py": file})
    write_files(tmp_path, {"pyproject.toml": "[tool.harness]\n"})
    listed = run_command("list", cwd=tmp_path)
    assert (listed.returncode, "right" in listed.stdout) == (2, True), listed.stderr
    done = run_command("check", "--device", "null", "py", cwd=tmp_path)
    assert "k.py has nothing named 'wrong'" in listed.stderr
    assert "k.py has nothing named 'wrong'; it has a_framework_that_nobody_has, right" in done.stderr


def built(tmp_path, folders) -> Built:
    """Build the kernel `scale` of base and of head, each in its own worker."""
    pair = Pair(folders["base"], folders["head"], tmp_path / "scratch", "cpu:0")
    return pair.built(pair.of("scale", n=1000))


@pytest.mark.parametrize("inside", [True, False], ids=["in the suite's folder", "in a package beside it"])
def test_base_and_head_have_modules_of_their_own(tmp_path, inside):
    """Base's factor is wrong, so base is told of, whichever of the two is imported first."""
    pytest.importorskip("numba")
    folders = {}
    for side, factor in (("base", 3), ("head", 2)):
        at = tmp_path / side
        (at / ".git").mkdir(parents=True)
        ops = "from .factor import FACTOR\n\n\ndef scale(x):\n    return FACTOR * x\n"
        package = at / ("kernels/py/ours" if inside else "src/ours")
        write_files(package, {"__init__.py": "", "ops.py": ops, "factor.py": f"FACTOR = {factor}\n"})
        source = "ours/ops.py" if inside else "../../src/ours/ops.py"
        kernels = ON_CPU.format(name="scale", kind="Numba", file=source, more="")
        folders[side] = write_files(at / "kernels/py", {"suite.py": SUITE.format(kernels=kernels)})
    pair = Pair(folders["base"], folders["head"], tmp_path / "scratch", "cpu:0")
    compare = protocol.Compare(pair=pair.of("scale", n=1000), seed=1, order_seed=1, settings=PairSettings())
    base, head = (pair.worker(side).turns for side in ("base", "head"))
    head.join(protocol.Join(compare=compare, side="head"))
    assert head.verify(protocol.Verify()).digest
    base.join(protocol.Join(compare=compare, side="base"))
    with pytest.raises(HarnessError) as caught:
        base.verify(protocol.Verify())
    assert (caught.value.side, caught.value.reason) == ("base", "wrong-result")
    assert not pair.built(compare.pair).identical


@pytest.mark.parametrize(
    ("changed", "identical"),
    [
        ("# why\nfrom helper import twice\n\n\ndef scale(x):\n    return twice( x )\n", True),
        ("from helper import twice\n\n\ndef scale(x):\n    return twice(x) + 0\n", False),
        ("# __file__\nfrom helper import twice\n\n\ndef scale(x):\n    return twice(x)\n", False),
    ],
    ids=["a comment", "a term", "one that may know its lines"],
)
def test_a_function_is_the_same_where_all_python_says_the_same(tmp_path, changed, identical):
    pytest.importorskip("numba")
    was = "from helper import twice\n\n\ndef scale(x):\n    return twice(x)\n"
    helper = {"helper.py": "def twice(x):\n    return 2 * x\n"}
    folders = {
        side: suite_of(tmp_path / side, ["scale"], {"ops.py": text, **helper})
        for side, text in (("base", was), ("head", changed))
    }
    found = built(tmp_path, folders)
    assert (found.base.reason, found.head.reason, found.identical) == ("", "", identical)


def test_what_numba_and_cupy_compiled_is_told():
    """The stand-ins have the attributes of the libraries' objects; the libraries need a card."""
    compiled = SimpleNamespace(regs_per_thread=18, local_mem_per_thread=8, shared_mem_per_block=64)
    kernel = SimpleNamespace(
        py_func=bound,
        overloads={("f4",): compiled},
        get_regs_per_thread=None,
        inspect_asm=lambda: {("f4",): "ptx"},
    )
    (told,) = object.__new__(Numba).kernels(kernel)
    assert (told.name, told.registers, told.spilled_bytes, told.shared_bytes) == ("bound", 18, 8, 64)
    assert told.code_sha256 == hashlib.sha256(b"ptx").hexdigest()
    cupy: Any = object.__new__(Cupy)
    cupy.cupy = SimpleNamespace(RawKernel=SimpleNamespace)
    raw = SimpleNamespace(name="raw", num_regs=20, local_size_bytes=0, shared_size_bytes=32)
    function = eval("lambda x: raw(x)", {"raw": raw})
    (told,) = cupy.kernels(function)
    assert (told.name, told.registers, told.spilled_bytes, told.shared_bytes) == ("raw", 20, 0, 32)


class RawKernel:
    """CuPy's, which takes Python's numbers for 64 bits, and others in their width."""

    def __init__(self, code: str, name: str) -> None:
        self.given: tuple[Any, ...] = ()

    def __call__(self, grid: Any, block: Any, given: tuple[Any, ...], shared_mem: int) -> None:
        self.given = given


def test_a_kernel_gets_numbers_in_the_width_that_it_declares(tmp_path, monkeypatch):
    cupy = SimpleNamespace(
        RawKernel=RawKernel,
        cuda=SimpleNamespace(ExternalStream=lambda stream, index: nullcontext()),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    )
    monkeypatch.setitem(sys.modules, "cupy", cast("Any", cupy))
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "import cupy\n\nkernel = cupy.RawKernel('', 'kernel')\n"
    file = write_files(tmp_path, {"raw_numbers.py": text}) / "raw_numbers.py"
    numbers = np.float32(2.5), np.int32(7), np.int64(2**40), numpy_dtype("bfloat16").type(1)
    parameters = tuple(Parameter(f"p{at}", each.dtype.name) for at, each in enumerate(numbers))
    launch = Launch(grid=(1, 1, 1), block=(1, 1, 1))
    call = PythonCall("cupy", file, "kernel", parameters, (), {}, tmp_path, "", launch)
    function = FrameworkFunction(call, ExecutionContext(index=1))
    function(numbers)
    given = cast("Any", call.load()).given
    assert given == (2.5, 7, 2**40, 0x3F80)
    assert [each.dtype.name for each in given] == ["float32", "int32", "int64", "uint16"]


class TorchCuda:
    """PyTorch's pools of memory, each of the card that is current when it is made."""

    def __init__(self) -> None:
        self.current = 1
        self.used: list[tuple[int, int]] = []

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        yield
        self.current = before

    def MemPool(self) -> int:  # noqa: N802
        return self.current

    @contextmanager
    def use_mem_pool(self, pool: int, index: int) -> Iterator[None]:
        self.used.append((pool, index))
        yield
        self.used.remove((pool, index))


@pytest.mark.parametrize(("cards", "used"), [(1, [(1, 1)]), (2, [(1, 1), (2, 2)])])
def test_each_card_of_a_graph_has_its_own_pool_of_memory(cards, used):
    torch: Any = object.__new__(Torch)
    torch.context, torch._pools, cuda = ExecutionContext(index=1, cards=cards), {}, TorchCuda()
    torch.torch = SimpleNamespace(cuda=cuda)
    for _ in range(2):
        with torch.pooled():
            assert cuda.used == used
        assert (cuda.used, cuda.current) == ([], 1)


TORCH = """\
import torch


def given(x, y):
    torch.mul(x, 2, out=y)


def returned(x):
    return {"y": 2 * x}


def lazily_negated(x):
    return torch._neg_view(-2 * x)


class Late(torch.Tensor):
    pass


def late(x):
    return (2 * x).as_subclass(Late)
"""


def test_torch_gets_tensors_of_the_same_memory(tmp_path):
    pytest.importorskip("torch")
    names = ["given", "returned", "lazily_negated", "late"]
    rows = checked(suite_of(tmp_path / "py", names, {"ops.py": TORCH}, "Torch", "dtype='bfloat16'"))
    assert [status for status, _, _ in rows] == ["verified", "verified", "failed", "failed"], rows
    assert "not in row order in memory" in rows[2][2]
    assert "is a ops.Late; expected a torch.Tensor" in rows[3][2]


TRITON = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def launched(x, y, BLOCK=64):
    n = x.numel()
    kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
"""


def test_triton_launches_on_torchs_tensors(tmp_path):
    """By Triton's interpreter, which takes its place where there is no card."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    macros = "macros={'BLOCK': 128}, grid=8, block=1"
    folder = suite_of(tmp_path / "py", ["launched", "kernel"], {"k.py": TRITON}, "Triton", macros)
    without = suite_of(tmp_path / "without", ["kernel"], {"k.py": TRITON}, "Triton")
    code = (
        "import pathlib; from tests.test_python_functions import checked; "
        f"print(*checked(pathlib.Path({str(folder)!r})), *checked(pathlib.Path({str(without)!r})), sep='\\n')"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": IMPORT_PATH}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    rows = done.stdout.strip().splitlines()
    assert rows[:2] == ["('verified', '', '')"] * 2, done.stderr
    assert "kernel of k.py is a kernel, not a function that launches one" in rows[2]
    assert "set TRITON_INTERPRET=1" in checked(without)[0][2]


def test_a_lock_that_a_killed_build_left_behind_is_removed(tmp_path, monkeypatch):
    """PyTorch before 2.14 waits for its file to go, and nobody would remove it."""
    torch: Any = object.__new__(Torch)
    torch.torch = SimpleNamespace(_C=SimpleNamespace(_dispatch_get_all_op_names=list))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    call = cast("PythonCall", SimpleNamespace(root=tmp_path / "suite"))
    with torch.loading(call):
        place = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    lock = write_files(place / "ours", {"lock": ""}) / "lock"
    with torch.loading(call):
        assert not lock.exists()
        other = os.open(place, os.O_RDONLY)
        assert not try_lock(other)  # whoever else builds there waits, and finds no lock of ours to remove
    os.close(other)
