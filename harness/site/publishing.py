"""The pages of a history: read every card, write its documents, and what shows several cards at once."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import __version__
from harness.history.facts import Commits, cache_file, read_cached, read_commits, write_cached
from harness.history.figures import Case
from harness.history.reading import open_results, side_by_side
from harness.history.series import cases_of
from harness.history.triage import read_triage
from harness.site.cards import CardPages, CardSummary
from harness.site.documents import (
    COMMITS_A_FILE,
    EVERY,
    SCHEMA_VERSION,
    Rows,
    Site,
    atom,
    badge,
    badge_svg,
    file_name,
)
from harness.site.suites import suite_document
from harness.spec.suite import Suite
from harness.store.records_file import PACKED, PART
from harness.system.files import stat_of

FOLDER = "harness"
"""Where our pages lie, beside asv's index.html."""
_ASSETS = Path(__file__).resolve().parent / "assets"
_CHANGES = 120
"""How many changes the overview has at most, open ones first; every series has all of its own."""
_KINDS = ("new", "acknowledged", "expired", "fixed", "improvement", "environment")
_OF_CARD = ("file", "name", "gpu", "host", "driver", "kind", "newest", "open", "points", "calibration")
_READ = (".json", ".jsonl", PACKED, PART, ".harness")
"""What is read of a card's folder, by how its name ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    folder: Path
    cards: int
    series: int
    points: int
    open: int
    problems: tuple[str, ...]


def publish_pages(
    results: Path,
    root: Path,
    html: Path,
    *,
    project: str,
    revision: str = "HEAD",
    commit_url: str = "",
    suites: Sequence[Suite] = (),
    today: dt.date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Write the pages of a results folder into a site's folder, whatever else lies there.

    `suites` say what others published of their kernels, and hold the texts whose accesses are followed.

    An empty history makes pages that say so. Raises StoreError where nothing can be read or written,
    GitError, ConfigError for the triage file.
    """
    now = dt.datetime.now(tz=dt.timezone.utc)
    decisions, commits = read_triage(root), read_commits(root, revision)
    found = open_results(results, commits)
    cases = cases_of(found.groups, built=found.built)
    site = Site(html / FOLDER)
    for source in sorted(path for path in _ASSETS.rglob("*") if path.is_file()):
        site.put(source.relative_to(_ASSETS).as_posix(), source.read_bytes())
    work = [
        CardPages(site, folder, number, found, commits, cases, decisions, today or now.date())
        for number, folder in enumerate(found.folders)
    ]
    cards = _publish_changed(work, tell)
    for first in range(0, len(commits), COMMITS_A_FILE):
        line = commits.line[first : first + COMMITS_A_FILE]
        rows = [(each.hash, each.time, each.author[:200], each.subject[:500]) for each in line]
        site.write(f"commits/{first // COMMITS_A_FILE}", rows)
    of_suites = _write_suites(site, suites, cards, cases)
    moment = now.isoformat(timespec="seconds")
    _write_overview(site, cards, cases, of_suites, commits, project, commit_url, moment)
    return Published(
        folder=site.folder,
        cards=len(cards),
        series=sum(len(card.series) for card in cards),
        points=sum(card.points for card in cards),
        open=sum(card.open for card in cards),
        problems=tuple(problem for card in cards for problem in card.problems),
    )


def _publish(work: CardPages) -> CardSummary:
    summary = work.write()
    count = len(work.commits)
    written = _Written(_key(work), count, _line(work.commits, count), summary)
    write_cached(cache_file(work.folder, "published"), written)
    return summary


def _publish_changed(work: Sequence[CardPages], tell: Callable[[str], None]) -> list[CardSummary]:
    """Of every card what its pages came to, written where they would come out another way."""
    cards = {one.number: _recall(one) for one in work}
    changed = [one for one in work if cards[one.number] is None]
    with side_by_side([one.folder for one in changed]) as mapped:
        for one, card in zip(changed, mapped(_publish, changed), strict=True):
            tell(f"{card.folder}: {len(card.series)} cases")
            cards[one.number] = card
    return [card for card in cards.values() if card]


def _write_suites(
    site: Site, suites: Sequence[Suite], cards: Sequence[CardSummary], cases: Sequence[Case]
) -> list[dict[str, Any]]:
    """A document for each suite; what the first document says of them."""
    gpus = [card.gpu for card in cards]
    told = []
    for suite in suites:
        file = file_name(suite.name)
        site.write(f"suites/{file}", suite_document(suite, gpus, cases))
        ladders = [{"name": ladder.name, "title": ladder.title} for ladder in suite.ladders]
        told.append({"name": suite.name, "file": file, "ladders": ladders})
    return told


def _write_overview(
    site: Site,
    cards: Sequence[CardSummary],
    cases: Sequence[Case],
    suites: Sequence[Mapping[str, Any]],
    commits: Commits,
    project: str,
    commit_url: str,
    generated_at: str,
) -> None:
    """What shows every card: the first document, the changes, the feed and the badges."""
    changes = [change for card in cards for change in card.changes]
    # Open regressions first, then the newest.
    changes.sort(key=lambda each: (each["state"] not in ("new", "expired"), -each["bad"]))
    site.write("changes", changes[:_CHANGES])
    newest, kinds = commits[-1], [each["state"] or each["kind"] for each in changes]
    overview = {
        "schema": SCHEMA_VERSION,
        "generated_at": generated_at,
        "harness_version": __version__,
        "project": project,
        "commit_url": commit_url,
        "asv": (site.folder.parent / "asv.js").exists(),
        "commits": {
            "count": len(commits),
            "chunk": COMMITS_A_FILE,
            "every": EVERY,
            "times": [commit.time for commit in commits.line[::EVERY]],
            "newest": {"hash": newest.hash, "time": newest.time, "subject": newest.subject[:500]},
        },
        "cards": [
            {
                **{name: getattr(card, name) for name in _OF_CARD},
                "health": card.health + _behind(card, commits),
            }
            for card in cards
        ],
        "cases": Rows([asdict(case) for case in cases]),
        "series": Rows([series for card in cards for series in card.series]),
        "suites": suites,
        "counts": {kind: kinds.count(kind) for kind in _KINDS},
        "problems": [problem for card in cards for problem in card.problems],
    }
    site.write("site", overview)
    fed = [each for each in changes if each["kind"] != "environment"][:100]
    names = [(card.file, card.gpu or card.name) for card in cards]
    site.put("feed.xml", atom(fed, names, [case.name for case in cases], project, generated_at))
    for card, (file, name) in zip(cards, names, strict=True):
        measured = bool(card.series)
        site.write_json(f"badges/{file}.json", badge(name, card.open, measured=measured))
        site.put(f"badges/{file}.svg", badge_svg(name, card.open, measured=measured))


def _behind(card: CardSummary, commits: Commits) -> list[dict[str, str]]:
    behind = len(commits) - 1 - card.newest["commit"] if card.newest else 0
    text = f"{behind} commit{'s' if behind > 1 else ''} behind the newest."
    return [{"level": "warning" if behind > EVERY else "good", "text": text}] if behind else []


class _Written(msgspec.Struct):
    """A card's pages, so that a new commit costs the cards that it was measured on and no other."""

    key: str
    commits: int
    line: str
    """Digest of the first so many commits: what a card's pages say stays right when commits are added."""
    summary: CardSummary


def _recall(work: CardPages) -> CardSummary | None:
    """What the card's pages came to, if they are there and would come out the same."""
    kept = read_cached(cache_file(work.folder, "published"), _Written)
    if kept is None or kept.key != _key(work) or kept.commits > len(work.commits):
        return None
    written = work.site.folder / f"data/cards/{kept.summary.file}.js"
    same_line = kept.line == _line(work.commits, kept.commits) and not _waited(work, kept.commits)
    return kept.summary if same_line and written.exists() else None


def _waited(work: CardPages, count: int) -> bool:
    """Whether a commit after so many has results that were there before it was: of a branch now merged, or in
    a clone now complete. asv's files and records have the first digits of a commit's hash in their names.
    """
    new = [each.hash for each in work.commits.line[count:]]
    told = {part for name in os.listdir(work.folder) for part in name.split("-")} if new else set()  # noqa: PTH208
    return any(name[:digits] in told for name in new for digits in range(4, len(name) + 1))


def _key(work: CardPages) -> str:
    with os.scandir(work.folder) as entries:
        files = sorted(
            (each.name, stat_of(each).st_size, stat_of(each).st_mtime_ns)
            for each in entries
            if each.name.endswith(_READ)
        )
    # Only a decision that expires makes the day matter.
    day = work.today if any(each.expires for each in work.decisions) else None
    told = (_code(), work.site.folder.absolute(), work.number, work.cases, work.results, work.decisions)
    return hashlib.sha256(repr((*told, day, files)).encode(errors="replace")).hexdigest()


@functools.cache
def _code() -> str:
    """Digest of the code that makes a card's pages: a version does not change while it is worked on."""
    package = Path(__file__).resolve().parent.parent
    sources = sorted(
        path
        for folder in ("history", "site", "static", "statistics")
        for path in (package / folder).glob("*.py")
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _line(commits: Commits, count: int) -> str:
    return hashlib.sha256("".join(each.hash for each in commits.line[:count]).encode()).hexdigest()
