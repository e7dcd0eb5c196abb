"""Imported before a process is forked that is to fork its workers in turn: Dask's."""

from __future__ import annotations

import subprocess

from harness.run.sweep import executors
from tests.fork_server import WORKERS, ForkServer

vars(executors)["RECOVERY_S"] = 0.1  # no card has to recover
subprocess.Popen = ForkServer(WORKERS).popen  # type: ignore[misc]
