"""The shortest time that a kernel could take on a card, by hand."""

from __future__ import annotations

import pytest

from harness.records import Launch
from harness.static.bounds import Bound, Spread, Work, bound
from harness.static.occupancy import CARDS, Card
from harness.static.sass import Instructions, Loop

CARD = Card("Card", (8, 6), multiprocessors=10, clock_mhz=1000, memory_gbytes_per_s=100, l2_bytes=1000)
"""A cycle is a nanosecond; 128 lanes, 1,024 operations of tensor cores a cycle."""
NOTHING = Work(flop=None, read_bytes=0, written_bytes=0, dtype="float32")
FLOP = 2 * 32 * 1000
"""A thousand multiply-adds of a warp."""


def work(flop=FLOP, dtype="float32"):
    return Work(flop=flop, read_bytes=0, written_bytes=0, dtype=dtype)


def loop(**kinds):
    named = {kind.replace("_", "."): count for kind, count in kinds.items()}
    count = sum(named.values())
    return Instructions(
        count=count, kinds=named, loops=1, hottest=Loop(begins=0, ends=16, depth=1, count=count, kinds=named)
    )


def test_memory_is_what_is_read_and_what_is_written_beyond_the_l2():
    moved = Work(flop=None, read_bytes=4000, written_bytes=1600, dtype="float32")
    assert bound(CARD, moved) == Bound(46.0, "memory")
    assert bound(CARD, NOTHING) == Bound(0.0, "memory")


def test_arithmetic_is_the_peak_of_the_type():
    assert bound(CARD, work()) == Bound(25.0, "arithmetic")  # 128 lanes on each of 10
    assert bound(CARD, work(dtype="float16")) == Bound(6.25, "arithmetic")


@pytest.mark.parametrize(
    ("kinds", "time_ns", "by"),
    [
        ({"FFMA": 10, "MOV": 10}, 50.0, "issue slots"),
        ({"FFMA": 10, "LDS_128": 5}, 50.0, "load/store units"),
        ({"FFMA": 10, "LDC_32": 5}, 37.5, "issue slots"),  # constants have a path of their own
        ({"FFMA2": 5, "MOV": 15}, 50.0, "issue slots"),  # two at once
        ({"IADD3": 100}, 25.0, "arithmetic"),  # whose multiply-adds are elsewhere
    ],
)
def test_a_loop_takes_its_instructions_and_its_loads(kinds, time_ns, by):
    assert bound(CARD, work(), loop(**kinds)) == Bound(time_ns, by)


def test_products_of_tensor_cores_count_by_their_shape():
    done = work(flop=2 * 16 * 8 * 16 * 1000, dtype="float16")
    assert bound(CARD, done, loop(HMMA_16816=1, LDG_32=9)) == Bound(900.0, "load/store units")


@pytest.mark.parametrize(
    ("grid", "block", "resident", "time_ns"),
    [
        ((10, 1, 1), (128, 1, 1), 8, 50.0),
        ((5, 1, 1), (128, 1, 1), 8, 100.0),  # five of ten have nothing to do
        ((11, 1, 1), (128, 1, 1), 8, 50.0 * 2 * 10 / 11),  # one of ten has two blocks
        ((10, 1, 1), (64, 1, 1), 8, 100.0),  # two warps for four schedulers
        ((40, 1, 1), (64, 1, 1), 1, 100.0),  # of four blocks one at a time
    ],
)
def test_the_busiest_multiprocessor_tells_how_long(grid, block, resident, time_ns):
    spread = Spread(launch=Launch(grid=grid, block=block), resident_blocks=resident)
    found = bound(CARD, work(), loop(FFMA=10, MOV=10), spread)
    assert found is not None
    assert found.time_ns == pytest.approx(time_ns)
    assert found.by == "issue slots"


def test_no_bound_without_clocks():
    assert bound(Card("sm_86:28", (8, 6), 28), work()) is None
    assert bound(CARDS["rtx3060"], work()) is not None
