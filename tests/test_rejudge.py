"""Stored comparisons judged again: the verdicts, and the command, on small made records."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.device.backends import null
from harness.errors import ExitCode
from harness.judgement.case_trial import NoisePriors, Precision, bare_verdict
from harness.judgement.judge import Policy
from harness.judgement.noise import Calibration, CaseNoise, write_calibration
from harness.judgement.statistics.paired import ProcessEffect, readable
from harness.measure.quads import PairSettings
from harness.records.record_files import ComparisonResult, RecordWriter, read_comparison
from harness.records.types import (
    CaseBlock,
    Comparison,
    Diagnosis,
    Host,
    PairedBlock,
    Source,
    Verdict,
    VerdictStatus,
)
from harness.run.rejudge import Rejudged, Score, Truth, rejudge, score, shortened
from harness.suite.problem import Case
from tests.test_case_trial import block, quads

SOURCE = Source(suite="toy", path="kernels/toy", commit="b" * 40)
COMPARISON = Comparison(
    harness_version="1.2.3",
    run_id="0123456789abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    command="compare",
    base=SOURCE,
    head=dataclasses.replace(SOURCE, commit="c" * 40),
    kernels=("plain", "tiled"),
    device=null.devices()[0],
    toolchain=None,
    host=Host(os="Linux", kernel="6", cpu="c", cpu_count=2, memory_bytes=2**30, python="3"),
    settings={"margin": 0.0025, "tolerance": 0.01, "confidence": 0.999},
)
PLAIN, TILED = "toy.plain[n=64]", "toy.tiled[n=64]"


def verdict(case: str = PLAIN, status: VerdictStatus = "invalid", **over: object) -> Verdict:
    kernel = case.partition("[")[0].partition(".")[2]
    bare = bare_verdict(case, Case("toy", kernel, {"n": 64}), status, "")
    return dataclasses.replace(bare, **over)  # type: ignore[arg-type]


def blocks(
    effect: float, case: str = PLAIN, *, first: int = 2, again: int = 0, count: int = 100
) -> list[CaseBlock]:
    """Of so many processes to judge by, and so many to confirm."""
    made = [block(quads(effect, count=count, seed=seed, noise=1e-3)) for seed in range(first + again)]
    return [
        CaseBlock(case=case, process=number + 1, confirming=number >= first, block=each)
        for number, each in enumerate(made)
    ]


def stored(*items: CaseBlock | Verdict) -> ComparisonResult:
    return ComparisonResult(
        comparison=COMPARISON,
        blocks=tuple(each for each in items if isinstance(each, CaseBlock)),
        verdicts=tuple(each for each in items if isinstance(each, Verdict)),
    )


def judged(*items: CaseBlock | Verdict) -> dict[str, Rejudged]:
    return {case.now.case: case for case in rejudge(stored(*items), Policy(), defaultdict(NoisePriors))}


def written(folder: Path, *items: CaseBlock | Verdict, complete: bool = True, **over: object) -> Path:
    described = dataclasses.replace(COMPARISON, **over)  # type: ignore[arg-type]
    with RecordWriter(folder, described) as writer:
        for item in items:
            writer.add(item)
        return writer.finish(complete=complete)


def packed(path: Path) -> Path:
    made = path.with_name(f"{path.name}.gz")
    made.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return made


# Verdicts


@pytest.mark.parametrize(
    ("effect", "status"), [(0.05, "regression"), (-0.05, "improvement"), (0.0, "unchanged")]
)
def test_a_case_is_judged_by_as_much_as_would_be_measured_now(effect, status):
    case = judged(verdict(), *blocks(effect, first=4, again=4))[PLAIN]
    assert case.then
    assert (case.then.status, case.now.status) == ("invalid", status)
    assert case.blocks == (2 if status == "unchanged" else 4)
    assert case.then_gpu_s == pytest.approx(8 * 0.25)
    assert 0 < case.now.gpu_s < case.blocks * 0.25


def test_where_a_record_ends_before_a_case_is_decided_it_says_so():
    undecided = judged(*blocks(0.05, first=1))[PLAIN]
    assert (undecided.now.status, undecided.now.reason) == ("inconclusive", "record-ends")
    assert undecided.then is None
    found = blocks(0.05, first=2, again=1)
    between = dataclasses.replace(found[2], block=block(quads(0.005, count=100)))
    for case in (judged(*found[:2])[PLAIN], judged(*found[:2], between)[PLAIN]):
        assert (case.now.status, case.now.reason) == ("inconclusive", "record-ends")
        assert not case.now.complete


def test_what_the_sides_had_otherwise_stays_beside_the_verdict():
    settings = ("arithmetic: float32 → TF32", "torch.get_num_threads: 8 → 1")
    now = judged(*blocks(0.05, first=4, again=4), verdict(settings_changed=settings))[PLAIN].now
    assert (now.status, now.settings_changed) == ("regression", settings)


@pytest.mark.parametrize("status", ["regression", "invalid"])
def test_a_cause_stays_with_the_verdict_that_it_explains(status):
    cause = Diagnosis(problem="no counters")
    now = judged(*blocks(0.05, first=4, again=4), verdict(status=status, diagnosis=cause))[PLAIN].now
    assert (now.status, now.diagnosis) == ("regression", cause if status == "regression" else None)


def test_one_fresh_process_may_confirm_what_two_have_said():
    case = judged(*blocks(0.05, first=2, again=1))[PLAIN]
    assert (case.now.status, case.blocks) == ("regression", 3)


def test_what_a_process_measured_a_second_time_is_spent_and_does_not_count():
    found = blocks(0.0)
    again = dataclasses.replace(found[0], retried=True, block=block(quads(0.5, count=100)))
    case = judged(verdict(), found[0], again, found[1])[PLAIN]
    assert case.now.status == "unchanged"
    assert case.then_gpu_s == pytest.approx(3 * 0.25)


@pytest.mark.parametrize("status", ["identical", "new", "missing", "failed"])
def test_what_is_known_without_quads_stays_as_it_was_said(status):
    said = verdict(TILED, status)
    assert judged(said, *blocks(0.0))[TILED] == Rejudged(said, said)


def test_what_failed_in_a_later_process_stays_failed():
    assert judged(verdict(status="failed"), *blocks(0.0))[PLAIN].now.status == "failed"


def test_nobody_stands_by_a_regression_without_quads():
    case = judged(verdict(status="regression"))[PLAIN]
    assert (case.now.status, case.now.reason) == ("inconclusive", "record-ends")


def test_cases_come_in_the_order_of_the_verdicts_whatever_was_measured_first():
    assert [*judged(verdict(TILED), verdict(), *blocks(0.0), *blocks(0.0, TILED))] == [TILED, PLAIN]


@pytest.mark.parametrize(
    ("noise", "pair", "count"),
    [
        (1e-5, PairSettings(), 12),
        (1e-5, PairSettings(min_quads=10), 10),  # twice as long as what counts as short
        (1e-5, PairSettings(min_quads=2), 5),
        (0.05, PairSettings(max_quads=30), 30),
        (0.05, PairSettings(max_time_s=1e-3), 12),
    ],
)
def test_a_block_ends_where_it_would_end_now(noise, pair, count):
    made = block(quads(0.0, count=100, noise=noise))
    found = shortened(made, Precision(standard_error=0.0015), pair)
    assert found.quads == made.quads[:count]
    assert found.gpu_s == pytest.approx(made.gpu_s * count / 100)


@pytest.mark.parametrize(("in_turns", "touched"), [(False, {"canary": 12}), (True, {})])
def test_what_was_measured_in_turns_is_judged_as_it_was_measured(in_turns, touched):
    """By no canary of other processes."""
    wide = dataclasses.replace(block(quads(0.0, count=100, noise=0.05)), in_turns=in_turns)
    found = shortened(wide, Precision(standard_error=0.0015), PairSettings(max_time_s=1e-3))
    assert len(found.quads) == 12
    first, second = (dataclasses.replace(each.block, in_turns=in_turns) for each in blocks(0.0))
    slower = tuple(dataclasses.replace(quad, canary_ns=1e5) for quad in second.quads)
    both = (first, dataclasses.replace(second, quads=slower))
    case = judged(*(CaseBlock(case=PLAIN, process=at, block=each) for at, each in enumerate(both)))[PLAIN]
    assert case.now.touched == touched


def test_statuses_are_counted_by_what_is_true():
    slower = ["regression", "improvement", "unchanged", "inconclusive", "invalid"]
    same = ["unchanged", "identical", "regression", "improvement", "failed", ""]
    known: list[tuple[Truth, str]] = [("slower", each) for each in slower]
    known += [("same", each) for each in same]
    assert score([*known, ("faster", "improvement")]) == Score(
        changed=6, found=2, missed=2, same=6, unchanged=2, false_alarms=2, undecided=4
    )


def test_a_comparison_judged_again_by_the_same_rules_says_the_same(harness, project, null_script):
    source = (project.suite / "plain.cu").read_text(encoding="utf-8")
    for time_ns in (1_000_000, 1_030_000):
        project.commit({"kernels/toy/plain.cu": f"#define NULL_DEVICE_NS {time_ns}\n{source}"})
    null_script({"noise": {"kind": "quiet", "seed": 1}})
    compared = harness("compare", "HEAD~1..HEAD", "--device", "null", "--json", cwd=project.root)
    again = harness("rejudge", ".", "--json")
    assert again.status == compared.status == ExitCode.REGRESSION
    keys = ("case", "status", "reason", "time", "gpu_s", "touched")
    (then,), (now,) = compared.json, again.json
    assert [[v[key] for key in keys] for v in now["verdicts"]] == [
        [v[key] for key in keys] for v in then["verdicts"]
    ]
    assert [v["gpu_s_then"] for v in now["verdicts"]] == pytest.approx([v["gpu_s"] for v in then["verdicts"]])


# The command


def test_verdicts_that_fail_may_be_chosen(harness, tmp_path):
    path = written(tmp_path, verdict(), *blocks(0.05, again=2))
    assert harness("rejudge", str(path)).status == ExitCode.REGRESSION
    assert harness("rejudge", str(path), "--fail-on", "none").status == ExitCode.FINE


def test_a_strangers_record_draws_nothing_on_the_terminal(harness, tmp_path):
    name = "\x1b[2J[bold]Card[/nothing]"
    device = dataclasses.replace(COMPARISON.device, name=name, driver=name)
    case = "toy.\x1b[31mplain[n=64]"
    path = written(tmp_path, verdict(case), *blocks(0.05, case, again=2), device=device)
    done = harness("rejudge", str(path))
    assert done.status == ExitCode.REGRESSION
    assert "[bold]Card[/nothing]" in done.out
    assert "\x1b" not in done.out + done.err


def test_json_has_what_compare_has_and_what_was_said(harness, tmp_path):
    path = written(tmp_path, verdict(), *blocks(0.05, again=2))
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps([{"file": path.name, "case": "toy.plain@64", "truth": "slower"}]))
    done = harness("rejudge", str(path), "--json", "--labels", str(labels))
    (found,) = done.json
    assert found["record"] == str(path)
    (told,) = found["verdicts"]
    wanted = {"case": PLAIN, "status": "regression", "said": "invalid", "truth": "slower", "processes": 4}
    assert {key: told[key] for key in wanted} == wanted
    assert told["gpu_s"] < told["gpu_s_then"] == pytest.approx(1.0)


def test_folders_are_searched_and_what_is_no_comparison_is_left_out(harness, tmp_path):
    first = packed(written(tmp_path / "card" / "deep", verdict(), *blocks(0.0)))
    other = written(tmp_path / "card", verdict(), *blocks(0.0), run_id="f" * 16)
    for number, line in enumerate(('{"run":{"schema_version":1}}', '{"sweep":{}}')):
        (tmp_path / f"other{number}.jsonl").write_text(line + "\n")
    (tmp_path / "twice.jsonl").write_bytes(other.read_bytes())
    done = harness("rejudge", str(tmp_path), str(first), "--json")
    assert done.status == ExitCode.FINE, done.err
    assert {found["record"] for found in done.json} == {str(first), str(other)}
    assert "Left out: 2 files that are no comparison's" in done.err
    assert f"Left out: {tmp_path}/twice.jsonl is the comparison of {other} again." in done.err


def test_a_record_of_an_earlier_schema_is_judged(harness, tmp_path):
    path = written(tmp_path, verdict(), *blocks(0.0), schema_version=2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for kind in ("block", "verdict"):
            line.get(kind, {}).update({"dropped": {"canary": 3}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = harness("rejudge", str(path), "--json")
    assert [v["status"] for v in done.json[0]["verdicts"]] == ["unchanged"]


def test_a_killed_comparison_is_judged_by_what_it_left(harness, tmp_path):
    path = written(tmp_path, *blocks(0.0), *blocks(0.0, TILED), complete=False)
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(content[:-2]) + content[-2][:100])  # without its end, and half a line
    done = harness("rejudge", str(path))
    assert done.status == ExitCode.INCONCLUSIVE
    assert "Interrupted then" in done.out
    assert "1 nothing → unchanged" in done.out
    assert "1 nothing → inconclusive" in done.out


def torn(folder: Path) -> Path:
    path = written(folder, verdict(), *blocks(0.0))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + b"".join(lines[2:]))
    return path


def plain_text(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def edited(folder: Path, **over: float) -> Path:
    made = [
        dataclasses.replace(each, block=dataclasses.replace(each.block, **over))  # type: ignore[arg-type]
        for each in blocks(0.05)
    ]
    return written(folder, verdict(), *made)


def cut_short(folder: Path) -> Path:
    path = packed(written(folder, verdict(), *blocks(0.0)))
    path.write_bytes(path.read_bytes()[:-100])
    return path


BAD = {
    "torn": (torn, "line 2 is damaged"),
    "not packed": (lambda at: plain_text(at, "a.jsonl.gz", b'{"run":{}}\n'), "is not packed by gzip"),
    "cut short": (cut_short, "is damaged"),
    "no record": (lambda at: plain_text(at, "a.jsonl", b"text\n"), "is no run record"),
    "empty file": (
        lambda at: plain_text(at, "a.jsonl", b""),
        "is no run record: it has no whole line. A process",
    ),
    "empty folder": (lambda at: at, "There is no record in"),
    "not there": (lambda at: at / "a.jsonl", "No such file"),
    "newer": (lambda at: written(at, verdict(), schema_version=99), "has schema version 99"),
    "nothing in it": (written, "holds no quads and no verdict"),
    "no launches": (lambda at: edited(at, launches_per_slot=0), "holds figures that no device has measured"),
    "endless ticks": (lambda at: edited(at, tick_ns=1e308), "holds figures that no device has measured"),
    "limits": (lambda at: written(at, verdict(), settings={"margin": "much"}), "a margin of 'much'"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_read_is_a_sentence_and_status_3(harness, tmp_path, what):
    make, words = BAD[what]
    folder = tmp_path / "bad"
    folder.mkdir()
    done = harness("rejudge", str(make(folder)))
    assert done.status == ExitCode.NOT_MEASURED
    assert words in done.err
    assert done.err.startswith("harness: ")
    assert done.out == ""


def test_a_run_that_is_named_is_told_from_a_comparison(harness, tmp_path):
    path = plain_text(tmp_path, "run.jsonl", b'{"row":{}}\n')
    assert harness("rejudge", str(path)).status == ExitCode.NOT_MEASURED
    done = harness("rejudge", str(tmp_path))
    assert done.status == ExitCode.NOT_MEASURED
    assert "Left out: 1 file" in done.err


@pytest.mark.parametrize(
    ("effect", "status"), [(0.0, ExitCode.NOT_MEASURED), (0.05, ExitCode.REGRESSION)], ids=str
)
def test_a_record_that_cannot_be_read_costs_no_other(harness, tmp_path, effect, status):
    written(tmp_path, verdict(), *blocks(effect, again=2))
    plain_text(tmp_path, "a.jsonl", b"text\n")
    done = harness("rejudge", str(tmp_path))
    assert done.status == status
    assert "plain" in done.out
    assert "a.jsonl is no run record" in done.err


def test_limits_are_the_records_unless_others_are_given(harness, tmp_path):
    path = written(tmp_path, verdict(), *blocks(0.05, again=2), settings={"margin": 0.1, "tolerance": 0.2})
    assert harness("rejudge", str(path), "--json").json[0]["verdicts"][0]["status"] == "unchanged"
    done = harness("rejudge", str(path), "--margin", "1", "--tolerance", "2", "--confidence", "99", "--json")
    (found,) = done.json
    assert [found[key] for key in ("margin", "tolerance", "confidence")] == [0.01, 0.02, 0.99]
    assert found["verdicts"][0]["status"] == "regression"


def calibrated(folder: Path, noise: Sequence[float]) -> None:
    """The card's noise, as a case showed it."""
    effects = tuple(ProcessEffect(value, 1e-5, 8, 30) for value in noise)
    write_calibration(
        folder,
        Calibration(
            measured_at="2026-01-01T00:00:00+00:00",
            harness_version="1",
            uuid=None,
            driver="1",
            cases={PLAIN: CaseNoise(time=effects)},
            verdicts=10,
        ),
    )


def test_verdicts_rest_on_the_calibration_beside_the_record_unless_another_is_named(harness, tmp_path):
    path = written(tmp_path / "card", verdict(), *blocks(0.0))
    assert "Not calibrated" in harness("rejudge", str(path)).out
    calibrated(tmp_path / "card", [0.1, -0.1, 0.2, -0.2, 0.15, -0.15, 0.1, -0.1])
    beside = harness("rejudge", str(path))
    assert "Calibrated 2026-01-01" in beside.out
    assert beside.status == ExitCode.INCONCLUSIVE
    assert harness("rejudge", str(path), "--uncalibrated").status == ExitCode.FINE
    (tmp_path / "other").mkdir()
    calibrated(tmp_path / "other", [1e-5, -1e-5, 2e-5, -2e-5])
    assert harness("rejudge", str(path), "--calibration", str(tmp_path / "other")).status == ExitCode.FINE


def test_a_twin_that_comes_out_wrong_makes_all_invalid(harness, tmp_path):
    twin = verdict("twin.same", "unchanged", kernel="plain")
    path = written(tmp_path, verdict(), twin, *blocks(0.0), *blocks(0.05, "twin.same", again=2))
    (found,) = harness("rejudge", str(path), "--json").json
    assert [(v["status"], v["reason"]) for v in found["verdicts"]] == [("invalid", "twin-flagged")]
    assert [v["status"] for v in found["twins"]] == ["regression"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument"),
        (["--margin", "2"], "is not below the tolerance"),
        (["--confidence", "20"], "not in the range"),
        (["--calibration", "."], "There is no calibration.harness in ."),
        (["--calibration", ".", "--uncalibrated"], "exclude each other"),
        (["--labels", "none.json"], "Cannot read the labels in none.json"),
        (["--labels", "text.json"], "text.json holds no labels"),
        (["--labels", "truth.json"], "expected a list of objects"),
        (["--labels", "both.json"], "keep the true one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_status_2(harness, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "card", verdict(), *blocks(0.0))
    label = {"file": path.name, "case": PLAIN, "truth": "same"}
    (tmp_path / "text.json").write_text("text")
    (tmp_path / "truth.json").write_text(json.dumps([{**label, "truth": "green"}]))
    (tmp_path / "both.json").write_text(json.dumps([label, {**label, "truth": "slower"}]))
    done = harness("rejudge", *([str(path)] if arguments else []), *arguments)
    assert done.status == ExitCode.USAGE
    assert words in done.err
    assert done.out == ""


def test_labels_tell_what_was_found_then_and_now(harness, tmp_path):
    path = packed(
        written(
            tmp_path,
            verdict(),
            verdict(TILED, "regression"),
            *blocks(0.05, again=2),
            *blocks(0.0, TILED),
        )
    )
    known = [
        {"file": path.name, "case": PLAIN, "truth": "slower", "said": "invalid"},
        {"file": path.name.removesuffix(".gz"), "case": TILED, "truth": "same"},
        {"file": path.name, "case": "toy.gone[n=1]", "truth": "same"},
    ]
    (tmp_path / "labels.json").write_text(json.dumps(known))
    done = harness("rejudge", str(path), "--labels", str(tmp_path / "labels.json"))
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.strip()}
    assert rows["then"][:9] == ["0", "of", "1", "0", "0", "of", "1", "1", "1"]
    assert rows["now"][:9] == ["1", "of", "1", "0", "1", "of", "1", "0", "0"]
    assert rows["then"][9] == "1.50"
    assert "1 of 3 labels are of no case that was judged, the first of toy.gone[n=1]" in done.err


def test_packed_or_not_a_record_reads_alike(tmp_path):
    path = written(tmp_path, verdict(), *blocks(0.0, count=5))
    plain = read_comparison(path)
    assert dataclasses.replace(read_comparison(packed(path)), path=path) == plain


def test_what_unpacks_to_more_than_can_be_held_is_not_read(harness, tmp_path, monkeypatch):
    path = packed(written(tmp_path, verdict(), *blocks(0.0)))
    monkeypatch.setattr("harness.records.record_files.MOST_BYTES", path.stat().st_size)
    done = harness("rejudge", str(path))
    assert done.status == ExitCode.NOT_MEASURED
    assert "unpacked it has more than" in done.err


def test_times_that_cannot_be_read_are_no_crash():
    made = block(quads(0.0))
    broken = tuple(dataclasses.replace(quad, times_ns=(0.0, 1.0, 1e308, 1.0)) for quad in made.quads)
    found: list[PairedBlock] = [dataclasses.replace(made, quads=each) for each in (broken, ())]
    items = [CaseBlock(case=PLAIN, process=number, block=each) for number, each in enumerate(found)]
    assert judged(verdict(), *items)[PLAIN].now.reason == "record-ends"


@pytest.mark.parametrize("times_ns", [(1e-300, 1e300), (5e-324, 1.0), (1.0, 1e308)])
def test_times_that_no_device_has_counted_are_not_read(times_ns):
    short, long = times_ns
    assert not readable((short, long, long, short))
    assert readable((1.0, 1e9, 1e12, 1e-3))
