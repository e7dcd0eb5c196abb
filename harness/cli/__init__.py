"""The command line. Each command is imported when it is called, so that help and listing stay fast."""

from __future__ import annotations

__all__ = ["COMMANDS", "cli", "main"]

import codecs
import contextlib
import importlib
import io
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from textwrap import indent
from types import FrameType
from typing import Any, ClassVar, TextIO

import click
from click.shell_completion import CompletionItem

from harness import __version__
from harness.errors import ExitCode, HarnessError, StoreError
from harness.system.texts import harmless, plain_log

COMMANDS = {
    "init": "List a repository's benchmarks, and write suites for its kernels.",
    "demo": "Show verdicts and pages from recorded data: no GPU is needed.",
    "devices": "Show what this machine can measure on.",
    "list": "Show suites, kernels and sizes.",
    "check": "Verify kernels against their reference, without timing them.",
    "static": "Show registers, spills and occupancy of kernels on any card.",
    "run": "Verify and measure kernels.",
    "compare": "Find the kernels that a commit made slower.",
    "explain": "Show why cases became slower, by hardware counters.",
    "bisect": "Find the commit between two that made a case slower or faster.",
    "sweep": "Try every configuration of a kernel, and show the fastest.",
    "judge": "Compare benchmark files of two commits, saved alternately.",
    "rejudge": "Judge stored comparisons by today's rules, without a device.",
    "calibrate": "Measure the noise of this device, which later verdicts use.",
    "history": "Find changes over many commits, caused by code or by clocks.",
    "rebuild": "Write asv's result files again from the records.",
    "import": "Turn result files of nvbench, asv and other tools into records.",
    "publish": "Write the pages of a history, and asv's.",
    "report": "Write stored comparisons as a comment, a summary or a page.",
    "ci": "Commands for CI workflows.",
    "doctor": "Check how well this machine can measure, and say what to change.",
    "machine": "Register this machine's device with asv.",
}

_MEASURING = frozenset(
    {"bisect", "calibrate", "check", "compare", "explain", "measure", "run", "static", "sweep"}
)
"""Commands that start so many processes that forking a process with the imports done saves time."""


def echo_json(value: Any) -> None:
    import msgspec

    content = msgspec.json.format(msgspec.json.encode(value), indent=2)
    if codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
        # A question mark would count as a different value.
        text = re.sub(r"[^\0-\x7f]", lambda found: json.dumps(found[0])[1:-1], content.decode())
        content = text.encode()
    click.echo(content)


def tell(text: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"harness: {harmless(text)}", err=True)


def tell_lines(lines: Iterable[str]) -> None:
    """Print what was left out and why on standard error, each sentence once."""
    for line in dict.fromkeys(lines):
        click.echo(harmless(line, keep="\n"), err=True)


def tell_failed(sentence: str, log: str) -> None:
    """Print a failure with its log on standard error."""
    click.echo("\n".join(filter(None, (harmless(sentence), indent(plain_log(log), "    ")))), err=True)


def tell_wall_time(results: Iterable[Any]) -> None:
    """Print the elapsed time and its stages on standard error, a line for each device."""
    from harness.run.wall_time import wall_time_lines

    tell_lines(wall_time_lines(results))


def show_sheets(sheets: Iterable[Any]) -> None:
    """Print the sheets with `print_out`, each followed by an empty line."""
    from harness.report.terminal.run_tables import print_out

    for sheet in sheets:
        print_out(sheet)
        click.echo()


_AT_END = f"{__name__}.at_end"


def tell_at_end(error: HarnessError) -> None:
    """Continue the command after an error, which `LazyGroup` reports at the end."""
    click.get_current_context().meta.setdefault(_AT_END, []).append(error)


def tell_error(error: HarnessError) -> None:
    """Print an error with its log on standard error."""
    message = harmless(error.message, keep="\n")
    click.echo(f"harness: {message}", err=True)
    if error.log:
        click.echo(plain_log(error.log), err=True)


class LazyGroup(click.Group):
    """A command is `command` of the module ``<prefix><name>_command``, imported when it is called."""

    summaries: ClassVar[Mapping[str, str]] = COMMANDS
    prefix: ClassVar[str] = "harness.cli."

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.summaries:
            return None
        if cmd_name in _MEASURING:
            from harness.system.process import begin_ready

            begin_ready()
        command: click.Command = importlib.import_module(f"{self.prefix}{cmd_name}_command").command
        return command

    def invoke(self, ctx: click.Context) -> int:
        """Call the command, then report errors that it continued after. They replace an exit status of 0."""
        try:
            status = int(super().invoke(ctx) or ExitCode.FINE)
        finally:
            errors = ctx.meta.pop(_AT_END, [])
            for error in errors:
                tell_error(error)
        return status or max((error.exit_code for error in errors), default=ExitCode.FINE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0].isalpha() and args[0] not in self.summaries:
            import difflib

            near = " or ".join(difflib.get_close_matches(args[0], self.summaries))
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean {near}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        found = [CompletionItem(name, help=summary) for name, summary in self.summaries.items()]
        own = click.Command.shell_complete(self, ctx, incomplete)
        return [*(item for item in found if item.value.startswith(incomplete)), *own]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Find the commit that slowed a GPU kernel, on which card, by how much and how surely.

    Exit status: 0 fine, 1 regression or failed check, 2 wrong usage or configuration, 3 could not measure, 4
    inconclusive, 130 interrupted.
    """
    from harness.config import check_environment

    check_environment()


def main() -> None:
    """Run the command line or answer a shell's completion request, and exit with its status."""
    if "_HARNESS_COMPLETE" in os.environ:
        from harness.cli.completion import complete

        sys.exit(complete(cli))
    sys.stdout, sys.stderr = _outliving(sys.stdout, sys.__stdout__), _outliving(sys.stderr, sys.__stderr__)
    sys.exit(_run())


def _outliving(stream: TextIO, original: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or stream is not original:  # somebody captures it
        return stream
    return _Outliving(
        stream.buffer,
        encoding=stream.encoding,
        errors="replace" if stream is sys.__stdout__ else stream.errors,  # standard error escapes it
        line_buffering=stream.line_buffering,
    )


class _Outliving(io.TextIOWrapper):
    """Standard output or error that survives the end of its reader, as after `| head`.

    The exit status stays the command's own; click and rich would make it 1, a regression. A character that
    the encoding lacks becomes a question mark. A full disk ends the command with a sentence.
    """

    def write(self, text: str) -> int:
        with self._guarded():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._guarded():
            super().flush()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            nobody = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nobody, self.fileno())
            os.close(nobody)
            if not isinstance(error, BrokenPipeError) and self is sys.stdout:
                raise StoreError(f"Cannot write to standard output: {error.strerror}.") from error


def _run() -> int:
    try:
        with _ended_as_by_ctrl_c():
            return int(cli.main(standalone_mode=False) or ExitCode.FINE)
    except HarnessError as error:
        tell_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("harness: interrupted.", err=True)
        return ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001 - Python's own status for it, 1, would say that a kernel got slower
        click.echo(f"harness: an internal error, please report it:\n{traceback.format_exc()}", err=True)
        return ExitCode.NOT_MEASURED


_ENDING = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # Windows has no SIGHUP


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM from a runner and SIGHUP from a terminal like Ctrl-C. A second signal ends
    the command.
    """

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # an ignored signal, as under nohup, stays ignored
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
