"""harness rebuild: writes asv's result files from the records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from harness.cli import echo_json, options, tell
from harness.config import load_config
from harness.errors import ConfigError, ExitCode
from harness.integrations.asv.conf import asvs_conf, find_conf


@click.command("rebuild")
@options.path("--results", "Folder of asv's results; default: asv.conf.json's.", type=options.FOLDER)
@options.asv_conf
@options.json
def command(results: Path | None, asv_conf: Path | None, as_json: bool) -> int:
    """Write asv's result files again from the records beside them, if they are missing, empty, torn or wrong.

    The newest complete record of each case counts. Results without a record stay as they are.

    Exit status 3 if a file or record cannot be read and nothing replaces it.
    """
    config = load_config()
    file = find_conf(config, asv_conf)
    if file is None:
        raise ConfigError(
            f"There is no asv.conf.json in {config.root}: it says how asv's files are named and where "
            "they are. Start in its folder, or name it with --config."
        )
    conf = asvs_conf(file)
    from harness.integrations.asv.write_results import write_results

    rebuilt = write_results(conf, file.parent, results or file.parent / conf.results_dir)
    for problem in rebuilt.problems:
        tell(problem)
    if as_json:
        echo_json({**asdict(rebuilt), "written": [str(path) for path in rebuilt.written]})
    else:
        files = "file" if len(rebuilt.written) == 1 else "files"
        click.echo(f"{len(rebuilt.written)} {files} written, {rebuilt.unchanged} as the records have it.")
    return ExitCode.NOT_MEASURED if rebuilt.problems else ExitCode.FINE
