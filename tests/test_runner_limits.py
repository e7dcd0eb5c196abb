"""Limits of the suite user's units on a hostile suite, under a real systemd. It is the first process of new
namespaces, in a new control group, with copies of /etc, /opt and /var/lib. The tests need root, systemd, and
control groups for memory and processes; elsewhere they are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, open_folder
from tests.test_runner_install import FILES
from tests.test_suite_user import RELAY, namespaces_work

SYSTEMD = Path("/lib/systemd/systemd")
HOSTILE = ROOT / "tests" / "hostile_suite.py"
MEMORY_BYTES = 1 << 30
"""Of the machine that this systemd sees: the unit may have a part of it."""
PATIENCE_S = 60
NEEDED = {"memory", "pids", "devices", "name=systemd"}
"""Of control groups of the first kind, those that systemd's limits are in."""
BOOT = r"""
set -euo pipefail
out=$1 install=$2 systemd=$3 memory=$4
shift 4
until [[ -e $out/alone ]]; do sleep 0.01; done
mount --make-rprivate /
for place in etc opt var/lib; do
    mkdir -p "$out/$place"
    [[ $place != etc ]] || cp --archive /etc/. "$out/etc"
    mount --bind "$out/$place" "/$place"
done
mount -t tmpfs none /run
# As this namespace sees them: its own group is their top.
[[ ! -d /sys/fs/cgroup ]] || umount --recursive /sys/fs/cgroup
if (($#)); then
    mount -t tmpfs none /sys/fs/cgroup
    mkdir /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified
    for each; do
        mkdir "/sys/fs/cgroup/${each#name=}"
        [[ $each == name=* ]] && options=none,$each || options=$each
        mount -t cgroup -o "$options" none "/sys/fs/cgroup/${each#name=}"
    done
else
    mount -t cgroup2 none /sys/fs/cgroup
fi
SYSTEMD_OFFLINE=1 "$install" --no-packages > "$out/installed" 2>&1
echo secret > /etc/gpu-harness-runner.token
chmod 644 /etc/gpu-harness-runner.token # a mistake of the site's
mkdir /opt/there "$out/units"
mount -t tmpfs -o dev,mode=755 none /opt/there
install --mode=644 "$out/relay.py" "$out/hostile_suite.py" /opt/there
install --directory --mode=1777 /opt/there/open
mknod /opt/there/device c 10 229
chmod 666 /opt/there/device

cd "$out/units"
cp /etc/systemd/system/{suite.slice,suite-user.socket,suite-user@.service} .
sed 's/gpu-harness-suite/gpu-harness-brief/' suite-user.socket > brief.socket
sed 's/RuntimeMaxSec=.*/RuntimeMaxSec=4s/' suite-user@.service > brief@.service
for each in basic sysinit shutdown sockets; do
    printf '[Unit]\nDefaultDependencies=no\n' > "$each.target"
done
cat > watch.service <<END
[Unit]
Requires=suite-user.socket brief.socket
After=suite-user.socket brief.socket
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /opt/there/hostile_suite.py watch $out $memory
StandardOutput=file:$out/watched
StandardError=file:$out/watched
PrivateTmp=no
END
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec env --ignore-environment PATH="$PATH" container=test SYSTEMD_UNIT_PATH="$out/units" \
    SYSTEMD_GENERATOR_PATH=/nothing SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nothing \
    "$systemd" --system --unit=watch.service --log-target=console --show-status=no
"""


def hierarchies() -> dict[str, Path]:
    """Return the mount point of each controller's control groups; version 2 has an empty name. Return an
    empty dict if a needed controller is missing.
    """
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            found[""] = Path(place)
        elif kind == "cgroup":
            found |= {name: Path(place) for name in NEEDED & set(options.split(","))}
    if set(found) == {"", *NEEDED}:
        return found
    if set(found) != {""}:
        return {}
    held = (found[""] / "cgroup.subtree_control").read_text(encoding="utf-8").split()
    return found if {"memory", "pids"} <= set(held) else {}


class Groups:
    """A control group of our own in each hierarchy, and one beside it for what is to be out of it again."""

    def __init__(self, places: dict[str, Path], name: str) -> None:
        self.inside = {each: place / name for each, place in places.items()}
        self.beside = [place / f"{name}-beside" for place in places.values()]

    def make(self) -> None:
        """Raises OSError."""
        for folder in (*self.inside.values(), *self.beside):
            folder.mkdir()
        for each, folder in self.inside.items():
            limit = folder / ("memory.max" if each == "" else "memory.limit_in_bytes")
            if limit.exists():
                limit.write_text(str(MEMORY_BYTES), encoding="utf-8")

    def enter(self) -> None:
        for folder in self.inside.values():
            (folder / "cgroup.procs").write_text("0", encoding="utf-8")

    def leave(self, pid: int) -> None:
        for folder in self.beside:
            (folder / "cgroup.procs").write_text(str(pid), encoding="utf-8")

    def remove(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for top in (*self.inside.values(), *self.beside):
            while top.exists() and time.monotonic() < deadline:
                for made, _, _ in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        Path(made).rmdir()
                time.sleep(0.01)


def until(what: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What was seen of a hostile suite, from outside."""
    if not (namespaces_work() and SYSTEMD.exists() and shutil.which("systemctl")):
        pytest.skip("only root can make these namespaces, where systemd is")
    if not (places := hierarchies()):
        pytest.skip("control groups that hold memory and processes are not to be had here")
    out = open_folder("runner-limits-")
    groups = Groups(places, out.name)
    try:
        groups.make()
        return watched(out, groups, sorted(set(places) - {""}))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    finally:
        groups.remove()
        shutil.rmtree(out, ignore_errors=True)


def watched(out: Path, groups: Groups, controllers: list[str]) -> dict[str, Any]:
    for path in (RELAY, HOSTILE):
        shutil.copy(path, out)
    apart = ("--mount", "--pid", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
    told = (out, FILES / "install.sh", SYSTEMD, MEMORY_BYTES, *controllers)
    with (out / "log").open("w") as log:
        process = subprocess.Popen(
            ["unshare", *apart, "bash", "-c", BOOT, "boot", *map(str, told)],
            cwd=out,
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=groups.enter,  # noqa: PLW1509 - it writes a few files
        )
    try:
        # What waits for the namespaces' first process is in no group of theirs, or systemd could divide none.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text(encoding="utf-8"), process)
        groups.leave(process.pid)
        (out / "alone").touch()
        until((out / "done").exists, process)
    finally:
        process.kill()
        process.wait()
    logs = [
        path.read_text(errors="replace")[-2000:] for path in (out / "log", out / "watched") if path.exists()
    ]
    if not (out / "watched").exists():
        pytest.skip(f"systemd does not start in namespaces here: {logs}")
    assert (out / "done").exists(), logs
    found: dict[str, Any] = json.loads((out / "seen.json").read_text(encoding="utf-8"))
    return found


def test_systemd_has_understood_the_limits(seen):
    limits = seen["limits"]
    assert {name: limits[name] for name in ("RuntimeMaxUSec", "TasksMax", "LimitCORE", "DevicePolicy")} == {
        "RuntimeMaxUSec": "4h",
        "TasksMax": "2048",
        "LimitCORE": "0",
        "DevicePolicy": "closed",
    }
    assert limits["Slice"] == "suite.slice"
    assert 0.59 < int(limits["slice's MemoryMax"]) / MEMORY_BYTES < 0.61
    assert limits["slice's MemorySwapMax"] == "0"


def test_a_process_that_takes_all_memory_is_ended_at_the_limit(seen):
    assert 0.5 < seen["memory"]["taken"] <= 0.6
    assert seen["memory"]["status"] == -9


def test_two_processes_have_no_more_than_one(seen):
    """Each takes less than all of them may; the kernel ends the one or the other."""
    assert -9 in seen["memory of two"]["statuses"]


def test_a_fork_bomb_ends_at_the_limit_and_goes_with_its_connection(seen):
    assert 2000 < seen["processes"]["count"] <= 2048
    assert seen["processes"]["seen"] > 2000
    assert seen["processes"]["gone_after_s"] < 5


@pytest.mark.parametrize("why", ["connection", "time"])
def test_what_wants_to_outlive_its_job_does_not(seen, why):
    """It has ignored every signal that can be, and left its session and its parent."""
    assert seen["staying"][f"{why}: processes"] == 3
    assert seen["staying"][f"{why}: gone_after_s"] < 7


def test_it_reaches_nothing_but_what_is_its_own(seen):
    reached = seen["reaching"]
    answers = reached["answers"]
    assert {what: answer for what, answer in answers.items() if answer != "done"} == {
        "internet": "EAFNOSUPPORT",
        "internet, the other": "EAFNOSUPPORT",
        "the kernel's own sockets": "EAFNOSUPPORT",
        "systemd": "EACCES",
        "a folder that everybody may write": "EROFS",
        "a token that everybody may read": "EACCES",
        "a device that everybody may use": "EPERM",
        "the runner's worker": "ESRCH",
        "a namespace": "EPERM",
        "a mount": "EPERM",
        "another process, traced": "EPERM",
        "another personality": "EPERM",
        "a real-time priority": "EPERM",
        "a set-user-ID file": "EPERM",
        "user": "gpu-suite",
        "privileges": ["1", "0000000000000000", "0000000000000000"],
        "core": 0,
    }
    assert {what for what, answer in answers.items() if answer == "done"} == {
        "its own folder",
        "its scratch",
        "its shared memory",
    }
    assert "EPERM" not in reached["device outside"]


def test_nothing_of_it_is_left_outside(seen):
    assert seen["reaching"]["worker lives"]
    assert seen["reaching"]["left"] == []
