"""A review as a comment and as a job's summary."""

from __future__ import annotations

import html
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.numbers import counted, effect, percent, seconds, typeset
from harness.records.types import Effect, Verdict
from harness.report.document.document import CardReview, Review
from harness.report.document.outcome import (
    CaseOnCard,
    Groups,
    Links,
    by_effect,
    calibrated,
    facts,
    grouped,
    headline,
    review_outcome,
    rules,
    shortcomings,
    total,
    twin,
    units_of,
    verb,
)
from harness.report.table import Cell, Sheet
from harness.report.templates import code, pre
from harness.report.words.of_verdict import commit_label, leading, reason, remedy, sentence, verdict_columns
from harness.suite.case_id import size_label


def link(address: str, inner: str) -> str:
    """HTML as a link; without one where there is no address."""
    return f'<a href="{html.escape(address)}">{inner}</a>' if address else inner


def listed(texts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


@dataclass(frozen=True, slots=True)
class Item:
    """Something that is shown in full or, where room is short, in brief."""

    full: str
    brief: str = ""
    """Empty where there is no shorter form."""
    cases: int = 1

    @property
    def short(self) -> str:
        return self.brief or self.full


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a face: what opens it, as many of its items as fit, what closes it, what was left out."""

    tier: int = 0
    """Lower ones are served first, in brief and then in full."""
    opening: str = ""
    items: Iterable[Item] = ()
    closing: str = ""
    cases: int = 0
    more: Callable[[int], str] = str
    """Says of how many cases no item was shown. It grows with the number alone."""


def fixed(text: str) -> Part:
    """What is always shown whole."""
    return Part(opening=text)


def did_not_fit(cases: int, where: str) -> str:
    return f"<p>{counted(cases, 'case')} more did not fit {where}.</p>"


def fit(parts: Sequence[Part], limit_bytes: int) -> str:
    """The parts in order, with as many items as there is room for.

    Within a tier every item is shown in brief before any is shown in full. What opens and closes a part and
    the sentence on what it leaves out are always there: the caller keeps them short.
    """
    texts: list[list[str]] = [[] for _ in parts]
    unnamed = [part.cases for part in parts]
    room = limit_bytes - sum(map(_frame_bytes, parts))
    for tier in sorted({part.tier for part in parts}):
        taken = []
        for at, part in enumerate(parts):
            for item in part.items if part.tier == tier else ():
                if (needed := _bytes(item.short) + 1) > room:
                    break
                room -= needed
                taken.append((texts[at], len(texts[at]), item))
                texts[at].append(item.short)
                unnamed[at] -= item.cases
        for shown, index, item in taken:
            if (needed := _bytes(item.full) - _bytes(item.short)) <= room:
                room -= needed
                shown[index] = item.full
    whole = (
        (part.opening, *shown, part.closing, part.more(left) if left > 0 else "")
        for part, shown, left in zip(parts, texts, unnamed, strict=True)
    )
    return "\n\n".join("\n".join(filter(None, each)) for each in whole) + "\n"


def _frame_bytes(part: Part) -> int:
    more = part.more(part.cases) if part.cases else ""
    return sum(_bytes(text) + 1 for text in (part.opening, part.closing, more)) + 2


def _bytes(text: str) -> int:
    return len(text.encode())


_FINEST = 1e-4
_TICKS = tuple(digit * 10.0**power for power in range(6, -5, -1) for digit in (5, 2, 1))
_TICKS_APART = 0.07
_BEYOND = 1.2
"""How much further a scale goes than what it is to hold."""
_WIDE = 5
"""Tolerances: where an interval ends further out it is cut off."""
_DOTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Places of effects from 0, on the left, to 1. Linear about no effect, logarithmic further out, so that
    one large effect leaves the small ones their room.
    """

    linear: float
    """An effect up to which it is about linear."""
    reach: float
    margin: float

    def place(self, share: float) -> float:
        """Where an effect is drawn; one beyond the scale at its end."""
        at = math.asinh(share / self.linear) / math.asinh(self.reach / self.linear)
        return min(max((1 + at) / 2, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """None, and round effects on both sides whose places are apart, the largest first."""
        chosen = [0.0]
        last = 1.0 + _TICKS_APART / 2
        for tick in (tick for tick in _TICKS if tick <= self.reach):
            at = self.place(tick)
            if min(last - at, at - 0.5) >= _TICKS_APART:
                chosen += [tick, -tick]
                last = at
        return chosen


def scale_of(card: CardReview) -> Scale:
    """One that holds every effect of a card, and intervals unless they are wide."""
    changes = [case.time for case in card.cases if case.time]
    linear = max(card.tolerance, _FINEST)
    bounds = (min(abs(bound), _WIDE * linear) for change in changes for bound in (change.low, change.high))
    reach = max(2 * linear, *bounds, *(abs(change.effect) for change in changes), 0.0)
    return Scale(linear=linear, reach=_BEYOND * reach, margin=max(card.margin, 0.0))


def axis_text(scale: Scale, columns: int) -> str:
    """The ticks above strips of text; one that would touch another is left out."""
    line = [" "] * (columns + 8)
    for tick in scale.ticks():
        told = _named(tick)
        start = max(_column(scale, tick, columns) - len(told) // 2, 0)
        if not "".join(line[max(start - 1, 0) : start + len(told) + 1]).strip():
            line[start : start + len(told)] = told
    return "".join(line).rstrip() + " %"


def strip_text(scale: Scale, change: Effect | None, columns: int) -> str:
    """``..:..   |---o---|``: the margin's zone in dots about no effect, and the interval with its effect."""
    line = [" "] * columns
    _fill(line, _column(scale, -scale.margin, columns), _column(scale, scale.margin, columns), ".")
    line[_column(scale, 0.0, columns)] = ":"
    if change:
        low, high = sorted((change.low, change.high))
        first, last = _column(scale, low, columns), _column(scale, high, columns)
        if last - first > 1:
            _fill(line, first, last, "-")
            line[first] = "|" if scale.place(low) > 0 else "<"
            line[last] = "|" if scale.place(high) < 1 else ">"
        line[_column(scale, change.effect, columns)] = "o"
    return "".join(line)


def _column(scale: Scale, share: float, columns: int) -> int:
    return round(scale.place(share) * (columns - 1))


def _fill(line: list[str], first: int, last: int, mark: str) -> None:
    line[first : last + 1] = mark * (last + 1 - first)


def strip_svg(scale: Scale, change: Effect, told: str) -> str:
    """One case: zone of the margin, no effect, interval, processes as dots, effect. `told` says it in words;
    the colours are the page's.
    """
    said = html.escape(told)
    left, right = scale.place(-scale.margin), scale.place(scale.margin)
    low, high = (scale.place(share) for share in sorted((change.low, change.high)))
    drawn = [
        f'<rect class="zone" x="{_x(left)}" width="{_x(right - left)}" y="0" height="22"/>',
        '<line class="zero" x1="50%" x2="50%" y1="0" y2="22"/>',
        f'<line class="interval" x1="{_x(low)}" x2="{_x(high)}" y1="11" y2="11"/>',
        *(
            f'<line class="interval" x1="{_x(end)}" x2="{_x(end)}" y1="7" y2="15"/>'
            for end in (low, high)
            if 0 < end < 1  # elsewhere it goes on beyond the strip
        ),
        *(
            f'<circle class="process" cx="{_x(scale.place(each))}" cy="11" r="2"/>'
            for each in change.process_effects[:_DOTS]
        ),
        f'<circle class="effect" cx="{_x(scale.place(change.effect))}" cy="11" r="4"/>',
    ]
    return (
        f'<svg class="strip" width="100%" height="22" role="img" aria-label="{said}">'
        f"<title>{said}</title>{''.join(drawn)}</svg>"
    )


def axis_svg(scale: Scale) -> str:
    places = {_named(tick): _x(scale.place(tick)) for tick in scale.ticks()}
    marks = "".join(
        f'<line class="tick" x1="{x}" x2="{x}" y1="17" y2="22"/>'
        f'<text x="{x}" y="13" text-anchor="middle">{name}</text>'
        for name, x in places.items()
    )
    return f'<svg class="axis" width="100%" height="22" aria-hidden="true">{marks}</svg>'


def _named(tick: float) -> str:
    return typeset(f"{100 * tick:+g}") if tick else "0"


def _x(place: float) -> str:
    return f"{100 * place:.2f}%"


_SIGNS: Mapping[str, str] = {
    "regression": "🔴",
    "invalid": "🟠",
    "inconclusive": "🟡",
    "empty": "⚪",
    "clean": "🟢",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A review on its way to a face, and how much the face shows before it folds."""

    review: Review
    links: Links
    paragraphs: int
    """Cases, or groups of them, of one kind that get a paragraph of their own."""
    names: int
    """Cases that are named in a row."""
    log_characters: int
    heading: str = "h3"
    sign: bool = True
    """Whether a coloured dot goes before the headline: not every machine has a font with one."""

    def name(self, found: CaseOnCard) -> str:
        return f"{code(found.label)}{self._on(found.card.device)}"

    def _on(self, device: str) -> str:
        return f" on {code(device)}" if len(self.review.cards) > 1 else ""

    def names_of(self, found: Sequence[CaseOnCard]) -> str:
        """Names in a row, those of one card together."""
        of_cards: dict[str, list[str]] = defaultdict(list)
        for each in found[: self.names]:
            of_cards[each.card.device].append(code(each.label))
        told = [f"{listed(names)}{self._on(device)}" for device, names in of_cards.items()]
        left = len(found) - self.names
        return "; ".join([*told, f"{left:,} more"] if left > 0 else told)

    def place(self, found: CaseOnCard) -> str:
        """Where the kernel begins, as a link to it at head; empty where that is not known."""
        where = found.card.places.get(found.case.kernel)
        if where is None:
            return ""
        repository, head = self.links.repository, self.review.head
        address = f"{repository}/blob/{head}/{where.path}#L{where.line}" if repository and head else ""
        shown = where.path.rpartition("/")[2] if address else where.path
        return link(address, code(f"{shown}:{where.line}"))


def body(view: View, middle: Sequence[Part] = ()) -> list[Part]:
    """What every face shows, with what it shows of its own in the middle."""
    groups = grouped(view.review)
    basis = Part(
        tier=1,
        opening="<details><summary>What this rests on</summary>\n<ul>",
        items=(Item(f"<li>{_of_card(card)}</li>") for card in view.review.cards),
        closing="</ul>\n</details>",
    )
    further = {
        "the run that measured": view.links.run,
        "the page with plots (perf-report)": view.links.page,
        "history": view.links.history,
    }
    foot = [link(address, text) for text, address in further.items() if address]
    foot.append(f"gpu-harness {code(view.review.harness_version)}, {code(view.review.created_at)}")
    return [
        _title(view, groups),
        *_acted_on(view, groups),
        *_changed_problems(view),
        *_fortunate(view, groups),
        *middle,
        basis,
        fixed(f"<p>{' · '.join(foot)}</p>"),
    ]


def _title(view: View, groups: Groups) -> Part:
    review, several = view.review, len(view.review.cards) > 1
    devices = list(dict.fromkeys(card.device for card in review.cards))
    where = listed(list(map(code, devices))) if len(devices) < 4 else f"{len(devices)} models"
    sign = f"{_SIGNS[review_outcome(review).state]} " if view.sign else ""
    commits = view.links.repository and f"{view.links.repository}/commit/"
    ends = [
        link(f"{commits}{commit}" if commits and commit else "", code(commit_label(commit)))
        for commit in (review.base, review.head)
    ]
    held = Counter(said for card in review.cards for said in shortcomings(card))
    lines = [
        f"<{view.heading}>{sign}{headline(review, groups, code)}</{view.heading}>",
        f"<p>{' → '.join(ends)}{' on ' if where else ''}{where}</p>",
        *(
            f"<p><b>{said}</b>{f' (On {cards} of {len(review.cards)} cards.)' if several else ''}</p>"
            for said, cards in held.items()
        ),
    ]
    return fixed("\n".join(lines))


def _every_case(view: View) -> list[Part]:
    """One table of all cards: case by case, in the order of the suite."""
    cases = total(view.review)
    if not cases:
        return []
    found = [CaseOnCard(card, case) for card in view.review.cards for case in card.cases]
    names = [Cell(each.label, "code") for each in found]
    # The verdict first: a comment is 800 pixels wide, a telephone's 350, and what is beyond is scrolled to.
    *figures, verdicts = verdict_columns("case", names, [each.case for each in found], sizes=False)
    sheet = Sheet(columns=[verdicts, *figures])
    return [
        Part(
            tier=2,
            opening=f"<details><summary>{counted(cases, 'case')}</summary>\n<table>\n{sheet.html_head()}",
            items=_rows(view, sheet),
            closing="</table>\n</details>",
            cases=cases,
            more=lambda left: f"<p>{left:,} of {counted(cases, 'case')} did not fit into the table.</p>",
        )
    ]


def _rows(view: View, sheet: Sheet) -> Iterator[Item]:
    rows = sheet.html_rows()
    for card in view.review.cards:
        above = ""
        if len(view.review.cards) > 1:
            above = f'<tr><th colspan="{len(sheet.shown)}">{card.suite} on {code(card.device)}</th></tr>\n'
        for _, row in zip(card.cases, rows, strict=False):
            yield Item(above + row)
            above = ""


def _of_card(card: CardReview) -> str:
    built = f", {code(card.compiler)}" if card.compiler else ""
    twins = f" The comparison's test of itself: {listed([twin(each) for each in card.twins])}."
    dirty = " Head was a working tree with changes." if card.head_dirty else ""
    driver = f", driver {code(card.driver)}" if card.driver else ""
    spent = f" in {typeset(seconds(card.gpu_s))} of device time" if card.gpu_s else ""
    told = (
        f"<b>{card.suite} on {code(card.device)}</b> ({code(card.spec)}{driver}{built}): "
        f"{counted(len(card.cases), 'case')}{spent}.{dirty}<br>\n{rules(card)}<br>\n"
        f"{calibrated(card)}{twins if card.twins else ''}"
    )
    problem = f"\n{pre(card.problem)}" if card.problem else ""
    return f"{told}{problem}{_sentences('Left out', card.left_out)}{_sentences('Notes', card.notes)}"


def _sentences(title: str, texts: Sequence[str]) -> str:
    items = "".join(f"\n<li>{code(text)}</li>" for text in texts)
    return f"<br>\n{title}:\n<ul>{items}\n</ul>" if items else ""


def _acted_on(view: View, groups: Groups) -> list[Part]:
    """What somebody has to look at, the worst first."""
    broken = [_failure(view, found, "at head") for found in _alike(groups.broken, _by_evidence)]
    unjudged = [
        _failure(view, found, f"at {found[0].case.side or 'base or head'}")
        if found[0].case.status == "failed"
        else _open(view, found)
        for found in _alike((*groups.invalid, *groups.inconclusive), _by_remedy)
    ]
    unjudged += [_slowed(view, found) for found in groups.by_card]
    are_missing = f"{counted(len(groups.missing), 'case')} {verb(len(groups.missing), 'is', 'are')} missing"
    missing = Item(
        f"<p><b>{are_missing} at head</b>: {view.names_of(groups.missing)}. "
        "Fine where a kernel or a size was removed or renamed on purpose; else bring it back.</p>",
        cases=len(groups.missing),
    )
    return [
        *_slower(view, groups.slower),
        *_paragraphs(broken, len(groups.broken), "fail at head"),
        *_paragraphs([missing], len(groups.missing), "are missing at head"),
        *_paragraphs(unjudged, len(groups.unjudged), "could not be judged"),
    ]


def _changed_problems(view: View) -> list[Part]:
    """What head's problem asks for otherwise than base's: `verified` means something else there."""
    of_suites: dict[str, dict[str, None]] = defaultdict(dict)
    for card in view.review.cards:
        of_suites[card.suite] |= dict.fromkeys(card.problem_changes)
    return [
        Part(
            opening=f"<p><b>The problem of {suite} changed</b>, and with it what verified means:</p>\n<ul>",
            items=(Item(f"<li>{code(change)}</li>", f"<li>{code(change[:200])}</li>") for change in changes),
            closing="</ul>",
            cases=len(changes),
            more=lambda left: f"<p>{counted(left, 'change')} more did not fit here.</p>",
        )
        for suite, changes in of_suites.items()
        if changes
    ]


def _paragraphs(items: Sequence[Item], cases: int, what: str) -> list[Part]:
    if not cases:
        return []
    return [Part(items=items, cases=cases, more=lambda left: f"<p>{left:,} more {what}.</p>")]


def _slower(view: View, slower: Sequence[CaseOnCard]) -> list[Part]:
    first, rest = slower[: view.paragraphs], slower[view.paragraphs :]
    parts = _paragraphs([_slowed(view, found) for found in first], len(first), "are slower")
    if rest:
        summary = counted(len(rest), "more is slower", "more are slower")
        parts.append(
            Part(
                tier=1,
                opening=f"<details><summary>{summary}</summary>\n<ul>",
                items=(Item(f"<li>{_brief(view, found)}</li>") for found in rest),
                closing="</ul>\n</details>",
                cases=len(rest),
                more=lambda left: f"<p>{left:,} of those that are slower are not named here.</p>",
            )
        )
    if again := _commands(view.review, first):
        parts.append(fixed(f"<p>To see it again, on the same card:</p>\n{pre(again)}"))
    return parts


def _slowed(view: View, found: CaseOnCard) -> Item:
    told = " · ".join(filter(None, (view.place(found), *facts(found.case), _visible(found.case))))
    said = typeset(sentence(found.case, units_of(found.card)))
    return Item(
        f"<p><b>{view.name(found)}</b>: {said}<br>\n{told}</p>",
        f"<p>{_brief(view, found)}</p>",
    )


def _brief(view: View, found: CaseOnCard) -> str:
    return f"{view.name(found)} {by_effect(found.case)}".rstrip()


def _commands(review: Review, found: Sequence[CaseOnCard]) -> str:
    """What compares these cases again, for each card and suite."""
    if not review.base or not review.head:
        return ""
    compare, lines = f"harness compare {review.base[:10]} {review.head[:10]}", []
    of_cards: dict[tuple[str, str, str], list[Verdict]] = {}
    for each in found:
        if not each.card.executables:
            place = (each.card.device, each.card.spec, each.card.suite)
            of_cards.setdefault(place, []).append(each.case)
    for (device, spec, suite), cases in of_cards.items():
        kernels = dict.fromkeys(f"{suite}.{case.kernel}" for case in cases)
        sizes = dict.fromkeys(f"--size {size_label(case.sizes)}" for case in cases if case.sizes)
        lines.append(f"# {device}, {spec} there")
        lines.append(" \\\n  ".join((compare, *kernels, " ".join(sizes))))
    return "\n".join(lines)


def _alike(found: Iterable[CaseOnCard], key: Callable[[CaseOnCard], object]) -> list[list[CaseOnCard]]:
    groups: dict[object, list[CaseOnCard]] = defaultdict(list)
    for each in found:
        groups[key(each)].append(each)
    return list(groups.values())


def _by_evidence(found: CaseOnCard) -> object:
    """One broken file costs many cases, and is shown once."""
    case = found.case
    return case.status, case.side, case.reason, case.log or case.message


def _by_remedy(found: CaseOnCard) -> object:
    case = found.case
    return _by_evidence(found) if case.status == "failed" else (case.status, case.reason, _to_do(found))


def _failure(view: View, found: Sequence[CaseOnCard], where: str) -> Item:
    case = found[0].case
    what = f"{counted(len(found), 'case')} {verb(len(found), 'fails', 'fail')} {where}"
    brief = f"<b>{what}</b>: {_what(case)}. {view.names_of(found)}."
    places = dict.fromkeys(filter(None, map(view.place, found[: view.names])))
    is_kernel = case.side == "head" and not found[0].card.executables
    again = f"To see it again: {code(f'harness check {found[0].label}')}" if is_kernel else ""
    told = [brief, f"{listed(list(places))}." if places else "", _to_do(found[0]), again]
    evidence = "\n".join(filter(None, (case.message, case.log[-view.log_characters :])))
    said = f"\n<details><summary>Message and log</summary>\n{pre(evidence)}\n</details>" if evidence else ""
    return Item(f"<p>{' '.join(filter(None, told))}</p>{said}", f"<p>{brief}</p>", len(found))


def _what(case: Verdict) -> str:
    """What is the matter; of an invalid case with the gate, by whose name it is documented."""
    told = reason(case)
    return f"{told} ({code(case.reason)})" if told and case.status == "invalid" else told or code(case.reason)


def _to_do(found: CaseOnCard) -> str:
    # Benchmarks of others are not calibrated: how they differ is measured by running them often enough.
    card = found.card
    hint = remedy(found.case, calibrated=card.executables or card.calibrated is not None)
    return f"To do: {hint}." if hint else ""


def _open(view: View, found: Sequence[CaseOnCard]) -> Item:
    case, to_do = found[0].case, _to_do(found[0])
    lead = (
        f"<b>{counted(len(found), 'case')} {verb(len(found), 'is', 'are')} {case.status}</b>: {_what(case)}."
    )
    brief = f"<p>{lead} {view.names_of(found)}."
    if case.status != "inconclusive" or not any(each.case.time for each in found):
        return Item(f"{brief} {to_do}</p>", f"{brief}</p>", len(found))
    shown = (
        ", ".join(filter(None, (_brief(view, each), _visible(each.case)))) for each in found[: view.names]
    )
    lines = [f"<li>{each}</li>" for each in shown]
    if left := len(found) - len(lines):
        lines.append(f"<li>{left:,} more, in the table below</li>")
    full = "\n".join((f"<p>{lead} {to_do}</p>", "<ul>", *lines, "</ul>"))
    return Item(full, f"{brief}</p>", len(found))


def _visible(case: Verdict) -> str:
    visible = case.smallest_visible
    return "" if visible is None else f"visible from {typeset(percent(visible))}"


def _fortunate(view: View, groups: Groups) -> list[Part]:
    told = []
    for found, what in ((groups.faster, "faster"), (groups.new, "new, and right")):
        named = [_brief(view, each) for each in found[: view.names]]
        left = len(found) - len(named)
        names = listed([*named, f"{left:,} more"] if left else named)
        lead = f"<b>{len(found):,} {verb(len(found), 'is', 'are')} {what}</b>"
        if found:
            told.append(Part(tier=1, items=[Item(f"<p>{lead}: {names}.</p>", f"<p>{lead}.</p>")]))
    return told


COMMENT_BYTES = 65_536
"""GitHub takes as many characters; so many bytes are never more."""


def comment(review: Review, links: Links, *, marker: str = "", limit_bytes: int = COMMENT_BYTES) -> str:
    """The comment's body, whose first line is `marker`, an HTML comment, where one is given.

    Where not everything fits, what is folded goes first; of what somebody has to act on, at least the number
    of those that are not named is told.
    """
    view = View(review=review, links=links, paragraphs=8, names=6, log_characters=2000)
    parts = body(view, _every_case(view))
    return fit([fixed(marker), *parts] if marker else parts, limit_bytes)


SUMMARY_BYTES = 1024 * 1024
"""The largest summary of one step; GitHub drops a larger one whole."""
_COLUMNS = 41
_WIDEST = 32
"""Characters of a case's name."""


def summary(review: Review, links: Links) -> str:
    view = View(review=review, links=links, paragraphs=20, names=20, log_characters=8000)
    forests = [_forest(card) for card in review.cards if any(case.time for case in card.cases)]
    return fit(body(view, [*forests, *_every_case(view)]), SUMMARY_BYTES)


def _forest(card: CardReview) -> Part:
    """Each case that was measured on a line of its own, under one axis."""
    measured = [CaseOnCard(card, case) for case in card.cases if case.time]
    widest = min(max(len(_name(found)) for found in measured), _WIDEST)
    scale = scale_of(card)
    return Part(
        tier=1,
        opening=(
            f"<p><b>{card.suite} on {code(card.device)}</b>: change of time; the dots are the margin.</p>\n"
            f"<pre>{' ' * widest}  {axis_text(scale, _COLUMNS)}"
        ),
        items=(Item(html.escape(_line(found, widest, scale))) for found in measured),
        closing="</pre>",
        cases=len(measured),
        more=lambda left: did_not_fit(left, "into the plot"),
    )


def _line(found: CaseOnCard, widest: int, scale: Scale) -> str:
    name, case = _name(found), found.case
    name = name if len(name) <= widest else f"…{name[1 - widest :]}"
    cycles = f", cycles {effect(case.cycles)}" if leading(case)[1] == "cycles" else ""
    shown = f"{effect(case.time):>15} {case.status}{cycles}"
    return f"{name:{widest}}  {strip_text(scale, case.time, _COLUMNS)}  {typeset(shown)}"


def _name(found: CaseOnCard) -> str:
    """Without the suite's: it is above the plot."""
    return found.label.removeprefix(f"{found.card.suite}.")
