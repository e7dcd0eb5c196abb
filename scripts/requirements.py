"""Write anew, by hash, what the workflows install: .github/requirements, harness/ci/locked and docs/site.

    python scripts/requirements.py

uv resolves everything once, for every Python and system, and each file is a part of that one answer: so any
of them can be installed together. The documentation's site has an environment of its own, on the Python of
the workflow that publishes it. uv itself comes into an environment that is thrown away. The files name no
index.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.ci.requirements import compiling, composed, pins_of  # noqa: E402
from harness.ci.scaffold import MEASURE_FILE, STATIC_FILE  # noqa: E402

UV = "uv==0.13.9"
OLDEST_PYTHON = "3.10"
BUILD = "hatchling>=1.26"
"""As in pyproject.toml: the workflows build the harness without isolation."""
OPENCL = "pyopencl>=2024.2"
"""For a card whose driver brings OpenCL; the extra opencl has a device for hosts without a card too."""
HOSTED = "# What the jobs on hosted runners install, by hash: what the harness needs, and what builds it."
DOCS = "# What makes the documentation's site, by hash: Sphinx, and what the harness needs."
MEASURING = ("counters", "cpu", "libraries", "opencl", "opengl", "pytest", "static", "tvm")
"""Extras that bring what a kernel needs, its compiler, CUPTI or pytest. PyCUDA is the runner's."""
OWN = ("cpu", "libraries", "opengl", "pytest", "tvm")
"""What this repository measures with, on the devices that its workflows measure on."""
DOCS_PYTHON = ("--python-version", "3.12", "--python-platform", "linux")
"""Of pages.yml. Sphinx and MyST have no release that fits every Python."""
SHIPPED = ROOT / "harness" / "ci" / "locked"
AGAIN = "# Anew, at the top of gpu-harness: make requirements\n"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        programs = Path(scratch) / "bin"
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", UV], check=True)
        everything = Path(scratch) / "everything.txt"
        everything.write_text(resolved(programs / "uv", ["asv", *MEASURING], [OPENCL]))

        docs = resolved(programs / "uv", ["docs"], [], python=DOCS_PYTHON)
        write(ROOT / "docs" / "site" / "requirements.txt", DOCS, docs)

        def part(extras: Sequence[str], *more: str) -> str:
            return resolved(programs / "uv", extras, more, everything)

        write(ROOT / ".github" / "requirements" / "report.txt", HOSTED, part([]))
        base = part(["asv"], OPENCL)
        write(SHIPPED / "measure.txt", "# What every job that measures installs, by hash.", base)
        for extra in MEASURING:
            found = pins_of(part(["asv", extra], OPENCL))
            more = "".join(pin for name, pin in found.items() if name not in pins_of(base))
            write(
                SHIPPED / f"{extra}.txt", f"# What the extra {extra} needs beside measure.txt, by hash.", more
            )
    (ROOT / ".github" / MEASURE_FILE).write_bytes(composed(OWN))
    (ROOT / ".github" / STATIC_FILE).write_bytes(composed(compiling(OWN)))


def resolved(
    uv: Path,
    extras: Sequence[str],
    more: Sequence[str],
    within: Path | None = None,
    python: Sequence[str] = ("--universal", "--python-version", OLDEST_PYTHON),
) -> str:
    """Pinned requirements with hashes: of the project with these extras, and of `more`."""
    chosen = [word for extra in extras for word in ("--extra", extra)]
    limits = [] if within is None else ["--constraints", str(within)]
    done = subprocess.run(
        [
            *(str(uv), "pip", "compile", "--quiet", *python),
            *("--generate-hashes", "--no-header", "--no-annotate", *limits, *chosen, "pyproject.toml", "-"),
        ],
        input="\n".join([BUILD, *more]),
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def write(path: Path, about: str, pins: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{about}\n{AGAIN}{pins}", encoding="utf-8")


if __name__ == "__main__":
    main()
