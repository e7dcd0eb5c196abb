"""A worker process seen from its parent: requests with a deadline, and the reason when no answer comes."""

from __future__ import annotations

__all__ = ["Child"]

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.bench import protocol
from harness.errors import WorkerError
from harness.system.process import Process

if TYPE_CHECKING:
    from typing_extensions import Self


def _absolute(*names: str) -> dict[str, str]:
    """Variables that name a path, which a worker in a folder of its own would look for there."""
    return {name: str(Path(value).absolute()) for name in names if (value := os.environ.get(name))}


class TimedOutError(WorkerError):
    reason = "timed-out"


def _side(stage: str) -> Literal["base", "head", ""]:
    """Whose turn it was: stages of one side of a pair end with its name."""
    word = stage.rpartition(" ")[2]
    return "base" if word == "base" else "head" if word == "head" else ""


def _doing(stage: str) -> str:
    what, _, side = stage.partition(" ")
    done = {
        "build": "building the kernel",
        "parts": "looking for the largest dispatch",
        "reference": "computing the reference",
        "verify": "verifying",
        "measure": "measuring",
        "library": "measuring the vendor's library",
        "solo": "running each side alone",
    }.get(what, what)
    return f"{done} {side}".strip()


class Child:
    """One worker process; a context manager that ends it.

    `ask` raises WorkerError where the process dies or does not answer in time; after that it must be closed.
    """

    def __init__(self, scratch: Path) -> None:
        self._process = Process(
            "harness.bench.worker", cwd=scratch, env=_absolute("HARNESS_CACHE_DIR", "HARNESS_NULL_SCRIPT")
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        request: protocol.Request,
        timeout_s: float,
        on_progress: Callable[[str], None] = lambda _stage: None,
    ) -> protocol.Opened | protocol.Done | protocol.Failed:
        """Send a request and wait for its answer."""
        stage = "starting" if isinstance(request, protocol.Open) else "build"
        deadline = time.monotonic() + timeout_s
        try:
            self._process.ask(protocol.encode(request), deadline)
            while (line := self._process.answer(deadline)) is not None:
                reply = protocol.decode_reply(line)
                if not isinstance(reply, protocol.Progress):
                    return reply
                stage = reply.stage
                on_progress(stage)
        except BrokenPipeError:
            pass
        except TimeoutError:
            self.kill()
            raise self._lost(
                TimedOutError,
                f"No answer within {timeout_s:g} s while {_doing(stage)}: the worker process was ended. "
                "If the kernel is only slow, raise --timeout.",
                stage,
            ) from None
        except msgspec.MsgspecError as error:
            self.kill()
            raise self._lost(
                WorkerError,
                f"The worker process said what is no answer while {_doing(stage)} ({error}): something in it "
                "wrote where only the harness does.",
                stage,
            ) from None
        how = self._process.how_it_ended()
        raise self._lost(WorkerError, f"The worker process {how} while {_doing(stage)}.", stage)

    def _lost(self, kind: type[WorkerError], message: str, stage: str) -> WorkerError:
        lost = kind(message, log=self._process.log())
        lost.side = _side(stage)
        return lost

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End it. Nothing in a worker is worth waiting for, and a hung kernel would not answer."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
