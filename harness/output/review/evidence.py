"""The parts of a comment and of a job summary that are folded: every case, and what the verdicts rest on."""

from __future__ import annotations

__all__ = ["basis", "every_case", "foot"]

from collections.abc import Iterator

from harness.numbers import counted, seconds, typeset
from harness.output.review.grouping import Found, total
from harness.output.review.markup import Item, Part, code, fixed, link, listed, pre
from harness.output.review.model import Card
from harness.output.review.view import View
from harness.output.review.wording import calibrated, rules, twin
from harness.output.sentences import verdict_columns
from harness.output.sheet import Cell, Sheet


def every_case(view: View) -> list[Part]:
    """One table of all cards: case by case, in the order of the suite."""
    cases = total(view.review)
    if not cases:
        return []
    found = [Found(card, case) for card in view.review.cards for case in card.cases]
    names = [Cell(each.label, "code") for each in found]
    sheet = Sheet(columns=verdict_columns("case", names, [each.case for each in found], sizes=False))
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
    built = f", {code(card.compiler)}" if card.compiler else ""
    twins = f" The comparison's test of itself: {listed([twin(each) for each in card.twins])}."
    dirty = " Head was a working tree with changes." if card.head_dirty else ""
    spent = typeset(seconds(card.gpu_s))
    told = (
        f"<b>{card.suite} on {code(card.device)}</b> ({code(card.spec)}, driver {code(card.driver)}{built}): "
        f"{counted(len(card.cases), 'case')} in {spent} of device time.{dirty}<br>\n{rules(card)}<br>\n"
        f"{calibrated(card)}{twins if card.twins else ''}"
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
