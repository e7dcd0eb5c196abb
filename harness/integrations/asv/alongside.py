"""What asv does with its results and pages is done with ours: `asv rm` takes the records along, and
`asv gh-pages` commits our pages beside its own.
"""

from __future__ import annotations

__all__ = ["setup"]

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from asv.commands import rm
from asv.console import log
from asv.plugins import github
from asv.results import Results
from asv.util import UserError

from harness.config import load_config
from harness.errors import HarnessError
from harness.integrations.asv.conf import site_conf, write_pages
from harness.integrations.asv.runs import replaced


def setup() -> None:
    """Change what asv's commands do; to be called once."""
    _remove_records_too()
    _commit_our_pages_too()


# asv rm


class _Removable:
    """One of asv's result files, which tells when asv removes it, or something of it."""

    def __init__(self, results: Any, touched: dict[str, set[str]]) -> None:
        self._results, self._touched = results, touched
        # asv looks for the pattern python=... here, where its own results have nothing.
        self.env = SimpleNamespace(python=results.params.get("python", ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def rm(self, folder: str) -> None:
        self._results.rm(folder)
        self._touched[self._results.params["machine"]].add(self._results.commit_hash)

    def save(self, folder: str) -> None:
        self._results.save(folder)
        self._touched[self._results.params["machine"]].add(self._results.commit_hash)


def _remove_records_too() -> None:
    run, iter_results = rm.Rm.run.__func__, rm.iter_results

    def removing(cls: Any, conf: Any, *args: Any, **options: Any) -> Any:
        touched: dict[str, set[str]] = defaultdict(set)

        def removable(folder: str) -> Iterator[_Removable]:
            return (_Removable(results, touched) for results in iter_results(folder))

        with replaced(rm, iter_results=removable):
            outcome = run(cls, conf, *args, **options)
        try:
            removed = sum(_remove_records(Path(conf.results_dir), *each) for each in touched.items())
        except (HarnessError, OSError) as error:
            raise UserError(f"asv's results are removed, but not all records of them: {error}") from error
        if removed:
            log.info(f"Removing {removed} records")
        return outcome

    rm.Rm.run = classmethod(removing)


def _remove_records(results: Path, machine: str, commits: Collection[str]) -> int:
    """Remove asv's records of commits of whose suite asv has no result left; tell how many."""
    from harness.history.facts import read_facts
    from harness.history.tables import read_benchmarks

    suites: dict[str, str] = {}
    with contextlib.suppress(HarnessError):  # then only what has no result at all is known to have none
        suites = {name: benchmark.suite or "" for name, benchmark in read_benchmarks(results).items()}
    left = {commit: _suites_left(results / machine, commit, suites) for commit in commits}
    known = {*suites.values()}
    gone = [
        facts.file
        for facts in read_facts(results / machine)
        if facts.command == "asv"
        and (there := left.get(facts.commit)) is not None
        # A suite that had another name at that commit may be one of those that are left.
        and (not there or (facts.suite in known and facts.suite not in there))
    ]
    for name in gone:
        (results / machine / name).unlink(missing_ok=True)
    return len(gone)


def _suites_left(folder: Path, commit: str, suites: Mapping[str, str]) -> set[str] | None:
    """The suites of which asv still has results of a commit; None where that cannot be known."""
    try:
        left = [Results.load(str(path)) for path in folder.glob(f"{commit[:8]}-*.json")]
        return {suites[name] for name in _names(left, commit)}
    except (OSError, UserError, LookupError, TypeError, ValueError):
        return None


def _names(results: Iterable[Any], commit: str) -> Iterator[str]:
    for each in results:
        if each.commit_hash == commit:
            yield from each.get_all_result_keys()


# asv gh-pages


def _commit_our_pages_too() -> None:
    run = github.GithubPages.run.__func__

    def publish(conf: Any) -> None:
        github_publish.run(conf)
        try:
            written = write_pages(site_conf(conf, Path.cwd(), Path("asv.conf.json")), load_config().root)
        except HarnessError as error:
            raise UserError(error.message) from error
        for problem in written.problems:
            log.warning(problem)

    def publishing(cls: Any, *args: Any, **options: Any) -> Any:
        with replaced(github, Publish=SimpleNamespace(run=publish)):
            return run(cls, *args, **options)

    github_publish = github.Publish
    github.GithubPages.run = classmethod(publishing)
