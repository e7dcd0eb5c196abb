"""The system call filter of suite-user.py, on both kinds of machine: a small interpreter runs its program.

That the kernel accepts the filter, and what it then refuses, is in test_suite_user.py.
"""

from __future__ import annotations

import errno
import os
import runpy
import shutil
import struct
import subprocess
import sys
from typing import Any

import pytest

from tests.support import ROOT

HELPER = ROOT / "harness" / "ci" / "runner" / "suite-user.py"
SERVER: dict[str, Any] = runpy.run_path(str(HELPER), run_name="suite_user")

ALLOWED, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}
# From the kernel's tables: arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl.
SHARED = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_tree_attr": 467,
}
MOUNTING = {
    "x86_64": {"chroot": 161, "mount": 165, "umount2": 166, "pivot_root": 155, "setns": 308, **SHARED},
    "aarch64": {"chroot": 51, "mount": 40, "umount2": 39, "pivot_root": 41, "setns": 268, **SHARED},
}
CLONE = {"x86_64": 56, "aarch64": 220}
UNSHARE = {"x86_64": 272, "aarch64": 97}
EXECVE = {"x86_64": 59, "aarch64": 221}
PRCTL = {"x86_64": 157, "aarch64": 167}
CLONE3 = 435
NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
TIME_NAMESPACE = 0x80
"""For unshare alone: to clone these bits are the signal at the child's end."""
THREAD = 0x003D0F00
"""Flags of clone() by which the C library makes a thread."""
FORK = 0x01200011

every_machine = pytest.mark.parametrize("machine", sorted(CLONE))


def decided(machine: str, number: int, flags: int = 0, audit: int | None = None) -> int:
    """Return what the filter of a machine answers to a system call, as the kernel would run its program."""
    program = [
        struct.unpack_from("=HBBI", SERVER["filter_program"](SERVER["TABLES"][machine]), at)
        for at in range(0, len(SERVER["filter_program"](SERVER["TABLES"][machine])), 8)
    ]
    data = struct.pack("<IIQQ", number, AUDIT[machine] if audit is None else audit, 0, flags)
    value = place = 0
    while True:
        code, if_true, if_false, operand = program[place]
        place += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
            continue
        true = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
        place += if_true if true else if_false


@every_machine
def test_no_mount_is_made_changed_or_left(machine):
    for name, number in MOUNTING[machine].items():
        assert decided(machine, number) == EPERM, name


@every_machine
def test_no_namespace_is_made_by_any_call(machine):
    for name, flag in NAMESPACES.items():
        assert decided(machine, CLONE[machine], FORK | flag) == EPERM, name
        assert decided(machine, UNSHARE[machine], flag) == EPERM, name
    assert decided(machine, UNSHARE[machine], TIME_NAMESPACE) == EPERM
    assert decided(machine, UNSHARE[machine], 1 << 20) == EPERM, "a flag that no kernel has yet"
    # Its flags are out of a filter's sight, and the C library then calls clone.
    assert decided(machine, CLONE3) == ENOSYS


@every_machine
def test_threads_processes_and_all_else_go_on(machine):
    assert decided(machine, CLONE[machine], THREAD) == ALLOWED
    assert decided(machine, CLONE[machine], FORK) == ALLOWED
    assert decided(machine, UNSHARE[machine], 0x400) == ALLOWED, "CLONE_FILES"
    for number in (EXECVE[machine], PRCTL[machine], 0, 63, 450):
        assert decided(machine, number) == ALLOWED


@every_machine
def test_another_table_of_system_calls_is_no_way_round(machine):
    """Numbers mean something else there: 32-bit programs, and x32."""
    assert decided(machine, EXECVE[machine], audit=AUDIT["i386"]) == EPERM
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert decided(machine, EXECVE[machine], audit=AUDIT[other]) == EPERM
    assert decided(machine, 0x40000000 | UNSHARE[machine], NAMESPACES["user"]) == EPERM


def shut_in(before: str, *command: str) -> tuple[int, str]:
    """Run the step that takes these rights away, after some Python of the test's."""
    lines = ["import runpy, sys", f"server = runpy.run_path({str(HELPER)!r})", before]
    program = "\n".join([*lines, "sys.exit(server['main']())"])
    arguments = [*command, sys.executable, "-c", program, "--shut-in", "/bin/echo", "ran"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.stdout == "ran\n") == (done.returncode == 0)
    return done.returncode, done.stderr


def test_a_machine_whose_calls_are_not_known_runs_nothing():
    if not shutil.which("linux32"):
        pytest.skip("linux32 of util-linux is not there")
    status, said = shut_in("", "linux32")
    assert status == 3
    assert "the system call filter knows x86_64 and aarch64 alone. Run without the second user" in said


def test_a_kernel_that_takes_no_filter_runs_nothing():
    """As a kernel without CONFIG_SECCOMP_FILTER answers: an outer filter refuses the inner."""
    if (machine := os.uname().machine) not in PRCTL:
        pytest.skip("no system call filter is known for this machine")
    refusing = f"""
instruction = server["instruction"]
server["shut_in"].__globals__["filter_program"] = lambda table: b"".join([
    instruction(0x20, 0), instruction(0x15, {PRCTL[machine]}, if_false=3),
    instruction(0x20, 16), instruction(0x15, 22, if_false=1), instruction(6, {0x50000 | errno.EINVAL}),
    instruction(6, {ALLOWED}),
])
server["shut_in"]()
"""
    status, said = shut_in(refusing)
    assert status == 3
    assert "The kernel does not accept the system call filter: Invalid argument. Boot a kernel with" in said
    assert shut_in("")[0] == 0
