"""Peaks at the boost clock against what NVIDIA publishes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.device.backends import null
from harness.device.peaks import peaks
from harness.records.types import DeviceInfo


def card(
    name: str, capability: tuple[int, int] | None, multiprocessors: int, *, max_clock_mhz: int | None = None
) -> DeviceInfo:
    return replace(
        null.devices()[0],
        name=name,
        compute_capability=capability,
        compute_units=multiprocessors,
        max_clock_mhz=max_clock_mhz,
    )


PUBLISHED = [
    # name, capability, multiprocessors; boost MHz, memory MHz, bits; TFLOP/s float32, float16; GB/s
    ("NVIDIA H200", (9, 0), 132, 1980, 3201, 6144, 67, None, 4800),
    ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1830, 2619, 5120, None, 989.4, 3350),
    ("NVIDIA A100-SXM4-40GB", (8, 0), 108, 1410, 1215, 5120, 19.5, 312, 1555),
    ("NVIDIA GeForce RTX 3090", (8, 6), 82, 1695, 9751, 384, 35.6, 71, 936),
    ("NVIDIA RTX A6000", (8, 6), 84, 1800, 8001, 384, 38.7, 154.8, 768),
    ("NVIDIA A10", (8, 6), 72, 1695, 6251, 384, 31.2, 125, 600),
    ("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520, 10501, 384, 82.6, 165.2, 1008),
    ("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 2505, 10001, 384, 91.1, 364.2, 960),
    ("NVIDIA L40", (8, 9), 142, 2490, 9001, 384, 90.5, 181, 864),
    ("NVIDIA L40S", (8, 9), 142, 2520, 9001, 384, 91.6, 362, 864),
    ("NVIDIA L4", (8, 9), 58, 2040, 6251, 192, 30.3, 121, 300),
    ("Tesla T4", (7, 5), 40, 1590, 5001, 256, 8.1, 65, 320),
    ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 1545, 7000, 352, 13.4, 53.8, 616),
    ("Tesla V100-SXM2-16GB", (7, 0), 80, 1530, 877, 4096, 15.7, 125, 900),
    ("NVIDIA GeForce RTX 5090", (12, 0), 170, 2407, 14001, 512, 104.8, 209.5, 1792),
]


@pytest.mark.parametrize(
    ("name", "capability", "units", "clock_mhz", "memory_mhz", "bits", "tflops32", "tflops16", "gbs"),
    PUBLISHED,
    ids=[row[0] for row in PUBLISHED],
)
def test_published_peaks(name, capability, units, clock_mhz, memory_mhz, bits, tflops32, tflops16, gbs):
    found = peaks(card(name, capability, units), clock_mhz, memory_mhz, bits)
    if tflops32:
        assert found["float32"] == pytest.approx(tflops32 * 1e3, rel=0.03)
    if tflops16:
        assert found["float16"] == pytest.approx(tflops16 * 1e3, rel=0.03)
    assert found["memory"] == pytest.approx(gbs, rel=0.03)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce GTX 1660 Ti", "NVIDIA GeForce MX450", "Quadro T2000", "NVIDIA T600", "NVIDIA T1000 8GB"],
)
def test_turing_without_tensor_cores_has_no_float16_peak(name):
    assert set(peaks(card(name, (7, 5), 24), 1770)) == {"float32"}


def test_what_is_unknown_has_no_key():
    assert peaks(card("NVIDIA H200", (9, 0), 132)) == {}
    assert peaks(card("NVIDIA H200", (9, 0), 132), 1980, 3201, None).keys() == {
        "float32",
        "float16",
        "bfloat16",
        "tf32",
    }
    assert peaks(card("NVIDIA Next", (99, 0), 10), 1000, 1000, 64) == {"memory": 16}
    assert peaks(card("Some CPU", None, 64), 3000) == {}


def test_what_has_as_many_bits_in_its_products_follows_from_float16():
    """The data sheet of an H100 SXM: 989.4 in bfloat16 too, 494.7 in TF32."""
    found = peaks(card("NVIDIA H100 80GB HBM3", (9, 0), 132), 1830)
    assert found["bfloat16"] == found["float16"]
    assert found["tf32"] == pytest.approx(494_700, rel=0.001)
    assert "bfloat16" not in peaks(card("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68), 1545)


def test_the_devices_own_clock_serves_where_no_other_is_known():
    device = card("NVIDIA H200", (9, 0), 132, max_clock_mhz=1980)
    assert peaks(device) == peaks(device, 1980)


@pytest.mark.parametrize("clock_mhz", [0, -1, 2**32 - 1, float("nan")])
def test_a_clock_that_cannot_be_true_makes_no_peak(clock_mhz):
    told = card("NVIDIA H100", (9, 0), 132, max_clock_mhz=1980)
    assert peaks(told, clock_mhz, clock_mhz, 5120) == peaks(told)
    assert "float32" in peaks(told)
    assert peaks(replace(told, max_clock_mhz=2**32 - 1), None, 2619, 0) == {}
