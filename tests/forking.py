"""Imported before a process is forked that is to fork its workers in turn: Dask's."""

from __future__ import annotations

import subprocess

from tests.fork_server import WORKERS, ForkServer

subprocess.Popen = ForkServer(WORKERS).popen  # type: ignore[misc]
