"""install.sh of the runner's files: in namespaces of its own, where /etc, /opt and /var/lib are copies, it
makes the users, files and units, again changes nothing, and takes them away. systemd's tools check the units
and start a process of the suite's user; a booted systemd, which would hold the limits, is not here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import ROOT, open_folder
from tests.test_suite_user import RELAY, namespaces_work

FILES = ROOT / "harness" / "ci" / "runner"
TOOLS = ("systemd-analyze", "systemd-socket-activate", "systemctl", "useradd", "dpkg-query")
SCENARIO = r"""
set -euo pipefail
out=$1 install=$2 relay=$3
for place in etc opt var/lib; do
    mkdir -p "$out/$place"
    [[ $place != etc ]] || cp --archive /etc/. "$out/etc"
    mount --bind "$out/$place" "/$place"
done
mount -t tmpfs none /run
seen() {
    (cd / && find opt var/lib etc/systemd etc/gpu-harness* -printf '%m %u %p\n' 2> /dev/null | sort || true
    getent passwd gpu-runner gpu-suite || true) > "$out/$1"
}
ask() { "$install" --no-packages "$@"; }

seen before
ask --dry-run > "$out/dry"
seen after-dry
ask > "$out/first"
seen installed
echo secret > "$out/token"
ask --repository someone/kernels --label gpu-rtx4090 --token "$out/token" > "$out/second"
ask --dry-run > "$out/again"
cp /etc/gpu-harness-runner.conf "$out/conf"
seen configured
for unit in gpu-clocks.service runner@gpu1.service runner-limit@gpu1.timer suite-user.socket \
    suite-user@1.service; do
    systemd-analyze verify --man=no "/etc/systemd/system/$unit" 2>&1 || echo "$unit: $?"
done > "$out/verify"

systemd-socket-activate --accept --inetd --listen=/run/suite.socket \
    /opt/gpu-harness-runner/suite-user.py 2> "$out/activate" &
listening=$!
until [[ -S /run/suite.socket ]]; do sleep 0.01; done
chown gpu-runner /run/suite.socket
work=/var/lib/gpu-harness-runner/work
install --directory --owner=gpu-runner --mode=711 "$work/gpu1"
install --owner=gpu-runner --mode=600 "$out/token" "$work/gpu1/.credentials"
as_runner() { setpriv --reuid=gpu-runner --regid=gpu-runner --clear-groups "$@"; }
ACTIONS_RUNTIME_TOKEN=secret as_runner sleep 1000 &
worker=$!
cat > "$out/probe.sh" <<'END'
id --user --name
echo "attack: another job's token in its environment"
cat /proc/[0-9]*/environ 2> /dev/null | grep --text --count TOKEN=secret
echo "attack: the runner's credentials"
cat /var/lib/gpu-harness-runner/work/gpu1/.credentials 2>&1
echo "attack: the runner's worker, ended"
kill -KILL "$1" 2>&1
echo "attack: a second process of the suite's user, of its own"
/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/suite.socket")' 2>&1 | tail -1
echo "attack: a server outside"
/usr/bin/python3 -c 'import socket; socket.create_connection(("127.0.0.1", 9), 2)' 2>&1 | tail -1
echo "attack: another user again"
setpriv --reuid=0 true 2>&1
echo "attack: a mount of one's own"
unshare --mount true 2>&1
echo "attack: a process that stays"
setsid sleep 1234 &
echo "end of attacks"
cat /etc/gpu-harness-runner.token 2>&1 || true
ls /var/lib/gpu-harness-runner/root /var/lib/gpu-harness-runner/notes 2>&1 || true
ps -e --no-headers --format pid,comm | sed 's/^/sees /'
touch /etc/x /opt/gpu-harness-runner/x 2>&1 || true
touch "$HOME/kept" && echo wrote
END
chmod 644 "$out/probe.sh"
chmod 600 /run/suite.socket
as_runner /usr/bin/python3 "$relay" /run/suite.socket sh "$out/probe.sh" "$worker" > "$out/probed" < /dev/null
kill -0 "$worker" && echo "the worker is there" > "$out/stayed"
ps -e --no-headers --format user:20,args | grep '^gpu-suite' >> "$out/stayed" || true
kill "$worker" "$listening"

touch /var/lib/gpu-harness-runner/quarantine/mark
ask --remove > "$out/removed"
seen after
"""


class Installed(NamedTuple):
    folder: Path

    def said(self, name: str) -> list[str]:
        return (self.folder / name).read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def host() -> Iterator[Installed]:
    if not (namespaces_work() and all(map(shutil.which, TOOLS))):
        pytest.skip("only root can make these namespaces, where systemd's tools are")
    folder = open_folder("runner-host-")
    shutil.copy(RELAY, folder)
    (folder / "relay.py").chmod(0o644)
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        SCENARIO,
    ]
    done = subprocess.run(
        [*command, "host", str(folder), str(FILES / "install.sh"), str(folder / "relay.py")],
        cwd=folder,  # the relay asks the second user to start where it is
        env={"PATH": os.environ["PATH"], "SYSTEMD_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield Installed(folder)
    shutil.rmtree(folder)


def test_a_dry_run_prints_what_it_would_do_and_does_nothing(host):
    assert host.said("before") == host.said("after-dry")
    said = host.said("dry")
    assert any(line.startswith("useradd --system") and line.split()[-1] == "gpu-suite" for line in said)
    for file in FILES.iterdir():
        assert any(f" {file.name} " in line for line in said), file.name


def test_both_users_every_file_and_what_is_to_start_are_there(host):
    owners = {
        line.split(" ", 2)[2]: line.split(" ", 2)[:2] for line in host.said("installed") if line[0].isdigit()
    }
    users = [line.split(":") for line in host.said("installed") if line.startswith("gpu-")]
    assert [(user[0], user[-1]) for user in users] == [
        ("gpu-runner", "/usr/sbin/nologin"),
        ("gpu-suite", "/usr/sbin/nologin"),
    ]
    assert users[0][2] != users[1][2]
    for file in FILES.iterdir():
        assert any(path.endswith(f"/{file.name}") for path in owners), file.name
    assert owners["var/lib/gpu-harness-runner/root"] == ["700", "root"]
    assert owners["var/lib/gpu-harness-runner/notes"] == ["700", "gpu-runner"]
    assert owners["var/lib/gpu-harness-suite"] == ["700", "gpu-suite"]
    assert owners["var/lib/gpu-harness-runner/quarantine"] == ["755", "root"]
    wanted = [path for path in owners if ".wants/" in path]
    assert sorted(path.rpartition("/")[2] for path in wanted if "gpu" in path or "suite" in path) == [
        "gpu-clocks.service",
        "runner@gpu1.service",
        "suite-user.socket",
    ]


def test_what_is_still_lacking_is_said_and_nothing_is_started(host):
    first = "\n".join(host.said("first"))
    assert all(option in first for option in ("--repository", "--label", "--token", "--application"))
    second = "\n".join(host.said("second"))
    assert "--application" in second
    assert not any(option in second for option in ("--repository", "--label", "--token"))


def test_a_second_time_it_changes_nothing_but_what_is_asked_for(host):
    assert [
        line for line in host.said("again") if line.split()[0] in ("useradd", "install", "sed", "tar")
    ] == []
    new = set(host.said("configured")) - set(host.said("installed"))
    assert new == {"600 root etc/gpu-harness-runner.token"}
    assert "repository = someone/kernels" in host.said("conf")
    assert "labels = self-hosted linux x64 gpu-rtx4090" in host.said("conf")


def test_systemd_minds_nothing_of_the_installed_units(host):
    ours = ("gpu-clocks", "runner@", "runner-limit@", "suite-user")
    assert [line for line in host.said("verify") if any(name in line for name in ours)] == []


def test_a_process_of_the_suite_s_user_is_shut_in(host):
    probed = host.said("probed")
    assert probed[0] == "gpu-suite"
    probed = probed[probed.index("end of attacks") :]
    assert "gpu-harness-runner.token: Permission denied" in probed[1]
    assert len([line for line in probed if "cannot open directory" in line]) == 2
    seen = {line.split()[2] for line in probed if line.startswith("sees")}
    assert seen <= {"sh", "ps", "sed", "sleep", "setsid"}  # setsid becomes sleep
    assert len([line for line in probed if line.startswith("touch: cannot touch")]) == 2
    assert probed[-1] == "wrote"


def test_what_a_hostile_suite_tries_gets_it_nothing(host):
    """No attack succeeds."""
    text = "\n".join(host.said("probed"))
    tried = dict(part.strip().split("\n", 1) for part in text.split("attack: ")[1:-1])
    assert {what: answer.rpartition(": ")[2] for what, answer in tried.items()} == {
        "another job's token in its environment": "0",
        "the runner's credentials": "Permission denied",
        "the runner's worker, ended": "No such process",
        "a second process of the suite's user, of its own": "[Errno 13] Permission denied",
        "a server outside": "[Errno 101] Network is unreachable",
        "another user again": "Operation not permitted",
        "a mount of one's own": "Operation not permitted",
    }
    assert host.said("stayed") == ["the worker is there"]


def test_removed_nothing_is_left_but_what_the_site_wrote(host):
    left = set(host.said("after")) - set(host.said("before"))
    assert {line.split(" ", 2)[2] for line in left} == {
        "etc/gpu-harness-runner.conf",
        "etc/gpu-harness-runner.token",
        "var/lib/gpu-harness-runner",
        "var/lib/gpu-harness-runner/quarantine",
        "var/lib/gpu-harness-runner/quarantine/mark",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--repository", "x; id"), "is no OWNER/NAME"),
        (("--label", "a b"), "is no label"),
        (("--instance", "../x"), "is no name of an instance"),
        (("--application", "/dev/null", "--sha256", "1" * 64), "is not the file of that SHA-256"),
        (("--application", "/dev/null"), "needs --sha256"),
        (("--token", "/not/there"), "cannot be read"),
        (("--force",), "unknown: --force"),
        (("--label",), "needs a value"),
    ],
)
def test_what_it_cannot_use_is_refused(arguments, said):
    if not all(map(shutil.which, TOOLS)):
        pytest.skip("not a Debian or Ubuntu with systemd")
    done = subprocess.run(
        [FILES / "install.sh", "--dry-run", "--no-packages", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
