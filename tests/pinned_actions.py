"""The actions that the workflows pin, run by Node.

They are bundled from their own source at the pinned commit (tests/actions) and the packages of a lock file:
the bundles that they ship have several megabytes each.
"""

from __future__ import annotations

import os
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
"""Whether these tests fail without Node and the actions' packages, where they would skip: for CI machines."""


class Pinned(NamedTuple):
    commit: str
    source: str
    aliases: Mapping[str, str] = {}
    """Packages of other versions than the other actions have."""


PINNED = {
    "actions/checkout": Pinned(
        "3d3c42e5aac5ba805825da76410c181273ba90b1",
        "src/main.ts",
        {"@actions/core": "checkout-core", "@actions/github": "checkout-github"},
    ),
    "actions/download-artifact": Pinned(
        "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "src/download-artifact.ts"
    ),
    "actions/upload-artifact": Pinned("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "src/upload/index.ts"),
}
COMPOSITE = {"actions/upload-pages-artifact": "fc324d3547104276b827a68afc52ff2a11cc49c9"}
"""Those that are scripts, and uses of others."""


def _lacking(what: str) -> None:
    sentence = f"{what}: run 'npm ci --ignore-scripts' in {SOURCES.relative_to(ROOT)}."
    if REQUIRED:
        pytest.fail(f"HARNESS_REQUIRE_ACTIONS: {sentence}")
    pytest.skip(sentence)


def bundle(folder: Path) -> dict[str, Path]:
    """Each action as one file of JavaScript; skips where Node or the packages are not here."""
    esbuild = SOURCES / "node_modules" / ".bin" / "esbuild"
    if not shutil.which("node") or not esbuild.exists():
        _lacking("The actions' packages or Node are not here")
    made = {action: folder / f"{action.rpartition('/')[2]}.mjs" for action in PINNED}
    for action, path in made.items():
        pinned = PINNED[action]
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
        source = _folder(action) / pinned.source
        # Other packages are looked for from where it runs.
        subprocess.run(
            [esbuild, source, *options, f"--outfile={path}"], check=True, capture_output=True, cwd=SOURCES
        )
    return made


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
            (job.temp / name).touch()
        return subprocess.run(
            ["node", str(self.bundled[action])],
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_REPOSITORY": "example/kernels",
                "GITHUB_RUN_ID": "4711",
                "GITHUB_WORKSPACE": str(job.workspace),
                "GITHUB_OUTPUT": str(job.temp / "action-output"),
                "GITHUB_STATE": str(job.temp / "action-state"),
                "RUNNER_TEMP": str(job.temp),
                **self.artifacts.environ,
                **job.environ,
                **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
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


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
