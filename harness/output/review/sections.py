"""The parts of a comment and of a job summary that say what happened and what to do about it."""

from __future__ import annotations

__all__ = ["acted_on", "changed_problem", "fortunate"]

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from harness.numbers import counted, percent, typeset
from harness.output.review.grouping import Found, Groups
from harness.output.review.markup import Item, Part, code, fixed, listed, pre
from harness.output.review.model import CaseReview, Review
from harness.output.review.view import View
from harness.output.review.wording import by_effect, facts, verb
from harness.output.sentences import reason, remedy, sentence
from harness.spec.case_id import size_label


def acted_on(view: View, groups: Groups) -> list[Part]:
    """What somebody has to look at, the worst first."""
    return [
        *_slower(view, groups.slower),
        *_paragraphs(
            [_failure(view, found, "at head") for found in _alike(groups.broken, _by_evidence)],
            len(groups.broken),
            "fail at head",
        ),
        *_paragraphs([_missing(view, groups.missing)], len(groups.missing), "are missing at head"),
        *_paragraphs(_unjudged(view, groups.unjudged), len(groups.unjudged), "could not be judged"),
    ]


def changed_problem(view: View) -> list[Part]:
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


def _slower(view: View, slower: Sequence[Found]) -> list[Part]:
    first, rest = slower[: view.paragraphs], slower[view.paragraphs :]
    parts = _paragraphs([_slowed(view, found) for found in first], len(first), "are slower")
    if rest:
        parts.append(
            Part(
                tier=1,
                opening=f"<details><summary>{len(rest):,} more are slower</summary>\n<ul>",
                items=(Item(f"<li>{_brief(view, found)}</li>") for found in rest),
                closing="</ul>\n</details>",
                cases=len(rest),
                more=lambda left: f"<p>{left:,} of those that are slower are not named here.</p>",
            )
        )
    if again := _commands(view.review, first):
        parts.append(fixed(f"<p>To see it again, on the same card:</p>\n{pre(again)}"))
    return parts


def _slowed(view: View, found: Found) -> Item:
    case = found.case
    told = [view.place(found), *facts(case), _visible(case)]
    return Item(
        f"<p><b>{view.name(found)}</b>: {typeset(sentence(case))}<br>\n{' · '.join(filter(None, told))}</p>",
        f"<p>{_brief(view, found)}</p>",
    )


def _brief(view: View, found: Found) -> str:
    return f"{view.name(found)} {by_effect(found.case)}".rstrip()


def _commands(review: Review, found: Sequence[Found]) -> str:
    """What compares these cases again, a line for each suite."""
    lines = []
    for suite in dict.fromkeys(each.card.suite for each in found):
        cases = [each.case for each in found if each.card.suite == suite]
        kernels = dict.fromkeys(f"{suite}.{case.kernel}" for case in cases)
        sizes = dict.fromkeys(f"--size {size_label(case.sizes)}" for case in cases if case.sizes)
        ends = [(commit or "")[:10] for commit in (review.base, review.head)]
        lines.append(" \\\n  ".join((" ".join(("harness compare", *ends)), *kernels, " ".join(sizes))))
    return "\n".join(lines) if review.base and review.head else ""


def _alike(found: Iterable[Found], key: Callable[[Found], object]) -> list[list[Found]]:
    groups: dict[object, list[Found]] = defaultdict(list)
    for each in found:
        groups[key(each)].append(each)
    return list(groups.values())


def _by_evidence(found: Found) -> object:
    """One broken file costs many cases, and is shown once."""
    case = found.case
    return case.status, case.side, case.reason, case.log or case.message


def _by_remedy(found: Found) -> object:
    case = found.case
    return _by_evidence(found) if case.status == "failed" else (case.status, case.reason, _remedy(found))


def _failure(view: View, found: Sequence[Found], where: str) -> Item:
    case = found[0].case
    what = f"{counted(len(found), 'case')} {verb(len(found), 'fails', 'fail')} {where}"
    brief = f"<b>{what}</b>: {_what(case)}. {view.names_of(found)}."
    places = dict.fromkeys(filter(None, (view.place(each) for each in found[: view.names])))
    told = [brief, f"{listed(list(places))}." if places else "", _to_do(found[0]), _again(found[0])]
    evidence = "\n".join(filter(None, (case.message, case.log[-view.log_characters :])))
    said = f"\n<details><summary>Message and log</summary>\n{pre(evidence)}\n</details>" if evidence else ""
    return Item(f"<p>{' '.join(filter(None, told))}</p>{said}", f"<p>{brief}</p>", len(found))


def _again(found: Found) -> str:
    if found.case.side != "head":
        return ""
    return f"To see it again: {code(f'harness check {found.label}')}"


def _what(case: CaseReview) -> str:
    """What is the matter; of an invalid case with the gate, by whose name it is documented."""
    told = reason(case)
    return f"{told} ({code(case.reason)})" if told and case.status == "invalid" else told or code(case.reason)


def _to_do(found: Found) -> str:
    hint = _remedy(found)
    return f"To do: {hint}." if hint else ""


def _remedy(found: Found) -> str:
    return remedy(found.case, calibrated=found.card.calibrated is not None)


def _missing(view: View, missing: Sequence[Found]) -> Item:
    what = f"{counted(len(missing), 'case')} {verb(len(missing), 'is', 'are')} missing at head"
    return Item(
        f"<p><b>{what}</b>: {view.names_of(missing)}. "
        "Fine where a kernel or a size was removed or renamed on purpose; else bring it back.</p>",
        cases=len(missing),
    )


def _unjudged(view: View, unjudged: Sequence[Found]) -> list[Item]:
    return [
        _failure(view, found, f"at {found[0].case.side or 'base or head'}")
        if found[0].case.status == "failed"
        else _open(view, found)
        for found in _alike(unjudged, _by_remedy)
    ]


def _open(view: View, found: Sequence[Found]) -> Item:
    case = found[0].case
    are = f"{verb(len(found), 'is', 'are')} {case.status}"
    lead = f"<b>{counted(len(found), 'case')} {are}</b>: {_what(case)}."
    brief = f"<p>{lead} {view.names_of(found)}."
    to_do = _to_do(found[0])
    if case.status != "inconclusive" or not any(each.case.time for each in found):
        return Item(f"{brief} {to_do}</p>", f"{brief}</p>", len(found))
    lines = [
        f"<li>{', '.join(filter(None, (_brief(view, each), _visible(each.case))))}</li>"
        for each in found[: view.names]
    ]
    if left := len(found) - len(lines):
        lines.append(f"<li>{left:,} more, in the table below</li>")
    return Item(
        "\n".join((f"<p>{lead} {to_do}</p>", "<ul>", *lines, "</ul>")),
        f"{brief}</p>",
        len(found),
    )


def _visible(case: CaseReview) -> str:
    visible = case.smallest_visible
    return "" if visible is None else f"visible from {typeset(percent(visible))}"


def fortunate(view: View, groups: Groups) -> list[Part]:
    """What got better, and what is new: a line each."""
    told = []
    for found, what in ((groups.faster, "faster"), (groups.new, "new, and right")):
        named = [_brief(view, each) for each in found[: view.names]]
        left = len(found) - len(named)
        names = listed([*named, f"{left:,} more"] if left else named)
        lead = f"<b>{len(found):,} {verb(len(found), 'is', 'are')} {what}</b>"
        if found:
            told.append(Part(tier=1, items=[Item(f"<p>{lead}: {names}.</p>", f"<p>{lead}.</p>")]))
    return told
