"""Vendors' kernels: how cuBLAS is called, what CUTLASS is built from, ours held against them; without a card.

A stand-in for nvmath-python computes in NumPy what cuBLAS documents, from the addresses that it is given:
columns one after the other. So a wrong order, a wrong transposition or a wrong type shows in the result.
"""

from __future__ import annotations

import ctypes
import dataclasses
import datetime as dt
import json
import sys
from enum import IntEnum
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.errors import SuiteError
from harness.history.row_summary import summary_of
from harness.measure import verify
from harness.measure.paired_kernels import MOST_QUADS, TIME_S, pair_settings, share_of
from harness.measure.quads import PairSettings
from harness.measure.timing import MeasureSettings
from harness.records.record_files import read_run
from harness.records.types import PairedBlock, Quad
from harness.report.site.publishing import FOLDER, publish_pages
from harness.report.terminal.run_tables import print_out, run_tables
from harness.run.run import Session, SessionSettings
from harness.suite.kernel import HostFunction, HostLibrary
from harness.suite.layout import numpy_dtype
from harness.suite.loader import load, load_folder
from harness.suite.planning import plan
from harness.suite.sources import lacking, program
from tests import synthetic_history as synthetic
from tests.support import KERNELS, Recorder, caller, write_files, write_null_script

MATMUL = KERNELS / "matmul"
SIZES = {"m": 5, "n": 3, "k": 7}
QUICK = MeasureSettings(min_time_s=0.01, warmup_min_s=0.01, warmup_max_s=0.05, max_time_s=0.1)

cublas_kernels = pytest.mark.parametrize("name", ["cublas", "cublas_tf32", "cublas_f16", "cublas_bf16"])


# cuBLAS


class Operation(IntEnum):
    N = 0
    T = 1


class ComputeType(IntEnum):
    COMPUTE_32F = 68
    COMPUTE_32F_FAST_TF32 = 77


class Math(IntEnum):
    DEFAULT_MATH = 0
    TF32_TENSOR_OP_MATH = 3


class GemmAlgo(IntEnum):
    DEFAULT = -1


def _cut(values):
    """Float32 as a tensor core reads it: 10 bits of the fraction, the others cut off."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _columns(address: int, rows: int, columns: int, leading: int, dtype: Any) -> Any:
    """A matrix at an address whose columns lie `leading` elements apart."""
    assert leading >= rows
    dtype = np.dtype(dtype)
    held = (ctypes.c_byte * (leading * columns * dtype.itemsize)).from_address(address)
    return np.frombuffer(held, dtype).reshape(columns, leading)[:, :rows].T


class Bound(ModuleType):
    """The functions of nvmath.bindings.cublas that the suite uses, on host memory."""

    Operation, ComputeType, Math, GemmAlgo = Operation, ComputeType, Math, GemmAlgo

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublas")
        self.said: list[tuple[Any, ...]] = []

    def create(self) -> int:
        self.said.append(("create",))
        return 4711

    def set_stream(self, handle: int, stream: int) -> None:
        self.said.append(("stream", handle, stream))

    def set_math_mode(self, handle: int, mode: int) -> None:
        self.said.append(("math", handle, Math(mode)))

    def gemm_ex(
        self, handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,
        compute, algo,
    ):  # fmt: skip
        self.said.append(("gemm", handle, ComputeType(compute), GemmAlgo(algo)))
        types = {0: np.dtype("float32"), 2: np.dtype("float16"), 14: numpy_dtype("bfloat16")}
        assert ctype == 0
        assert atype == btype
        factors = []
        for operation, address, rows, columns, leading in ((transa, a, m, k, lda), (transb, b, k, n, ldb)):
            plain = Operation(operation) is Operation.N
            shape = (rows, columns) if plain else (columns, rows)
            held = _columns(address, *shape, leading, types[atype])
            held = held if plain else held.T
            held = np.ascontiguousarray(held).astype(np.float32)
            factors.append(_cut(held) if ComputeType(compute) is ComputeType.COMPUTE_32F_FAST_TF32 else held)
        scale, keep = (ctypes.c_float.from_address(pointer).value for pointer in (alpha, beta))
        out = _columns(c, m, n, ldc, "float32")
        kept = keep * out if keep else 0.0
        out[...] = scale * (factors[0] @ factors[1]) + kept


@pytest.fixture
def bound(monkeypatch):
    pytest.importorskip("ml_dtypes")
    stand_in = Bound()
    bindings, nvmath = ModuleType("nvmath.bindings"), ModuleType("nvmath")
    bindings.cublas = nvmath.bindings = stand_in  # type: ignore[attr-defined]
    nvmath.bindings = bindings  # type: ignore[attr-defined]
    for name, module in {
        "nvmath": nvmath,
        "nvmath.bindings": bindings,
        "nvmath.bindings.cublas": stand_in,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return stand_in


def called(name: str, data: str = "random"):
    """A kernel's call on host arrays: its case, what it wrote, and what would have been right."""
    suite = load_folder(MATMUL)
    kernel = suite.by_name[name]
    case = suite.case(kernel, SIZES)
    source = kernel.sources["cuda"]
    assert isinstance(source, HostFunction)
    rng = np.random.default_rng(3)
    inputs = (
        verify.integer_data(suite.problem, case, 3, rng)
        if data == "integers"
        else suite.problem.data(case, rng)
    )
    c = np.full((SIZES["m"], SIZES["n"]), np.nan, np.float32)
    call = source.function(case, 99)
    call(*(array.ctypes.data for array in (*inputs.values(), c)), *SIZES.values())
    return case, c, verify.reference_of(suite.problem, case, inputs)


@cublas_kernels
def test_cublas_is_asked_for_the_product_of_rows(bound, name):
    _, found, (reference, tolerance) = called(name)
    assert not verify.compare(found, reference["c"], tolerance).wrong


@cublas_kernels
def test_on_small_integers_every_type_is_exact(bound, name):
    _, found, (reference, _) = called(name, "integers")
    assert np.array_equal(found, reference["c"])


@cublas_kernels
def test_tf32_is_used_only_where_it_is_asked_for(bound, name):
    called(name)
    wanted = ComputeType.COMPUTE_32F_FAST_TF32 if name == "cublas_tf32" else ComputeType.COMPUTE_32F
    assert bound.said == [
        ("create",),
        ("stream", 4711, 99),
        ("math", 4711, Math.DEFAULT_MATH),
        ("gemm", 4711, wanted, GemmAlgo.DEFAULT),
    ]


def test_a_stream_has_one_handle(bound):
    suite = load_folder(MATMUL)
    source = suite.by_name["cublas"].sources["cuda"]
    assert isinstance(source, HostFunction)
    for size in (1, 2):
        source.function(suite.case(suite.by_name["cublas"], dict.fromkeys("mnk", size)), 5)
    assert bound.said.count(("create",)) == 1


def test_a_cublas_that_uses_tf32_unasked_fails_verification(bound, monkeypatch):
    monkeypatch.setattr(Bound, "ComputeType", type("All", (), {"COMPUTE_32F": 77}))
    case, found, (reference, tolerance) = called("cublas")
    assert case.dtype == "float32"
    assert verify.compare(found, reference["c"], tolerance).wrong > 0


def test_tf32_is_allowed_what_it_drops_and_no_more():
    """Values that lose the most: every fraction is ones, and all of it adds up."""
    suite = load_folder(MATMUL)
    case = suite.case(suite.by_name["cublas_tf32"], {"m": 1, "n": 1, "k": 64})
    worst = np.nextafter(np.float32(1 + 2**-10), np.float32(0))
    inputs = {"a": np.full((1, 64), worst), "b": np.full((64, 1), worst)}
    reference, tolerance = verify.reference_of(suite.problem, case, inputs)
    cut = (_cut(inputs["a"]) @ _cut(inputs["b"])).astype(np.float32)
    assert not verify.compare(cut, reference["c"], tolerance).wrong
    ratio = verify.compare(cut, reference["c"], tolerance).largest_ratio
    assert ratio is not None
    assert ratio > 0.9
    assert verify.compare((cut - np.float32(2**-3)), reference["c"], tolerance).wrong == 1


# CUTLASS


@pytest.mark.parametrize(
    ("sizes", "alignment"),
    [((512, 512, 512), 8), ((127, 64, 32), 8), ((128, 65, 64), 1), ((128, 64, 33), 1), ((8, 4, 8), 1)],
)
def test_cutlass_loads_one_by_one_where_rows_do_not_begin_at_16_bytes(sizes, alignment):
    suite = load_folder(MATMUL)
    case = suite.case(suite.by_name["cutlass_f16"], dict(zip("mnk", sizes, strict=True)))
    assert case.macros["ALIGNMENT"] == alignment


@pytest.fixture
def cutlass(tmp_path, monkeypatch):
    """A package nvidia-cutlass that must not be imported."""
    write_files(
        tmp_path,
        {
            "cutlass_library/__init__.py": "raise ImportError('it asks for more packages')\n",
            "cutlass_library/source/include/cutlass/cutlass.h": "// nothing\n",
            "nvidia_cutlass-4.2.0.0.dist-info/METADATA": (
                "Metadata-Version: 2.1\nName: nvidia-cutlass\nVersion: 4.2.0.0\n"
            ),
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cutlass_library", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["cutlass", "cutlass_f16"])
def test_cutlass_is_built_from_the_headers_of_its_package_without_importing_it(cutlass, name):
    suite = load_folder(MATMUL)
    kernel = suite.by_name[name]
    assert lacking(kernel, "cuda") == ""
    made = program(suite, kernel, suite.case(kernel, {"m": 64, "n": 64, "k": 64}), "cuda", "sm_90")
    assert made.kind == "library"
    assert f"-I{cutlass / 'cutlass_library' / 'source' / 'include'}" in made.options
    assert "-DNDEBUG" in made.options
    assert made.text.startswith("// nvidia-cutlass 4.2.0.0\n")
    assert f"int {made.function}(void *stream, " in made.text
    assert [parameter.name for parameter in made.parameters] == ["a", "b", "c", "m", "n", "k"]
    assert "cutlass_library" not in sys.modules


def test_the_numbers_that_cutlass_returns_have_sentences():
    source = load_folder(MATMUL).by_name["cutlass_f16"].sources["cuda"]
    assert isinstance(source, HostLibrary)
    assert "workspace" in source.errors[6]
    assert 0 not in source.errors


# Which is held against which


def test_a_kernel_is_held_against_the_first_library_of_its_type():
    suite = load_folder(MATMUL)
    held = {kernel.name: suite.library_for(kernel) for kernel in suite.kernels}
    assert {name: library and library.name for name, library in held.items()} == {
        kernel.name: {
            "float32": "cublas",
            "tf32": "cublas_tf32",
            "float16": "cublas_f16",
            "bfloat16": "cublas_bf16",
        }[kernel.dtype]
        for kernel in suite.kernels
    }


def test_a_suite_without_a_library_of_the_type_has_none():
    suite = load_folder(KERNELS / "copy")
    assert {suite.library_for(kernel) for kernel in suite.kernels} == {None}


@pytest.mark.parametrize("name", ["cublas", "cublas_bf16", "cutlass"])
def test_what_is_not_installed_is_told_with_what_to_do(monkeypatch, name):
    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("harness.system.packages.metadata.version", absent)
    told = lacking(load_folder(MATMUL).by_name[name], "cuda")
    package = "nvidia-cutlass" if name == "cutlass" else "nvmath-python"
    assert told.startswith(
        f"{name} needs the package {package}, which is not installed: pip install '{package}"
    )


# Types of elements


def test_types_that_numpy_has_no_name_for():
    pytest.importorskip("ml_dtypes")
    assert numpy_dtype("float16") == np.float16
    assert numpy_dtype("tf32") == np.float32
    assert numpy_dtype("bfloat16").itemsize == 2
    assert np.array([1.0 + 2**-9], "float32").astype(numpy_dtype("bfloat16"))[0] == 1.0
    with pytest.raises(SuiteError, match="dtype 'float17' is unknown: expected NumPy's name"):
        numpy_dtype("float17")


def test_bfloat16_without_its_package_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(SuiteError, match="bfloat16 needs the package ml-dtypes: pip install"):
        numpy_dtype("bfloat16")


# Ours held against a vendor's, on the null device

SUITE = """\
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite


class Double(Problem):
    n = Axis(default=(32, 64))
    x = Input("n")
    y = Output("n", dtype="float32")

    def reference(self, case, x):
        return 2 * x

    def flop(self, case):
        return case.n


def vendor(case, stream):
    raise AssertionError("the null device computes references")


suite = Suite(
    "tiny",
    Double(),
    kernels=[
        Kernel("plain", "k.cu", block=32, grid=1),
        Kernel("fast", "k.cu", block=32, grid=1),
        Kernel("half", "k.cu", block=32, grid=1, dtype="DTYPE"),
        Kernel("other", "k.cu", block=32, grid=1, dtype="DTYPE"),
        Kernel("vendor", HostFunction(vendor), library=True, requires=REQUIRES),
    ],
)
"""
TIMES = {"plain": 2000.0, "fast": 500.0, "half": 800.0, "other": 900.0, "vendor": 1000.0}


def held(
    tmp_path: Path,
    monkeypatch,
    *,
    kernels=(),
    dtype="float16",
    requires=None,
    faults=None,
    observer=None,
    **settings,
):
    """The rows of a run by kernel and size, and its result."""
    text = SUITE.replace("DTYPE", dtype).replace("REQUIRES", repr(requires))
    folder = tmp_path / "tiny"
    write_files(folder, {"suite.py": text, "k.cu": "// nothing\n"})
    script = {
        f"tiny.{name}": {"times_ns": [time_ns], "fault": (faults or {}).get(name, "")}
        for name, time_ns in TIMES.items()
    }
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    loaded = load(folder)
    given = SessionSettings(**{"device": "null", "measure": QUICK, "timeout_s": 20.0, **settings})
    with Session(loaded, given, observer or Recorder()) as session:
        result = session.run(plan(loaded.suite, kernels))
    return {(row.kernel, row.sizes["n"]): row for row in result.rows}, result


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of everything: its rows, and its result."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        return held(folder, patch, results=folder / "results")


def test_each_kernel_is_measured_in_turns_with_the_library(whole):
    rows, result = whole
    for name, time_ns in TIMES.items():
        for size in (32, 64):
            row = rows[name, size]
            assert row.measurement is not None
            assert set(row.measurement.times_ns) == {time_ns}
            assert row.library_missing == ""
            if name in ("half", "other"):
                assert row.library is None
                continue
            share = row.library
            assert share is not None
            assert share.kernel == "vendor"
            assert share.library_time_ns == 1000.0
            assert share.share == pytest.approx(1000.0 / time_ns)
            assert share.low is not None
            assert share.high is not None
            assert share.low < share.share < share.high < 1.015 * share.low
            assert share.quads == MOST_QUADS
            assert summary_of(row, result.run).library_percent == pytest.approx(1e5 / time_ns)
    assert result.path is not None
    assert read_run(result.path).rows == result.rows


def test_a_library_is_verified_in_full_once_a_run(tmp_path, monkeypatch, own_cache):
    """After its first process the same bits are enough; in between each kernel has its own check."""
    observer = Recorder()
    held(tmp_path, monkeypatch, observer=observer, kernels=("plain", "fast"))
    stages = " ".join(observer.stages).split("library")
    assert ["reference" in between for between in stages[1::2]] == [True, True, False, False]


def test_without_the_library_a_kernel_has_the_same_figures(tmp_path, monkeypatch, own_cache):
    rows, result = held(tmp_path, monkeypatch, kernels=("plain",), library=False)
    assert [(row.library, row.library_missing) for row in rows.values()] == [(None, "")] * 2
    assert {row.measurement and row.measurement.times_ns[0] for row in rows.values()} == {TIMES["plain"]}
    for table in run_tables(result):
        assert [column.name for column in table.shown if "vendor" in column.name] == []
        assert "library" not in table.caption


def test_verifying_alone_asks_no_library(tmp_path, monkeypatch, own_cache):
    rows, _ = held(tmp_path, monkeypatch, kernels=("plain",), measure=None)
    assert {(row.status, row.library, row.library_missing) for row in rows.values()} == {
        ("not-built", None, "")
    }


def test_a_library_that_cannot_run_there_is_why_there_is_no_share(tmp_path, monkeypatch, own_cache):
    rows, _ = held(tmp_path, monkeypatch, kernels=("plain", "half", "vendor"), requires="sm_80")
    assert rows["plain", 32].library is None
    assert rows["plain", 32].library_missing == "vendor needs CUDA (sm_80); null:0 is null."
    assert rows["half", 32].library_missing == ""
    assert (rows["vendor", 32].status, rows["vendor", 32].library_missing) == ("skipped", "")


def test_a_package_that_is_absent_is_why_there_is_no_share(tmp_path, monkeypatch, own_cache):
    sentence = "vendor needs the package vendored, which is not installed: pip install 'vendored'."
    monkeypatch.setattr(
        "harness.run.device_session.lacking",
        lambda kernel, backend: sentence if kernel.name == "vendor" else "",
    )
    rows, result = held(tmp_path, monkeypatch, kernels=("fast", "vendor"))
    assert rows["fast", 64].library_missing == sentence
    assert (rows["vendor", 64].status, rows["vendor", 64].reason) == ("skipped", "needs-package")
    for table in run_tables(result):
        assert f"% library: {sentence}" in table.caption


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong", "vendor: vendor gave a wrong result: 1 of 32 elements of y are wrong"),
        ("build", "vendor: tiny.vendor does not compile."),
        ("error", "vendor: The null device's script makes this launch fail."),
        ("crash", "vendor: The worker process was ended by SIGSEGV"),
    ],
)
def test_what_becomes_of_the_library_costs_no_figure(tmp_path, monkeypatch, own_cache, fault, words):
    rows, _ = held(tmp_path, monkeypatch, kernels=("plain",), faults={"vendor": fault})
    assert rows["plain", 32].library_missing.startswith(words)
    assert [(row.status, row.library, bool(row.library_missing)) for row in rows.values()] == [
        ("measured", None, True)
    ] * 2


def test_a_wrong_kernel_is_held_against_nothing(tmp_path, monkeypatch, own_cache):
    rows, _ = held(tmp_path, monkeypatch, kernels=("plain",), faults={"plain": "wrong"})
    row = rows["plain", 32]
    assert (row.status, row.reason, row.library, row.library_missing) == ("failed", "wrong-result", None, "")


def test_bfloat16_goes_through_a_run(tmp_path, monkeypatch, own_cache):
    """Its inputs are kept in a file between kernels, which does not know the type."""
    pytest.importorskip("ml_dtypes")
    rows, _ = held(tmp_path, monkeypatch, kernels=("half", "other"), dtype="bfloat16")
    for (_, size), row in rows.items():
        assert (row.status, row.dtype, row.message) == ("measured", "bfloat16", "")
        assert row.moved_bytes == size * (2 + 4)
    assert {name for name, _ in rows} == {"half", "other"}


# Tables


def test_the_ladder_has_a_column_of_the_library(whole, capsys):
    _, result = whole
    for table in run_tables(result):
        print_out(table)
    lines = capsys.readouterr().out.splitlines()
    assert "% vendor" in lines[1]
    assert [line.split()[0] for line in lines[2:7]] == list(TIMES)
    place = lines[1].index("% vendor")
    shares = [line[place : place + len("% vendor")].strip() for line in lines[2:7]]
    assert shares == ["50.0", "200", "", "", "100"]


def test_under_the_table_stands_what_is_held_against_what(whole, capsys):
    _, result = whole
    plain = result.rows[0]
    assert plain.library is not None
    second = dataclasses.replace(
        plain,
        kernel="other",
        dtype="float16",
        library=dataclasses.replace(plain.library, kernel="vendor_f16"),
    )
    missing = dataclasses.replace(plain, kernel="third", library=None, library_missing="Why not: [none].")
    mixed = dataclasses.replace(result, rows=(plain, second, missing, missing))
    table = next(iter(run_tables(mixed)))
    print_out(table)
    shown = capsys.readouterr().out.splitlines()
    assert "% vendor" in shown[1]
    assert shown[-2:] == [
        "% vendor: float32 against vendor, float16 against vendor_f16.",
        "% vendor: Why not: [none].",
    ]


def test_a_cards_page_has_the_share_of_the_newest_record(tmp_path, monkeypatch, own_cache):
    """A history of records into which shares were written, as if they had been measured."""
    naive, tiled = "naive", "tiled"
    given = synthetic.History(
        commits=3,
        cards=synthetic.CARDS[:1],
        suites=(synthetic.Suite(kernels=(naive, tiled), sizes=(1024,)),),
        tracks=("gflops",),
        records=True,
    )
    written = synthetic.write(given, tmp_path / "made")
    share = {"kernel": "cublas", "share": 0.25, "quads": 1, "library_time_ns": 5.0}
    added = {naive: {"library": share}, tiled: {"library_missing": "Not there."}}
    newest = max(written.results.rglob("*.jsonl"))
    lines = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "row" in line:
            line["row"] |= added[line["row"]["kernel"]]
    newest.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    html = written.repository / "html"
    publish_pages(written.results, written.repository, html, project="p", today=dt.date(2026, 6, 1))
    [card] = (html / FOLDER / "api" / "cards").glob("*.json")
    ladder = json.loads(card.read_text(encoding="utf-8"))["ladder"]
    assert [(one["library_share"], one["library"], one["library_missing"]) for one in ladder] == [
        (0.25, "cublas", ""),
        (None, "", "Not there."),
    ]
    shown = [
        json.loads(run.read_text(encoding="utf-8")) for run in (html / FOLDER / "api" / "runs").glob("*.json")
    ]
    assert sorted(str([row["library_share"] for row in run["rows"]]) for run in shown) == [
        "[0.25, None]",
        "[None, None]",
        "[None, None]",
    ]


def test_the_command_measures_no_library_where_told(tmp_path, monkeypatch, own_cache, capsys):
    write_files(
        tmp_path,
        {
            "harness.toml": "suites = ['tiny']\n",
            "tiny/suite.py": SUITE.replace("DTYPE", "float16").replace("REQUIRES", "None"),
            "tiny/k.cu": "// nothing\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    call = caller(capsys, monkeypatch)
    arguments = (
        "run",
        "plain",
        "--device",
        "null",
        "--size",
        "32",
        "--no-save",
        "--json",
        "--max-time",
        "0.1",
    )
    with_library = call(*arguments).json[0]["rows"][0]
    without = call(*arguments, "--no-library").json[0]["rows"][0]
    assert with_library["row"]["library"]["kernel"] == "vendor"
    assert with_library["summary"]["library_percent"] > 0
    assert without["row"]["library"] is None
    assert without["summary"]["library_percent"] is None


# How many quads, and what they come to


@pytest.mark.parametrize(
    ("time_ns", "quads"), [(1e3, MOST_QUADS), (1e6, MOST_QUADS), (1e7, 7), (5e7, 1), (2.7e8, 1), (1e10, 1)]
)
def test_a_slow_kernel_is_held_against_the_library_for_fewer_quads(time_ns, quads):
    settings = pair_settings(time_ns, 500.0, "cold")
    assert (settings.min_quads, settings.max_quads, settings.l2) == (quads, quads, "cold")
    assert quads == 1 or 4 * time_ns * quads <= TIME_S * 1e9
    assert isinstance(settings, PairSettings)


def block_of(quads: list[tuple[str, tuple[float, float, float, float]]]) -> PairedBlock:
    return PairedBlock(
        quads=tuple(
            Quad(order=order, times_ns=times, started_ns=0, ended_ns=1)  # type: ignore[arg-type]
            for order, times in quads
        ),
        launches_per_slot=1,
        l2="hot",
        clock="scripted",
        tick_ns=1.0,
        warmup_s=0.0,
        settled=True,
        gpu_s=1.0,
    )


def test_a_share_is_the_librarys_time_over_ours_in_either_order():
    share = share_of("v", block_of([("ABBA", (4.0, 1.0, 1.0, 4.0)), ("BAAB", (1.0, 4.0, 4.0, 1.0))]))
    assert share.share == pytest.approx(0.25)
    assert share.library_time_ns == 1.0
    assert (share.low, share.high, share.quads) == (None, None, 2)


def test_what_drifts_through_a_quad_does_not_show_in_a_share():
    drift = [1.0, 1.01, 1.01**2, 1.01**3]
    quads = [
        (order, tuple(time * pace for time, pace in zip(times, drift, strict=True)))
        for order, times in (("ABBA", (2.0, 3.0, 3.0, 2.0)), ("BAAB", (3.0, 2.0, 2.0, 3.0)))
    ]
    assert share_of("v", block_of(quads)).share == pytest.approx(1.5)  # type: ignore[arg-type]


def test_an_interval_holds_the_share_and_grows_with_the_scatter():
    def share(scatter: float):
        quads = [("ABBA", (1.0, 2.0 + scatter * place, 2.0, 1.0)) for place in range(-4, 5)]
        return share_of("v", block_of(quads))

    narrow, wide = share(0.001), share(0.01)
    for found in (narrow, wide):
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.share < found.high
        assert found.low < 2.0 < found.high
    # Processes differ by themselves, however quiet one of them is.
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low) > 4 * 0.002
