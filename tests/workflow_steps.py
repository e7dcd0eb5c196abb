"""Runs the scripts of a workflow's jobs as a runner does: the same shell, the same variables, the same files.

Actions (`uses:`) are run where a test says how; elsewhere it does by hand what they would have done.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.forked_command import shim
from tests.support import IMPORT_PATH, ROOT, programs

WORKFLOWS = ROOT / ".github" / "workflows"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_INSTALLING = "Install the harness"
"""The step that there is no need for here: `harness` is this checkout's."""
_NO_NEED = "actions/setup-python"
_FALSE = ("", "false")


@dataclass
class Job:
    """A job of a workflow on one machine."""

    workflow: str
    name: str
    workspace: Path
    known: Mapping[str, str]
    """Values of expressions. An expression that is missing here is an error, because the test must know it.
    """
    environ: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outputs by the step's id."""
    said: list[str] = field(default_factory=list)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Secrets by environment. A job has those of its environment only."""
    after: list[Callable[[], subprocess.CompletedProcess[str]]] = field(default_factory=list)
    """Post steps of actions, which run when the job ends."""

    def __post_init__(self) -> None:
        # Beside the workspace, which actions/checkout empties.
        self.temp = self.workspace.with_name(f"{self.workspace.name}.temp")
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.temp.mkdir()
        self.document = yaml.safe_load((WORKFLOWS / self.workflow).read_text(encoding="utf-8"))
        for folder in (self.temp / "venv" / "bin", self.temp / "bin"):
            folder.mkdir(parents=True)
            for command, module in {"harness": "harness.cli", "asv": "asv.main"}.items():
                text = shim(command, module, programs.socket, programs.variables, self.temp / "lock")
                (folder / command).write_text(text, encoding="utf-8")
                (folder / command).chmod(0o755)

    @property
    def summary(self) -> str:
        return (self.temp / "summary.md").read_text(encoding="utf-8")

    def step(self, name: str) -> dict[str, Any]:
        steps = self.document["jobs"][self.name]["steps"]
        return next(step for step in steps if step.get("name") == name)

    def run(self, name: str | None = None) -> int:
        """Run one step's script, or all of them in order until one fails, and return its status."""
        steps = [self.step(name)] if name else self.document["jobs"][self.name]["steps"]
        for step in steps:
            if "run" in step and step.get("name") != _INSTALLING and (status := self._run(step)):
                return status
        return 0

    def whole(self, use: Callable[[Job, Mapping[str, Any]], subprocess.CompletedProcess[str]]) -> int:
        """Take all steps in order, actions with `use`, after a failure only those that are to run always;
        return the first failure's status.
        """
        failed = 0
        for step in self.document["jobs"][self.name]["steps"]:
            action = step.get("uses", "")
            if (
                step.get("name") == _INSTALLING
                or action.startswith(_NO_NEED)
                or not self._wanted(step, failed)
            ):
                continue
            if action:
                done = use(self, step)
                self.said.append(done.stdout + done.stderr)
                status = done.returncode
            else:
                status = self._run(step)
            failed = failed or status
        while self.after:
            done = self.after.pop()()
            self.said.append(done.stdout + done.stderr)
            failed = failed or done.returncode
        return failed

    @property
    def environment(self) -> str:
        given = self.document["jobs"][self.name].get("environment", "")
        return self.evaluated(given if isinstance(given, str) else given["name"])

    def _wanted(self, step: Mapping[str, Any], failed: int) -> bool:
        condition = step.get("if", "success()")
        if condition == "always()":
            return True
        return not failed and (condition == "success()" or self.expression(condition) not in _FALSE)

    def _run(self, step: Mapping[str, Any]) -> int:
        output = self.temp / "output"
        output.write_text("", encoding="utf-8")
        script = self.temp / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        shell = self.document["defaults"]["run"]["shell"].replace("{0}", str(script)).split()
        done = subprocess.run(
            shell,
            cwd=self.workspace / step.get("working-directory", "."),
            env=self._environment(step),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            pass_fds=[programs.socket],
        )
        self.said.append(done.stdout + done.stderr)
        if "id" in step:
            pairs = (line.partition("=") for line in output.read_text(encoding="utf-8").splitlines())
            self.outputs[step["id"]] = {key: value for key, _, value in pairs}
        return done.returncode

    def _environment(self, step: Mapping[str, Any]) -> dict[str, str]:
        job = self.document["jobs"][self.name]
        given = {**self.document.get("env", {}), **job.get("env", {}), **step.get("env", {})}
        return {
            **os.environ,
            "PATH": f"{self.temp / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": IMPORT_PATH,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.temp / "output"),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "RUNNER_TEMP": str(self.temp),
            **self.environ,
            **{name: self.evaluated(str(value)) for name, value in given.items()},
        }

    def evaluated(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self.expression(" ".join(found[1].split())), text)

    def expression(self, text: str) -> str:
        """Return the value of an expression. It is known, a word, a secret of the job's environment, or an
        output of an earlier step, empty if that did not run. Two of these may be compared, or joined by &&
        and ||.
        """
        if text in self.known:
            return self.known[text]
        if " || " in text:
            return next(
                (value for value in map(self.expression, text.split(" || ")) if value not in _FALSE), ""
            )
        if " && " in text:
            *values, last = map(self.expression, text.split(" && "))
            return next((value for value in values if value in _FALSE), last)
        if compared := re.fullmatch(r"(\S+) (!=|==) '(.*)'", text):
            same = self.expression(compared[1]) == compared[3]
            return str(same == (compared[2] == "==")).lower()
        if word := re.fullmatch(r"'(.*)'", text):
            return word[1]
        if secret := re.fullmatch(r"secrets\.(\w+)", text):
            return self.secrets.get(self.environment, {}).get(secret[1], "")
        if output := re.fullmatch(r"steps\.(\w+)\.outputs\.(\w+)", text):
            step = {each["id"]: each for each in self.document["jobs"][self.name]["steps"] if "id" in each}
            if output[1] in self.outputs or "if" not in step[output[1]]:
                return self.outputs[output[1]][output[2]]
            return ""
        if hashed := re.fullmatch(r"hashFiles\('(.*)'\)", text):
            return "a hash" if (self.workspace / hashed[1]).is_file() else ""
        raise KeyError(f"{text} is not known to this test")
