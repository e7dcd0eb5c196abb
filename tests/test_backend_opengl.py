"""The compute shader on a real context of OpenGL, and the backend's messages without a context."""

from __future__ import annotations

import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from harness.device import backends
from harness.device.backends import opengl
from harness.device.backends.base import check_launch
from harness.device.telemetry import probe_for
from harness.errors import BuildError, DeviceError, KernelError, LaunchError, MeasureError, OutOfMemoryError
from harness.measure import protocol
from harness.records.types import Launch
from harness.suite.sources import Program
from tests.mutations import Mutation
from tests.pairs import opened_worker
from tests.support import KERNELS, ROOT, device_is_missing, run_command, write_null_script

DEVICE = "opengl:0"
SIZES = [
    (1, 1, 1),
    (31, 1, 5),
    (1, 513, 1),
    (33, 32, 64),
    (127, 65, 33),
    # One more than the 64 work groups of 32 that one dispatch has in a direction.
    (2049, 40, 5),
    (40, 2100, 5),
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("opengl")
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        yield folder


def worker_on(folder, scratch):
    request = protocol.Open(device=DEVICE, suite=str(folder), scratch=str(scratch))
    try:
        return opened_worker(request)
    except DeviceError as error:
        device_is_missing(DEVICE, error.message)


@pytest.fixture(scope="module")
def worker(scratch):
    opened = worker_on(KERNELS / "matmul", scratch)
    yield opened
    opened.device.close()


@pytest.fixture
def device(scratch):
    """A context of its own, to be damaged."""
    try:
        opened = opengl.open_device(0)
    except DeviceError as error:
        device_is_missing(DEVICE, error.message)
    yield opened
    opened.close()


def measure(size, **options):
    sizes = dict(zip("mnk", size, strict=True))
    return protocol.Measure(kernel="compute_shader", sizes=sizes, seed=1, settings=None, **options)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_the_compute_shader_is_right(worker, size):
    row = worker.run(measure(size))
    assert (row.status, row.message) == ("verified", "")
    assert row.launch.dispatch == (64, 64, 1)
    assert row.launch.in_parts == (max(size[:2]) > 2048)
    assert row.resources.binary_sha256


def test_parts_that_are_found_are_right_as_well(worker):
    row = worker.run(measure((127, 165, 33), max_launch_ms=10_000))
    assert (row.status, row.launch.dispatch) == ("verified", (64, 64, 1))
    with pytest.raises(LaunchError, match=r"One block takes .* ms on .*, more than the 1e-06 ms"):
        worker.run(measure((127, 165, 33), max_launch_ms=1e-6))


def mutation(what, old, new, size, occurrence=0):
    return Mutation("matmul", "compute_shader", what, old, new, size, occurrence)


EDGES = (127, 65, 33)
MUTATIONS = [
    mutation("no first barrier", "barrier();", "", EDGES, 0),
    mutation("no second barrier", "barrier();", "", EDGES, 1),
    mutation("no last k", "first < k;", "first < k - 1;", EDGES),
    mutation("no column guard", "row < m && column < n)", "row < m)", (64, 65, 5)),
    mutation("stride of a", "row * k + first", "row * n + first", EDGES),
    mutation("stride of c", "row * n + column", "row * m + column", EDGES),
    mutation("no origin in x", "x0 + int(", "int(", (5, 2100, 3)),
    mutation("no origin in y", "y0 + int(", "int(", (2100, 5, 3)),
    mutation("origin in blocks", "y0 + int(", "y0 / TILE + int(", (2100, 5, 3)),
]


@pytest.mark.parametrize("mutated", MUTATIONS, ids=str)
def test_a_planted_mistake_is_found(worker, scratch, tmp_path, mutated):
    shutil.copytree(KERNELS, tmp_path / "kernels")
    file = tmp_path / "kernels" / "matmul" / "compute_shader.glsl"
    file.write_text(mutated.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
    broken = worker_on(tmp_path / "kernels" / "matmul", scratch)
    try:
        row = broken.run(measure(mutated.size))
    finally:
        broken.device.close()
    assert (row.status, row.reason) == ("failed", "wrong-result")


# Time


def test_a_software_renderers_timer_is_not_believed(device):
    if device.info.kind != "cpu":
        pytest.skip(f"{device.info.name} is a card: tests/test_gpu_dispatch.py")
    assert device.clock == "host"
    assert 1 <= device.tick_ns() < 1e6


@pytest.mark.parametrize(
    ("host_ns", "timer_ns", "clock"),
    [
        (4e6, 3.9e6, "gl-timer"),
        (4e6, 4e6, "gl-timer"),
        (4e6, 1, "host"),
        (4e6, 1e6, "host"),
        (4e6, 5e6, "host"),
    ],
)
def test_a_timer_is_believed_where_it_agrees_with_the_host(device, monkeypatch, host_ns, timer_ns, clock):
    monkeypatch.setattr(device, "_spinning", lambda rounds: (host_ns, timer_ns))
    assert device._check_timer()[1] == clock


def test_with_a_timer_that_is_believed_the_time_is_the_timers(worker, monkeypatch):
    """The timer of llvmpipe reports about a nanosecond, and no host's clock does."""
    device = worker.device
    if device.clock != "host":
        pytest.skip("the timer is believed anyway")
    monkeypatch.setattr(device, "clock", "gl-timer")
    built = device.build(Program("t", "t", opengl._SPIN.read_text().replace("rounds", "n")))
    launch = Launch(grid=(1, 1, 1), block=(64, 1, 1))
    timing = device.timed(built, launch, [], 3)
    device.occupy(1000)
    device.synchronize()
    assert 0 <= timing() < 1000
    assert timing() == timing()
    assert device.tick_ns() > 0


# What cannot work


def test_a_block_that_is_not_the_local_size_is_refused(device):
    built = device.build(Program("t", "t", "#version 430\nlayout(local_size_x = 8) in;\nvoid main() {}\n"))
    assert built.local_size == (8, 1, 1)
    with pytest.raises(LaunchError, match=r"block \(4, 2, 1\) and was compiled with local size \(8, 1, 1\)"):
        device.launch(built, Launch(grid=(1, 1, 1), block=(4, 2, 1)), [])
    too_large = Launch(grid=(1, 1, 1), block=(16, 1, 1))
    with pytest.raises(LaunchError, match="16 threads is more than the 8"):
        check_launch(too_large, device.info, built.resources)


def test_dynamic_shared_memory_is_refused(device):
    built = device.build(Program("t", "t", "#version 430\nlayout(local_size_x = 8) in;\nvoid main() {}\n"))
    launch = Launch(grid=(1, 1, 1), block=(8, 1, 1), dynamic_shared_bytes=64)
    with pytest.raises(LaunchError, match="64 bytes of dynamic shared memory, which GLSL has not"):
        device.launch(built, launch, [])


def test_what_is_no_shader_is_a_build_error(device):
    with pytest.raises(BuildError, match="is no shader"):
        device.build(Program("t", "t", "", kind="host"))


def test_an_array_that_no_shader_can_reach_is_out_of_memory(device):
    memory = device.allocate(2**20)
    try:
        with pytest.raises(OutOfMemoryError, match="that a shader can reach"):
            device.view(memory, 0, device._most_bytes + 1)
    finally:
        device.release(memory)


@pytest.mark.parametrize(
    ("status", "error", "kind", "told"),
    [
        (0x8253, 0, KernelError, "GL_GUILTY_CONTEXT_RESET"),
        (0x8254, 0, MeasureError, "GL_INNOCENT_CONTEXT_RESET"),
        (0x8255, 0x0507, MeasureError, "GL_UNKNOWN_CONTEXT_RESET"),
        (0, 0x0507, MeasureError, "GL_CONTEXT_LOST"),
    ],
    ids=["guilty", "innocent", "unknown", "no reason"],
)
def test_a_context_that_was_lost_is_told_at_the_next_call(device, monkeypatch, status, error, kind, told):
    monkeypatch.setattr(device._gl, "_reset_status", lambda: status)
    monkeypatch.setattr(device._gl, "error", lambda: error)
    with pytest.raises(
        kind, match=rf"Waiting for the device: the context was lost \({told}\).*--max-launch-ms"
    ):
        device.synchronize()


def test_what_moderngl_raises_afterwards_is_an_error_of_the_harness(device):
    memory = device.allocate(64)
    device.release(memory)
    with pytest.raises(MeasureError, match="Copying to the device"):
        device.write(memory, 0, np.zeros(64, np.uint8))
    device.synchronize()


def test_two_contexts_do_not_disturb_each_other(device):
    other = opengl.open_device(0)
    values = [np.full(16, number, np.uint8) for number in (1, 2)]
    memories = [each.allocate(16) for each in (device, other)]
    for each, memory, value in zip((device, other), memories, values, strict=True):
        each.write(memory, 0, value)
    out = np.empty(16, np.uint8)
    other.read(memories[1], 0, out)
    assert set(out) == {2}
    other.close()
    device.read(memories[0], 0, out)
    assert set(out) == {1}


# What is not there


@pytest.fixture
def unknown():
    """Forget the devices found, as in a new process."""
    opengl._found.cache_clear()
    yield
    opengl._found.cache_clear()


def problem():
    (found,) = backends.survey(("opengl",))
    assert not found.devices
    return found.problem


def test_without_moderngl_the_extra_is_named(unknown, monkeypatch):
    monkeypatch.setitem(sys.modules, "moderngl", None)
    assert "ModernGL cannot be imported" in problem()
    assert "extra 'opengl'" in problem()


def test_without_egl_the_packages_are_named(unknown, monkeypatch):
    monkeypatch.setenv("GLCONTEXT_LINUX_LIBEGL", "libnothing.so")
    assert "EGL does not start (libnothing.so not loaded)" in problem()
    assert "libgl1-mesa-dri" in problem()


def egl_with(monkeypatch, *contexts):
    """EGL's devices, each with the context that it gives or the exception that it raises."""

    def open_context(index):
        if index >= len(contexts):
            raise OSError(f"requested device index {index}, but found {len(contexts)} devices")
        if isinstance(contexts[index], Exception):
            raise contexts[index]
        return contexts[index]

    monkeypatch.setattr(opengl, "_egl", open_context)


def test_egl_without_a_device_is_a_sentence(unknown, monkeypatch):
    egl_with(monkeypatch)
    assert problem().startswith("EGL has no device.")


def test_devices_without_a_context_are_a_sentence(unknown, monkeypatch):
    egl_with(monkeypatch, OSError("eglInitialize failed (0x3001)"), OSError("eglCreateContext failed"))
    assert "EGL's device 0 gives no context of OpenGL 4.3 (eglInitialize failed (0x3001))" in problem()


def test_a_driver_that_answers_nonsense_does_not_hide_the_others(device, monkeypatch):
    described, asked = opengl.GLContext.describe, []

    def describe(self):
        asked.append(self)
        if len(asked) != 2:
            raise KeyError("GL_RENDERER")
        return described(self)

    monkeypatch.setattr(opengl, "device_count", lambda: 3)
    real = opengl._egl
    monkeypatch.setattr(opengl, "_egl", lambda index: real(0))
    monkeypatch.setattr(opengl.GLContext, "describe", describe)
    opengl._found.cache_clear()
    try:
        assert [(egl_index, info.spec) for egl_index, info in opengl._found()] == [(1, "opengl:0")]
    finally:
        opengl._found.cache_clear()


def test_a_device_that_does_not_open_is_no_device(device, tmp_path, monkeypatch):
    monkeypatch.setattr(opengl, "_SPIN", tmp_path / "spin.glsl")
    (tmp_path / "spin.glsl").write_text("#version 430\nnonsense\n")
    with pytest.raises(DeviceError, match="Opening opengl:0: OpenGL failed"):
        opengl.open_device(0)


def test_cards_come_first_and_what_gives_no_context_is_left_out(unknown, monkeypatch, device):
    llvmpipe = {**device._gl.mgl.info, "GL_RENDERER": "llvmpipe (LLVM 15.0.6, 256 bits)"}
    card = {**llvmpipe, "GL_RENDERER": "NVIDIA H200/PCIe/SSE2", "GL_VENDOR": "NVIDIA Corporation"}
    egl_with(monkeypatch, llvmpipe, OSError("no"), card)
    opengl._found.cache_clear()

    class Described(opengl.GLContext):
        def __init__(self, egl_index):
            self.mgl = SimpleNamespace(info=opengl._egl(egl_index))

        def integer(self, name):
            return 7

        def _uuid(self):
            return "GPU-1"

        def close(self):
            pass

    def opened(egl_index):
        try:
            return Described(egl_index)
        except OSError as error:
            raise DeviceError(str(error)) from None

    monkeypatch.setattr(opengl, "GLContext", opened)
    assert [(egl_index, info.spec) for egl_index, info in opengl._found()] == [
        (2, "opengl:0"),
        (0, "opengl:1"),
    ]
    first, second = opengl.devices()
    assert (first.kind, first.name, first.uuid) == ("gpu", "NVIDIA H200", "GPU-1")
    assert (second.kind, second.uuid) == ("cpu", None)


def test_an_index_that_is_not_there_names_those_that_are(scratch):
    try:
        opengl.devices()
    except DeviceError as error:
        device_is_missing(DEVICE, error.message)
    with pytest.raises(
        DeviceError, match=r"There is no device opengl:99\. Devices of this backend: opengl:0"
    ):
        backends.open_device("opengl:99")


def test_a_survey_without_drivers_prints_nothing_of_its_own(tmp_path):
    """Mesa would tell standard error which of its drivers it does not find."""
    nothing = {"LIBGL_DRIVERS_PATH": str(tmp_path), "__EGL_VENDOR_LIBRARY_FILENAMES": str(tmp_path / "none")}
    for name, value in nothing.items():
        done = run_command("devices", cwd=tmp_path, env={name: value, "HARNESS_CACHE_DIR": str(tmp_path)})
        lines = done.stderr.splitlines()
        assert not [line for line in lines if not line.startswith(tuple(f"{b}: " for b in backends.BACKENDS))]


def test_the_host_is_watched_while_a_software_renderer_runs(device):
    if device.info.kind != "cpu":
        pytest.skip(f"{device.info.name} is a card")
    probe = probe_for(device.info)
    try:
        assert probe.name == "host"
    finally:
        probe.close()


def test_check_on_the_command_line(scratch, tmp_path):
    try:
        opengl.devices()
    except DeviceError as error:
        device_is_missing(DEVICE, error.message)
    arguments = (
        "check",
        "--device",
        DEVICE,
        "--size",
        "70,40,33",
        "--max-launch-ms",
        "60000",
        "compute_shader",
    )
    environment = {"HARNESS_CACHE_DIR": str(scratch / "cache"), **os.environ}
    done = run_command(*arguments, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert "compute_shader" in done.stdout
    assert "verified" in done.stdout


def test_the_null_device_takes_the_shader_too(scratch, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", write_null_script(tmp_path / "script.json", {}))
    request = protocol.Open(device="null", suite=str(KERNELS / "matmul"), scratch=str(scratch))
    row = opened_worker(request).run(measure((70, 2100, 5)))
    assert row.status == "not-built"
    assert row.launch
    assert row.launch.in_parts
