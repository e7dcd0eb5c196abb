"""Every command accepts the cases and sizes that any command prints, and shells complete them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from harness.cli import cli, completion
from tests.forked_command import shim
from tests.support import IMPORT_PATH, programs, run_command, run_forked

SUITE = """\
from harness import Axis, Input, Kernel, Ladder, Output, Problem, Rung, Suite, Tuning

class Box(Problem):
    m, n = Axis((8,)), Axis((16, 32))
    x = Input("m", "n")
    y = Output("m", "n")

    def reference(self, case, x):
        return x

suite = Suite(
    "box",
    Box(),
    [
        Kernel("plain", "plain.cu", block=32, grid=1, about="one by one"),
        Kernel("tuned", "plain.cu", entry="plain", block=32, grid=1, tune=Tuning({"A": (1, 2)})),
    ],
    headline="GB/s",
    ladders=[Ladder("theirs", "Theirs", [Rung("first", "plain"), Rung("second", "tuned")], sizes=4)],
)
"""
SOURCE = "__kernel void plain(__global const float* x, __global float* y, int m, int n) {}\n"
FULL, SHORT = "box.plain[m=6,n=4]", "box.plain@6x4"


@pytest.fixture
def box(project):
    project.commit({"kernels/box/suite.py": SUITE, "kernels/box/plain.cu": SOURCE})
    return project


def cases_of(told):
    """Ids of cases in a command's JSON, wherever they are."""
    if isinstance(told, dict):
        found = {told["case"]} if isinstance(told.get("case"), str) else set()
        return found.union(*map(cases_of, told.values()))
    return set().union(*map(cases_of, told)) if isinstance(told, list) else set()


def spellings(harness):
    """Return the names and sizes of one case in commands, records, reports, asv and pytest."""
    ran = harness("run", SHORT, "--device", "null", "--max-time", "0.02", "--json")
    quick = ("--device", "null", "--size", "6x4", "--max-time", "0.02")
    logged = harness("run", "box.plain", *quick)
    harness("compare", "HEAD", SHORT, "--device", "null")
    comment = harness("report", "--format", "markdown").out
    found = {
        *cases_of(ran.json),
        *re.findall(r"^(box\S+): measured", logged.err, re.MULTILINE),
        *re.findall(r"box\.plain@\w+", comment),
    }
    assert found == {FULL, SHORT}
    sizes = {*re.findall(r"size (\S+)", logged.out), *re.findall(r"\[(.*)\]", FULL), "6,4"}
    assert sizes == {"6x4", "m=6,n=4", "6,4"}
    return [*sorted(found), "bench.Box.track_time_ms('plain', '6x4')", f"a.py::test_it[{SHORT}]"], sizes


def test_what_one_command_prints_every_other_takes(harness, box):
    names, sizes = spellings(harness)
    quick = ("--device", "null")
    sized = [word for size in sizes for word in ("--size", size)]
    asked = ["box.pl*[m=6,n=4]", "*ain@6x4", "box.plain", *sized]
    for command in ("check", "compare"):
        first = (command, *(["HEAD"] if command == "compare" else []))
        done = harness(*first, *names, *asked, *quick, "--json")
        assert cases_of(done.json) == {FULL}, (command, done.err)
    [listed] = harness("list", *names, "--json").json
    assert [kernel["name"] for kernel in listed["kernels"]] == ["plain"]
    for name in names[:2]:
        swept = harness("sweep", name.replace("plain", "tuned"), *quick, "--no-save", "--json")
        assert cases_of(swept.json) == {FULL.replace("plain", "tuned")}, (name, swept.err)
        [ladder] = harness("report", "ladder", name, "--against", name, "--json").json
        assert {"m": 6, "n": 4} in [rung["sizes"] for rung in ladder["rungs"]]


def test_pytest_takes_them_too(harness, box):
    names, sizes = spellings(harness)
    for number, name in enumerate(names):
        box.write(
            {
                f"test_{number}.py": f"import pytest\n@pytest.mark.gpu_cases({name!r})\n"
                "def test_it(gpu_benchmark, gpu_case): pass\n"
            }
        )
    box.write({"test_x.py": "def test_it(gpu_benchmark, gpu_case): pass\n"})
    options = ("-q", "--perf-device=null", "--collect-only", *(f"--perf-size={size}" for size in sizes))
    done = run_forked(
        [sys.executable, "-m", "pytest", *options],
        cwd=box.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    for file in [*(f"test_{number}.py" for number in range(len(names))), "test_x.py"]:
        assert done.stdout.count(f"{file}::test_it[{SHORT}]") == 1, done.stdout + done.stderr
    assert done.stdout.count("box.") == len(names) + 2, done.stdout  # and box.tuned of test_x.py


@pytest.mark.parametrize("command", ["check", "compare"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["box.plian@6x4"], "No kernel matches 'box.plian@6x4'. Did you mean box.plain"),
        (
            ["box.plain@6x4x2"],
            "No case matches 'box.plain@6x4x2'. Size 6x4x2 has 3 numbers; expected one, or 2",
        ),
        (["box.plain[m=6]"], "Size m=6 is of m; expected one, or 2 for the axes m, n."),
        (["box.plain@9*"], "There are box.plain@8x16, box.plain@8x32."),
        (["box.plain@6x4", "--size", "8"], "Size 8 is of no use: box.plain@6x4 says its size itself."),
    ],
    ids=" ".join,
)
def test_what_is_no_case_is_told_with_what_there_is(harness, box, command, arguments, words):
    done = harness(command, *(["HEAD"] if command == "compare" else []), *arguments, "--device", "null")
    assert (done.status, done.out) == (2, "")
    assert words in done.err


# Completion


def completed(*words: str, shell: type[ShellComplete] = BashComplete) -> list[str]:
    """Return a shell's completions of the last word."""
    answering = shell(cli, {}, "harness", completion.VARIABLE)
    return [item.value for item in answering.get_completions([*words[:-1]], words[-1])]


@pytest.fixture
def seen(harness, box, own_cache):
    """A project whose suites a command has loaded."""
    assert harness("list").status == 0
    return box


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["che"], ["check"]),
        (["ci", "comp"], ["compare"]),
        (["check", "b"], ["box", "box.plain", "box.tuned"]),
        (["check", "pl"], ["plain"]),
        (["check", "box.plain", "toy.t"], ["toy.tiled"]),
        (["run", "box.plain@"], ["box.plain@8x16", "box.plain@8x32"]),
        (["run", "box.*@8x3"], ["box.*@8x32"]),
        (["calibrate", "--size", ""], ["8x16", "8x32", "1024", "4096", "64"]),
        (["calibrate", "box", "--size", ""], ["8x16", "8x32"]),
        (["compare", "HEAD", "box.tuned", "--size", "8x1"], ["8x16"]),
        (["compare", "ma"], ["main"]),
        (["compare", "main..ma"], ["main..main"]),
        (["compare", "main", "ma"], ["main"]),
        (["compare", "main..main", "ma"], []),
        (["compare", "main", "box.pl"], ["box.plain"]),
        (["check", "--commit", "one-t"], ["one-tag"]),
        (["run", "--device", "n"], ["null"]),
        (["run", "--device", "cpu"], ["cpu:0"]),
        (["sweep", ""], ["box.tuned"]),
        (["sweep", "box.tuned@"], ["box.tuned@8x16", "box.tuned@8x32"]),
        (["report", "ladder", "box.t"], ["box.theirs", "box.tuned"]),
        (["history", "box.tuned@8x32"], ["box.tuned@8x32"]),
        (["history", "--branch", "HE"], ["HEAD"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(seen, words, offered):
    seen.git("tag", "one-tag")
    found = completed(*words)
    assert found == offered


def test_recent_commits_are_offered_with_their_subjects(seen):
    seen.git("commit", "--quiet", "--allow-empty", "--message", "red\033[31m")
    newest = seen.git("rev-parse", "--short", "HEAD")
    context = click.Context(click.Command("x"))
    [item] = completion.commits(context, click.Argument(["base"]), newest)
    assert (item.value, item.help) == (newest, "red\ufffd[31m")


def test_a_branch_that_a_shell_would_run_is_not_offered(seen):
    seen.git("branch", "oops;id")
    seen.git("branch", "oops$(id)")
    seen.git("branch", "oops-fine")
    assert completed("compare", "oops") == ["oops-fine"]


@pytest.mark.parametrize("words", [["check", ""], ["run", "--size", ""], ["compare", ""], ["sweep", ""]])
def test_where_nothing_is_known_nothing_is_offered_and_nothing_said(
    capfd, monkeypatch, tmp_path, own_cache, words
):
    monkeypatch.chdir(tmp_path)
    assert completed(*words) == []
    (tmp_path / "harness.toml").write_text("suites = 3\n")
    assert completed(*words) == []
    assert capfd.readouterr() == ("", "")


def test_completing_runs_no_suite_and_follows_what_commands_load(seen, harness):
    seen.write({"kernels/box/suite.py": "raise SystemExit('run')"})
    assert completed("check", "box.p") == ["box.plain"]
    seen.write({"kernels/box/suite.py": SUITE.replace('"plain"', '"other"')})
    assert harness("list").status == 0
    assert completed("check", "box.o") == ["box.other"]


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
def test_each_shell_is_answered_by_the_command_itself(seen, shell):
    done = run_command(cwd=seen.root, env={completion.VARIABLE: f"{shell.name}_source"})
    assert f"{completion.VARIABLE}={shell.name}_complete" in done.stdout
    words = {"COMP_WORDS": "harness check box.pl", "COMP_CWORD": "2"}
    if shell is FishComplete:
        words["COMP_CWORD"] = "box.pl"
    done = run_command(cwd=seen.root, env={completion.VARIABLE: f"{shell.name}_complete", **words})
    assert "box.plain" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "word", "replies"),
    [
        ("harness check box.plain@8x3", "8x3", ["8x32"]),
        ("harness check box.plain@", "", ["8x16", "8x32"]),
        ("harness run --device cpu:", "", ["0"]),
        ("harness run --size=8x1", "8x1", ["8x16"]),
        ("harness check box.tuned box.pl", "box.pl", ["box.plain"]),
        ("harness compare main..ma", "main..ma", ["main..main"]),
    ],
)
def test_bash_is_answered_where_it_splits_words(seen, line, word, replies):
    """Bash passes the line up to the cursor, and the word after its last @, : or =."""
    command = seen.root / "bin" / "harness"
    own = seen.root.parent / "own"
    seen.write({"bin/harness": shim("harness", "harness.cli", programs.socket, programs.variables, own)})
    command.chmod(0o755)
    script = run_command(cwd=seen.root, env={completion.VARIABLE: "bash_source"}).stdout
    asked = f"COMP_LINE='{line}' COMP_POINT={len(line)}; _harness_completion {command} '{word}' check"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}\n{asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'],
        pass_fds=[programs.socket],
        cwd=seen.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == replies, done.stderr
