"""harness ci compare: what the job with the card does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from harness.cli.compare_command import compare_commits, settings_from
from harness.cli.options import (
    Selection,
    case_options,
    cases_argument,
    commit_option,
    comparison_options,
    echo_json,
    path_option,
)
from harness.config import load_config
from harness.errors import UsageError
from harness.github.events import append_summary, in_workflow, links_of_run
from harness.output.review.building import kernel_places, review_of
from harness.output.review.faces import faces, workflow_commands, write_faces
from harness.output.review.markdown import summary
from harness.output.verdicts import as_json, exit_code, print_comparison
from harness.system import git


@click.command("compare")
@cases_argument
@case_options
@comparison_options
@commit_option("--base", required=True, help="The branch that the pull request goes to.")
@commit_option("--head", default="HEAD", show_default=True, help="The pull request's commit.")
@path_option("--out", "Where the report and the records go.", default=Path("perf-review"), show_default=True)
@click.option("--history", metavar="URL", default="", help="The published pages, to link to.")
def command(selection: Selection, base: str, head: str, out: Path, history: str, **options: Any) -> int:
    """Compare a pull request with where it left its base, and write the report that 'harness ci post' posts.

    In a workflow the job's summary and annotations are written too. The exit status is that of 'harness
    compare'; the report is written whatever the verdicts are.
    """
    config = load_config()
    repository = git.repository_of(config.root)
    if repository is None:
        raise UsageError(f"{config.root} is in no git repository: there are no commits to compare.")
    head = git.resolve(repository, head)
    left = git.merge_base(repository, base, head)
    if left == head:
        raise UsageError(f"{head[:10]} is part of {base} already: there is nothing to compare.")
    settings = dataclasses.replace(settings_from(config, selection, options), results=out / "records")
    finished = compare_commits(config, selection, settings, left, head)
    status = exit_code(finished.results, options["fail_on"])
    review = review_of(
        finished.results, {loaded.suite.name: kernel_places(loaded) for loaded in finished.heads}
    )
    links = links_of_run(history)
    write_faces(out, faces(review, links))
    append_summary(summary(review, links))
    if selection.as_json:
        echo_json([as_json(result) for result in finished.results])
    else:
        print_comparison(finished.results, status)
        for line in workflow_commands(review) if in_workflow() else ():
            click.echo(line)
    return status
