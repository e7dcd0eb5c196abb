"""Options that several commands share."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli import completion, tell_at_end, tell_lines
from harness.errors import FAILING, SuiteError, UsageError
from harness.suite.case_id import Selector

if TYPE_CHECKING:
    from harness.config import Config
    from harness.suite.loader import LoadedSuite
    from harness.suite.planning import SuitePair

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", "LoadedSuite", "SuitePair")
Sized = tuple[tuple[S, tuple[str, ...]], ...]
"""Suites, or pairs of them, each with the sizes that fit it."""
Option = Callable[[Any], Any]
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)


class Choice(click.Choice):  # type: ignore[type-arg]  # at run time click 8.1 takes no argument here
    """A choice of words that suggests the nearest word for an unknown one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), [*map(str, self.choices)], 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.BadParameter(error.message + hint, ctx, param) from None


def flag(name: str, text: str) -> Option:
    return click.option(name, is_flag=True, help=text)


profile_wall = flag("--profile-wall", "Print the wall time of each stage on standard error.")


def value(name: str, metavar: str, text: str, *, to: str = "", **more: Any) -> Option:
    """Return an option with a value, whose form `more` can define. The command gets it as `to` or the
    option's name.
    """
    return click.option(name, *filter(None, [to]), metavar=metavar, help=text, **more)


def several(name: str, metavar: str, text: str, **more: Any) -> Option:
    """Return an option that may be repeated, as its help says."""
    return value(name, metavar, f"{text}; repeatable.", multiple=True, **more)


def path(name: str, text: str, **more: Any) -> Option:
    """Return an option for a file or folder, which need not exist."""
    return value(name, more.pop("metavar", "FOLDER"), text, **{"type": click.Path(path_type=Path), **more})


def percent(name: str, text: str, *, least: float = 0, **more: Any) -> Option:
    """Return an option for a percentage below 100. The command gets a share of 1."""
    more["type"] = click.FloatRange(min=least, max=100, min_open=True, max_open=True)
    return value(name, "PERCENT", text, callback=lambda _, __, given: given and given / 100, **more)


def seconds(name: str, text: str, **more: Any) -> Option:
    return value(name, "SECONDS", text, type=ABOVE_ZERO, **more)


def seed(text: str) -> Option:
    """Return an option for a seed of NumPy's generators."""
    kind = click.IntRange(min=0)
    return click.option("--seed", metavar="INTEGER", type=kind, default=1, show_default=True, help=text)


def together(*options: Option) -> Option:
    """Return options as one decorator, in the order of the help text."""
    return lambda function: functools.reduce(lambda call, option: option(call), reversed(options), function)


device = value(
    "--device",
    "SPEC",
    "cuda:0, opencl:0, opengl:0 or cpu:0; default: the first that works. null needs no hardware.",
    shell_complete=completion.devices,
)
gpus = value(
    "--gpus",
    "all|0,1",
    "Share the work among several cards of this machine.",
)
scheduler = value("--scheduler", "ADDRESS", "Share the work among the workers of a Dask cluster.")
cards = together(gpus, scheduler)
max_launch = value(
    "--max-launch-ms",
    "MS",
    "Launch each grid in parts that take at most this long, for a card that drives a display.",
    type=ABOVE_ZERO,
)
graph = flag(
    "--graph",
    "Run each case by replay of a CUDA graph too, as a case of its own that ends in graph=1.",
)
no_wait = click.option(
    "--no-wait",
    "busy",
    is_flag=True,
    callback=lambda _context, _option, given: "fail" if given else "wait",
    help="Fail if another process measures on the device, instead of waiting for it.",
)
history_url = value("--history", "URL", "Address of the published pages, for a link.", default="")
json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
FORMATS = Choice(("nvbench", "google-benchmark", "pytest-benchmark", "hyperfine", "lines"))
L2 = click.Choice(["cold", "hot"])
l2 = click.option(
    "--l2",
    type=L2,
    help="Flush the L2 cache before each launch (cold), or not (hot); default: cold on a GPU, hot by graph.",
)
form = click.option(
    "--format", "form", type=Choice(("terminal", "markdown")), default="terminal", show_default=True
)
asv_conf = path(
    "--config", "asv's configuration, like asv's own --config.", metavar="FILE", to="asv_conf", type=FILE
)
no_save = flag("--no-save", "Keep no record.")
cases = click.argument("cases", nargs=-1, metavar="[CASES]...", shell_complete=completion.cases)


def commit(*names: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="REV", shell_complete=completion.commits, **settings)


suite_from = commit(
    "--suite-from",
    help="Take suites from this commit, or from the working tree with '.': for kernels older than a suite.",
)


def size(text: str, *, to: str = "") -> Option:
    return value("--size", "N|MxNxK", text, to=to, multiple=True, shell_complete=completion.sizes)


@dataclass(frozen=True)
class Selection:
    """The selected cases, with their device and commit."""

    cases: tuple[str, ...]
    size: tuple[str, ...]
    device: str | None
    gpus: str | None
    """The cards that share the cases, in the form of --gpus; None for one device."""
    scheduler: str | None
    """Address of a Dask cluster, whose workers share the cases; None for this machine."""
    commit: str | None
    """The commit. None for the working tree, or if a command names its commits in another way."""
    suite_from: str | None
    """The commit of the suites; None if each commit has its own."""
    quick: bool
    timeout: float | None
    seed: int
    as_json: bool
    graph: bool = False
    """True to measure each case by CUDA graph too."""

    def __post_init__(self) -> None:
        """Raise UsageError for sizes without effect, and for two ways to name the device."""
        if self.gpus is not None and (self.scheduler or self.device):
            other = "--scheduler" if self.scheduler else "--device"
            raise UsageError(f"--gpus and {other} exclude each other: give one of them.")
        if self.size and self.cases and all(Selector.parse(case).size for case in self.cases):
            raise UsageError(
                f"Size {self.size[0]} is of no use: {self.cases[0]} says its size itself. Leave one out."
            )

    def suites(self, config: Config) -> Sized[LoadedSuite]:
        """Return the selected suites with the sizes that fit each; report what is left out."""
        from harness.suite.planning import load_suites

        return self._fitting(
            load_suites(
                config,
                self.commit,
                self.cases,
                timeout_s=self.timeout,
                suite_from=self.suite_from,
                on_broken=tell_at_end,
            )
        )

    def pairs(
        self,
        config: Config,
        base: str,
        head: str | None,
        on_broken: Callable[[SuiteError], object] | None = tell_at_end,
    ) -> Sized[SuitePair]:
        """Return the suites at two commits with their sizes; without `head`, at base and in the working tree.

        `on_broken` gets the error of a suite that loads at neither; with None the error is raised.
        """
        from harness.suite.planning import load_pairs

        return self._fitting(
            load_pairs(
                config,
                base,
                head,
                self.cases,
                timeout_s=self.timeout,
                suite_from=self.suite_from,
                on_broken=on_broken,
            )
        )

    def _fitting(self, suites: Sequence[S]) -> Sized[S]:
        """Return the selected suites, and report what is left out. Raises UsageError for a size that fits
        none.
        """
        from harness.suite.planning import fitting

        found = fitting(suites, self.cases, self.size)
        tell_lines(found.left_out)
        return found.chosen


def selection(function: F) -> F:
    """Add CASES, --commit and the options that select cases. The command gets one Selection."""
    at = commit("--commit", help="Take kernels from this commit; default: the working tree.")
    return cases(at(suite_from(case_options(function))))


def one_selection(function: F) -> F:
    """Replace the options that are fields of Selection by one Selection."""

    @functools.wraps(function)
    def call(**options: Any) -> Any:
        names = Selection.__dataclass_fields__
        selection = Selection(**{name: options.pop(name, None) for name in names})
        return function(selection, **options)

    return call  # type: ignore[return-value]


def case_options(function: F) -> F:
    """Add the options that select cases and how to run them. The command gets one Selection."""
    return together(  # type: ignore[no-any-return]
        size("One number for every axis, or one per axis; repeatable."),
        device,
        flag("--quick", "Use the suite's small sizes; the default on a CPU."),
        seconds("--timeout", "Limit for one case, by default 120, and for loading a suite, by default 60."),
        seed("Seed of the input data."),
        json,
    )(one_selection(function))


fail_on = click.option(
    "--fail-on",
    multiple=True,
    metavar="VERDICT",
    type=Choice([*FAILING, "none"]),
    help=f"Verdicts that fail the command: {', '.join(FAILING)}; or none. Repeatable. Default: all but "
    "improvement and new.",
)


def limits(margin: str, tolerance: str, confidence: str = "", *, of: str = "case") -> Option:
    """Return --margin, --tolerance and --confidence, as shares, with their defaults (else 99.9 %)."""
    default = {} if confidence else {"default": 99.9, "show_default": True}
    return together(
        percent("--margin", f"Ignore changes smaller than this; {margin}."),
        percent("--tolerance", f"Call a {of} unchanged if its whole interval is within this; {tolerance}."),
        percent("--confidence", f"Confidence of each {of}'s verdict{confidence}.", least=50, **default),
    )


comparison = together(
    limits("default 0.25, on a CPU 2", "default 1, on a CPU 10"),
    seconds("--budget", "Stop measuring a suite after this much device time."),
    l2,
    click.option(
        "--twins/--no-twins",
        default=None,
        help="Test the comparison itself: also compare a kernel with itself, unchanged and with a planted "
        "slowdown; default: if CI is set and the device is no CPU.",
    ),
    fail_on,
    no_wait,
)
explain = click.option(
    "--explain",
    is_flag=True,
    help="Name the cause of a regression, after its verdict, by hardware counters and compiled code.",
)
