"""Pages of a suite: authors' figures as they were printed, and the resources that a kernel needs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness import Ladder, Rung
from harness.records.types import Launch, Resources, Row
from harness.report.site.suite_documents import Cards, demand_document, is_of_family, suite_document
from harness.suite.loader import load_folder
from tests.histories import series_case
from tests.support import KERNELS, caller
from tests.test_ladders import CARD


@pytest.mark.parametrize(
    ("gpu", "card", "same"),
    [
        ("NVIDIA GeForce RTX 3060", "RTX 3060", True),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060", True),
        ("NVIDIA RTX A500 Laptop GPU", "RTX A500 laptop", True),
        ("NVIDIA GeForce RTX 3070", "RTX 3060", False),
        ("NVIDIA A100-SXM4-80GB", "A10", False),
        ("NVIDIA RTX 4000 Ada Generation", "Quadro 4000", False),
        ("NVIDIA H200", "", False),
    ],
)
def test_a_card_is_of_a_family_by_every_word_of_the_authors(gpu, card, same):
    assert is_of_family(gpu, card) is same


def case(kernel, size, suite="matmul"):
    return series_case(f"{suite}.{kernel}@{size}")


@pytest.fixture(scope="module")
def matmul():
    return load_folder(KERNELS / "matmul")


def document(suite, *cases, gpus=(), hosts=(), newest=None):
    """As the pages read it. `newest` holds the figures by card and case."""
    cards = Cards(gpus=gpus, hosts=hosts or gpus, newest=newest or {})
    return json.loads(json.dumps(suite_document(suite, cards, cases)))


def test_figures_are_as_they_were_printed(matmul):
    ladders = document(matmul, gpus=("NVIDIA H200", "Quadro 4000"))["ladders"]
    found = {each["name"]: each for each in ladders}
    shader, cuda = found["shader"], found["cuda"]
    told = [each["told"]["rate"] for each in shader["rungs"] if each["kernel"] == "compute_shader"]
    assert told == ["13.53", "46.60", "66.77", "73.70", "74.42", "75.05"]
    assert [each["told"]["rate"] for each in shader["rungs"] if each["kernel"] == "cpu_loop"][4] == "0.40"
    card = next(
        each for each in shader["rungs"] if (each["kernel"], each["size"]) == ("compute_shader", "512")
    )
    assert (card["told"]["speed_up"], card["told"]["time_ms"]) == ("29x", "4.02")
    assert shader["cards"] == [1]
    tiled = next(each for each in cuda["rungs"] if each["kernel"] == "block_tiling_as_published")
    assert (tiled["rate"], tiled["told"]["speed_up"], tiled["repaired"]) == (411, "4.0x", "block_tiling")
    assert cuda["cards"] == []
    sweep = found["schedule_sweep"]["rungs"][0]
    assert (sweep["size"], sweep["plain"], sweep["told"]["average"]) == ("", False, "19")


def ladder_of(suite, name, rates, hosts):
    """A ladder with these figures by card, kernel and size, in a site whose cards are in these hosts."""
    named = dict.fromkeys((kernel, size) for _, kernel, size in rates)
    cases = [
        replace(case(*each), order=number, unit="GFLOP/s", suite="matmul", kernel=each[0], size=each[1])
        for number, each in enumerate(named)
    ]
    numbers = {(each.kernel, each.size): each.order for each in cases}
    newest = {(card, numbers[kernel, size]): rate for (card, kernel, size), rate in rates.items()}
    found = document(suite, *cases, gpus=["one"] * len(hosts), hosts=hosts, newest=newest)
    return next(each for each in found["ladders"] if each["name"] == name)


def test_a_rung_has_what_each_card_measured_of_it_and_of_its_repaired_kernel(matmul, own_cache):
    size = "4096"
    rates = {
        (0, "naive", size): 100, (0, "block_tiling_as_published", size): 250, (0, "block_tiling", size): 500,
        (1, "block_tiling", size): 700,
    }  # fmt: skip
    rungs = ladder_of(matmul, "cuda", rates, ["x", "x"])["rungs"]
    ours = {rung["kernel"]: rung["ours"] for rung in rungs if rung["size"] == size}
    (base,) = ours["naive"]
    assert (base["card"], base["own"], base["speed_up"]) == (0, [0, 100], None)
    first, second = ours["block_tiling_as_published"]
    assert (first["own"], first["speed_up"], first["repaired"], first["gain"]) == ([1, 250], 2.5, [2, 500], 2)
    assert (second["card"], second["own"], second["repaired"], second["gain"]) == (1, None, [2, 700], None)


def test_a_rung_of_another_configuration_has_no_figure_of_the_kernel_as_it_stands(matmul, own_cache):
    rungs = [Rung("plain", "naive", 1), Rung("other", "naive", 2, macros={"TILE": 3})]
    suite = replace(matmul, ladders=[Ladder("tuned", "t", sizes=64, rungs=rungs)])
    found = ladder_of(suite, "tuned", {(0, "naive", "64"): 5}, ["x"])["rungs"]
    assert [[each["own"] for each in rung["ours"]] for rung in found] == [[[0, 5]], []]


def test_a_card_is_held_against_the_host_that_it_is_in(matmul, own_cache):
    """Card 0 has the author's kernel; card 1 has none, and of another type the fastest of all."""
    rates = {
        **{(3, "cpu_loop", size): 2 for size in ("128", "256")},
        (0, "compute_shader", "128"): 50, (0, "compute_shader", "256"): 60, (0, "naive", "256"): 90,
        (1, "naive", "128"): 70, (1, "naive", "256"): 80, (1, "thread_tiling_2d", "256"): 100,
        (1, "wmma_warp_tiling", "256"): 900, (2, "compute_shader", "128"): 40,
    }  # fmt: skip
    ladder = ladder_of(matmul, "shader", rates, ["x", "x", "y", "x"])
    drawn = {
        (each["card"], each["name"]): (each["is_base"], each["points"])
        for each in ladder["curves"]
        if each["card"] is not None
    }
    assert drawn == {
        (0, "compute_shader"): (False, [[128, 50, 25], [256, 60, 30]]),
        (1, "thread_tiling_2d"): (False, [[256, 100, 50]]),
        (2, "compute_shader"): (False, [[128, 40, None]]),
        (3, "cpu_loop"): (True, [[128, 2, None], [256, 2, None]]),
    }
    published = [each for each in ladder["curves"] if each["card"] is None]
    assert [each["is_base"] for each in published] == [True, False]
    assert published[0]["points"][0][1:] == [3.57, None]


def test_a_ladder_of_one_size_has_no_curve(matmul, own_cache):
    assert ladder_of(matmul, "cuda", {(0, "naive", "4096"): 1}, ["x"])["curves"] == []


def test_every_ladder_of_the_five_systems_says_its_source(matmul):
    for each in document(matmul)["ladders"]:
        assert each["publication"], each["name"]
        assert each["author"] or each["name"] == "taught"
        assert each["url"].startswith("https://") or each["name"] in ("taught", "shader")


def test_accesses_are_followed_at_the_largest_size_of_the_history(matmul, own_cache):
    cases = (
        *(case("block_tiling_as_published", size) for size in ("64", "128", "48x64")),
        *(case(kernel, "64") for kernel in ("cpu_loop", "of_yesterday")),
        case("copy", "64", suite="copy"),
    )
    tiled, loop = document(matmul, *cases)["accesses"]
    assert (tiled["kernel"], tiled["size"], tiled["problem"]) == ("block_tiling_as_published", "128", "")
    (load,) = (each for each in tiled["found"] if each["array"] == "a")
    assert (load["sectors"], load["fewest_sectors"], load["stores"]) == (16, 4, False)
    (store,) = (each for each in tiled["found"] if each["array"] == "tile_a" and each["stores"])
    assert store["conflicts"] == 8
    assert (loop["kernel"], loop["found"]) == ("cpu_loop", [])
    assert loop["problem"].startswith("It has no CUDA source")


def test_without_a_compiler_the_pages_say_so(matmul, monkeypatch, own_cache):
    monkeypatch.setattr("harness.device.static.accesses._compiler", lambda: "")
    (told,) = document(matmul, case("naive", "64"))["accesses"]
    assert (told["found"], told["problem"]) == ([], "Access patterns need g++, which is not installed.")


def asked(registers=72, static=8192, dynamic=0, block=(128, 1, 1), grid=(16384, 1, 1), **of_card):
    launch = Launch(grid=grid, block=block, dynamic_shared_bytes=dynamic)
    resources = Resources(registers=registers, static_shared_bytes=static)
    row = Row(
        case="c", kernel="k", sizes={}, dtype="float32", status="measured", launch=launch, resources=resources
    )
    known = {"compute_capability": (8, 6), "compute_units": 28, **of_card}
    return demand_document(replace(CARD, **known), row)


def test_what_a_measured_kernel_asked_of_its_card():
    # 72 registers of 32 threads are 2,304 in units of 256; a quarter of 65,536 holds 7 warps, so the whole
    # 28, which are 7 blocks of 4.
    found = asked()
    assert (found["blocks"], found["limit"], found["multiprocessors"]) == (7, "registers", 28)
    assert found["occupancy"] == 28 / 48
    assert (found["waves"], found["attributes"]) == (16384 / (7 * 28), "")
    assert found["last_wave"] == pytest.approx(16384 / 196 - 83)
    nothing_fits = asked(static=0, dynamic=262_144)
    assert (nothing_fits["blocks"], nothing_fits["last_wave"], nothing_fits["shared_bytes"]) == (
        0,
        None,
        262_144,
    )


@pytest.mark.parametrize(
    "given", [{"compute_capability": None}, {"compute_capability": (99, 0)}, {"registers": 0}]
)
def test_what_no_driver_says_is_not_made_up(given):
    assert asked(**given) is None


def test_publishing_tells_of_a_suite_that_is_broken_and_goes_on(project, monkeypatch, capsys, own_cache):
    harness = caller(capsys, monkeypatch)
    assert harness("run", "--device", "null", "--results", str(project.root / "results")).status == 0
    project.write({"kernels/broken/suite.py": "raise RuntimeError('no')\n"})
    done = harness(
        "publish", "--results", str(project.root / "results"), "--html", str(project.root / "html")
    )
    assert done.status == 0, done.err
    assert "Published without the suite in broken" in done.err
    (toy,) = json.loads((project.root / "html/harness/api/site.json").read_text("utf-8"))["suites"]
    assert toy == {"name": "toy", "file": "toy", "ladders": []}
