"""Writes documents twice: as scripts for pages opened from a disk, and as JSON for programs."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import StoreError
from harness.history.figures import SeriesCase, timed_effect
from harness.history.reading import sentence
from harness.history.row_summary import summary_of
from harness.history.sources.our_records import Commits
from harness.history.triage import Stated
from harness.judgement.noise import Calibration
from harness.judgement.statistics.rates import false_alarm_bound
from harness.numbers import counted, percent
from harness.records.record_files import RunResult
from harness.records.types import Diagnosis, LoopDifference, Row, Run, Snapshot, fields_of
from harness.report.templates import html_environment
from harness.report.words.of_diagnosis import LOOP_RULE, counter_sheet, loop_places, loop_sheet
from harness.report.words.of_verdict import why
from harness.suite.case_id import CaseId
from harness.system.cache import write_file

SCHEMA_VERSION = 2
"""Schema of every document. It is increased when a page or program for the older schema would misread it."""
COMMITS_A_FILE = 128
EVERY = 64
"""Commits in a file of values by commit."""
SERIES_A_FILE = 16
"""Cases in a file of a card's series, since small files waste disk space."""

Array = npt.NDArray[Any]
_FEW, _OFTEN = 255, 4
"""Most distinct values of a column for byte indices, and repetitions of each that make this shorter."""
_DTYPES = {"u32": "<u4", "u16": "<u2", "u8": "<u1"}


class Numbers:
    """Many numbers of one kind: base64 for the pages, a list for programs. NaN means no value."""

    # Not a dataclass: msgspec would serialize it by itself.
    def __init__(self, values: Array, kind: Literal["f32", "u32", "u16", "u8"] = "f32") -> None:
        self.values, self.kind = values, kind

    def packed(self) -> dict[str, Any]:
        """Return the form for pages. Whole numbers that change little are a first value and
        byte-sized steps.
        """
        if self.kind == "f32":
            return {"t": "f32", "d": _base64(self.values.astype("<f4"))}
        dtype, whole = np.dtype(_DTYPES[self.kind]), self.values
        if whole.dtype.kind == "f":
            largest = np.iinfo(dtype).max
            whole = np.where(np.isfinite(whole), np.clip(np.rint(whole), 0, largest - 1), largest)
        whole = whole.astype(dtype)
        steps = np.diff(whole.astype(np.int64))
        if steps.size and (steps == steps[0]).all():
            return {"t": self.kind, "n": whole.size, "first": int(whole[0]), "step": int(steps[0])}
        if steps.size and np.abs(steps).max() <= np.iinfo(np.int8).max:
            return {"t": self.kind, "first": int(whole[0]), "steps": _base64(steps.astype(np.int8))}
        return {"t": self.kind, "d": _base64(whole)}

    def plain(self) -> list[Any]:
        if self.values.dtype.kind != "f":
            return list(self.values.tolist())
        rounded = _rounded(self.values)
        numbers: list[Any] = rounded.tolist()
        for at in np.flatnonzero(np.isnan(rounded)).tolist():
            numbers[at] = None
        return numbers


class Rows:
    """Many objects with the same keys: a list for each key for the pages, objects for programs."""

    def __init__(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self.objects = objects

    def packed(self) -> dict[str, Any]:
        keys = list(self.objects[0]) if self.objects else []
        columns = [_column([each[key] for each in self.objects]) for key in keys]
        return {"count": len(self.objects), "keys": keys, "columns": columns}

    def plain(self) -> list[Any]:
        return list(self.objects)


def _column(values: list[Any]) -> list[Any] | dict[str, Any]:
    """Return the values. If few are distinct, return these and a byte index for each."""
    known: dict[tuple[type, Any], int] = {}
    try:
        which = [known.setdefault((type(value), value), len(known)) for value in values]
    except TypeError:  # unhashable, such as lists
        return values
    if len(known) > _FEW or len(values) < _OFTEN * len(known):
        return values
    return {"of": [value for _, value in known], "at": _base64(np.array(which, np.uint8))}


def _base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _rounded(values: Array) -> npt.NDArray[np.float64]:
    """Return values with six significant digits, the precision of single floats; NaN for those that are not
    finite.
    """
    values = values.astype(np.float64)
    sizes = np.abs(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** np.where(sizes > 0, 5 - np.floor(np.log10(np.where(sizes > 0, sizes, 1))), 0)
        return np.where(np.isfinite(values), np.round(values * scale) / scale, np.nan)


@dataclass(frozen=True, slots=True)
class Site:
    """The folder of the pages."""

    folder: Path

    def write(self, name: str, document: Any, *, api: bool = True) -> None:
        """Write a document by its name. Raises StoreError."""
        packed = msgspec.json.encode(document, enc_hook=lambda value: value.packed())
        # Two line separators are valid in JSON, but were not in scripts, and the data may be embedded in a
        # page.
        for unsafe, safe in ((b"</", b"<\\/"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")):
            packed = packed.replace(unsafe, safe)
        call = b"harness.data(%s, %s);\n" % (msgspec.json.encode(name), packed)
        self.put(f"data/{name}.js", call)
        if api:
            self.write_json(f"api/{name}.json", document)

    def change(self, path: str, keys: Mapping[str, Any]) -> None:
        """Replace values in an existing document of data/ or of api/. Raises StoreError."""
        file = self.folder / path
        try:
            content = file.read_bytes()
            is_data = file.suffix == ".js"
            known = msgspec.json.decode(
                content.partition(b", ")[2].removesuffix(b");\n") if is_data else content
            )
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"Cannot read {file} ({error}): delete {self.folder}, then publish again."
            ) from None
        if is_data:
            name = path.removeprefix("data/").removesuffix(".js")
            self.write(name, {**known, **keys}, api=False)
        else:
            self.write_json(path, {**known, **keys})

    def holds(self, name: str, text: str) -> bool:
        """Return whether there is a document of that name whose first part contains this text."""
        try:
            with (self.folder / f"data/{name}.js").open("rb") as file:
                return text.encode() in file.read(200)
        except OSError:
            return False

    def write_json(self, name: str, document: Any) -> None:
        self.put(name, msgspec.json.encode(document, enc_hook=lambda value: value.plain()) + b"\n")

    def put(self, name: str, content: bytes) -> None:
        advice = (
            "Publish again when there is room, or into another folder with --html; what was published before "
            "may be mixed with what is new."
        )
        write_file(self.folder / name, content, advice, durable=False)

    def remove(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"Cannot remove {self.folder / name}: {error.strerror or error}.") from None


def file_name(text: str) -> str:
    """Return a name for a file and a URL: the text itself if it is suitable, else with a digest of it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")
    if plain == text and 0 < len(text) <= 80:
        return text
    return f"{plain[:60]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}".strip("-")


_FIGURES = (
    *("before", "after", "effect", "low", "high", "p_value"),
    *("cycles_effect", "clock_before", "clock_after"),
)
_TRACES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


def series_file(card: str, case: SeriesCase) -> str:
    """Return the name of the document of a series."""
    identity = repr((card, case.name, case.metric))
    return "s" + hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:12]


def series_document(card: str, number: int) -> str:
    """Return the name of a file of a card's series. `number` is the cases' order over SERIES_A_FILE."""
    return f"series/{card}/{number}"


def placed_change(each: Stated, case: SeriesCase, card: int, commits: Commits) -> dict[str, Any]:
    """A change among the points of its series."""
    placed = fields_of(each.change, "at", "first", "last")
    reason = {"diagnosis": _diagnosis(each.change.diagnosis)}
    return change_document(each, case, card, commits) | placed | reason


def _diagnosis(diagnosis: Diagnosis | None) -> dict[str, Any] | None:
    """Return the reason that a comparison found: words, counters and machine code."""
    if diagnosis is None:
        return None
    counters = counter_sheet(diagnosis)
    return {
        "why": why(diagnosis),
        "counters": counters and [*zip(*(column.texts for column in counters.columns), strict=True)],
        "loop": diagnosis.loop and _loop(diagnosis.loop),
    }


def _loop(loop: LoopDifference) -> dict[str, Any]:
    sheet = loop_sheet(loop)
    return {
        "places": loop_places(loop),
        "told": f"{sheet.caption} {LOOP_RULE}",
        "title": sheet.title,
        "lines": [fields_of(each, "change", "text", "place", "count") for each in loop.lines],
    }


def change_document(each: Stated, case: SeriesCase, card: int, commits: Commits) -> dict[str, Any]:
    """Return a change with its state, for the card with that number."""
    change, bad, decision = each.change, commits[each.change.bad], each.decision
    return {
        "id": change.id,
        "card": card,
        "case": case.order,
        "series": series_file(change.card, case),
        "kind": change.kind,
        "state": each.state,
        "attribution": change.attribution,
        **{name: figure(getattr(change, name)) for name in _FIGURES},
        **fields_of(change, "good", "bad", "commits"),
        "good_hash": commits[change.good].hash,
        "bad_hash": bad.hash,
        "subject": bad.subject[:500],
        "author": bad.author[:200],
        "time": bad.time_s,
        "static": change.static,
        "shifts": [str(each) for each in change.shifts],
        "compared": change.compared,
        "triage": decision
        and {
            "reason": decision.reason,
            "author": decision.author,
            "expires": decision.expires.isoformat() if decision.expires else None,
            "largest_percent": decision.largest_percent,
        },
        "fixed_by": each.fixed_by,
        "sentence": sentence(change, case),
        "epoch": change.epoch,
    }


def numbers(figures: npt.NDArray[np.float64] | None, kind: Any) -> Numbers | None:
    return None if figures is None else Numbers(figures, kind)


def figure(value: float | None) -> float | None:
    """Return six digits, the precision of a history's values; None for no value."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def rough(share: float | None) -> float | None:
    """Return three digits, enough for a list of thousands; None for no value."""
    return None if share is None or not np.isfinite(share) else float(f"{share:.3g}")


def calibration_summary(calibration: Calibration) -> dict[str, Any]:
    verdicts, false_alarms = calibration.verdicts, calibration.false_alarms
    return {
        "measured_at": calibration.measured_at,
        "verdicts": verdicts,
        "false_alarms": false_alarms,
        "bound": false_alarm_bound(false_alarms, verdicts) if verdicts else None,
    }


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    planted = sorted((float(level), rate) for level, rate in calibration.planted.items())
    own = ("smallest_visible", "clock_exponent", "sm_clock_mhz", "power_capped")
    return {
        **calibration_summary(calibration),
        "planted": [{"percent": at, "planted": rate.planted, "found": rate.found} for at, rate in planted],
        "cases": [
            {
                "case": case,
                **fields_of(noise, *own),
                "effects": [each.value for each in noise.time],
            }
            for case, noise in calibration.every_case.items()
        ],
    }


def case_name(run: Run, row: Row) -> str:
    """Return the name that a history gives the case of a run's row, such as ``matmul.naive@1024``."""
    return CaseId.of(run.source.suite, row.kernel, row.sizes).short


def run_document(stored: RunResult, card: int, position: int | None) -> dict[str, Any]:
    """Return rows with their positions in time, and every snapshot of the card. Seconds count
    from the first.
    """
    run = stored.run
    telemetries = [row.telemetry for row in stored.rows if row.telemetry]
    snapshots = [each for one in telemetries for each in (one.before, *one.during, one.after)]
    snapshots.sort(key=lambda each: each.at_ns)
    starts = [row.measurement.started_ns for row in stored.rows if row.measurement]
    moments = [each.at_ns for each in snapshots] + [at_ns for at_ns in starts if at_ns is not None]
    zero_ns = min(moments, default=0)
    return {
        "card": card,
        "suite": run.source.suite,
        "commit": position,
        "hash": run.source.commit or "",
        "started_at": run.started_at,
        "harness_version": run.harness_version,
        "driver": run.device.driver,
        "device": run.device.name,
        "toolchain": run.toolchain.compiler if run.toolchain else "",
        "host": f"{run.host.cpu}, {run.host.os}, Python {run.host.python}",
        "settings": {key: str(value) for key, value in run.settings.items()},
        "rows": [_row(run, row, zero_ns) for row in stored.rows],
        "telemetry": _telemetry(snapshots, zero_ns) if snapshots else None,
    }


def _row(run: Run, row: Row, zero_ns: int) -> dict[str, Any]:
    measured = row.measurement
    return {
        "name": case_name(run, row),
        **fields_of(row, "status", "reason", "message"),
        "time_ms": summary_of(row, run).time_ms,
        "library_share": row.library.share if row.library else None,
        "begin_s": _since(zero_ns, measured.started_ns if measured else None),
        "end_s": _since(zero_ns, measured.ended_ns if measured else None),
    }


def _since(zero_ns: int, at_ns: int | None) -> float | None:
    return None if at_ns is None else (at_ns - zero_ns) / 1e9


def _telemetry(snapshots: Sequence[Snapshot], zero_ns: int) -> dict[str, Any]:
    at_s = np.array([(each.at_ns - zero_ns) / 1e9 for each in snapshots])
    traces = {
        # None stands for NaN.
        name: Numbers(np.array([getattr(each, name) for each in snapshots], np.float64))
        for name in _TRACES
    }
    reasons = []  # spans with constant clock reasons of the driver
    for told, group in groupby(
        zip(at_s.tolist(), snapshots, strict=True), key=lambda each: each[1].clock_event_reasons
    ):
        span = [at for at, _ in group]
        if told:
            reasons.append((span[0], span[-1], ", ".join(told)))
    return {"at_s": Numbers(at_s), **traces, "reasons": reasons}


_ATOM = "http://www.w3.org/2005/Atom"
_FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML forbids, and those that change the text direction."""
_NO_URN = r"[^A-Za-z0-9._-]+"
_GREEN, _RED, _GREY = "#2a7d4f", "#b3261e", "#6b6b6b"


def atom(
    events: Sequence[Mapping[str, Any]],
    cards: Sequence[tuple[str, str]],
    cases: Sequence[SeriesCase],
    project: str,
    generated_at: str,
) -> bytes:
    """Return an Atom feed (RFC 4287) with an entry per event. `cards` holds file and name of each card."""
    ET.register_namespace("", _ATOM)
    feed = ET.Element(f"{{{_ATOM}}}feed")
    _add(feed, "title", f"{project}: changes of speed")
    _add(feed, "id", f"urn:gpu-harness:{re.sub(_NO_URN, '-', project) or 'project'}")
    _add(feed, "updated", generated_at)
    _add(_add(feed, "author"), "name", "gpu-harness")
    _add(feed, "link", rel="self", href="feed.xml")
    _add(feed, "link", rel="alternate", href="index.html")
    for event in events:
        _entry(feed, event, cards, cases)
    written: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return written


def _entry(
    feed: ET.Element,
    event: Mapping[str, Any],
    cards: Sequence[tuple[str, str]],
    cases: Sequence[SeriesCase],
) -> None:
    worst, suspect = event["worst"], event["suspects"][0]
    file, name = cards[worst["card"]]
    case = cases[worst["case"]]
    entry = _add(feed, "entry")
    state = f" ({event['state']})" if event["state"] else ""
    what = "unjudged" if event["state"] == "unjudged" else f"{event['kind']}{state}"
    more = event["changes"] - 1
    others = f", and {more} more on {counted(len(event['cards']), 'card')}" if more else ""
    change = percent(timed_effect(worst["effect"], case), sign=True)
    _add(entry, "title", f"{what}: {case.name} on {name} {change}{others}")
    _add(entry, "id", f"urn:gpu-harness:event:{event['id']}")
    time = dt.datetime.fromtimestamp(suspect["time"], tz=dt.timezone.utc)
    _add(entry, "updated", time.isoformat(timespec="seconds"))
    place = urlencode({"card": file, "case": case.name, "change": worst["id"]}, errors="replace")
    _add(entry, "link", href=f"case.html#{place}")
    commit = f"{suspect['hash'][:10]} {suspect['subject']} ({suspect['author']})"
    among = "" if event["commits"] == 1 else f"At least one of {event['commits']} commits, perhaps "
    who = f"{among}{commit}" if event["likely"] else "No commit is accused, as none there touches code."
    _add(entry, "summary", f"{worst['sentence']} {who}")


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, f"{{{_ATOM}}}{name}", attributes)
    if text:
        child.text = _FORBIDDEN.sub("\ufffd", text)
    return child


@dataclass(frozen=True, slots=True, kw_only=True)
class CardStatus:
    """A card's status for the list of cards and for its badge."""

    open: int
    """Number of open regressions."""
    unjudged: int
    """Number of cases whose newest points are off their level, too recent for a verdict."""
    unknown: int
    """Number of series with too few points to know their noise."""
    series: int
    """Number of series with a known or guessed better direction."""
    stale: bool
    """True if it has not been measured for long, while others have."""

    @property
    def words(self) -> tuple[str, str]:
        """Return text and colour of a badge: green only if something was judged and nothing is open."""
        if not self.series:
            return "not measured", _GREY
        if self.open:
            return counted(self.open, "regression"), _RED
        if self.unjudged:
            return f"{self.unjudged} unjudged", _GREY
        if self.stale:
            return "not measured lately", _GREY
        if self.unknown == self.series:
            return "too few points", _GREY
        return "no regression", _GREEN


def badge(card: str, status: CardStatus) -> dict[str, Any]:
    """Return the JSON for shields.io's endpoint badge."""
    message, colour = status.words
    return {"schemaVersion": 1, "label": card, "message": message, "color": colour.removeprefix("#")}


def badge_svg(card: str, status: CardStatus) -> bytes:
    """Return the badge as a picture, for pages that must not load from other sites."""
    message, colour = status.words
    label = _FORBIDDEN.sub("\ufffd", card)[:40]
    left, right = (round(6.6 * len(text)) + 12 for text in (label, message))
    shown = {"label": label, "message": message, "colour": colour, "left": left, "right": right}
    template = html_environment(Path(__file__).parent).get_template("badge.svg.j2")
    return template.render(shown).encode()
