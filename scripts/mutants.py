"""How many of some small faults, put into the code one at a time, the tests find.

    python scripts/mutants.py judge gates --sample 25 --seed 15

Each suite names files of the code and the tests that belong to them. A fault changes one place: a
comparison, a sign, a number, a condition, or a statement that is left out. It is put into a copy of the
repository, and the tests run there until the first one fails. The faults that no test found are printed, so
that a reader can judge them.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SUITES: dict[str, tuple[list[str], list[str]]] = {
    "timing": (
        ["harness/measure/quads.py", "harness/measure/timing.py"],
        ["tests/test_quads.py", "tests/test_measure.py", "tests/test_chunks.py"],
    ),
    "turns": (
        ["harness/measure/one_of_two_workers.py", "harness/run/two_workers.py"],
        ["tests/test_two_workers.py", "tests/test_toolchains.py"],
    ),
    "cuda": (
        [f"harness/device/backends/cuda/{name}.py" for name in ("device", "driver", "held_launch", "built")],
        ["tests/test_backend_cuda.py", "tests/test_steps.py"],
    ),
    "verify": (["harness/measure/verify.py"], ["tests/test_verify.py"]),
    "verifier": (
        ["harness/measure/verifier.py"],
        ["tests/test_verifier.py", "tests/test_operands.py", "tests/faults/test_exploits.py"],
    ),
    "tampering": (["harness/suite/tampering.py"], ["tests/test_tampering.py"]),
    "judge": (
        ["harness/judgement/judge.py", "harness/judgement/statistics/moderated.py"],
        ["tests/test_judge.py", "tests/test_statistics_moderated.py"],
    ),
    "gates": (["harness/judgement/gates.py"], ["tests/test_gates.py"]),
    "history": (
        ["harness/history/changes.py"],
        [f"tests/test_history_{name}.py" for name in ("changes", "series", "triage", "comparisons")],
    ),
    "change-points": (["harness/judgement/statistics/changepoints.py"], ["tests/test_changepoints.py"]),
    "records": (
        ["harness/records/record_files.py"],
        [
            *("tests/test_records_file.py", "tests/test_rejudge.py"),
            *("tests/faults/test_torn_files.py", "tests/test_ladders.py"),
        ],
    ),
    "sweep-journal": (
        ["harness/records/sweep_journal.py"],
        ["tests/test_sweep_report.py", "tests/test_sweep.py"],
    ),
    "importers": (
        [
            *(
                f"harness/records/imports/{name}_files.py"
                for name in ("google_benchmark", "nvbench", "pytest_benchmark")
            ),
            *("harness/records/imports/identity.py", "harness/judgement/identities.py"),
        ],
        ["tests/test_file_identity.py", "tests/test_import.py", "tests/test_saved_runs.py"],
    ),
    "bounds": (
        [f"harness/device/static/{name}.py" for name in ("bounds", "demand", "occupancy")],
        ["tests/test_bounds.py", "tests/test_static.py"],
    ),
    "cache": (["harness/system/cache.py"], ["tests/test_cache.py"]),
    "lock": (["harness/device/lock.py"], ["tests/faults/test_locks.py"]),
    "init-files": (["harness/init/written_files.py"], ["tests/test_init.py"]),
    "review": (
        [
            *(f"harness/report/document/{name}.py" for name in ("outcome", "from_results")),
            *(f"harness/report/pull_request/{name}.py" for name in ("machine_formats", "faces")),
        ],
        [f"tests/test_review_{name}.py" for name in ("reports", "outcome", "building", "faces")],
    ),
    "events": (
        [f"harness/history/{name}.py" for name in ("events", "suspects", "export", "figures")],
        [f"tests/test_{name}.py" for name in ("events", "suspects", "history_cli", "history_tables")],
    ),
    "reporter": (
        [
            *(f"harness/ci/github/{name}.py" for name in ("measured_run", "posting", "artifacts")),
            "harness/ci/posts.py",
        ],
        [f"tests/test_github_{name}.py" for name in ("posting", "static", "artifacts", "request", "app")],
    ),
    "results-branch": (
        ["harness/ci/data_branch/data_files.py", "harness/ci/data_branch/data_git.py"],
        ["tests/test_data_branch.py"],
    ),
    "runner-files": (
        [
            f"harness/ci/runner/{name}.sh"
            for name in ("gpu-clocks", "job-completed", "job-started", "lib", "start-ephemeral")
        ],
        ["tests/test_runner_files.py"],
    ),
}
"""What is changed, and the tests that are to notice."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
SHELL = (
    (r" -eq ", " -ne "), (r" -ne ", " -eq "), (r" -lt ", " -ge "), (r" -gt ", " -le "), (r" -z ", " -n "),
    (r" -n ", " -z "), (r"&&", "||"), (r"\|\|", "&&"), (r" != ", " = "), (r"(\[\[? .*) ==? ", r"\1 != "),
    (r"\bif ", "if ! "), (r"\b(return|exit) 1\b", r"\1 0"),
)  # fmt: skip
STRUCTURE = re.compile(
    r"^(if|then|else|elif|fi|for|while|do|done|case|esac|\W|\w+\(\)|local\b|[^ ]*\))|[\\{|&(]$|;;"
)


@dataclass(frozen=True)
class Mutant:
    """One fault in one file of the code."""

    file: str
    line: int
    change: str
    text: str
    """The whole file with the fault in it."""


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """What one expression becomes, a fault each."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What one statement becomes: nothing, or the other branch."""
    if isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(
        node, ast.Raise | ast.AugAssign | ast.Continue
    ):
        yield ast.Pass()


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Every node that runs, with a function that puts another one in its place. Annotations and decorators,
    with all that is in them, are left out.
    """
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        if isinstance(value, ast.AST):
            yield value, lambda new, name=name: setattr(tree, name, new)  # type: ignore[misc]
            yield from places(value)
        elif isinstance(value, list):
            for at, node in enumerate(value):
                if isinstance(node, ast.AST):
                    yield node, lambda new, value=value, at=at: value.__setitem__(at, new)  # type: ignore[misc]
                    yield from places(node)


def in_python(file: str, source: str) -> Iterator[Mutant]:
    tree = ast.parse(source)
    for node, put in list(places(tree)):
        for new in [*expressions(node), *statements(node)]:
            put(ast.copy_location(new, node))
            change = f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(new))}".replace(
                "\n", " "
            )
            yield Mutant(file, getattr(node, "lineno", 0), change[:150], ast.unparse(tree))
            put(node)


def in_shell(file: str, source: str) -> Iterator[Mutant]:
    lines = source.splitlines()
    for at, line in enumerate(lines):
        if not line.strip() or line.strip().startswith("#"):
            continue
        changed = {re.sub(old, new, line, count=1) for old, new in SHELL} - {line}
        if not STRUCTURE.search(line.strip()):
            changed.add(re.match(r"\s*", line)[0] + ":")  # type: ignore[index]
        for new in sorted(changed):
            text = "\n".join([*lines[:at], new, *lines[at + 1 :], ""])
            yield Mutant(file, at + 1, f"{line.strip()} -> {new.strip()}", text)


def as_written(file: str, source: str) -> str:
    """A file without a fault, written as one with a fault is: a test that fails for the writing alone has
    found nothing.
    """
    return source if file.endswith(".sh") else ast.unparse(ast.parse(source))


def mutants_of(file: str, source: str) -> list[Mutant]:
    return list(in_shell(file, source) if file.endswith(".sh") else in_python(file, source))


def tests_pass(copy: Path, tests: list[str], limit_s: float | None) -> bool:
    """Whether no test fails. A run beyond its limit counts as one that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not gpu", *tests]
    command = ["env", f"PYTHONPATH={copy}", "PYTHONSAFEPATH=1", *command]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def put(copy: Path, file: str, text: str) -> None:
    """Write a file. What Python compiled of it goes: two versions may be alike in size and second."""
    (copy / file).write_text(text, encoding="utf-8")
    for compiled in (copy / file).parent.glob(f"__pycache__/{Path(file).stem}.*"):
        compiled.unlink()


def measure(copy: Path, suite: str, sample: int, seed: int) -> None:
    files, tests = SUITES[suite]
    sources = {file: (copy / file).read_text(encoding="utf-8") for file in files}
    mutants = [mutant for file, source in sources.items() for mutant in mutants_of(file, source)]
    chosen = random.Random(seed).sample(mutants, min(sample, len(mutants)))  # noqa: S311 - a sample, no secret
    begun = time.monotonic()
    for file, source in sources.items():
        put(copy, file, as_written(file, source))
    if not tests_pass(copy, tests, None):
        sys.exit(f"{suite}: its tests fail without any fault")
    limit_s = 20 + 4 * (time.monotonic() - begun)
    missed = 0
    for mutant in chosen:
        put(copy, mutant.file, mutant.text)
        if tests_pass(copy, tests, limit_s):
            missed += 1
            print(f"{suite}: missed {mutant.file}:{mutant.line}  {mutant.change}", flush=True)
        put(copy, mutant.file, as_written(mutant.file, sources[mutant.file]))
    caught, took_s = len(chosen) - missed, time.monotonic() - begun
    print(f"{suite}: {caught} of {len(chosen)} caught ({len(mutants)} known), {took_s:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", default=list(SUITES), help=f"of: {', '.join(SUITES)}")
    parser.add_argument("--sample", type=int, default=25, help="how many faults of each suite")
    parser.add_argument("--seed", type=int, default=15, help="which ones")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
        for name in tracked:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        for suite in given.suites:
            measure(copy, suite, given.sample, given.seed)


if __name__ == "__main__":
    main()
