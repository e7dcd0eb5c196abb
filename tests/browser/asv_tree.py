"""A small project with a history of asv results, and its published site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, run_forked

COMMITS = 24
STEP_AT = 14
MACHINE = "gpu-box"
ENV = "checkout-py3"
TIME = "matmul.time_naive"
GFLOPS = "matmul.track_gflops"
KERNELS = ["'naive'", "'thread_tiling_2d'"]
OFFLINE = ".offline"
OFFLINE_CODE = """\
from harness.integrations.asv import publish
publish.DirectedPages.publish = lambda *_: None
"""
"""A plugin that lets a site need no network, and does nothing else."""
PARAMS = {"machine": MACHINE, "os": "Linux", "arch": "x86_64", "cpu": "cpu", "num_cpu": "8", "ram": "64GB"}


def make_project(root: Path, plugins: tuple[str, ...] = (OFFLINE,)) -> Path:
    """A repository, its configuration and its results, with a step at one commit."""
    hashes = _make_repository(root / "repo")
    results = root / "results"
    (results / MACHINE).mkdir(parents=True)
    (root / "offline.py").write_text(OFFLINE_CODE, encoding="utf-8")
    _write(root / "asv.conf.json", _configuration(plugins))
    _write(results / "benchmarks.json", _benchmarks())
    _write(results / MACHINE / "machine.json", {**PARAMS, "version": 1})
    for index, commit in enumerate(hashes):
        _write(results / MACHINE / f"{commit[:8]}-{ENV}.json", _result(index, commit))
    return root


def publish(root: Path) -> subprocess.CompletedProcess[str]:
    """`asv publish` as a user runs it; the site is in root/html."""
    return run_forked(
        [sys.executable, "-m", "asv", "publish", "--no-pull"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )


def _configuration(plugins: tuple[str, ...]) -> dict[str, object]:
    return {
        "version": 1,
        "project": "sample",
        "project_url": "https://example.invalid/sample",
        "show_commit_url": "https://example.invalid/sample/commit/",
        "repo": "repo",
        "branches": ["main"],
        "environment_type": "existing",
        "plugins": list(plugins),
    }


def _benchmarks() -> dict[str, object]:
    common = {"code": "", "timeout": 60.0, "version": "1"}
    return {
        "version": 2,
        TIME: {
            **common,
            "name": TIME,
            "type": "time",
            "unit": "seconds",
            "param_names": [],
            "params": [],
        },
        GFLOPS: {
            **common,
            "name": GFLOPS,
            "type": "track",
            "unit": "GFLOP/s",
            "param_names": ["kernel", "n"],
            "params": [KERNELS, ["1024", "2048"]],
        },
    }


def _result(index: int, commit: str) -> dict[str, object]:
    slower = 1.3 if index >= STEP_AT else 1.0
    wobble = 1 + 0.001 * (index * 7 % 5)
    gflops = [round(base / slower * wobble, 3) for base in (250.0, 310.0, 4200.0, 5100.0)]
    return {
        "version": 2,
        "commit_hash": commit,
        "env_name": ENV,
        "date": 1_700_000_000_000 + index * 86_400_000,
        "params": {**PARAMS, "python": "3"},
        "python": "3",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version"],
        "results": {
            TIME: [[0.004 * slower * wobble], [], "1"],
            GFLOPS: [gflops, [KERNELS, ["1024", "2048"]], "1"],
        },
        "durations": {},
    }


def _make_repository(path: Path) -> list[str]:
    path.mkdir(parents=True)
    _git(path, "init", "--quiet", "--initial-branch=main")
    for index in range(COMMITS):
        date = f"{1_700_000_000 + index * 86_400} +0000"
        (path / "kernel.cu").write_text(f"// version {index}\n", encoding="utf-8")
        _git(path, "add", "kernel.cu")
        _git(path, "commit", "--quiet", "-m", f"Change {index}", date=date)
    return _git(path, "rev-list", "--reverse", "main").split()


def _git(path: Path, *arguments: str, date: str = "1700000000 +0000") -> str:
    # A user's own git settings, such as signing or hooks, must not reach the sample.
    who = {f"GIT_{role}_{part}": "sample" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {
        **os.environ,
        **who,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=path, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
