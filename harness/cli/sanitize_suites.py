"""harness check --sanitize: runs suites under sanitizers, prints findings, returns an exit status."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from harness.cli import echo_json, options, show_sheets, tell_failed, tell_lines
from harness.config import load_config
from harness.device.backends import compute_sanitizer
from harness.errors import DeviceError, ExitCode, UsageError
from harness.report.terminal.progress import SanitizeProgress
from harness.report.terminal.sanitized import sanitized_table
from harness.run.device_session import find_device
from harness.run.sanitize import OCLGRIND, SIZE, Sanitized, sanitize
from harness.suite.case_id import Selector
from harness.suite.planning import plan


def sanitize_all(chosen: options.Selection, named: Sequence[str]) -> int:
    """Run the selected kernels under the named tools, or this machine's. Raises UsageError, DeviceError."""
    config = load_config()
    # The configured device is for measuring, and may not be a card.
    configured = config.device if config.device and config.device.startswith("cuda") else "cuda:0"
    device = chosen.device or configured
    tools = tuple(dict.fromkeys(named)) or _tools(chosen.device, device)
    _check(chosen.device, tools)
    if not (chosen.size or chosen.quick or any(Selector.parse(case).size for case in chosen.cases)):
        chosen = replace(chosen, size=(str(SIZE),))
    results: list[Sanitized] = []
    timeout_s = chosen.timeout or config.timeout_s
    for loaded, sizes in chosen.suites(config):
        planned = plan(loaded.suite, chosen.cases, sizes, quick=chosen.quick)
        with SanitizeProgress() as progress:
            found = sanitize(loaded, planned, tools, device, timeout_s, chosen.seed, progress)
        if not chosen.as_json:
            show_sheets([sanitized_table(loaded.source, found)])
        results += found
    if chosen.as_json:
        echo_json(results)
    tell_lines(f"Left out: {each.message}" for each in results if each.status == "skipped")
    for each in results:
        if each.status == "failed":
            tell_failed(f"{each.case} failed under {each.tool} ({each.reason}): {each.message}", each.log)
    statuses = {each.status for each in results}
    if "found" in statuses:
        return ExitCode.REGRESSION
    return ExitCode.NOT_MEASURED if "failed" in statuses or "clean" not in statuses else ExitCode.FINE


def _tools(asked: str | None, device: str) -> tuple[str, ...]:
    """Return the tools to run: those for a card if there is one, else the simulator."""
    if asked is not None:
        return compute_sanitizer.TOOLS
    if compute_sanitizer.path() is not None:
        with contextlib.suppress(DeviceError):
            find_device(device)
            return compute_sanitizer.TOOLS
    return (OCLGRIND,)


def _check(device: str | None, tools: Sequence[str]) -> None:
    if device is None:
        return
    if tools == (OCLGRIND,):
        raise UsageError(f"Oclgrind is a simulator, which needs no device: leave out --device {device}.")
    if device.partition(":")[0] != "cuda":
        raise UsageError(
            f"compute-sanitizer only checks CUDA cards, and {device} is none: leave out --device, or give "
            "one such as cuda:0."
        )
