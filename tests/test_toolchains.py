"""Comparing two toolchains on one source: how they are found, and what is said of them."""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.device import toolchains
from harness.device.backends import cubin, nvcc
from harness.errors import BuildError, UsageError
from harness.judgement.statistics.paired import log_ratios
from harness.records.record_files import read_comparison
from harness.records.types import Comparison
from harness.report.words.of_verdict import toolchain_labels
from harness.suite.sources import Program
from harness.system.cache import BinaryCache
from tests.support import device_is_missing, write_files, write_null_script

KERNEL = Program(
    name="toy.twice",
    function="twice",
    text="__global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n",
)
SUITE = """\
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite


class Twice(Problem):
    n = Axis(default=(64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x

    def integer_bound(self, case):
        return 100


def function(case, stream):
    return lambda x, y, n: None


suite = Suite("toy", Twice(), headline="GB/s", kernels=[
    Kernel("compiled", "twice.cu", block=64, grid=1),
    Kernel("called", {"cpu": HostFunction(function)}),
])
"""


def test_toolchains_are_told_by_what_sets_them_apart():
    def told(base: str, head: str) -> tuple[str, str] | None:
        toolchains = {"base": SimpleNamespace(compiler=base), "head": SimpleNamespace(compiler=head)}
        settings = {"base_toolchain": "/one", "head_toolchain": "/two"}
        return toolchain_labels(cast("Comparison", SimpleNamespace(toolchains=toolchains, settings=settings)))

    python = "Python 3.12.3, torch 2.11.0, triton"
    assert told("nvcc 13.0, V13.0.8", "nvcc 13.0, V13.0.9") == ("nvcc 13.0, V13.0.8", "nvcc 13.0, V13.0.9")
    assert told(f"{python} 3.6.0", f"{python} 3.7.0") == ("triton 3.6.0", "triton 3.7.0")
    assert told(f"{python} 3.6.0", f"{python} 3.6.0") == ("Python 3.12.3 (/one)", "Python 3.12.3 (/two)")
    assert told(f"{python} 3.6.0, jax 1", f"{python} 3.6.0") == ("jax 1", "Python 3.12.3 (/two)")


def fake_nvcc(folder: Path, version: str, makes: str = "") -> Path:
    """A CUDA folder, whose nvcc tells a version and makes the same of everything."""
    file = folder / "bin" / "nvcc"
    file.parent.mkdir(parents=True)
    file.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then\n'
        f'  echo "Cuda compilation tools, release {version.rpartition(".")[0]}, V{version}"; exit\nfi\n'
        f'while [ "$1" != -o ]; do shift; done\nprintf "%s" "{makes}" > "$2"\n'
    )
    file.chmod(0o755)
    return folder


def environment(folder: Path) -> Path:
    """The environment that runs the tests, again, under another name."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    if (settings := Path(sys.prefix, "pyvenv.cfg")).is_file():
        shutil.copy(settings, folder)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A suite that is in no repository."""
    folder = write_files(
        tmp_path / "project",
        {
            "kernels/toy/suite.py": SUITE,
            "kernels/toy/twice.cu": "#define NULL_DEVICE_NS 1000000\n" + KERNEL.text,
        },
    )
    monkeypatch.chdir(folder)
    return folder


def test_a_toolchain_is_found_by_its_file_folder_environment_or_version(tmp_path, monkeypatch):
    cuda = fake_nvcc(tmp_path / "cuda", "11.8.89")
    file = str(cuda / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(cuda))
    for given in (file, str(cuda), "11.8", "11", "11.8.89"):
        found = toolchains.find(given)
        assert (found.given, found.nvcc, found.python) == (given, file, "")
        assert found.record.compiler == "nvcc 11.8, V11.8.89"
    for given in (sys.prefix, sys.executable):
        found = toolchains.find(given)
        assert (Path(found.python).parent, found.missing) == (Path(sys.executable).parent, ())
        assert f"Python {sys.version.split()[0]}" in found.record.compiler
        assert found.nvcc == (nvcc.packaged(nvcc.PACKAGE, "nvcc") or "")


def test_what_is_no_toolchain_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(fake_nvcc(tmp_path / "cuda", "11.8.89")))
    mute = fake_nvcc(tmp_path / "mute", "1.2") / "bin" / "nvcc"
    mute.write_text("#!/bin/sh\n")
    broken = write_files(tmp_path / "venv", {"bin/python": "#!/bin/sh\nexit 3\n"})
    (broken / "bin" / "python").chmod(0o755)
    (tmp_path / "nvcc").write_text("no program")
    told = {
        str(tmp_path / "nothing"): "expected an nvcc, a CUDA folder",
        "10.1": "no nvcc of this version",
        str(mute): "does not tell a version",
        str(broken): "does not run as Python 3 does",
        str(tmp_path / "nvcc"): "cannot be run",
    }
    for given, words in told.items():
        with pytest.raises(UsageError, match=words):
            toolchains.find(given)
    (tmp_path / "nvcc").chmod(0o755)
    with pytest.raises(BuildError, match=r"nvcc cannot be run: Exec format error\. Put one"):
        nvcc.version(str(tmp_path / "nvcc"))
    with pytest.raises(UsageError, match=r"11\.8\.89"):
        toolchains.find("10.1")


def made_for_sm_86(program: Program, compiled: list[str], options: tuple[str, ...]) -> bytes:
    compiled.append(program.compiler)
    return nvcc.cubin(program, options, "sm_86")[0]


def test_two_compilers_of_one_version_are_kept_apart(tmp_path):
    """One compiler may be patched, so the two never share a binary or a place in the cache."""
    made, compiled = {}, list[str]()
    for name in ("one", "other"):
        program = replace(KERNEL, compiler=str(fake_nvcc(tmp_path / name, "11.8.89", name) / "bin" / "nvcc"))
        for _ in range(2):
            made[name] = nvcc.through_cache(
                BinaryCache(tmp_path / "cache"),
                program,
                (),
                "sm_86",
                partial(made_for_sm_86, program, compiled),
            )
    assert made == {"one": b"one", "other": b"other"}
    assert len(compiled) == 2


def needs_nvcc() -> None:
    if not nvcc.version():
        device_is_missing("nvcc", "nvcc is not on PATH, and the extra 'static' is not installed")


def test_what_a_compiler_notes_of_itself_is_no_difference_of_code():
    needs_nvcc()
    binary, _ = nvcc.cubin(KERNEL, nvcc.STANDARD, "sm_86")
    same = cubin.code_of_any_compiler(binary)
    version = binary.index(b"\x04\x37\x04\x00") + 4
    newer = binary[:version] + b"\x99" + binary[version + 1 :]
    assert cubin.code_sha256(newer) != cubin.code_sha256(binary)
    assert cubin.code_of_any_compiler(newer) == same != ""
    registers = binary.index(b"\x04\x2f\x08\x00") + 8
    assert cubin.code_of_any_compiler(binary[:registers] + b"\x77" + binary[registers + 1 :]) != same
    other, _ = nvcc.cubin(replace(KERNEL, text=KERNEL.text.replace("2 *", "3 *")), nvcc.STANDARD, "sm_86")
    assert cubin.code_of_any_compiler(other) != same
    assert (
        cubin.code_of_any_compiler(b"\x7fELF\x02\x01" + b"\xff" * 90) == cubin.code_of_any_compiler(b"") == ""
    )


def test_two_real_compilers_agree_on_a_copy():
    """Needs two installed versions. Notes that differ between them are left out, on every architecture."""
    versions = {nvcc.version(path): path for path in toolchains._installed()}
    if len(versions) < 2:
        pytest.skip("There are no two versions of nvcc here.")
    for arch in ("sm_90",):
        binaries = [
            nvcc.cubin(replace(KERNEL, compiler=path), nvcc.STANDARD, arch)[0] for path in versions.values()
        ]
        assert len({*map(cubin.code_of_any_compiler, binaries)}) == 1
        assert len({*map(cubin.code_sha256, binaries)}) > 1


def test_a_slower_compiler_is_a_regression_and_the_same_code_is_identical(
    harness, project, tmp_path, monkeypatch
):
    old, new = (str(fake_nvcc(tmp_path / name, f"{name}.1")) for name in ("12.0", "13.0"))
    script = {"compilers": {f"{new}/bin/nvcc": 1.1}}
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    done = harness("compare", "--toolchain", old, "--toolchain", new, "--device", "null", "--json")
    [result] = done.json
    [verdict] = result["verdicts"]
    assert (done.status, verdict["status"], verdict["case"]) == (1, "regression", "toy.compiled[n=64]")
    assert verdict["time"]["effect"] == pytest.approx(0.1)
    assert result["left_out"] == [
        "called is a function of Python, which no nvcc compiles: name two Python environments."
    ]
    read = read_comparison(Path(result["record"])).comparison
    assert [read.toolchains[side].compiler for side in ("base", "head")] == [
        "nvcc 12.0, V12.0.1",
        "nvcc 13.0, V13.0.1",
    ]
    assert (read.settings["base_toolchain"], read.settings["head_toolchain"]) == (old, new)
    done = harness("rejudge", result["record"])
    assert "toy at no commit: nvcc 12.0, V12.0.1 against nvcc 13.0, V13.0.1 on null" in done.out
    done = harness("compare", "--toolchain", old, "--toolchain", old, "compiled", "--device", "null")
    assert f"nvcc 12.0, V12.0.1 ({old}) against nvcc 12.0, V12.0.1 ({old})" in done.out.replace("\n", " ")
    assert "1 identical. 0.0 s of device time. Exit status 0." in done.out


def test_two_environments_run_a_function_in_turns(harness, project, tmp_path, monkeypatch):
    old, new = (environment(tmp_path / name) for name in ("old", "new"))
    script = {"compilers": {str(new / "bin" / "python"): 1.5}}
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", script))
    loaded = tmp_path / "loaded"
    suite = project / "kernels" / "toy" / "suite.py"
    suite.write_text(f"import sys\n\nprint(sys.prefix, file=open({str(loaded)!r}, 'a'))\n{SUITE}")
    done = harness(
        *("compare", "--toolchain", str(old), "--toolchain", str(new), "called"),
        *("--device", "null", "--json", "--budget", "0.001"),  # one pair of processes
    )
    [result] = done.json
    assert (done.status, result["verdicts"][0]["reason"]) == (4, "budget-spent"), done.err
    [block] = [each.block for each in read_comparison(Path(result["record"])).blocks]
    assert block.in_turns
    assert {quad.order for quad in block.quads} == {"ABBA", "BAAB"}
    ratios = log_ratios([quad.order for quad in block.quads], [quad.times_ns for quad in block.quads])
    assert ratios == pytest.approx(math.log(1.5))
    of_sides = [line for line in loaded.read_text().splitlines() if line in (str(old), str(new))]
    assert of_sides == [str(new), str(old)]  # each loads the suite of its own side alone


MEETING = """
def function(case, stream):
    (meeting := Path(__file__).parent / "meeting").mkdir(exist_ok=True)
    (meeting / str(os.getpid())).touch()
    until = time.monotonic() + 20
    while len([*meeting.iterdir()]) < 2:
        assert time.monotonic() < until, "nobody else came"
        time.sleep(0.01)
    return lambda x, y, n: np.multiply(x, 2, out=y)
"""


def test_both_sides_of_turns_are_built_at_once(harness, project, tmp_path):
    """An extension takes a minute to build, and what a function imports takes seconds."""
    suite = project / "kernels" / "toy" / "suite.py"
    text = SUITE.replace("\ndef function(case, stream):\n    return lambda x, y, n: None\n", MEETING)
    imports = "import os\nimport time\nfrom pathlib import Path\n\nimport numpy as np\n"
    suite.write_text(imports + text)
    sides = (str(environment(tmp_path / name)) for name in ("old", "new"))
    given = [word for side in sides for word in ("--toolchain", side)]
    done = harness("compare", *given, "called", "--device", "cpu:0", "--json", "--budget", "0.001")
    assert (done.status, done.json[0]["verdicts"][0]["reason"]) == (4, "budget-spent"), done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--toolchain", "CUDA"), "--toolchain is given twice"),
        (("--toolchain", "CUDA", "--toolchain", "CUDA", "HEAD~1..HEAD"), "is two commits"),
        (("--toolchain", "CUDA", "--toolchain", "BARE"), "has no nvcc, which the other is"),
        (("--toolchain", "BARE", "--toolchain", "BARE", "called"), "lacks msgspec"),
        (("--toolchain", "CUDA", "--toolchain", "CUDA", "--device", "cpu:0"), "compiles for cuda alone"),
        (("--toolchain", "CUDA", "--toolchain", "CUDA", "--with-command", "x"), "give one of them"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(harness, project, tmp_path, arguments, told):
    answer = {"version": "3.12.0", "packages": {}, "nvcc": "", "missing": ["msgspec"]}
    bare = write_files(tmp_path / "bare", {"bin/python": f"#!/bin/sh\necho '{json.dumps(answer)}'\n"})
    (bare / "bin" / "python").chmod(0o755)
    paths = {"CUDA": str(fake_nvcc(tmp_path / "cuda", "12.0.1")), "BARE": str(bare)}
    given = [paths.get(word, word) for word in arguments]
    device = () if "--device" in given else ("--device", "null")
    done = harness("compare", *given, *device)
    assert (done.status, told in done.err) == (2, True), done.err


def test_a_missing_header_of_a_library_says_what_to_install():
    needs_nvcc()
    program = replace(KERNEL, text="#include <cublas_v9.h>\n" + KERNEL.text)
    with pytest.raises(BuildError, match=r"cublas_v9\.h comes with another .*(nvidia-cublas|libcublas)"):
        nvcc.cubin(program, nvcc.STANDARD, "sm_86")
    with pytest.raises(BuildError) as caught:
        nvcc.cubin(replace(KERNEL, text="#include <ours.h>\n"), nvcc.STANDARD, "sm_86")
    assert "comes with" not in caught.value.message
