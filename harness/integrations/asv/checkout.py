"""asv's environment type ``checkout``: the current interpreter, with results that setup_cache has
measured.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.environment import Environment
from asv.runner import BENCHMARK_RUN_SCRIPT

from harness.integrations.asv.tracks import ANSWERS, AsvRequest


class CheckoutEnvironment(Environment):  # type: ignore[misc]
    """The running interpreter as an asv environment, for any commit."""

    tool_name = "checkout"

    def __init__(
        self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: dict[Any, str]
    ) -> None:
        # asv's own constructor reads both before it sets them.
        self._python = python
        self._requirements = requirements
        super().__init__(conf, python, requirements, tagged_env_vars)
        self._places = {"results": str(Path(conf.results_dir).absolute())}

    @classmethod
    def matches(cls, python: str) -> bool:  # noqa: ARG003
        return True

    def check_presence(self) -> bool:
        return True

    def create(self) -> None:
        pass

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002
        """Do nothing: the suite of this commit is exported when it is measured."""
        self._places["repository"] = str(repo._path)  # noqa: SLF001
        self._set_commit_hash(commit_hash)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run the interpreter, or return an answer that setup_cache has already measured."""
        env = {**(kwargs.pop("env", None) or os.environ), **self._global_env_vars}
        if path := os.environ.get("PYTHONPATH"):
            env["ASV_PYTHONPATH"] = path  # under its own name, asv would remove it from the import path
        kwargs.setdefault("timeout", self._install_timeout)
        request = AsvRequest.given(**self._places)
        command = args[1] if args[:1] == [BENCHMARK_RUN_SCRIPT] else ""
        if command == "run" and (answered := _answer(args, Path(kwargs["cwd"]))):
            return answered
        if command != "setup_cache":
            return util.check_output([sys.executable, *args], env={**env, **request.variables}, **kwargs)
        with _shown_progress(Path(kwargs["cwd"])) as progress:
            request = AsvRequest.given(
                **self._places, progress=str(progress), only=args[3].split(".")[-2], asv_pid=os.getpid()
            )
            # asv kills a process that does not end within a second of TERM. Its leftovers are removed with
            # asv's folder.
            env |= {**request.variables, "TMPDIR": str(progress.parent)}
            return util.check_output([sys.executable, *args], env=env, **kwargs)


def _answer(args: list[str], cache: Path) -> tuple[str, str, int] | None:
    """Return the result of one track, kernel and size from setup_cache; with None, asv starts a process."""
    try:
        _, _, _, name, _, profile, result_file = args
        track, _, index = name.rpartition(".")[2].partition("-")
        answer = _answers(cache / ANSWERS)[track][int(index)]
    except (OSError, ValueError, LookupError):
        return None
    if profile != "None":
        return None
    if "error" in answer:
        return answer["error"], "", 1
    Path(result_file).write_text(json.dumps(answer["value"]), encoding="utf-8")
    return "", "", 0


@functools.lru_cache(maxsize=1)
def _answers(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of a class's setup_cache. Cached, because asv gives every setup_cache a
    new folder.
    """
    answers: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return answers


@contextmanager
def _shown_progress(folder: Path) -> Iterator[Path]:
    """Yield a file for a child's progress, while a thread shows its lines.

    The file is in asv's temporary folder, and is removed after an interrupt too, when asv would leave it.
    """
    over = threading.Event()
    path = folder / "harness-progress"
    path.touch()
    with path.open(encoding="utf-8") as file:

        def follow() -> None:
            while True:
                ended = over.wait(0.2)
                for line in file.read().splitlines():
                    log.info(line)
                if ended:
                    return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield path
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            over.set()
            thread.join()
