"""Publishes the pages of a history: reads every card, and writes its documents and those of all cards."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from harness import __version__
from harness.errors import GitError
from harness.history.asv_limits import AsvLimits
from harness.history.changes import confirmed_by
from harness.history.conclusion import conclude
from harness.history.figures import SeriesCase
from harness.history.reading import Mapped, open_results, side_by_side
from harness.history.series import cases_of
from harness.history.sources.kept_tables import cache_file, listing, read_cached, write_cached
from harness.history.sources.our_records import Commits, read_commits
from harness.history.suspects import SourceFolders, with_suspects
from harness.history.triage import read_triage
from harness.records.record_files import PACKED, PART
from harness.report.site.card_documents import CardPages, CardSummary
from harness.report.site.documents import COMMITS_A_FILE, Site, file_name
from harness.report.site.overview import Overview
from harness.report.site.suite_documents import Cards, suite_document
from harness.report.templates import html_environment
from harness.suite.suite import Suite
from harness.system import git
from harness.system.cache import own_code

FOLDER = "harness"
"""Folder of our pages, beside asv's index.html."""
_ASSETS = Path(__file__).resolve().parent / "assets"
_EVERY_PAGE = ("data", "dom", "state", "format", "commands", "page", "table")
"""Scripts that every page loads first, in this order. Its own scripts follow, the drawing one last."""
PAGES: Mapping[str, tuple[str, ...]] = {
    "calibration": (),
    "card": ("surface", "roofline", "suites"),
    "case": ("changes", "surface", "chart", "dates", "history", "suites", "sparks"),
    "commit": ("changes", "events", "difference"),
    "compare": ("difference",),
    "index": ("changes", "events", "sparks", "glance"),
    "ladder": ("surface", "suites", "scaling"),
    "run": ("surface", "chart"),
}
_PLOTS = "static/vendor/uplot-1.6.32/uPlot"
_COMMENT = re.compile(rb"//.*|/\*[^*]*\*/|/\*\*[^*]*\*/")
"""A line that is only a comment."""
_PATHS = 60
"""Most paths of a commit on the pages. An empty last path means that there are more."""
_READ = (".json", ".jsonl", PACKED, PART, ".harness")
"""Extensions of the files that are read in a card's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    folder: Path
    cards: int
    series: int
    points: int
    open: int
    problems: tuple[str, ...]
    unrecorded: tuple[str, ...]
    """Sentences that count results of suites in asv's files alone."""


def publish_pages(
    results: Path,
    root: Path,
    html: Path,
    *,
    project: str,
    repository: Path | None = None,
    revision: str = "HEAD",
    commit_url: str = "",
    suites: Sequence[Suite] = (),
    directions: Mapping[str, str] | None = None,
    limits: AsvLimits | None = None,
    today: dt.date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Write the pages of a results folder into a site's folder, beside other files there.

    `repository` holds the commits, if not the project's own in `root`. `suites` hold published values and the
    sources whose memory accesses are analysed. `directions` is the better direction of benchmarks outside of
    suites. `limits` are those of asv's configuration.

    An empty history makes pages that say so. Raises StoreError if something cannot be read or written,
    GitError, and ConfigError for the triage file.
    """
    now = dt.datetime.now(tz=dt.timezone.utc)
    today = today or now.date()
    repository = repository or root
    decisions, commits = read_triage(root), read_commits(repository, revision)
    site = Site(html / FOLDER)
    with side_by_side() as mapped:
        placed = limits and limits.placed(repository, commits)
        found = open_results(results, commits, directions, mapped, placed)
        cases = cases_of(found.groups, built=found.built)
        _write_shell(site)
        work = [
            CardPages(site, card, number, found, commits, cases, decisions, today)
            for number, card in enumerate(found.cards)
        ]
        cards = _publish_changed(work, mapped, tell)
    _write_commits(site, repository, commits)
    of_suites = _write_suites(site, suites, cards, cases, git.repository_of(root))
    names = [each.name for each in found.cards]
    findings = [card.findings(name) for name, card in zip(names, cards, strict=True)]
    conclusion = conclude(findings, decisions, commits, today)
    sources = SourceFolders(
        folders={suite: PurePosixPath(path) for card in cards for suite, path in card.paths.items()},
        kernels={group.name: frozenset(group.kernels) for group in found.groups if group.is_suite},
    )
    by_name = {case.name: case for case in cases}
    events = with_suspects(conclusion.events, repository, commits, by_name, sources)
    conclusion = replace(conclusion, events=events)
    Overview(site, cards, names, cases, commits, conclusion).write(
        {
            "generated_at": now.isoformat(timespec="seconds"),
            "harness_version": __version__,
            "project": project,
            "commit_url": commit_url,
            "suites": of_suites,
        }
    )
    return Published(
        folder=site.folder,
        cards=len(cards),
        series=sum(len(card.series) for card in cards),
        points=sum(card.points for card in cards),
        open=sum(1 for _ in conclusion.open),
        problems=tuple(problem for card in cards for problem in card.problems),
        unrecorded=tuple(sentence for card in cards for sentence in card.unrecorded),
    )


def _write_shell(site: Site) -> None:
    """Write the scripts, styles and empty pages of every site."""
    for source in sorted(path for path in _ASSETS.rglob("*") if path.is_file()):
        site.put(source.relative_to(_ASSETS).as_posix(), _lean(source))
    for page in PAGES:
        site.put(f"{page}.html", page_html(page).encode())


def page_html(name: str) -> str:
    """Return the HTML of one of the PAGES: the scripts that draw it, without content."""
    styles = ["static/style.css"]
    scripts = [f"static/{each}.js" for each in (*_EVERY_PAGE, *PAGES[name], f"page-{name}")]
    if "chart" in PAGES[name]:
        styles.insert(0, f"{_PLOTS}.min.css")
        scripts.insert(0, f"{_PLOTS}.iife.min.js")
    title = "Overview" if name == "index" else name.capitalize()
    template = html_environment(_ASSETS.parent).get_template("page.html.j2")
    return template.render(title=title, styles=styles, scripts=scripts)


def _lean(source: Path) -> bytes:
    """Return an asset. Our scripts and styles lose indentation and comment lines, a seventh of their size."""
    content = source.read_bytes()
    if source.suffix not in (".js", ".css") or "vendor" in source.parts:
        return content
    lines = (line.strip() for line in content.splitlines())
    return b"".join(line + b"\n" for line in lines if line and not _COMMENT.fullmatch(line))


def _publish(work: CardPages, before: CardSummary | None = None) -> CardSummary:
    """Write a card's pages, or those of some cases again, and keep the summary."""
    summary = work.write_again(before) if before else work.write()
    count = len(work.commits)
    write_cached(_kept(work), _Written(_key(work), count, _line(work.commits, count), summary))
    return summary


def _publish_changed(
    work: Sequence[CardPages], mapped: Mapped, tell: Callable[[str], None]
) -> list[CardSummary]:
    """Write the pages of cards that would change, and return the summary of every card."""
    recalled = {one.number: _recall(one) for one in work}
    changed = [one for one in work if recalled[one.number] is None]
    for one, card in zip(changed, mapped(_publish, _folders(changed), changed), strict=True):
        tell(f"{card.name}: {len(card.series)} cases")
        recalled[one.number] = card
    cards = {number: card for number, card in recalled.items() if card}
    ids = confirmed_by([each for card in cards.values() for each in card.evidence])
    again = []
    for one in work:
        card = cards[one.number]
        counting = card.confirmable(ids)
        if moved := counting ^ set(card.confirmed):
            # A step of a case may depend on other cards. Read only this case again.
            names = {hint.case for each, hint in card.evidence if each in moved}
            again.append(one.again(counting, names))
    before = [cards[one.number] for one in again]
    for one, card in zip(again, mapped(_publish, _folders(again), again, before), strict=True):
        cards[one.number] = card
    return list(cards.values())


def _folders(work: Sequence[CardPages]) -> list[Path]:
    return [one.source.folder for one in work]


def _write_suites(
    site: Site,
    suites: Sequence[Suite],
    cards: Sequence[CardSummary],
    cases: Sequence[SeriesCase],
    repository: Path | None,
) -> list[dict[str, Any]]:
    """Write a document for each suite, and return their entries in the overview."""
    on_cards = Cards(
        gpus=[card.gpu for card in cards],
        hosts=[card.host for card in cards],
        newest={
            (row["card"], row["case"]): row["last"]
            for card in cards
            for row in card.series
            if row["last"] is not None
        },
    )
    listed = []
    for suite in suites:
        file = file_name(suite.name)
        site.write(f"suites/{file}", suite_document(suite, on_cards, cases, repository))
        ladders = [{"name": ladder.name, "title": ladder.title} for ladder in suite.ladders]
        listed.append({"name": suite.name, "file": file, "ladders": ladders})
    return listed


def _write_commits(site: Site, repository: Path, commits: Commits) -> None:
    """Write the commits and the paths that each touched, in several files. Known paths are kept."""
    for first in range(0, len(commits), COMMITS_A_FILE):
        line, number = commits.line[first : first + COMMITS_A_FILE], first // COMMITS_A_FILE
        rows = [(each.hash, each.time_s, each.author[:200], each.subject[:500]) for each in line]
        site.write(f"commits/{number}", rows)
        name, last = f"touched/{number}", line[-1].hash
        if site.holds(name, last):
            continue
        try:
            paths = git.touched(repository, [each.hash for each in line])
        except GitError:  # of an incomplete clone; another clone may have them
            paths, last = {}, ""
        few = [_few(paths.get(each.hash, ())) for each in line]
        site.write(name, {"last": last, "paths": few}, api=False)


def _few(paths: Sequence[str]) -> list[str]:
    shown = [path.encode(errors="replace").decode()[:200] for path in paths[:_PATHS]]
    return [*shown, ""] if len(paths) > _PATHS else shown


class _Written(msgspec.Struct):
    """A card's pages. With it, a new commit costs only the cards that measured it."""

    key: str
    commits: int
    line: str
    """Digest of the first commits. The pages stay valid when commits are added."""
    summary: CardSummary


def _kept(work: CardPages) -> Path:
    return cache_file(work.source.folder, f"{work.file}.published")


def _recall(work: CardPages) -> CardSummary | None:
    """Return the kept summary of a card's pages, if they exist and would not change."""
    kept = read_cached(_kept(work), _Written)
    if kept is None or kept.key != _key(work) or kept.commits > len(work.commits):
        return None
    written = work.site.folder / f"data/cards/{kept.summary.file}.js"
    same_line = kept.line == _line(work.commits, kept.commits) and not _waited(work, kept.commits)
    return kept.summary if same_line and written.exists() else None


def _waited(work: CardPages, count: int) -> bool:
    """Return whether there are results of a commit after the first `count`, such as of a branch now merged.

    asv's files and records have the first digits of a commit's hash in their names.
    """
    new = [each.hash for each in work.commits.line[count:]]
    if not new:
        return False
    parts = {part for name in os.listdir(work.source.folder) for part in name.split("-")}  # noqa: PTH208
    return any(name[:digits] in parts for name in new for digits in range(4, len(name) + 1))


def _key(work: CardPages) -> str:
    decisive = (
        own_code(),
        work.site.folder.absolute(),
        *(work.source, work.number, work.cases, work.results, work.decisions),
        # The day matters only for decisions that expire.
        work.today if any(each.expires for each in work.decisions) else None,
        listing(work.source.folder, lambda name: name.endswith(_READ)),
    )
    return hashlib.sha256(repr(decisive).encode(errors="replace")).hexdigest()


def _line(commits: Commits, count: int) -> str:
    return hashlib.sha256("".join(each.hash for each in commits.line[:count]).encode()).hexdigest()
