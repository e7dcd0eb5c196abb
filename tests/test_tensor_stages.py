"""Stages of the ladder that use PTX, without a card: their own text, its PTX emulated on the host."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.device.static.occupancy import CARDS
from harness.suite.loader import load_folder
from tests.support import KERNELS

EMULATOR = Path(__file__).with_name("warp_emulator.cpp")
COMPILER = shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def operands_of(section):
    """The expressions of an asm statement's operands: those in parentheses behind a constraint."""
    found, at = [], 0
    while match := re.compile(r'"[^"]*"\s*\(').search(section, at):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(section[end], 0)
            end += 1
        found.append(section[match.end() : end - 1])
        at = end
    return found


def emulated(text):
    """Every asm statement as a call of emulate()."""
    made, at = [], 0
    for match in re.finditer(r"asm volatile\(", text):
        depth, end, quoted = 1, match.end(), False
        while depth:
            quoted ^= text[end] == '"' and text[end - 1] != "\\"
            depth += 0 if quoted else {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        literals = re.match(r'\s*("(?:[^"\\]|\\.)*"\s*)+', text[match.end() :])
        assert literals
        operands = operands_of(text[match.end() + literals.end() : end - 1])
        made += [text[at : match.start()], f"emulate({', '.join([literals[0], *operands])})"]
        at = end
    return "".join([*made, text[at:]])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Compile a kernel for the host, once for its macros."""
    folder = tmp_path_factory.mktemp("emulated")
    programs: dict[object, Path] = {}
    assert COMPILER

    def program(case, kernel):
        key = kernel.name, tuple(case.macros.items())
        if key not in programs:
            text = (KERNELS / "portable" / "cuda.h").read_text() + (
                KERNELS / "matmul" / kernel.source
            ).read_text()
            text = re.sub(r'#include "(.*)"', lambda found: (KERNELS / "matmul" / found[1]).read_text(), text)
            text = re.sub(r"#include <.*>", "", text)
            text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w[\w ]*?) (\w+)\[\];",
                          r"\1* const \2 = (\1*)dynamic_shared;", text)  # fmt: skip
            macros = [f"-D{name}={value}" for name, value in case.macros.items()]
            expanded = subprocess.run(
                [COMPILER, "-E", "-P", *macros, "-x", "c++", "-"],
                input=text,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            source, made = folder / f"{len(programs)}.cpp", folder / f"{len(programs)}"
            source.write_text(EMULATOR.read_text().replace("\nKERNEL_TEXT\n", f"\n{emulated(expanded)}\n"))
            maps = ["-DTENSOR_MAPS"] if "TensorMap" in text else []
            arguments = ",".join(kernel.args or ("a", "b", "c", "m", "n", "k"))
            element = "half" if case.dtype in ("float16", "bfloat16") else "float"
            names = [
                f"-DELEMENT={element}",
                f"-DENTRY={kernel.entry or kernel.name}",
                f"-DARGUMENTS={arguments}",
                *maps,
            ]
            subprocess.run(
                [COMPILER, "-std=c++17", "-O0", "-w", *macros, *names, source, "-o", made], check=True
            )
            programs[key] = made
        return programs[key]

    return program


def given(matrix, case):
    """Bytes of a matrix of small integers in the case's type; the upper half of a float32 is a bfloat16."""
    if case.dtype == "bfloat16":
        return (matrix.view("uint32") >> 16).astype("uint16").tobytes()
    return matrix.astype("float16" if case.dtype == "float16" else "float32").tobytes()


@pytest.mark.parametrize(
    ("name", "size", "eager"),
    [
        ("register_prefetch", (130, 260, 68), 0),
        ("register_prefetch", (130, 260, 68), 1),
        ("register_prefetch", (3, 5, 17), 0),
        ("register_prefetch", (130, 520, 132), 0),
        ("register_prefetch", (131, 513, 97), 1),
        ("mma_sync", (130, 264, 72), 0),
        ("mma_sync", (130, 264, 72), 1),
        ("mma_sync", (1, 3, 1), 0),
        ("mma_sync_bf16", (5, 8, 40), 0),
        ("mma_sync_tf32", (130, 132, 68), 0),
        ("mma_sync_tf32", (130, 132, 68), 1),
        ("mma_sync_tf32", (3, 5, 17), 0),
        ("wgmma", (130, 264, 200), 0),
        ("wgmma", (5, 3, 65), 0),
        ("wgmma_store", (130, 264, 72), 0),
        ("wgmma_store", (130, 264, 72), 1),
        ("wgmma_multicast", (130, 264, 200), 0),
        ("wgmma_multicast", (130, 264, 200), 1),
        ("wgmma_multicast", (2, 3, 70), 0),
    ],
)
def test_a_stage_is_right(built, name, size, eager):
    suite = load_folder(KERNELS / "matmul")
    kernel: Any = suite.by_name[name]
    card = CARDS["rtx3060" if name == "mma_sync_bf16" else "h200"]  # the first holds smaller tiles
    card = replace(card, multiprocessors=1)  # so that the larger ones are several waves
    case = suite.case(kernel, dict(zip("mnk", size, strict=True)), device=card.facts)
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((m, k), (k, n)))
    threads = kernel.block(case)
    grid = 2 if "wgmma" in name else kernel.grid(case)
    arguments = map(str, (grid, threads, m, n, k, eager))
    done = subprocess.run(
        [built(case, kernel), *arguments],
        check=False,
        input=given(a, case) + given(b, case),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    c = np.frombuffer(done.stdout, "float32").reshape(m, n)
    np.testing.assert_array_equal(c, a.astype("float64") @ b.astype("float64"))
    assert int(done.stderr) == 0  # ldmatrix without bank conflicts
