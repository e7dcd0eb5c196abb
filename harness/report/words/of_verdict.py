"""A verdict in words, the same in terminal, pytest, comment, check and page.

All but `explained`, `why` and `settings` is made from numbers and codes alone, so it may be said of what a
stranger's job wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.judgement.attribution import POWER_COUPLED
from harness.judgement.statistics.rates import false_alarm_bound
from harness.numbers import (
    clock,
    counted,
    duration,
    effect,
    half_of,
    half_width,
    milliseconds,
    moved,
    number,
    percent,
    percent_figure,
    rough,
)
from harness.records.types import Comparison, Diagnosis, Effect, Outputs, Source, Verdict
from harness.report.table import Cell, Column
from harness.report.words.of_diagnosis import launched_text, risk_text
from harness.report.words.of_launches import launches
from harness.suite.case_id import size_label

_SMALL_NS = 1e4
"""Times in ns below which milliseconds are impractical."""
_COMPILERS = re.compile(r", (?!V[0-9])")
"""Separator of compiler names. An nvcc's version contains a comma too."""
_MOST_SETTINGS = 6
PROCESSES = ("process", "processes")
"""Unit of measurement of an effect, singular and plural."""
ROUNDS = ("round of runs", "rounds of runs")
"""The same for executables."""
_REASONS: Mapping[str, tuple[str, str]] = {
    "too-noisy": ("too noisy to tell", "quieten the card (harness doctor), or allow a wider tolerance"),
    "not-confirmed": ("not confirmed by fresh processes", "run it again"),
    "budget-spent": ("the budget of device time was spent", "allow more with --budget, or name fewer cases"),
    "interrupted": ("interrupted before there was enough to judge by", "run it again"),
    "record-ends": ("the record ends before there was enough to judge by", "measure it again"),
    "clocks": ("time and cycles contradict each other", "lock the SM clock, and run it again"),
    "order": ("it depends on which kernel ran before", "look at what they leave behind in caches or clocks"),
    "contention": ("other processes were on the card", "end them, or make the card exclusive"),
    "thermal-throttle": ("heat held the clock down", "look at the cooling, or lock a lower clock"),
    "power-brake": ("the power supply held the clock down", "look at the supply, or lower the power limit"),
    "memory-clock": ("the memory clock changed", "keep other work off the card"),
    "p-state": ("the performance state changed", "keep other work off the card"),
    "sm-clock": ("the SM clock moved", "lock it below what the card reaches by itself"),
    "clocks-apart": ("base and head saw different SM clocks", "lock the clock below what the card reaches"),
    "temperature": ("the temperature moved", "warm the card up first, and look at its cooling"),
    "canary": ("something else slowed the card", "find what else runs on it"),
    "too-few-quads": ("too few times can be read", "compare larger sizes"),
    "twin-flagged": ("a kernel came out as different from itself", "calibrate, and look at the card"),
    "twin-missed": ("a planted slowdown was not found", "calibrate, and look at the card"),
    "build-failed": ("build failed", ""),
    "wrong-result": ("wrong results", ""),
    "differs-from-base": (
        "results differ from base's",
        "if head is meant to compute something else, land that change in a commit of its own first",
    ),
    "wrong-by-base": (
        "right by its own problem, and wrong by base's",
        "land the change of reference, tolerance or data in a commit of its own first, if it is meant",
    ),
    "loose-bound": ("a tolerance within which wrong answers pass", "derive it from the kernel's roundings"),
    "wrong-when-timed": ("right when verified, and not when timed", "it may keep something, or have a race"),
    "skips-work": ("work left out that was found done", ""),
    "foreign-stream": ("work on a stream that nobody times", "put all work on the stream that it is given"),
    "beyond-peak": ("faster than the card can be", "look at what is left out, at flop() and moved_bytes()"),
    "tampered": ("the suite replaced what judges it", ""),
    "kernel-fault": ("fault on the device", "'harness check --sanitize' finds the line"),
    "launch-refused": ("launch refused", ""),
    "graph-refused": ("no CUDA graph of it", "measure eager launches"),
    "out-of-memory": ("out of memory", "compare smaller sizes"),
    "crashed": ("the process crashed", ""),
    "no-json": ("no JSON was written", "put {out} in the command, where it takes the name of its file"),
    "store": ("what it wrote cannot be read", ""),
    "not-measured": ("there is no time of it", ""),
    "other-calls": ("the script made fewer timing calls than before", "have it measure the same each time"),
    "several-processes": ("several processes timed at once", "have one process time"),
    "nothing-recorded": ("no timer was called", "name the timer with --timer"),
    "skips-itself": ("it skips itself", ""),
    "other-machine": ("machine, card, build or environment differ", "measure both commits on one machine"),
    "timed-out": ("timed out", "allow more with --timeout if it is only slow"),
    "suite": ("broken suite", ""),
    "no-suite": ("no suite.py in its folder", ""),
    "not-comparable": ("base and head take other arrays", ""),
    "no-device": ("the card could not be opened again", "look at it with nvidia-smi"),
}
"""Cause and remedy by reason."""


def sentence(case: Verdict, units: tuple[str, str] = PROCESSES) -> str:
    """Return the result: ``1.70 % slower (+1.63 to +1.77 %) in 2 processes. The code: 1.68 % more cycles.``

    `units` is the unit of measurement of the effect, singular and plural.
    """
    parts = (_measured(case, units), _standing(case), _cause(case))
    return " ".join(part for part in (*parts, _coupled(case), _outputs(case)) if part)


def explained(verdict: Verdict, units: tuple[str, str] = PROCESSES) -> str:
    """Return the sentence, and what only who measured could add to it: a cause, a setting, an error."""
    parts = (
        sentence(verdict, units),
        _local_memory(verdict),
        why(verdict.diagnosis),
        launches(verdict),
        settings(verdict),
        verdict.message,
    )
    return " ".join(filter(None, parts))


def held_to(case: Verdict) -> str:
    """Return the word for the outputs' reference, such as ``same-as-base``; empty if unknown or failed."""
    return "" if case.outputs is None or case.status == "failed" else word_of_outputs(case.outputs)


def word_of_outputs(outputs: Outputs) -> str:
    """Return the word for outputs that passed, such as ``same-as-base``."""
    return _HELD_TO.get(outputs.held_to) or f"same as {outputs.function or 'a function'}"


_HELD_TO: Mapping[str, str] = {
    "reference": "verified",
    "base": "same-as-base",
    "nothing": "not compared",
}


def outputs_counted(cases: Iterable[Verdict]) -> str:
    """Return ``Outputs: 3 same-as-base, 1 not compared.``; empty if all are verified or unknown."""
    words = Counter(filter(None, map(held_to, cases)))
    if not words.keys() - {"verified"}:
        return ""
    return f"Outputs: {', '.join(f'{number:,} {word}' for word, number in words.most_common())}."


def _outputs(case: Verdict) -> str:
    """Return how closely outputs agreed, or why that is unknown; empty if a reference verified them."""
    outputs = case.outputs
    if outputs is None or outputs.held_to == "reference" or case.status == "failed":
        return ""
    if outputs.held_to == "nothing":
        which = f" ({outputs.array})" if outputs.array else ""
        return _NOT_COMPARED.get(outputs.reason, "Outputs were not compared.").format(which=which)
    whose = "base" if outputs.held_to == "base" else outputs.function or "a function"
    near = "within the tolerance"
    if outputs.error is not None:
        near = f"within {number(outputs.error, 2)} of the tolerance" if outputs.error else "to the bit"
    return f"Outputs are the same as {whose}'s, {near}."


_NOT_COMPARED: Mapping[str, str] = {
    "inputs-differ": "Inputs differ{which}: outputs were not compared.",
    "not-seen": "Outputs were not seen.",
    "differ": "Outputs differ from base's, which --outputs note allows.",
    "raised": "Outputs were not compared: the function raised when it ran once more for that.",
    "too-large": "Outputs differ in some bits, and are too large to be compared by value.",
    "random": "Outputs are random: they were not compared.",
}


def settings(case: Verdict, mark: Callable[[str], str] = str) -> str:
    """Return ``Settings differ: torch.get_num_threads: 8 → 1.``; empty if none differ.

    Settings are texts of a process, which `mark` escapes.
    """
    changed = case.settings_changed
    if not changed:
        return ""
    more = f"; and {len(changed) - _MOST_SETTINGS} more" if len(changed) > _MOST_SETTINGS else ""
    return f"Settings differ: {'; '.join(map(mark, changed[:_MOST_SETTINGS]))}{more}."


def why(diagnosis: Diagnosis | None, mark: Callable[[str], str] = str) -> str:
    """``Because bank conflicts rose from 0 to 31 (100 % of the extra cycles).`` Then how the code differs.

    Each is a process's own text, which `mark` makes fit for where it is said; empty where nobody asked.
    """
    if diagnosis is None:
        return ""
    told = [
        f"Because {mark(cause.message)} ({100 * cause.share:.0f} % of the extra cycles)."
        for cause in diagnosis.causes[:1]
    ]
    told += [f"Compiled code: {mark(risk_text(risk))}." for risk in diagnosis.risks[:1]]
    if diagnosis.problem:
        told.append(f"No counters: {mark(diagnosis.problem)}")
    told = told or ["No cause stands out among the hardware counters."]
    return " ".join([*(launched_text(kernel, mark) for kernel in diagnosis.launched[:1]), *told])


def reason(case: Verdict) -> str:
    """Return why a case failed or could not be judged; empty for an unknown code."""
    return _REASONS.get(case.reason, ("", ""))[0]


def remedy(case: Verdict, *, calibrated: bool) -> str:
    """Return the recommended action; empty if there is no general one."""
    if case.status == "inconclusive" and case.reason in ("too-noisy", "not-confirmed") and not calibrated:
        return "calibrate the card once (harness calibrate), then run it again"
    hint = _REASONS.get(case.reason, ("", ""))[1]
    return hint or ("compare with a base on which it works" if case.side == "base" else "")


def leading(case: Verdict) -> tuple[Effect | None, str]:
    """Return the change of time or cycles that a verdict is based on, with its name."""
    by_cycles = case.reason.endswith("-in-cycles") and case.cycles is not None
    return (case.cycles, "cycles") if by_cycles else (case.time, "time")


def effect_figure(change: Effect | None) -> str:
    """Return percent, such as ``+1.70``, for a column whose heading has the unit."""
    return percent_figure(change.effect if change else None, sign=True)


def clocks(case: Verdict) -> str:
    """Return the clocks in MHz at base and at head, once if equal: ``1,980 → 1,975``."""
    known = [side.sm_clock_mhz if side else None for side in (case.base, case.head)]
    return "" if known == [None, None] else " → ".join(dict.fromkeys(clock(mhz) or "?" for mhz in known))


def commit_label(commit: str | None, *, dirty: bool = False) -> str:
    """Return a commit for display: ``3f2a91c0de + changes``."""
    return (commit or "no commit")[:10] + (" + changes" if dirty else "")


def source_label(source: Source) -> str:
    """Return a source's commit for display: ``3f2a91c0de + changes``."""
    return commit_label(source.commit, dirty=source.dirty)


def toolchain_labels(comparison: Comparison) -> tuple[str, str] | None:
    """Return what only one side has, for each side, such as ``nvcc 13.0, V13.0.88`` or ``triton 3.6.0``.

    A side with nothing of its own has its given name. None if commits are compared.
    """
    if not comparison.toolchains:
        return None
    all_of = {side: _COMPILERS.split(toolchain.compiler) for side, toolchain in comparison.toolchains.items()}

    def label(side: str, other: str) -> str:
        own = [each for each in all_of[side] if each not in all_of[other]]
        return ", ".join(own) or f"{all_of[side][0]} ({comparison.settings.get(f'{side}_toolchain')})"

    return label("base", "head"), label("head", "base")


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """Return sentences from the files of executables to show beside their times; none for kernels."""
    differs, notes = (str(comparison.settings.get(name, "")) for name in ("differences", "notes"))
    return tuple(filter(None, (differs and f"Differs between base and head: {differs}.", notes)))


def suite_label(source: Source) -> str:
    """Return the suite: ``axpy``, or ``axpy (suite.py of 3f2a91c0de)`` for a suite.py of another commit."""
    if source.suite_from is None:
        return source.suite
    of = "the working tree" if source.suite_from == "." else commit_label(source.suite_from)
    return f"{source.suite} (suite.py of {of})"


EXECUTABLES = (
    "Times are the benchmarks' own, from alternating processes of base and head. Nothing was verified."
)


IN_TURNS = "Functions ran in alternating processes, one for each side."


def basis(verdicts: int, false_alarms: int, measured_at: str, *, of_script: bool = False) -> str:
    """Return a calibration's statement on false alarms on a device, after `verdicts` verdicts (0
    for none).
    """
    if not verdicts:
        more = " --script COMMAND" if of_script else ""
        return f"Not calibrated: the noise of this device is assumed. Run 'harness calibrate{more}' once."
    told = f"{counted(false_alarms, 'false alarm')} in {counted(verdicts, 'verdict')} of code against itself"
    if false_alarms > verdicts:
        return f"The calibration makes no sense: {told}."
    bound = rough(false_alarm_bound(false_alarms, verdicts))
    day = measured_at[:10] if re.match(r"\d{4}-\d\d-\d\d", measured_at) else "before"
    return f"Calibrated {day}: {told}, so below {bound} (95 % confidence)."


def _measured(case: Verdict, units: tuple[str, str]) -> str:
    if case.reason.endswith("-in-tail"):
        return _strayed(case)
    change, what = leading(case)
    if change is None:
        return ""
    words = ("more cycles", "fewer cycles") if what == "cycles" else ("slower", "faster")
    return f"{moved(change, *words)} in {counted(change.processes, *units)}."


def _strayed(case: Verdict) -> str:
    word = "slower" if case.reason.startswith("slower") else "faster"
    found = case.strays
    if found is None or not found.slots:
        return f"Some slots of one side took far longer than usual: {word} on average."
    return (
        f"{percent(found.head / found.slots)} of head's slots took over 1.1 times their usual time and "
        f"{percent(found.base / found.slots)} of base's: on average {percent(abs(found.cost))} {word}."
    )


def _standing(case: Verdict) -> str:
    """Return the cause, if it is not the effect itself."""
    if case.status == "unchanged":
        return "That is within the tolerance for sure."
    if case.status in _UNMEASURED and case.reason != "skips-itself":  # the message contains it
        return _UNMEASURED[case.status]
    if case.status not in ("inconclusive", "invalid", "failed"):
        return ""
    told = reason(case)
    if case.reason == "too-noisy" and case.smallest_visible is not None:
        told += f": only a change beyond {percent(case.smallest_visible)} would show"
    if case.side:
        told += f" at {case.side}" if told else f"it failed at {case.side}"
    return told and f"{told[0].upper()}{told[1:]}."


_UNMEASURED: Mapping[str, str] = {
    "new": "There is no such case at base.",
    "missing": "There is no such case at head.",
    "identical": "Both sides compile to the same code and launch it alike.",
}


def _cause(case: Verdict) -> str:
    """Return what caused an effect."""
    if case.attribution == "code":
        return _code(case)
    changed = case.status in ("regression", "improvement") and not case.reason.endswith("-in-tail")
    unseen = case.time is not None and case.cycles is None and not clocks(case)
    told = "Neither cycles nor clocks explain it." if changed and not unseen else ""
    if case.status != "invalid" and case.attribution:
        told = _CAUSES[case.attribution]
        if case.attribution == "clocks" and "→" in clocks(case):
            told += f" They ran at {clocks(case)} MHz."
    touched = ", ".join(f"{gate} {quads:,}" for gate, quads in case.touched.items() if quads)
    if touched and (told or case.status == "invalid"):
        told += f" Disturbed quads: {touched}."
    return told.strip()


_CAUSES: Mapping[str, str] = {
    "clocks": "The clocks explain it, not the code: look at the card first.",
    "thermal": "Heat set the clocks apart: look at the card first.",
    "power": "Power: base and head draw different amounts, or the supply held the clock down.",
    "contention": "Other work on the card: end it first.",
    "environment": "The card's memory clock or performance state changed: look at the card first.",
}


def _code(case: Verdict) -> str:
    changed = case.status in ("regression", "improvement")
    if case.cycles is None or (changed and not _explains(case) and leading(case)[1] == "time"):
        return "The code: the clocks do not explain it."
    told = f"{percent(abs(case.cycles.effect))} {'more' if case.cycles.effect > 0 else 'fewer'} cycles"
    if leading(case)[1] == "cycles" and case.time:
        half = case.cycles.effect / 2
        hidden = "part of that" if case.time.effect * half >= half**2 else "that"
        return f"The code: at its power limit the card hides {hidden} from the time ({effect(case.time)})."
    if changed:
        return f"The code: {told}."
    return f"The code: {told}, which at its power limit the card hides from the time."


def _local_memory(case: Verdict) -> str:
    """Return how much more local memory a slower kernel takes, where no compiler told it as a spill."""
    built = [
        side.resources.local_bytes if side and side.resources else None for side in (case.base, case.head)
    ]
    base, head = (each or 0 for each in built)
    if (
        case.status != "regression"
        or None in built
        or head <= base
        or (case.diagnosis and case.diagnosis.risks)
    ):
        return ""
    return f"Local memory of a thread: {base:,} → {head:,} bytes."


def _explains(case: Verdict) -> bool:
    """Return True if cycles changed by at least half as much as time, in the same direction."""
    if not case.time or not case.cycles or not case.time.effect:
        return False
    return case.cycles.effect / case.time.effect >= 0.5


def _coupled(case: Verdict) -> str:
    """Return clocks and power of the sides running alone, if the clocks differ."""
    base, head = case.base, case.head
    if not base or not head or not base.alone_mhz or not head.alone_mhz:
        return ""
    if abs(head.alone_mhz / base.alone_mhz - 1) <= POWER_COUPLED:
        return ""
    alone = f"head runs at {clock(head.alone_mhz)} MHz and base at {clock(base.alone_mhz)} MHz"
    told = f"POWER-COUPLED: alone, {alone}"
    if head.alone_w is not None and base.alone_w is not None:
        told += f", drawing {number(head.alone_w, 3)} W against {number(base.alone_w, 3)} W"
    if case.energy:
        told += f", energy per launch {effect(case.energy)}"
    return f"{told}."


def intervals_of(comparison: Comparison, verdicts: Iterable[Verdict]) -> str:
    """Return the meaning of ± in a table of verdicts; empty without a measurement."""
    confidence = comparison.settings["confidence"]
    assert isinstance(confidence, float)
    return half_of(confidence) if any(verdict.time for verdict in verdicts) else ""


def verdict_columns(
    heading: str, names: Sequence[str | Cell], cases: Sequence[Verdict], *, sizes: bool = True
) -> list[Column]:
    """Return the table of verdicts, a line for each case. The least informative columns can be dropped.

    Without `sizes` for names that include them.
    """
    times_ns = [case.base.time_ns if case.base else None for case in cases]
    outputs = list(map(held_to, cases))
    alike = len({*outputs} - {""}) <= 1  # then `outputs_counted` says it once
    small = any(time_ns is not None and time_ns < _SMALL_NS for time_ns in times_ns)
    return [
        Column(heading, names, text=True),
        Column("size", [size_label(case.sizes) if sizes else "" for case in cases]),
        Column("base", list(map(duration, times_ns)), spare=2)
        if small
        else Column("base ms", list(map(milliseconds, times_ns)), spare=2),
        Column("change %", [effect_figure(case.time) for case in cases]),
        Column("±", [percent_figure(half_width(case.time)) for case in cases]),
        Column("cycles %", [effect_figure(case.cycles) for case in cases], spare=4),
        Column("visible", [percent_figure(case.smallest_visible) for case in cases], spare=1),
        Column("floor", [percent_figure(case.noise_floor) for case in cases], spare=3),
        Column("MHz", list(map(clocks, cases))),
        *([] if alike else [Column("outputs", outputs, text=True)]),
        Column("verdict", [Cell(case.status, case.status) for case in cases], text=True),
    ]
