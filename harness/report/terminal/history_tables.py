"""A history in the terminal: open events and their causes, unjudged ones, and other events."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from harness.errors import ExitCode
from harness.history.changes import Analysed, Change, timed
from harness.history.events import Event, settling
from harness.history.figures import SeriesCase, is_speed
from harness.history.reading import CardHistory, History, sentence
from harness.history.sources.our_records import Commits
from harness.history.triage import WORSE, Stated
from harness.judgement.statistics import CONFIDENCE
from harness.numbers import counted, half_of, half_width, is_unsure, percent, percent_figure
from harness.records.types import fields_of
from harness.report.table import Cell, Column, Sheet
from harness.report.terminal.run_tables import console, distinct, print_error, print_out, styled
from harness.system.git import Commit
from harness.system.texts import harmless

SCHEMA_VERSION = 2
"""Version of the JSON. It is increased when a key changes its meaning or is removed.

2: suspects are ranges of commits, and intervals are of 99.9 %, not 95 %.
"""
_LIKELIEST = 10
"""Most likely commits of an event in the JSON."""
_CLIP = 60
_CARDS = 6
"""Most cards with a line each."""
_LATE = 20
"""Number of commits that a card must be behind to get a line."""
_OTHERS = 5
"""Events shown under each heading that is not open."""
_TITLES = {"improvement": "Improvements", "stale": "Stale"}
"""Headings of events that are not open, by state or kind."""
_LATE_NAMED = 2
"""Most cases behind that are named, each in a line."""
_BROKEN = 8
"""Most commits that made cases fail with a line each."""
_MOST, _MOST_EARLY = 30, 8
"""Events shown in a log, worst first: open ones, and ones too recent to judge."""
_FEWEST, _LINES, _REST = 2, 3, 20
"""Fewest events of a kind in a terminal, lines of one event, and lines of everything else."""
_CONVENTION = f"Changes of time: a plus is slower. {half_of(CONFIDENCE)}"
_STATE, _EFFECT, _WHAT = 9, 15, 13
"""Widths of columns."""
_BESIDE_CASE = 76
"""Width of the columns beside the case in the table of all changes."""
_INDENT = "  "
_UNITS = range(1, 4)
"""Powers of 1,000 between units of one kind, such as s and ns."""
_NEAR_UNIT = 0.05
"""Largest distance of a ratio's power of 1,000 from these numbers."""
_NAMED = 4
"""Most commits of a range that are named."""
_FIGURES = ("before", "after", "effect", "low", "high", "p_value", "cycles_effect")
_MARKS = {"new": "open", "drift": "open"}
"""Styles of states without their own."""
_STATES = (
    *("new", "expired", "unjudged", "acknowledged", "stale", "fixed"),
    *("improvement", "environment", "change"),
)
"""States and kinds in the order of the counts in the last line."""


def exit_code(history: History) -> ExitCode:
    """Return the status: open regressions and failing cases first, then too recent or hidden results."""
    if any(history.conclusion.open) or any(card.failing for card in history.cards):
        return ExitCode.REGRESSION
    unknown = any(history.conclusion.unjudged) or any(card.unrecorded.failed for card in history.cards)
    return ExitCode.INCONCLUSIVE if unknown else ExitCode.FINE


def print_history(history: History, *, every: bool = False, since: str = "") -> None:
    """Print events: open, unjudged, and the newest others or all `since`; with `every`, all changes."""
    if every:
        for card in history.cards:
            _print_card(card, history.commits)
    else:
        _print_cards(history)
        _print_events(history, since)
        console().print()
    if history.undirected:
        console().print(_asking(history.undirected))
    if any(card.changes for card in history.cards):
        console().print(_CONVENTION, style="dim")
    console().print(_closing(history))


def _asking(benchmarks: Sequence[str]) -> str:
    """Return the setting that gives the direction of these benchmarks."""
    tracks = sorted({name.rpartition(".")[2] for name in benchmarks})
    shown = ", ".join(map(clean, tracks[:3])) + (" and others" if len(tracks) > 3 else "")
    key = f'directions = {{ "{clean(tracks[0])}" = "higher" }}'
    return (
        f"Whether more is better is unknown of {counted(len(benchmarks), 'benchmark')} ({shown}): their "
        f"changes are neither regressions nor improvements. To tell, set {key}, or lower, in [tool.harness]."
    )


def _print_cards(history: History) -> None:
    """Print a line for each card if they are few, else one for all; and their problems."""
    out, commits = console(), history.commits
    newest = max(map(_newest, history.cards), default=-1)
    few = len(history.cards) <= _CARDS
    if not few:
        series = counted(sum(len(card.analysed) for card in history.cards), "case")
        out.print(f"{len(history.cards)} cards, {series} in all{_newest_hash(newest, commits)}", style="bold")
    late = [
        f"{harmless(card.name)} {how}" for card in history.cards if (how := _behind(card, commits, newest))
    ]
    if len(late) > _LATE_NAMED:
        late = [f"{len(late)} cards are behind: {late[0]}"]
    for card in history.cards if few else ():
        out.print(_title(card, commits), style="bold", soft_wrap=True)
    for words in (*late, *_renamed(history.cards), *_ended(history), *_limits(history.cards)):
        out.print(words, style="dim", soft_wrap=not out.is_terminal)
    failing = _failing(history)
    for line in failing[:_BROKEN]:
        out.print(line)
    if (more := len(failing) - _BROKEN) > 0:
        out.print(f"failing since {counted(more, 'other commit')}: --all has them", style="dim")
    for card in history.cards:
        _print_problems(card)


def _limits(cards: Iterable[CardHistory]) -> Iterator[str]:
    """Yield the limits of asv's configuration, with the number of affected cases."""
    limits = (one.limit for card in cards for one in card.analysed if one.limit)
    applied = Counter(f"{limit.file}: {each}" for limit in limits for each in limit.sentences)
    return (f"{harmless(each)} ({counted(number, 'case')})" for each, number in applied.items())


def _failing(history: History) -> list[Text]:
    """Return a line for each commit that made cases fail, the newest first."""
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    for card in history.cards:
        for one in card.failing:
            found[one.bad, one.good].add(one.case)
    return [
        _failed(sorted(cases), _span(good, bad, history.commits))
        for (bad, good), cases in sorted(found.items(), reverse=True)
    ]


def _ended(history: History) -> Iterator[str]:
    """Yield the number of cases that are no longer measured, and of possibly renamed ones."""
    ended = {case: renamed_to for card in history.cards for case, renamed_to in card.ended.items()}
    if ended:
        renamed = sum(map(bool, ended.values()))
        may_be = f", {renamed} may be renamed" if renamed else ""
        yield f"{counted(len(ended), 'case is', 'cases are')} measured no more{may_be}"


def _renamed(cards: Sequence[CardHistory]) -> Iterator[str]:
    """Yield cards that begin after a similar card has ended, and measure most of its cases."""
    for new in cards:
        first = min((first for first, _ in new.spans.values()), default=-1)
        before = [old for old in cards if 0 <= _newest(old) < first and _is_like(old, new)]
        if before:
            old = max(before, key=_newest)
            yield (
                f"{harmless(new.name)} begins where {harmless(old.name)} ends, with its cases: if they are "
                "one machine, what changed between them is not judged. Give it one name"
            )


def _is_like(old: CardHistory, new: CardHistory) -> bool:
    same = (old.machine.get(key) == new.machine.get(key) for key in ("gpu", "cpu"))
    return all(same) and 2 * len(old.cases.keys() & new.cases.keys()) > len(old.cases)


def _newest(card: CardHistory) -> int:
    """Return the position of the newest commit that a card has measured; -1 for none."""
    return max((last for _, last in card.spans.values()), default=-1)


def _newest_hash(newest: int, commits: Commits) -> str:
    return f", newest {commits[newest].hash[:10]}" if newest >= 0 else ""


def _behind(card: CardHistory, commits: Commits, newest: int) -> str:
    """Return how far a card is behind the newest measured commit; empty if not far."""
    at = _newest(card)
    if at < 0 or newest - at < _LATE:
        return ""
    days = max(0, commits[newest].time_s - commits[at].time_s) // 86400
    return f"was last measured {newest - at} commits, {counted(days, 'day')}, before the newest"


def _print_events(history: History, since: str) -> None:
    events = history.events
    opened = [each for each in events if each.is_open]
    early = [each for each in events if each.state == "unjudged" and each.kind in WORSE]
    early.sort(key=lambda each: -each.worst.change.size)
    others = [each for each in events if not each.is_open and each not in early]
    others.sort(key=lambda each: -each.bad)
    room = _room(len(opened), len(early))
    if opened:
        _print_list("", opened, room[0], history)
    if early:
        _print_list("Too early to judge", early, room[1], history)
    apart = defaultdict[str, list[Event]](list)
    for each in others:
        apart[_TITLES.get(each.state or each.kind, "Not open")].append(each)
    for title in ("Not open", *_TITLES.values()):
        if found := apart[title]:
            shown = found if since else found[:_OTHERS]
            _print_others(
                f"{title}, since {since}" if since else title, shown, len(found) - len(shown), history
            )


def _room(opened: int, early: int) -> tuple[int, int]:
    """Return the numbers of open and unjudged events to show: as many as fit into a terminal."""
    out = console()
    if not out.is_terminal:
        return min(opened, _MOST), min(early, _MOST_EARLY)
    lines = out.height - _REST
    some = min(early, max(_FEWEST, lines // _LINES // 3))
    return max(_FEWEST, (lines - some * (_LINES + 1)) // _LINES), some


def _print_list(title: str, events: Sequence[Event], room: int, history: History) -> None:
    """Print events with size, commits and cause, each followed by its worst case and further facts."""
    out = console()
    out.print()
    if title:
        out.print(title, style="bold")
    shown = events[:room]
    heads = [_head(event, history) for event in shown]
    whys = [_why(event) for event in shown]
    columns = max(map(len, heads), default=0) + 2, max(map(len, whys), default=0) + 2
    # A wide terminal has the name on the first line, and facts side by side.
    is_wide = out.width - sum(columns) >= _CLIP
    width = out.width - (sum(columns) if is_wide else len(_INDENT))
    names = distinct((event.worst.change.case for event in shown), width)
    for event, head, why in zip(shown, heads, whys, strict=True):
        name = Text(names[event.worst.change.case], style="bold")
        if is_wide:
            head.pad_right(columns[0] - len(head))
            out.print(Text.assemble(head, f"{why:{columns[1]}}", name), soft_wrap=True)
        else:
            gap = "  " if len(head) + len(why) + 2 <= out.width else f"\n{_INDENT}"
            out.print(head.append(f"{gap}{why}"))
            out.print(Text.assemble(_INDENT, name))
        facts = list(filter(None, _about(event, history)))
        command = _command(event, history)
        for line in (*(_side_by_side(facts, out.width) if is_wide else facts), command):
            if line:
                out.print(Text(f"{_INDENT}{line}"), soft_wrap=True)
    if len(events) > room:
        out.print(f"and {len(events) - room} more: --json, or each change with --all", style="dim")


def _head(event: Event, history: History) -> Text:
    """Return the state of an event, its size and its commits."""
    change = timed(event.worst.change, history.cases[event.worst.change.case])
    state = "drift" if event.kind == "drift" and event.state == "new" else event.state or event.kind
    told = f"{_effect(change):>{_EFFECT}}  {_commits_of(event, history.commits)}"
    return Text.assemble(styled(f"{state:{_STATE}} ", _MARKS.get(state, state)), told)


def _side_by_side(facts: Iterable[str], width: int) -> list[str]:
    """Return facts in lines of at most `width`, as many per line as fit."""
    lines = list[str]()
    for fact in facts:
        joined = f"{lines[-1]} · {fact}" if lines else fact
        if lines and len(_INDENT) + len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(fact)
    return lines


def _effect(change: Change) -> str:
    """Return an effect: ``-5.25 ± 0.53 %``; ``~-5.25 %`` for a wide interval; ``0 → 128`` without noise."""
    if change.low == change.high:
        return f"{change.before:g} → {change.after:g}"
    told = percent(change.effect, sign=True)
    if is_unsure(change):
        return f"~{told}"
    return f"{told.removesuffix(' %')} ± {percent_figure(half_width(change))} %"


def _commits_of(event: Event, commits: Commits) -> str:
    if event.kind == "drift":
        return f"since {commits[event.good].hash[:10]}"
    return _where(event, commits) if event.accused is None else commits[event.accused].hash[:10]


def _why(event: Event) -> str:
    cause = "by no commit alone" if event.kind == "drift" else event.cause_in_words
    return f"{cause}, {counted(len(event.cards), 'card')}"


def _where(event: Event, commits: Commits) -> str:
    """Return the commits to examine first."""
    return _span(event.narrowest[0] - 1, event.narrowest[-1], commits)


def _about(event: Event, history: History) -> Iterator[str]:
    commits, worst, one = history.commits, event.worst, event.accused
    if spread := _spread(event):
        yield spread
    if event.kind == "drift":
        yield f"accepted as {event.id}" if worst.decision else f"to accept it: --acknowledge {event.id}"
    elif one is not None:
        subject = clean(commits[one].subject, max(_CLIP, console().width // 2))
        yield f"{subject} ({clean(commits[one].author)})"
    else:
        yield _suspected(event, commits)
    yield _others(event, commits)
    if unit := _of_another_unit(worst.change):
        yield unit
    if event.surroundings:
        yield f"measured otherwise since: {clean(', '.join(event.surroundings))}"
    if worst.decision:
        yield f"{event.state}: {clean(worst.decision.reason)} ({clean(worst.decision.author)})"


def _command(event: Event, history: History) -> str:
    """Return the command that clarifies the event; empty for none."""
    if event.state == "unjudged" or event.kind == "drift" or event.cause == "not the code":
        return settling(event, history.cases[event.worst.change.case], history.commits)
    return ""


def _of_another_unit(change: Change) -> str:
    """Return a sentence if values are about 1,000, a million or a billion times the earlier ones."""
    ratio = change.after / change.before if change.before and change.after else 1.0
    size = abs(math.log(ratio, 1000))
    steps = round(size)
    if steps not in _UNITS or abs(size - steps) > _NEAR_UNIT:
        return ""
    much = "much" if ratio > 1 else "little"
    return f"about {1000**steps:,} times as {much} as before: look whether its unit changed"


def _suspected(event: Event, commits: Commits) -> str:
    """Return which of several commits touch the sources, if only some or none do."""
    if event.likely == 0:
        return "no commit there touches code: check host, driver and installed packages"
    if event.likely == len(event.narrowest):
        return ""
    likely = " ".join(commits[at].hash[:10] for at in event.suspects[: event.likely][:_NAMED])
    return f"{event.likely} of them {'touches' if event.likely == 1 else 'touch'} what is slower: {likely}"


def _others(event: Event, commits: Commits) -> str:
    """Return a sentence if several commits explain the event equally well, or may have contributed."""
    if event.moved_twice:
        return f"{clean(event.moved_twice)} changed twice, so at least two commits did it"
    if not event.may_be_several:
        is_open = event.by_commit and event.accused is None and event.likely > 1
        return "at least one of them did it" if is_open else ""
    if not event.loose:
        return "several of them explain it as well as one"
    beyond = _span(event.good, event.bad, commits)
    return f"{event.loose} of {counted(len(event.cases), 'case')} may be of other commits in {beyond}"


def _spread(event: Event) -> str:
    """Return the number of cases in an event, if more than one."""
    worse = {each.change.case for each in event.changes if each.change.kind in WORSE}
    better = {each.change.case for each in event.changes if each.change.kind == "improvement"}
    if not better:
        return f"{len(worse)} cases" if len(worse) > 1 else ""
    return f"{counted(len(worse), 'case')} worse, {len(better)} better" if worse else f"{len(better)} cases"


def _print_others(title: str, events: Sequence[Event], more: int, history: History) -> None:
    """Print a line for each event."""
    out, commits = console(), history.commits
    out.print()
    out.print(title, style="bold")
    whats = [
        event.state or (event.worst.change.attribution if event.kind == "environment" else event.kind)
        for event in events
    ]
    heads = [
        f"{what:{_WHAT}}{_where(event, commits)} {_sizes(event, history)}"
        for event, what in zip(events, whats, strict=True)
    ]
    cards = distinct((event.cards[0] for event in events if len(event.cards) == 1), out.width * 3 // 8)
    tails = [
        f"on {cards[event.cards[0]] if event.kind == 'environment' else counted(len(event.cards), 'card')}"
        for event in events
    ]
    rows = list(zip(events, heads, tails, strict=True))
    alone = [len(head) + len(tail) + 2 for event, head, tail in rows if len(event.cases) == 1]
    room = max(_CLIP // 4, out.width - max(alone, default=0))
    names = distinct((event.cases[0] for event in events if len(event.cases) == 1), room)
    for event, head, tail in rows:
        case = names[event.cases[0]] if len(event.cases) == 1 else counted(len(event.cases), "case")
        out.print(Text(f"{head} {case} {tail}"))
    if more:
        out.print(f"and {counted(more, 'older one')}: --since COMMIT, or --all", style="dim")


def _sizes(event: Event, history: History) -> str:
    if not all(each.change.before for each in event.changes):
        return _effect(event.worst.change)
    changes = (timed(each.change, history.cases[each.change.case]) for each in event.changes)
    effects = sorted(change.effect for change in changes)
    low, high = percent(effects[0], sign=True), percent(effects[-1], sign=True)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _print_card(card: CardHistory, commits: Commits) -> None:
    """Print every change in its own line, with its explanation."""
    out = console()
    out.print(_title(card, commits), style="bold", soft_wrap=True)
    for one in card.failing:
        out.print(_failed([one.case], _span(one.good, one.bad, commits)))
    if card.changes:
        print_out(_changes(card.changes, card.cases, commits))
    cases = card.cases
    for each in card.changes:
        # For unjudged changes the table suffices, unless one commit did it or somebody has decided.
        if each.decision or each.change.commits == 1 or not math.isnan(each.change.p_value):
            _print_change(each, cases[each.change.case], commits)
    for line in (*_epochs(card, commits), *_limits([card])):
        out.print(line, style="dim")
    _print_problems(card)
    out.print()


def _print_problems(card: CardHistory) -> None:
    for problem in (*card.problems, *card.unrecorded.sentences):
        print_error(f"{card.name}: {problem}")


def _failed(cases: Sequence[str], span: str) -> Text:
    others = f" and {counted(len(cases) - 1, 'other case')}" if len(cases) > 1 else ""
    return Text.assemble(styled("failing", "failed"), f" {clean(cases[0])}{others} since {span}")


def _title(card: CardHistory, commits: Commits) -> str:
    measured = {int(at) for one in card.analysed for at in one.series.positions}
    name = harmless(f"{card.name} ({card.machine.get('gpu', 'unknown card')})")
    counts = f"{counted(len(card.analysed), 'case')}, {counted(len(measured), 'commit')}"
    return f"{name}: {counts}{_newest_hash(_newest(card), commits)}"


def _changes(shown: Sequence[Stated], cases: Mapping[str, SeriesCase], commits: Commits) -> Sheet:
    changes = [timed(each.change, cases[each.change.case]) for each in shown]
    states = [each.state or each.change.kind for each in shown]
    names = distinct((change.case for change in changes), max(_CLIP, console().width - _BESIDE_CASE))
    halves = ["unsure" if is_unsure(each) else percent_figure(half_width(each)) for each in changes]
    spans = [_span(change.good, change.bad, commits) for change in changes]
    return Sheet(
        columns=[
            Column("state", [Cell(state, _MARKS.get(state, state)) for state in states], text=True),
            Column("case", [names[change.case] for change in changes], text=True),
            Column("change %", [percent_figure(change.effect, sign=True) for change in changes]),
            Column("±", halves, spare=1),
            Column("commits", spans, text=True, whole=True),
            Column("id", [change.id for change in changes], text=True, whole=True),
        ]
    )


def _span(good: int, bad: int, commits: Commits) -> str:
    last = commits[bad].hash[:10]
    return last if bad - good == 1 else f"{commits[good].hash[:10]}..{last} ({bad - good})"


def _print_change(each: Stated, case: SeriesCase, commits: Commits) -> None:
    out, commit = console(), commits[each.change.bad]
    out.print(Text.assemble((clean(each.change.case), "bold"), " ", harmless(sentence(each.change, case))))
    if each.change.commits == 1:
        who = f"  {commit.hash[:10]} {clean(commit.subject)} ({clean(commit.author)})"
        out.print(who, style="dim", overflow="ellipsis", no_wrap=True)
    if each.decision:
        why = f"  {each.state}: {clean(each.decision.reason)} ({clean(each.decision.author)})"
        out.print(why, style="dim")


def _epochs(card: CardHistory, commits: Commits) -> Iterable[str]:
    """Yield the start of each epoch once, even if it divides many series."""
    seen: dict[tuple[str, ...], int] = {}
    for one in card.analysed:
        for epoch in one.series.epochs[1:]:
            at = int(one.series.positions[epoch.start])
            seen[epoch.changed] = min(at, seen.get(epoch.changed, at))
    for changed, at in sorted(seen.items(), key=lambda item: item[1]):
        yield f"epoch from {commits[at].hash[:10]}: {clean(', '.join(changed))}"


def _closing(history: History) -> str:
    states = [each.state or each.change.kind for card in history.cards for each in card.changes]
    rises = "improvement" if states.count("improvement") == 1 else "improvements"
    words = {"improvement": rises, "environment": "by the card", "change": "either way"}
    counts = ", ".join(f"{states.count(each)} {words.get(each, each)}" for each in _STATES if each in states)
    opened, events = sum(1 for _ in history.conclusion.open), sum(each.is_open for each in history.events)
    left = f"{opened} regressions are open" if opened > 1 else f"{opened or 'No'} regression is open"
    left += f", of {counted(events, 'event')}." if opened > 1 else "."
    if early := sum(1 for _ in history.conclusion.unjudged):
        left += f" {counted(early, 'case')} became worse too lately to judge."
    if failing := sum(len(card.failing) for card in history.cards):
        left += f" {failing} case{'s fail' if failing > 1 else ' fails'} that had figures."
    return f"{left} Changes: {counts or 'none'}. Exit status {int(exit_code(history))}."


def clean(text: str, width: int = _CLIP) -> str:
    """Return untrusted text on one line, shortened to leave room for more."""
    plain = harmless(text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def as_json(history: History) -> dict[str, Any]:
    """Return the whole history except its points."""
    return {
        "schema_version": SCHEMA_VERSION,
        "commits": {
            "count": len(history.commits),
            "newest": _commit_json(history.commits[-1]) if len(history.commits) else None,
        },
        "open": sum(1 for _ in history.conclusion.open),
        "unjudged": sum(1 for _ in history.conclusion.unjudged),
        "events": [_event_json(event, history) for event in history.events],
        "undirected": history.undirected,
        "cards": [_card_json(card, history.commits) for card in history.cards],
    }


def _commit_json(commit: Commit) -> dict[str, Any]:
    return {"hash": commit.hash, "time": commit.time_s, "author": commit.author, "subject": commit.subject}


def _event_json(event: Event, history: History) -> dict[str, Any]:
    commits, worst = history.commits, event.worst.change
    return {
        **fields_of(event, "id", "kind", "state", "cause"),
        **_range_json(range(event.good + 1, event.bad + 1), commits),
        "narrowest": _range_json(event.narrowest, commits),
        "several": event.may_be_several or bool(event.moved_twice),
        "likely": event.likely,
        "likeliest": [commits[at].hash for at in event.suspects[: event.likely][:_LIKELIEST]],
        "accused": None if event.accused is None else commits[event.accused].hash,
        "surroundings": event.surroundings,
        "worst": {
            **fields_of(worst, "case", "card", "effect"),
            "time_effect": _time_json(worst, history.cases[worst.case])["time_effect"],
        },
        "cards": event.cards,
        "cases": event.cases,
        "changes": [each.change.id for each in event.changes],
        "command": settling(event, history.cases[worst.case], commits),
    }


def _range_json(positions: range, commits: Commits) -> dict[str, Any]:
    """Return a range of commits in git's sense: after `good`, up to `bad`."""
    good, bad = (commits[at].hash for at in (positions[0] - 1, positions[-1]))
    return {"good": good, "bad": bad, "commits": len(positions)}


def _card_json(card: CardHistory, commits: Commits) -> dict[str, Any]:
    cases = card.cases
    return {
        "name": card.name,
        "machine": card.machine,
        "cases": [_case_json(one, card, commits) for one in card.analysed],
        "failing": [
            {"case": one.case, "good": commits[one.good].hash, "bad": commits[one.bad].hash}
            for one in card.failing
        ],
        "changes": [_change_json(each, cases[each.change.case], commits) for each in card.changes],
        "problems": card.problems,
        "unrecorded": card.unrecorded,
    }


def _case_json(one: Analysed, card: CardHistory, commits: Commits) -> dict[str, Any]:
    series, name = one.series, one.series.case.name
    return {
        "case": series.case,
        "points": len(series.positions),
        "failed": int(series.failed.sum()),
        "noise": None if math.isnan(one.noise) else one.noise,
        "floor": one.floor,
        "limit": one.limit,
        "newest": commits[int(series.positions[-1])].hash,
        "stale": name in card.ended,
        "renamed_to": card.ended.get(name, ""),
        "level": one.levels[-1].level if one.levels else None,
        "epochs": [
            {"from": commits[int(series.positions[epoch.start])].hash, "changed": epoch.changed}
            for epoch in series.epochs
        ],
    }


def _time_json(change: Change, case: SeriesCase) -> dict[str, float | None]:
    """Return the change of time, from a time or a rate; None for other values."""
    found = timed(change, case)
    effects = (found.effect, found.low, found.high) if is_speed(case) else (None, None, None)
    return dict(zip(("time_effect", "time_low", "time_high"), effects, strict=True))


def _change_json(each: Stated, case: SeriesCase, commits: Commits) -> dict[str, Any]:
    change = each.change
    return {
        **fields_of(change, "id", "case", "kind"),
        "state": each.state,
        "attribution": change.attribution,
        "direction": case.direction,
        "unit": case.unit,
        **fields_of(change, *_FIGURES),
        **_time_json(change, case),
        "clock_before_mhz": change.clock_before,
        "clock_after_mhz": change.clock_after,
        "static": change.static,
        "shifts": [str(each) for each in change.shifts],
        "compared": change.compared,
        **_range_json(range(change.good + 1, change.bad + 1), commits),
        "subject": commits[change.bad].subject,
        "author": commits[change.bad].author,
        "decision": each.decision,
        "fixed_by": each.fixed_by,
        "sentence": sentence(change, case),
    }
