"""Every face of every command, as reviewers last agreed to it: see tests/golden/expected.

`python -m tests.golden` renews the files.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest

from harness import cli
from harness.device.backends import Survey
from harness.records.types import Host
from harness.report.document.outcome import Links
from harness.report.pull_request.faces import faces
from harness.report.pull_request.machine_formats import code_quality, junit, openmetrics, sarif
from harness.report.pull_request.static_comment import static_comment
from tests import toy
from tests.benchmark_json import google_entry, google_file
from tests.commits import make_project, only
from tests.golden import normal
from tests.golden.expected import EXPECTED, RENEWED, hold
from tests.review_samples import LINKS, SAMPLES
from tests.support import Done, caller, commit_each, git, make_repository, write_files
from tests.sweeps import project as make_sweep
from tests.synthetic_history import (
    CARDS,
    DriverChange,
    Failed,
    History,
    Missing,
    Step,
    Suite,
    Throttle,
    Written,
    write,
)
from tests.test_doctor import CARD, CPU, REST, SOUND
from tests.test_github_static import REPORT as STATIC_REPORT
from tests.test_init_benchmarks import CL, DO_BENCH, INLINE, PYTEST
from tests.test_pytest_plugin import bed  # noqa: F401 - a fixture
from tests.test_rejudge import TILED, blocks, verdict
from tests.test_rejudge import written as record_of

pytest_plugins = ["pytester"]

Harness = Callable[..., Done]
NULL = ("--device", "null")


@pytest.fixture
def harness(capsys, monkeypatch, own_cache) -> Harness:
    """Calls `harness` in this process, on a terminal's 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return caller(capsys, monkeypatch)


def said(done: Done, *roots: Path) -> str:
    """Exit status, standard output and standard error of a command, as a reviewer reads them."""
    parts = {"standard output": done.out, "standard error": done.err}
    told = "".join(f"--- {name}\n{normal.text(part, *roots)}" for name, part in parts.items() if part)
    return f"--- exit status {done.status}\n{told}"


def both_forms(
    harness: Harness, *arguments: str, roots: tuple[Path, ...], in_json: tuple[str, ...] = ()
) -> dict[str, str]:
    """Text and JSON of a command, by the names of their files. `in_json` are further words for the JSON."""
    return {
        "terminal.txt": said(harness(*arguments), *roots),
        "out.json": normal.document(harness(*arguments, *in_json, "--json").json, *roots),
    }


# Help


def helps(command: click.Command, name: str, above: click.Context | None = None) -> dict[str, str]:
    """Help of a command and of every command below it, by the words that call it."""
    context = command.make_context(name, [], above, resilient_parsing=True)
    found = {context.command_path: f"{command.get_help(context)}\n"}
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            found |= helps(inner, below, context)
    return found


def test_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = helps(cli.cli, "harness")
    assert [line for text in found.values() for line in text.splitlines() if len(line) > 80] == []
    hold("help", {f"{words.replace(' ', '-')}.txt": text for words, text in found.items()})


# A repository of kernels, and the suites that are proposed for it


SCALE = """\
#include <cstdio>
__global__ void scale(const float *in, float *out, int n, float by)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * in[i];
}
void run(const float *x, float *y, int n) { scale<<<(n + 255) / 256, 256>>>(x, y, n, 3.0f); }
"""
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def add(x, y, out):
    n = out.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""


def test_init(harness, tmp_path, monkeypatch):
    """Benchmarks, kernels of CUDA, OpenCL and Triton, and what is left out: HIP, Pallas, another encoding."""
    files = {
        "cuda/scale.cu": SCALE,
        "hip/scale.cu": f"#include <hip/hip_runtime.h>\n{SCALE}",
        "add.py": TRITON,
        "scale.cl": CL,
        "bench/bench_add.py": DO_BENCH,
        "bench/inline.py": INLINE,
        "tests/test_add.py": PYTEST,
        "pallas_add.py": "from jax.experimental import pallas as pl\n",
    }
    root = write_files(make_repository(tmp_path / "theirs"), files)
    (root / "latin.cu").write_bytes(SCALE.replace("scale", "latin").encode() + b"// gr\xf6\xdfer\n")
    monkeypatch.chdir(root)
    outputs = both_forms(harness, "init", "--yes", "--dry-run", roots=(root,))
    outputs["written.txt"] = said(harness("init", "--yes"), root)
    for path in sorted((root / "perf").rglob("*.py")):
        # Not as a file of Python: mypy and ruff would take it for ours.
        outputs[f"{path.relative_to(root).as_posix()}.txt"] = normal.text(path.read_text("utf-8"), root)
    hold("init", outputs)


# Kernels measured on the null device, whose times their sources say


KERNELS = (
    *("slower", "faster", "changed", "untouched", "commented", "relaunched", "gone", "fresh"),
    *("build_head", "build_base", "wrong_head", "crash_head", "error_head", "retyped"),
    *("at_tolerance", "unfit"),
)
IN_JSON = tuple(f"toy.{name}" for name in ("slower", "gone", "fresh", "wrong_head", "retyped", "unfit"))
"""Kernels whose JSON differs in form; that of the others differs in its words, which the text holds."""
IN_JSON_OF_HEAD = tuple(name for name in IN_JSON if name != "toy.gone")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("kernels") / "project", only(*KERNELS))


@pytest.fixture
def kernels(repository, monkeypatch):
    """The repository of these kernels, which is also the current folder."""
    monkeypatch.chdir(repository)
    return repository


def test_list(harness, kernels):
    hold("list", both_forms(harness, "list", roots=(kernels,)))


def test_check(harness, kernels):
    hold("check", both_forms(harness, "check", *NULL, roots=(kernels,), in_json=IN_JSON_OF_HEAD))


def test_run(harness, kernels):
    hold("run", both_forms(harness, "run", *NULL, "--no-save", roots=(kernels,), in_json=IN_JSON_OF_HEAD))


def test_compare(harness, kernels):
    outputs = both_forms(harness, "compare", *NULL, "HEAD~1", roots=(kernels,), in_json=IN_JSON)
    twins = harness("compare", *NULL, "--twins", "--no-save", "HEAD~1", "toy.slower")
    hold("compare", {**outputs, "twins.txt": said(twins, kernels)})


def test_report(harness, kernels, tmp_path):
    """Tell a stored comparison again."""
    asked = ("toy.slower", "toy.changed", "toy.untouched")
    assert harness("compare", *NULL, "--results", str(tmp_path), "HEAD~1", *asked).status == 1
    [record] = map(str, tmp_path.rglob("*.jsonl"))
    hold("report", both_forms(harness, "report", record, roots=(kernels, tmp_path)))


def test_rejudge(harness, tmp_path):
    verdicts = (verdict(), verdict("toy.same[n=64]", "identical"), verdict(TILED, "unchanged"))
    record = record_of(tmp_path, *verdicts, *blocks(0.05, again=2), *blocks(0.0, TILED))
    hold("rejudge", both_forms(harness, "rejudge", str(record), roots=(tmp_path,)))


def test_demo(harness, tmp_path):
    """Recorded measurements of real cards, shown without a terminal."""
    folder = tmp_path / "gpu-harness-demo"
    hold("demo", {"terminal.txt": said(harness("demo", "--folder", str(folder)), folder)})


def test_calibrate(harness, kernels):
    asked = ("calibrate", *NULL, "--no-save", "--trials", "1", "--levels", "1", "toy.changed")
    hold("calibrate", both_forms(harness, *asked, roots=(kernels,)))


def test_import(harness, kernels, tmp_path):
    """A file of Google Benchmark becomes a record."""
    times = [
        google_entry("copy/64", time, repetitions=3, repetition_index=at)
        for at, time in enumerate((9, 8, 10))
    ]
    file = google_file(tmp_path / "google.json", times)
    asked = (
        "import",
        "google-benchmark",
        str(file),
        "--suite",
        "copies",
        "--results",
        str(tmp_path / "results"),
    )
    outputs = both_forms(harness, *asked, roots=(kernels, tmp_path))
    # A record's time is that of the file, and its id is not.
    hold("import", {name: re.sub(r"-\w{8}\.jsonl", "-<id>.jsonl", text) for name, text in outputs.items()})


def test_judge(harness, tmp_path, monkeypatch):
    """Eight files of Google Benchmark of each side, saved in turns."""
    factors = {"base": {"slower": 1.0, "faster": 1.0, "gone": 1.0}, "head": {"slower": 1.3, "faster": 0.8}}
    files: dict[str, list[str]] = {side: [] for side in factors}
    for minute in range(16):
        side = "head" if minute % 2 else "base"
        entries = [google_entry(name, factor * (100 + minute / 10)) for name, factor in factors[side].items()]
        date = f"2026-11-22T12:{minute:02}:00+00:00"
        files[side].append(str(google_file(tmp_path / f"{side}{minute:02}.json", entries, date=date)))
    monkeypatch.chdir(tmp_path)
    asked = ("judge", "--base", *files["base"], "--head", *files["head"])
    hold("judge", both_forms(harness, *asked, roots=(tmp_path,)))


def source_of_plain(change: int, time_ns: int) -> dict[str, str]:
    """Files of a commit that changes the kernel toy.plain."""
    said = f"#define CHANGE {change}\n#define NULL_DEVICE_NS {time_ns}\n"
    return {"kernels/toy/plain.cu": said + toy.BODY.format(name="plain")}


def test_bisect(harness, tmp_path, monkeypatch):
    """Commit 5 of 5 makes the kernel 2 % slower."""
    root = make_repository(tmp_path / "project")
    changes = [source_of_plain(at, 100_000_000 if at < 5 else 102_000_000) for at in range(1, 6)]
    first, *_ = commit_each(root, [{**toy.FILES, **changes[0]}, *changes[1:]])
    monkeypatch.chdir(root)
    hold("bisect", both_forms(harness, "bisect", *NULL, "--no-save", "toy.plain@64", first, roots=(root,)))


def test_sweep(harness, tmp_path, monkeypatch):
    """Four configurations, of which one is rejected by a rule and one is wrong."""
    times = "'NULL_DEVICE_NS': (1_300_000, 1_000_000)"
    faults = "'NULL_DEVICE_FAULT': ('none', 'wrong')"
    rule = "NULL_DEVICE_NS < 1_200_000 or NULL_DEVICE_FAULT == 'none'"
    root = make_sweep(tmp_path / "project", f"parameters={{{times}, {faults}}}, rules=({rule!r},)")
    suite = root / "kernels" / "toy" / "suite.py"
    suite.write_text(suite.read_text("utf-8").replace(str(root), "."), encoding="utf-8")  # its hash is shown
    monkeypatch.chdir(root)
    exports = ("--export", "html:page.html", "--export", "t4:t4.json")
    outputs = both_forms(harness, "sweep", "tuned", *NULL, "--no-save", roots=(root,), in_json=exports)
    outputs["page.html"] = normal.text((root / "page.html").read_text("utf-8"), root)
    t4 = json.loads((root / "t4.json").read_text("utf-8"))
    # T4's names of the seconds that measuring and compiling took.
    hidden = {*normal.OF_THE_MACHINE, "benchmark", "compilation"}
    outputs["t4.json"] = normal.document(t4, root, hidden=hidden)
    hold("sweep", outputs)


LADDER = """\
    ladders=[
        Ladder(
            "first",
            "Plain, then tiled",
            source="By hand.",
            card="Old card",
            sizes=64,
            peak=400,
            rungs=[Rung("plain", "plain", 10), Rung("tiled", "tiled", 40)],
        )
    ],
"""


def test_ladder(harness, tmp_path, monkeypatch):
    suite = toy.SUITE.replace("import Axis, Input, Kernel,", "import Axis, Input, Kernel, Ladder, Rung,")
    suite = suite.replace('    headline="GB/s",\n', f'    headline="GB/s",\n{LADDER}')
    root = make_repository(tmp_path / "project")
    slow, fast = (f"#define NULL_DEVICE_NS {time_ns}\n" for time_ns in (400, 100))
    files = {name: fast + text if name.endswith("tiled.cu") else text for name, text in toy.FILES.items()}
    files["kernels/toy/plain.cu"] = slow + toy.FILES["kernels/toy/plain.cu"]
    commit_each(root, [{**files, "kernels/toy/suite.py": suite}])
    monkeypatch.chdir(root)
    asked = ("report", "ladder", *NULL)
    outputs = {"not-measured.txt": said(harness(*asked), root)}
    assert harness("run", *NULL).status == 0
    outputs |= both_forms(harness, *asked, roots=(root,))
    outputs["ladder.md"] = said(harness(*asked, "--format", "markdown"), root)
    hold("ladder", outputs)


# What a pull request gets of a review


SHOWN = [name for name in SAMPLES if name not in ("many", "huge")]
"""Samples that a reviewer can read; the other two are about size."""


@pytest.mark.parametrize("sample", SHOWN)
def test_review(sample):
    review = SAMPLES[sample]()
    files = {name: content.decode() for name, content in faces(review, LINKS).items()}
    reports = {
        "junit.xml": junit(review),
        "sarif.json": sarif(review),
        "code-quality.json": code_quality(review),
        "openmetrics.txt": openmetrics(review),
    }
    hold(
        f"review/{sample}",
        {
            name: normal.fixed_document(text) if name.endswith(".json") else normal.text(text)
            for name, text in {**files, **reports}.items()
        },
    )


# A history and its pages, from every kind of source


H200, A100 = CARDS[:2]
NAIVE = "matmul.naive@1024"
HISTORY = History(
    commits=40,
    cards=(H200, A100),
    suites=(Suite(kernels=("naive", "tiled"), sizes=(1024,)),),
    tracks=("gflops", "time_ms", "sm_clock_mhz", "temperature_c", "registers"),
    events=(
        Step(case="naive", at=10, effect=-0.10, card=H200.name, registers=8),
        Step(case="tiled", at=16, effect=0.10),
        Throttle(card=H200.name, start=24, stop=36),
        DriverChange(card=A100.name, at=28, driver="590.44.01", effect=-0.04),
        Missing(card=A100.name, start=12, stop=14),
        Failed(case="tiled", start=5, stop=7, card=A100.name),
    ),
    driver_in_params=True,
    noise=0.003,
    records=True,
)
SECOND_ENVIRONMENT = "checkout-py3.13"


def keep_both(results: Path) -> None:
    """Leave records and asv's files as they are."""


def keep_asv(results: Path) -> None:
    for path in results.rglob("*.jsonl"):
        path.unlink()


def keep_two_environments(results: Path) -> None:
    """Leave asv's files alone, and copy the files of one card to a second environment of asv's."""
    keep_asv(results)
    for path in sorted((results / H200.machine).glob("*-checkout-pyany.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        changed = {**result, "env_name": SECOND_ENVIRONMENT}
        name = path.name.replace("checkout-pyany", SECOND_ENVIRONMENT)
        path.with_name(name).write_text(json.dumps(changed), encoding="utf-8")


SOURCES: Mapping[str, Callable[[Path], None]] = {
    "both": keep_both,
    "asv": keep_asv,
    "two-environments": keep_two_environments,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(HISTORY, tmp_path_factory.mktemp("history") / "project")


@pytest.fixture(params=SOURCES)
def source(request) -> str:
    return str(request.param)


@pytest.fixture
def measured(written, source, tmp_path, monkeypatch):
    """A copy of the history with the figures of one source, which is also the current folder."""
    root = Path(shutil.copytree(written.repository, tmp_path / "project", symlinks=True))
    SOURCES[source](root / ".asv" / "results")
    monkeypatch.chdir(root)
    return root


def test_history(harness, source, measured):
    outputs = both_forms(harness, "history", roots=(measured,))
    outputs["every.txt"] = said(harness("history", "--all"), measured)
    outputs["case.txt"] = said(harness("history", NAIVE, "--metric", "time_ms"), measured)
    hold(f"history/{source}", outputs)


def test_damaged(harness, written, tmp_path, monkeypatch):
    """The newest record of a card is cut short, and asv's file of that commit is whole."""
    root = Path(shutil.copytree(written.repository, tmp_path / "project", symlinks=True))
    record = max((root / ".asv" / "results" / H200.machine).glob("*.jsonl"))
    record.write_bytes(record.read_bytes()[:200])
    monkeypatch.chdir(root)
    told = harness("history")
    imported = harness("import", "asv")
    hold("damaged", {"terminal.txt": said(told, root), "import.txt": said(imported, root)})


LEFT_OUT = re.compile(r"static/|(api|data)/(runs|series)/|data/(cards|commits|events)/?")
"""Files of a site that say nothing new: scripts as they lie in the source, a document for each run and
series, and second copies of the documents in api/."""


def test_site(harness, source, measured):
    done = harness("publish", "--without-asv", "--json")
    folder = Path(done.json["folder"])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    firsts = [next(name for name in names if name.startswith("api/series/"))]
    firsts += [name for name in names if name.startswith("api/runs/")][-1:]
    shown = [name for name in names if not LEFT_OUT.match(name)] + firsts
    outputs = {name: readable(folder / name, measured) for name in shown}
    hold(
        f"site/{source}",
        {**outputs, "publish.txt": said(done, measured), "files.txt": "\n".join(names) + "\n"},
    )


def readable(path: Path, root: Path) -> str:
    """A published file for reviewers."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return normal.fixed_document(content, root)
    if data := re.fullmatch(r'harness\.data\(("[^"]*"), (.*)\);\n?', content, re.DOTALL):
        return f"harness.data({data[1]}, {normal.fixed_document(data[2], root)});\n"
    return normal.text(content, root)


# What other tools read: asv, pytest-benchmark, git


def newest(written: Written, folder: Path) -> Path:
    """Copy a history with the results of its two newest commits."""
    root = Path(shutil.copytree(written.repository, folder, symlinks=True))
    kept = tuple(commit[:8] for commit in written.commits[-2:])
    for path in (root / ".asv" / "results").glob("*/*-*"):
        if not any(commit in path.name for commit in kept):
            path.unlink()
    return root


def test_rebuild(harness, written, tmp_path, monkeypatch):
    """Asv's result files from records, and asv's own list of benchmarks."""
    root = newest(written, tmp_path / "project")
    results = root / ".asv" / "results"
    listed = results / "benchmarks.json"
    tracks = json.loads(listed.read_text(encoding="utf-8"))
    named = {name: {**each, "suite": "matmul"} for name, each in tracks.items() if isinstance(each, dict)}
    listed.write_text(json.dumps({**tracks, **named}), encoding="utf-8")
    for path in results.glob("*/*-checkout-pyany.json"):
        path.unlink()
    monkeypatch.chdir(root)
    told = said(harness("rebuild"), root)
    made = {
        path.relative_to(results).as_posix(): path for path in sorted(results.glob("*/*-checkout-pyany.json"))
    }
    shown = [name for name in made if name.split("/")[1].startswith(written.commits[-1][:8])]
    hold(
        "rebuild",
        {
            "terminal.txt": told,
            "files.txt": "\n".join(made) + "\n",
            **{name: readable(made[name], root) for name in shown},
        },
    )


def test_store(harness, written, tmp_path, monkeypatch):
    """The branch that keeps results, in a remote that is empty at first."""
    root = newest(written, tmp_path / "project")
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(root, "remote", "add", "origin", str(remote))
    monkeypatch.chdir(root)
    dry = harness("ci", "store", "--dry-run")
    stored = harness("ci", "store", "--json")
    tree = git(remote, "ls-tree", "-r", "--name-only", "perf-data")
    hold(
        "store",
        {
            "dry-run.txt": said(dry, tmp_path),
            "out.json": normal.document({**stored.json, "commit": "<commit>"}, tmp_path),
            "tree.txt": f"{tree}\n",
            "message.txt": git(remote, "log", "-1", "--format=%B", "perf-data") + "\n",
        },
    )


def test_asv(tmp_path):
    """Asv's regressions and feed, and the tables of its commands, for figures of every direction."""
    pytest.importorskip("asv")
    from tests.test_asv_direction import FIGURES, PLUGIN, make_project, measurable

    directed = make_project(tmp_path / "directed")
    falling = measurable(tmp_path / "falling", "higher", FIGURES)
    html = directed.publish(PLUGIN, into="html")
    table = ("compare", "--machine", "card-a", "--factor", "1.05")
    ended = {
        "compare": directed.asv(*table, directed.commits[0], directed.commits[-1]),
        "continuous": falling.asv("continuous", "main~2", "main~1"),
    }
    outputs = {
        f"{name}.txt": f"--- exit status {done.returncode}\n{normal.text(done.stdout, tmp_path)}"
        for name, done in ended.items()
    }
    # asv walks a set, whose order is another one in each Python.
    regressions = json.loads((html / "regressions.json").read_text(encoding="utf-8"))["regressions"]
    head, *entries = (html / "regressions.xml").read_text(encoding="utf-8").split("<entry>")
    feed = "\n<entry>".join([head, *sorted(entry.replace("</feed>", "") for entry in entries)])
    log = (tmp_path / "directed" / "html.log").read_text(encoding="utf-8")
    hold(
        "asv",
        {
            **outputs,
            "publish.txt": normal.text(log, tmp_path),
            "regressions.json": normal.document(sorted(regressions, key=str), tmp_path),
            "regressions.xml": normal.text(f"{feed}</feed>\n", tmp_path),
        },
    )


# The machine, of which a recorded host and card stand in


def test_devices(harness, monkeypatch):
    """A card, a processor, and a backend that cannot be used."""
    surveys = [Survey("cuda", (CARD,)), Survey("opencl", (CPU,)), Survey("opengl", (), "no EGL display")]
    monkeypatch.setattr("harness.device.backends.survey", lambda: surveys)
    outputs = both_forms(harness, "devices", roots=())
    monkeypatch.setattr("harness.device.backends.survey", lambda: surveys[2:])
    hold("devices", {**outputs, "none.txt": said(harness("devices"))})


def test_doctor(harness, monkeypatch):
    """A machine that is fit, one whose card is hot and busy, and one whose driver answers nothing."""
    hot = dataclasses.replace(SOUND, load_average=14.0, rest=dataclasses.replace(REST, temperature_c=83.0))
    bad = dataclasses.replace(SOUND, device=None, rest=None, probe="", calibrated_at=None)
    outputs: dict[str, str] = {}
    for name, facts in {"fit": SOUND, "hot": hot, "bad": bad}.items():
        monkeypatch.setattr("harness.cli.doctor_command.gather", lambda *_, facts=facts: facts)
        outputs |= {f"{name}/{file}": text for file, text in both_forms(harness, "doctor", roots=()).items()}
    hold("doctor", outputs)


def test_machine(harness, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    host = Host(os="Linux", kernel="6.8", cpu="EPYC", cpu_count=32, memory_bytes=2**36, python="3.12.3")
    monkeypatch.setattr("harness.integrations.asv.conf.describe_host", lambda: host)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("harness.run.device_session.find_device", lambda _: CARD)
    outputs = both_forms(harness, "machine", roots=(tmp_path,))
    written = (tmp_path / ".asv-machine.json").read_text(encoding="utf-8")
    (tmp_path / ".asv-machine.json").write_text("[]", encoding="utf-8")
    hold("machine", {**outputs, "written.json": written, "refused.txt": said(harness("machine"), tmp_path)})


def test_static():
    """The comment on the compiled code of two commits. Its tables depend on the compiler at hand."""
    hold("static", {"comment.md": static_comment(STATIC_REPORT, Links())})


def test_pytest(bed):  # noqa: F811
    """Our part of pytest's terminal, and the file of pytest-benchmark, of a run and of a comparison."""
    bed.two_commits(only("slower", "changed", "untouched", "wrong_head"))
    bed.columns(80)
    outputs = {}
    for name, asked in {"run": [], "comparison": ["--perf-base=HEAD~1"]}.items():
        done = bed.run("-q", *asked, f"--benchmark-json={name}.json")
        part = re.search(
            r"^=+ GPU .*?(?=^=+ short test summary)", done.stdout.str(), re.DOTALL | re.MULTILINE
        )
        assert part, done.stdout.str()
        outputs[f"{name}.txt"] = normal.text(part[0], bed.root)
        saved = json.loads((bed.root / f"{name}.json").read_text(encoding="utf-8"))
        saved["commit_info"]["project"] = "<project>"
        saved |= {key: f"<{key}>" for key in ("machine_info", "datetime", "version")}
        outputs[f"{name}.json"] = normal.document(saved, bed.root)
    hold("pytest", outputs)


def test_a_difference_fails_and_shows_itself(tmp_path, monkeypatch):
    """A changed line, a file that is new and one that is gone, though it is empty."""
    monkeypatch.delenv(RENEWED, raising=False)
    monkeypatch.setattr("tests.golden.expected.EXPECTED", tmp_path)
    write_files(tmp_path / "case", {"same": "a\n", "changed": "b\n", "gone": ""})
    hold("case", {"same": "a\n", "changed": "b\n", "gone": ""})
    with pytest.raises(pytest.fail.Exception) as failed:
        hold("case", {"same": "a\n", "changed": "c\n", "new": "d\n"})
    for line in ("-b", "+c", "+d", "+++ found: no such file (empty)", "--- expected: no such file"):
        assert f"\n{line}\n" in str(failed.value)
    assert "python -m tests.golden" in str(failed.value)
    monkeypatch.setenv(RENEWED, "1")
    hold("case", {"new": "d\n"})
    assert [path.name for path in (tmp_path / "case").iterdir()] == ["new"]


def test_every_expected_file_is_held():
    """Each folder belongs to the test of its name, and each folder in it to a parameter of the test."""
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.name for path in EXPECTED.iterdir()} == tests - {
        "a_difference_fails_and_shows_itself",
        "every_expected_file_is_held",
    }
    for test, parameters in {"review": SHOWN, "history": SOURCES, "site": SOURCES}.items():
        assert {path.name for path in (EXPECTED / test).iterdir()} == {*parameters}
