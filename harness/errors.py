"""Every error this project raises on purpose, under one root.

HarnessError
├── UsageError              the request is invalid                       exit 2
│   ├── ConfigError         a configuration file or variable is wrong
│   ├── SuiteError          a suite is missing or broken
│   │   ├── NoSuiteError    a commit does not have the suite
│   │   ├── NotYetKnownError    it uses a fact that is known later
│   │   └── NotToldError    it uses a fact that the device does not report
│   ├── GitError            a commit or repository cannot be read
│   └── RefusedError        a report or event is invalid and was ignored
└── MeasureError            the request could not be carried out         exit 3
    ├── DeviceError         no device, or it cannot be opened
    ├── BusyError           another process measures on the device
    ├── BuildError          a kernel does not compile; carries the log
    ├── LaunchError         the device cannot run this launch
    │   └── GraphRefusedError   the launch cannot be captured in a CUDA graph
    ├── KernelError         the kernel ran and faulted on the device
    ├── OutOfMemoryError    more memory than the device has free
    ├── WorkerError         a child process crashed, hung or was lost
    ├── RemoteError         another service refused, or could not be reached
    └── StoreError          a record cannot be written or read

A message says what failed, the value, what was expected and what to do. `reason` is a stable code for
machines.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

Side = Literal["base", "head", ""]
"""A side of a comparison; empty for both, or without a comparison."""


class ExitCode(IntEnum):
    """Exit statuses of a `harness` command."""

    FINE = 0
    REGRESSION = 1
    USAGE = 2
    NOT_MEASURED = 3
    INCONCLUSIVE = 4
    INTERRUPTED = 130


FAILING = ("regression", "missing", "failed", "invalid", "inconclusive", "improvement", "new")
"""Verdicts that can fail a comparison."""


class HarnessError(Exception):
    """Root of every error raised on purpose."""

    exit_code: ExitCode = ExitCode.NOT_MEASURED
    reason: str = "error"

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.log = log
        """Longer evidence, such as a compiler's output; empty if there is none."""
        self.side: Side = ""
        """The side of a comparison that the error belongs to."""


class UsageError(HarnessError):
    exit_code = ExitCode.USAGE
    reason = "usage"


class ConfigError(UsageError):
    reason = "config"


class SuiteError(UsageError):
    reason = "suite"


class NoSuiteError(SuiteError):
    reason = "no-suite"


class NotYetKnownError(SuiteError):
    """A suite's function uses a fact of the device before it is known."""


class NotToldError(SuiteError, AttributeError):
    """A suite's function uses a fact that the device does not report."""


class GitError(UsageError):
    reason = "git"


class RefusedError(UsageError):
    reason = "refused"


class MeasureError(HarnessError):
    reason = "measure"


class DeviceError(MeasureError):
    reason = "no-device"


class BusyError(MeasureError):
    reason = "busy"


class BuildError(MeasureError):
    reason = "build-failed"


class LaunchError(MeasureError):
    reason = "launch-refused"


class GraphRefusedError(LaunchError):
    reason = "graph-refused"


class KernelError(MeasureError):
    reason = "kernel-fault"


class OutOfMemoryError(MeasureError):
    reason = "out-of-memory"


class WorkerError(MeasureError):
    reason = "crashed"


class RemoteError(MeasureError):
    reason = "remote"


class StoreError(MeasureError):
    reason = "store"
