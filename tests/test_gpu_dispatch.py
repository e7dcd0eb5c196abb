"""Launches in parts on a card by CUDA, and compute shaders on it by OpenGL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.device import backends
from harness.device.backends import opengl
from harness.device.telemetry import probe_for
from harness.errors import DeviceError, LaunchError
from harness.measure import protocol
from harness.measure.timing import MeasureSettings
from harness.records.types import Launch
from harness.suite.layout import Layout, Parameter
from harness.suite.loader import load_folder
from harness.suite.sources import Program
from tests.pairs import opened_worker
from tests.support import GPU, KERNELS, MATMUL_SIZES, device_is_missing

pytestmark = pytest.mark.gpu

SETTINGS = MeasureSettings(max_time_s=0.5)
KERNELS_OF_MATMUL = [
    kernel.name
    for kernel in load_folder(KERNELS / "matmul").kernels
    if isinstance(kernel.source_for("cuda"), str)
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("dispatch")
        patch.setenv("HARNESS_CACHE_DIR", str(folder / "cache"))
        yield folder


def opened(spec, scratch):
    request = protocol.Open(device=spec, suite=str(KERNELS / "matmul"), scratch=str(scratch))
    try:
        return opened_worker(request)
    except DeviceError as error:
        device_is_missing(spec, error.message)


@pytest.fixture(scope="module")
def cuda(scratch):
    worker = opened(GPU, scratch)
    yield worker
    worker.device.close()


@pytest.fixture(scope="module")
def shader(scratch):
    """A worker on the first card that OpenGL has."""
    try:
        cards = [device.spec for device in opengl.devices() if device.kind == "gpu"]
    except DeviceError as error:
        device_is_missing("opengl:0", error.message)
    if not cards:
        pytest.skip("OpenGL has no card here: EGL offers software renderers only")
    worker = opened(cards[0], scratch)
    yield worker
    worker.device.close()


def ask(kernel, size, **options):
    sizes = dict(zip("mnk", size, strict=True))
    return protocol.Measure(**{"kernel": kernel, "sizes": sizes, "seed": 1, "settings": None, **options})


# CUDA


@pytest.mark.parametrize("dispatch", [(3, 1, 1), (5, 2, 1)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS_OF_MATMUL)
def test_a_kernel_is_right_in_parts(cuda, monkeypatch, kernel, dispatch):
    by_name = cuda.suite.by_name
    monkeypatch.setitem(by_name, kernel, replace(by_name[kernel], dispatch=dispatch))
    row = cuda.run(ask(kernel, (500, 300, 64)))
    assert (row.status, row.message) == ("verified", "")
    assert row.launch.in_parts


def test_parts_are_timed_together(cuda):
    whole = cuda.run(ask("shared_tile", (1024, 1024, 1024), settings=SETTINGS))
    by_name = cuda.suite.by_name
    kernel = by_name["shared_tile"]
    by_name["shared_tile"] = replace(kernel, dispatch=(64,))
    try:
        parted = cuda.run(ask("shared_tile", (1024, 1024, 1024), settings=SETTINGS))
    finally:
        by_name["shared_tile"] = kernel
    assert len(list(parted.launch.parts())) == 16
    # A part of 64 blocks leaves most of a large card idle, so all of them cannot be faster than the whole.
    assert np.median(parted.measurement.times_ns) > np.median(whole.measurement.times_ns)


def test_the_largest_dispatch_keeps_to_its_time(cuda):
    size = (2048, 2048, 2048)
    row = cuda.run(ask("naive", size, max_launch_ms=5.0, settings=SETTINGS))
    assert (row.status, row.message) == ("measured", "")
    assert row.launch.in_parts
    parts = len(list(row.launch.parts()))
    assert np.median(row.measurement.times_ns) / parts < 5e6
    with pytest.raises(LaunchError, match="One block takes"):
        cuda.run(ask("naive", size, max_launch_ms=1e-6))


def test_origins_follow_the_stream(cuda):
    """Launches enqueued without a wait between them: each part must see its own origin, not a later one."""
    device = cuda.device
    text = """
__constant__ int harness_origin[3];
extern "C" __global__ void mark(int *y) { atomicAdd(&y[blockIdx.x + harness_origin[0]], 1); }
"""
    parameters = (Parameter("y", "int32", Layout((1000,), "int32")),)
    made = Program("t.mark", "mark", text, in_parts=True, parameters=parameters)
    built = device.build(made)
    memory = device.allocate(4000)
    device.fill(memory, 0, 4000, 0)
    launch = Launch(grid=(1000, 1, 1), block=(1, 1, 1), dispatch=(7, 1, 1))
    device.occupy(5_000_000)
    for _ in range(5):
        device.launch(built, launch, [device.view(memory, 0, 4000)])
    out = np.empty(1000, np.int32)
    device.read(memory, 0, out)
    device.release(memory)
    assert set(out) == {5}


# OpenGL


def test_opengls_card_describes_itself(shader):
    info = shader.device.info
    assert info.kind == "gpu"
    assert info.max_shared_bytes >= 32 * 1024
    assert info.max_threads_per_block >= 1024
    probe = probe_for(info)
    try:
        assert "nvidia" not in info.vendor.lower() or probe.name == "nvml"
    finally:
        probe.close()


@pytest.mark.parametrize("size", [*MATMUL_SIZES, (2100, 40, 5), (40, 2100, 5), (2100, 2100, 70)], ids=str)
def test_the_compute_shader_is_right_on_the_card(shader, size):
    row = shader.run(ask("compute_shader", size))
    assert (row.status, row.message) == ("verified", "")


def test_the_cards_timer_is_believed_and_believable(shader):
    assert shader.device.clock == "gl-timer"
    assert 0 < shader.device.tick_ns() < 1e6
    row = shader.run(ask("compute_shader", (2048, 2048, 2048), settings=SETTINGS))
    assert row.status == "measured", row.message
    assert row.measurement.clock == "gl-timer"
    assert row.measurement.l2 == "hot"
    rate = 2 * 2048**3 / np.median(row.measurement.times_ns)  # GFLOP/s
    assert 50 < rate < 100_000


def test_opengl_and_cuda_agree_on_what_the_same_algorithm_takes(shader, cuda):
    """Both have one thread an element and tiles of 32x32, and differ by less than a factor of four, hot."""
    hot = MeasureSettings(max_time_s=0.5, l2="hot")
    size = (2048, 2048, 2048)
    times = [
        float(np.median(worker.run(ask(kernel, size, settings=hot)).measurement.times_ns))
        for worker, kernel in ((shader, "compute_shader"), (cuda, "shared_tile"))
    ]
    assert 0.25 < times[0] / times[1] < 4


def test_a_card_that_opengl_has_is_found_by_its_spec(shader):
    device = backends.open_device(shader.device.info.spec)
    assert device.info == shader.device.info
    device.close()
