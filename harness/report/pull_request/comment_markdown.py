"""A review as a comment and as a job's summary."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path

from harness.numbers import counted, effect, percent, seconds, typeset
from harness.records.imports.pytest_benchmark_files import TESTS
from harness.records.types import Verdict
from harness.report.document.document import CardReview, Review
from harness.report.document.outcome import (
    CaseOnCard,
    Groups,
    Links,
    by_effect,
    calibrated,
    every_case,
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
from harness.report.pull_request.plots import Scale, axis_text, scale_of, strip_text
from harness.report.table import Cell, Sheet
from harness.report.templates import Markup, code, html_environment, safe
from harness.report.words.of_diagnosis import LOOP_RULE, counter_sheet, loop_places, loop_sheet
from harness.report.words.of_launches import launches
from harness.report.words.of_verdict import (
    commit_label,
    held_to,
    leading,
    outputs_counted,
    reason,
    remedy,
    sentence,
    settings,
    verdict_columns,
    why,
)
from harness.suite.case_id import size_label


def listed(texts: Sequence[str]) -> str:
    """Return the texts as ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def _listed(values: Iterable[object]) -> Markup:
    return Markup(listed([*map(safe, values)]))


@cache
def renderer(template: str) -> Callable[..., Iterable[str]]:
    """Return a function that renders a template of this folder in pieces."""
    made = html_environment(Path(__file__).parent)
    made.filters |= {"listed": _listed, "twin": twin, "typeset": typeset}
    words = (calibrated, commit_label, counted, facts, link, outputs_counted, reason, rules, seconds)
    made.globals |= {each.__name__: each for each in (*words, sentence, units_of, verb)} | {
        "launches": lambda case: Markup(launches(case, code)),
        "settings": lambda case: Markup(settings(case, code)),
        "to_do": _to_do,
        "visible": _visible,
        "why": lambda case: Markup(why(case.diagnosis, code)),
        "counter_sheet": counter_sheet,
        "loop_places": loop_places,
        "loop_rule": LOOP_RULE,
        "loop_sheet": loop_sheet,
    }
    return made.get_template(template).generate


@dataclass(frozen=True, slots=True)
class Detail:
    """Numbers of items that a view shows of each list, in the order in which detail is reduced."""

    rows: int
    """Rows of tables."""
    listed: int
    """Items of folded lists, and of lists without a required action."""
    full: int
    """Paragraphs and changes shown in full. The others are shortened."""
    shown: int
    """Paragraphs and changes shown, in full or shortened. The others are counted."""


def fitted(render: Callable[[Detail], Iterable[str]], most: int, limit_bytes: int) -> str:
    """Render with as much detail as fits into `limit_bytes`; no list is longer than `most`.

    `render` yields the text in pieces, and is stopped when these no longer fit. The caller keeps the
    unconditional part short.
    """

    def is_too_long(detail: Detail) -> bool:
        sizes = accumulate(len(piece.encode()) for piece in render(detail))
        return any(size > limit_bytes for size in sizes)

    def reduced(detail: Detail, name: str) -> Detail:
        counts = [replace(detail, **{name: count}) for count in range(most + 1)]
        if is_too_long(counts[0]):
            return counts[0]
        return counts[bisect_left(counts, True, lo=1, key=is_too_long) - 1]

    detail = Detail(most, most, most, most)
    for each in fields(Detail):
        if is_too_long(detail):
            detail = reduced(detail, each.name)
    return "".join(render(detail))


_SIGNS: Mapping[str, str] = {
    "regression": "🔴 ",
    "invalid": "🟠 ",
    "inconclusive": "🟡 ",
    "empty": "⚪ ",
    "clean": "🟢 ",
}


@dataclass(frozen=True, kw_only=True)
class View:
    """A review for rendering, and how much is shown before it is folded."""

    review: Review
    links: Links
    paragraphs: int
    """Cases, or groups of cases, of one kind with their own paragraph."""
    names: int
    """Cases named in a row."""
    log_characters: int
    heading: str = "h3"
    scrolls: bool = False
    """True where a table in a paragraph has a region of its own that scrolls."""
    has_sign: bool = True
    """True for a coloured dot before the headline. Not every machine has a font with such dots."""

    def fitted(self, template: str, limit_bytes: int, **given: object) -> str:
        """Render a template of this folder with as much detail as fits."""
        render = renderer(template)
        most = max(total(self.review), len(self.review.cards), *map(len, self.problem_changes.values()))
        return fitted(lambda detail: render(view=self, detail=detail, **given), most, limit_bytes)

    @cached_property
    def groups(self) -> Groups:
        return grouped(self.review)

    @cached_property
    def headline(self) -> Markup:
        sign = _SIGNS[review_outcome(self.review).state] if self.has_sign else ""
        return Markup(sign + headline(self.review, self.groups, code))

    @cached_property
    def devices(self) -> list[str]:
        return list(dict.fromkeys(card.device for card in self.review.cards))

    @cached_property
    def held(self) -> Mapping[str, int]:
        """Return weaknesses of the cards' verdicts, with the number of affected cases."""
        return Counter(said for card in self.review.cards for said in shortcomings(card))

    @cached_property
    def broken(self) -> list[Sequence[CaseOnCard]]:
        return _alike(self.groups.broken, _by_evidence)

    @cached_property
    def unjudged(self) -> list[Sequence[CaseOnCard]]:
        judged = _alike((*self.groups.invalid, *self.groups.inconclusive), _by_remedy)
        return [*judged, *([found] for found in self.groups.by_card)]

    @cached_property
    def new(self) -> str:
        """Return the word for new cases: right if a reference verified all of them, as in older reports."""
        is_right = all(
            held_to(found.case) in ("", "verified") and not found.card.executables
            for found in self.groups.new
        )
        return "new, and right" if is_right else "new"

    @cached_property
    def problem_changes(self) -> Mapping[str, Sequence[str]]:
        """Return the changes from base's problems to head's, by suite."""
        of_suites: dict[str, dict[str, None]] = defaultdict(dict)
        for card in self.review.cards:
            of_suites[card.suite] |= dict.fromkeys(card.problem_changes)
        return {suite: list(changes) for suite, changes in of_suites.items() if changes}

    @cached_property
    def again(self) -> str:
        """Return commands that repeat the comparison of the worst cases, for each card and suite; empty for
        none.
        """
        base, head = self.review.base, self.review.head
        lines = []
        of_cards: dict[tuple[str, str, str], list[Verdict]] = {}
        tests: dict[tuple[str, str], list[CaseOnCard]] = {}
        for each in self.groups.slower[: self.paragraphs] if base and head else ():
            if each.card.suite == TESTS:
                tests.setdefault((each.card.device, each.card.spec), []).append(each)
            elif not (each.card.executables or each.card.scripts):
                place = (each.card.device, each.card.spec, each.card.suite)
                of_cards.setdefault(place, []).append(each.case)
        for (device, spec), found in tests.items():
            lines += [f"# {device}, {spec} there", self._in_pytest(found, compare=True)]
        for (device, spec, suite), cases in of_cards.items():
            kernels = dict.fromkeys(f"{suite}.{case.kernel}" for case in cases)
            sizes = dict.fromkeys(f"--size {size_label(case.sizes)}" for case in cases if case.sizes)
            compare = f"harness compare {(base or '')[:10]} {(head or '')[:10]}"
            lines += [f"# {device}, {spec} there", " \\\n  ".join((compare, *kernels, " ".join(sizes)))]
        return "\n".join(lines)

    def _in_pytest(self, found: Sequence[CaseOnCard], *, compare: bool) -> str:
        """Return the command that runs the files of these tests at head."""
        base, head = (self.review.base or "")[:10], (self.review.head or "")[:10]
        places = (each.card.places.get(each.case.kernel) for each in found)
        files = dict.fromkeys(place.path for place in places if place)
        more = ["--perf-base", base] if compare else []
        return " ".join((f"git checkout {head} && pytest", *files, *more))

    def name(self, found: CaseOnCard) -> Markup:
        return code(found.label) + self._on(found.card.device)

    def _on(self, device: str) -> Markup:
        return Markup(" on {}").format(code(device)) if len(self.review.cards) > 1 else Markup()

    def names_of(self, found: Sequence[CaseOnCard]) -> Markup:
        """Return the names in a row, grouped by card."""
        of_cards: dict[str, list[Markup]] = defaultdict(list)
        for each in found[: self.names]:
            of_cards[each.card.device].append(code(each.label))
        told = [_listed(names) + self._on(device) for device, names in of_cards.items()]
        left = len(found) - self.names
        return Markup("; ").join([*told, f"{left:,} more"] if left > 0 else told)

    def check(self, found: CaseOnCard) -> str:
        """Return the command that reproduces a failure. One side alone is enough.

        Empty for executables and scripts, which have their own commands.
        """
        base, head = self.review.base, self.review.head
        if found.card.suite == TESTS:
            return self._in_pytest([found], compare=found.case.reason == "differs-from-base")
        if found.card.executables or found.card.scripts:
            return ""
        if found.case.reason == "differs-from-base" and base and head:
            return f"harness compare {base[:10]} {head[:10]} {found.label}"
        return f"harness check {found.label}"

    def brief(self, found: CaseOnCard) -> Markup:
        moved, outputs = by_effect(found.case), found.case.outputs
        unknown = " (outputs not compared)" if outputs and outputs.held_to == "nothing" else ""
        return self.name(found) + (f" {moved}" if moved else "") + unknown

    def briefs(self, found: Sequence[CaseOnCard]) -> list[Markup | str]:
        left = len(found) - self.names
        return [*map(self.brief, found[: self.names]), *([f"{left:,} more"] if left > 0 else [])]

    def place(self, found: CaseOnCard) -> Markup:
        """Return a link to the kernel's first line at head; empty if unknown."""
        where = found.card.places.get(found.case.kernel)
        if where is None:
            return Markup()
        repository, head = self.links.repository, self.review.head
        address = f"{repository}/blob/{head}/{where.path}#L{where.line}" if repository and head else ""
        shown = where.path.rpartition("/")[2] if address else where.path
        return link(address, code(f"{shown}:{where.line}"))

    def places(self, found: Sequence[CaseOnCard]) -> list[Markup]:
        return list(dict.fromkeys(filter(None, map(self.place, found[: self.names]))))

    def evidence(self, case: Verdict) -> str:
        return "\n".join(filter(None, (case.message, case.log[-self.log_characters :])))


def link(address: str, inner: str) -> Markup:
    """Return HTML as a link; unchanged without an address."""
    return Markup('<a href="{}">{}</a>').format(safe(address), inner) if address else safe(inner)


def _alike(found: Iterable[CaseOnCard], key: Callable[[CaseOnCard], object]) -> list[Sequence[CaseOnCard]]:
    groups: dict[object, list[CaseOnCard]] = defaultdict(list)
    for each in found:
        groups[key(each)].append(each)
    return list(groups.values())


def _by_evidence(found: CaseOnCard) -> object:
    """Return the key of a failure's cause: a broken file affects many cases, and is shown once."""
    case = found.case
    return case.status, case.side, case.reason, case.log or case.message


def _by_remedy(found: CaseOnCard) -> object:
    case = found.case
    return _by_evidence(found) if case.status == "failed" else (case.status, case.reason, _to_do(found))


def _to_do(found: CaseOnCard) -> str:
    # Other benchmarks are not calibrated: enough runs measure how much they vary.
    card = found.card
    hint = remedy(found.case, calibrated=card.executables or card.calibrated is not None)
    return f"To do: {hint}." if hint else ""


def _visible(case: Verdict) -> str:
    visible = case.smallest_visible
    return "" if visible is None else f"visible from {typeset(percent(visible))}"


COMMENT_BYTES = 65_536
"""Limit of GitHub in characters, used as a limit in bytes, which is never more."""


def comment(
    review: Review,
    links: Links,
    *,
    marker: str = "",
    notes: Sequence[str] = (),
    limit_bytes: int = COMMENT_BYTES,
) -> str:
    """Return the comment's body. Its first line is `marker`, an HTML comment, if given.

    `notes` follow, a paragraph each.

    If not everything fits, folded parts are dropped first. Cases that need action are at least counted.
    """
    view = View(review=review, links=links, paragraphs=8, names=6, log_characters=2000)
    given = {"marker": Markup(marker), "notes": notes, **_every_case(review)}
    return view.fitted("comment.md.j2", limit_bytes, **given)


SUMMARY_BYTES = 1024 * 1024
"""Largest summary of one step in bytes. GitHub drops a larger one completely."""
_COLUMNS = 41
_WIDEST = 32
"""Most characters of a case's name."""


def summary(review: Review, links: Links) -> str:
    view = View(review=review, links=links, paragraphs=20, names=20, log_characters=8000)
    forests = [(card, *_forest(card)) for card in review.cards if any(case.time for case in card.cases)]
    return view.fitted("summary.md.j2", SUMMARY_BYTES, forests=forests, **_every_case(review))


def _every_case(review: Review) -> Mapping[str, object]:
    """Return the table of every case on every card, in the order of the suite."""
    found = every_case(review)
    names = [Cell(each.label, "code") for each in found]
    # The verdict comes first: a comment is 800 pixels wide, or 350 on a phone, and the rest needs scrolling.
    *figures, verdicts = verdict_columns("case", names, [each.case for each in found], sizes=False)
    sheet = Sheet(columns=[verdicts, *figures])
    rows = list(zip(found, sheet.html_rows(), strict=True))
    return {"columns": len(sheet.shown), "head": sheet.html_head(), "rows": rows}


def _forest(card: CardReview) -> tuple[str, list[str]]:
    """Return an axis, and a line for each measured case."""
    measured = [CaseOnCard(card, case) for case in card.cases if case.time]
    widest = min(max(len(_name(found)) for found in measured), _WIDEST)
    scale = scale_of(card)
    axis = f"{' ' * widest}  {axis_text(scale, _COLUMNS)}"
    return axis, [_line(found, widest, scale) for found in measured]


def _line(found: CaseOnCard, widest: int, scale: Scale) -> str:
    name, case = _name(found), found.case
    name = name if len(name) <= widest else f"…{name[1 - widest :]}"
    cycles = f", cycles {effect(case.cycles)}" if leading(case)[1] == "cycles" else ""
    shown = f"{effect(case.time):>15} {case.status}{cycles}"
    return f"{name:{widest}}  {strip_text(scale, case.time, _COLUMNS)}  {typeset(shown)}"


def _name(found: CaseOnCard) -> str:
    """Return the name without the suite, which is in the heading of the plot."""
    return found.label.removeprefix(f"{found.card.suite}.")
