"""The parts of a comment and of a job summary that are folded: every case, and what the verdicts rest on."""

from __future__ import annotations

__all__ = ["basis", "every_case", "foot"]

from collections.abc import Iterator

from harness.output.review.grouping import Found, total
from harness.output.review.markup import Item, Part, code, fixed, link, listed, pre
from harness.output.review.model import Card
from harness.output.review.view import View
from harness.output.review.wording import calibrated, clocks, counted, duration, outcome, percent, twin

_COLUMNS = ("case", "change", "verdict", "base", "visible from", "SM clock")
_QUIET = ("unchanged", "identical", "new")


def every_case(view: View) -> list[Part]:
    """One table of all cards: case by case, in the order of the suite."""
    cases = total(view.review)
    if not cases:
        return []
    columns = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return [
        Part(
            tier=2,
            opening=f"<details><summary>{counted(cases, 'case')}</summary>\n<table>\n<tr>{columns}</tr>",
            items=_rows(view),
            closing="</table>\n</details>",
            cases=cases,
            more=lambda left: f"<p>{left:,} of {counted(cases, 'case')} did not fit into the table.</p>",
        )
    ]


def _rows(view: View) -> Iterator[Item]:
    for card in view.review.cards:
        above = ""
        if len(view.review.cards) > 1:
            above = f'<tr><th colspan="{len(_COLUMNS)}">{card.suite} on {code(card.device)}</th></tr>\n'
        for case in card.cases:
            yield Item(above + _row(Found(card, case)))
            above = ""


def _row(found: Found) -> str:
    case = found.case
    verdict = case.status if case.status in _QUIET else f"<b>{case.status}</b>"
    figures = (
        duration(case.base.time_ns if case.base else None),
        "" if case.smallest_visible is None else percent(case.smallest_visible),
        clocks(case),
    )
    cells = (_cell(outcome(case)), f"<td>{verdict}</td>", *map(_cell, figures))
    return f"<tr><td>{code(found.label)}</td>{''.join(cells)}</tr>"


def _cell(figure: str) -> str:
    return f'<td align="right">{figure}</td>' if figure else "<td></td>"


def basis(view: View) -> list[Part]:
    """What the verdicts rest on, card by card."""
    return [
        Part(
            tier=1,
            opening="<details><summary>What this rests on</summary>\n<ul>",
            items=(Item(f"<li>{_of_card(card)}</li>") for card in view.review.cards),
            closing="</ul>\n</details>",
        )
    ]


def _of_card(card: Card) -> str:
    since = f"Calibrated {code(card.calibrated.measured_at[:10])}. " if card.calibrated else ""
    built = f", {code(card.compiler)}" if card.compiler else ""
    twins = f" The comparison's test of itself: {listed([twin(each) for each in card.twins])}."
    dirty = " Head was a working tree with changes." if card.head_dirty else ""
    measured = f"{counted(len(card.cases), 'case')} in {card.gpu_s:,.1f} s of device time.{dirty}"
    rules = (
        f"Up to {percent(card.margin)} is nobody's business; unchanged is within {percent(card.tolerance)}; "
        f"each is said with {100 * card.confidence:.4g} % confidence."
    )
    told = (
        f"<b>{card.suite} on {code(card.device)}</b> ({code(card.spec)}, driver {code(card.driver)}{built}): "
        f"{measured}<br>\n{rules}<br>\n{since}{calibrated(card)}{twins if card.twins else ''}"
    )
    problem = f"\n{pre(card.problem)}" if card.problem else ""
    left_out = "".join(f"\n<li>{code(text)}</li>" for text in card.left_out)
    return f"{told}{problem}" + (f"<br>\nLeft out:\n<ul>{left_out}\n</ul>" if left_out else "")


def foot(view: View) -> Part:
    """Where to go on from here."""
    links = view.links
    told = [
        link(address, text)
        for address, text in ((links.run, "the run that measured"), (links.history, "history"))
        if address
    ]
    told.append(f"gpu-harness {code(view.review.harness_version)}, {code(view.review.created_at)}")
    return fixed(f"<p>{' · '.join(told)}</p>")
