"""The actions that the workflows pin, run by Node.

They are bundled from their own source at the pinned commit (tests/actions) and the packages of a lock file:
the bundles that they ship have several megabytes each.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.actions_service import Artifacts
from tests.support import ROOT
from tests.workflow_steps import Job

SOURCES = ROOT / "tests" / "actions"
REQUIRED = bool(os.environ.get("HARNESS_REQUIRE_ACTIONS"))
"""True if missing Node or packages of the actions fail the tests instead of skipping them: for CI machines.
"""


class Pinned(NamedTuple):
    commit: str
    source: str
    """File where the action begins. A post.js beside it, if there is one, runs after the job's other steps.
    """
    aliases: Mapping[str, str] = {}
    """Packages of other versions than the other actions have."""


PINNED = {
    "actions/checkout": Pinned(
        "3d3c42e5aac5ba805825da76410c181273ba90b1",
        "src/main.ts",
        {"@actions/core": "checkout-core", "@actions/github": "checkout-github"},
    ),
    "actions/create-github-app-token": Pinned("1b10c78c7865c340bc4f6099eb2f838309f1e8c3", "main.js"),
    "actions/download-artifact": Pinned(
        "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "src/download-artifact.ts"
    ),
    "actions/upload-artifact": Pinned("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "src/upload/index.ts"),
}
COMPOSITE = {"actions/upload-pages-artifact": "fc324d3547104276b827a68afc52ff2a11cc49c9"}
"""Actions that consist of scripts and of other actions."""


def _lacking(what: str) -> None:
    sentence = f"{what}: run 'npm ci --ignore-scripts' in {SOURCES.relative_to(ROOT)}."
    if REQUIRED:
        pytest.fail(f"HARNESS_REQUIRE_ACTIONS: {sentence}")
    pytest.skip(sentence)


def bundle(folder: Path) -> dict[str, Path]:
    """Bundle each action into one JavaScript file. Skips without Node or the packages."""
    packages = SOURCES / "node_modules"
    esbuild = packages / ".bin" / "esbuild"
    needed = json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))["dependencies"]
    if not shutil.which("node") or not all((packages / name).exists() for name in needed):
        _lacking("The actions' packages or Node are not here")
    made: dict[str, Path] = {}
    for action, pinned in PINNED.items():
        made[action] = folder / f"{action.rpartition('/')[2]}.mjs"
        _bundle(esbuild, pinned, _folder(action) / pinned.source, made[action])
        if (after := _folder(action) / "post.js").exists():
            _bundle(esbuild, pinned, after, _after(made[action]))
    return made


def _after(bundle: Path) -> Path:
    return bundle.with_suffix(".post.mjs")


def _bundle(esbuild: Path, pinned: Pinned, source: Path, made: Path) -> None:
    # Some of the packages are older than modules, and call `require`.
    banner = "import {createRequire as of} from 'module'; const require = of(import.meta.url);"
    options = [
        "--bundle",
        "--platform=node",
        "--format=esm",
        "--log-level=error",
        f"--banner:js={banner}",
        *(f"--alias:{name}={other}" for name, other in pinned.aliases.items()),
    ]
    # Other packages are looked for from where it runs.
    subprocess.run(
        [esbuild, source, *options, f"--outfile={made}"], check=True, capture_output=True, cwd=SOURCES
    )


def _folder(action: str) -> Path:
    return SOURCES / action.rpartition("/")[2]


@dataclass(frozen=True)
class Use:
    """Runs a step of a job that uses one of these actions, with its inputs as a runner gives them."""

    bundled: Mapping[str, Path]
    artifacts: Artifacts

    def __call__(self, job: Job, step: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        action = step["uses"].partition("@")[0]
        document = yaml.safe_load((_folder(action) / "action.yml").read_text(encoding="utf-8"))
        inputs = {
            name: job.evaluated(_text(each.get("default"))) for name, each in document["inputs"].items()
        }
        inputs |= {name: job.evaluated(_text(value)) for name, value in step.get("with", {}).items()}
        if action in COMPOSITE:
            return self._composite(job, document, inputs)
        for name in ("action-output", "action-state"):
            (job.temp / name).write_text("", encoding="utf-8")
        done = self._run(job, self.bundled[action], inputs, {})
        if "id" in step:
            job.outputs[step["id"]] = _pairs(job.temp / "action-output")
        if (after := _after(self.bundled[action])).exists() and done.returncode == 0:
            state = {f"STATE_{name}": value for name, value in _pairs(job.temp / "action-state").items()}
            job.after.append(lambda: self._run(job, after, inputs, state))
        return done

    def _run(
        self, job: Job, bundle: Path, inputs: Mapping[str, str], state: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["node", str(bundle)],
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_REPOSITORY": "example/kernels",
                "GITHUB_REPOSITORY_OWNER": "example",
                "GITHUB_RUN_ID": "4711",
                "GITHUB_WORKSPACE": str(job.workspace),
                "GITHUB_OUTPUT": str(job.temp / "action-output"),
                "GITHUB_STATE": str(job.temp / "action-state"),
                "RUNNER_TEMP": str(job.temp),
                **self.artifacts.environ,
                **job.environ,
                **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
                **state,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def _composite(
        self, job: Job, document: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        steps = document["runs"]["steps"]
        script = next(step for step in steps if "Linux" in step.get("if", ""))
        hidden = "inputs.include-hidden-files != 'true' && '--exclude=.[^/]*' || ''"
        job.known = {
            **job.known,
            **{f"inputs.{name}": value for name, value in inputs.items()},
            hidden: "--exclude=.[^/]*" if inputs["include-hidden-files"] != "true" else "",
        }
        done = subprocess.run(
            ["sh", "-e", "-c", job.evaluated(script["run"])],
            cwd=job.workspace,
            env={**os.environ, "RUNNER_TEMP": str(job.temp), "INPUT_PATH": inputs["path"]},
            capture_output=True,
            text=True,
            check=False,
        )
        [uploading] = (step for step in steps if "uses" in step)
        return self(job, uploading) if done.returncode == 0 else done


def _pairs(path: Path) -> dict[str, str]:
    """Parse a file of the runner that an action has written: NAME<<MARK, lines, MARK."""
    text = path.read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^(.+?)<<(?:ghadelimiter_\S+)\n(.*?)\nghadelimiter_\S+$", text, re.DOTALL))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
