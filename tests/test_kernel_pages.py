"""The pages of docs/kernels/ say what the suites say, and scripts/kernel_pages.py tells where they do not."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import pytest

from harness.records.record_files import read_run
from harness.suite.loader import load_folder
from harness.suite.planning import launch_of
from scripts import kernel_pages as pages
from scripts import kernel_pictures as pictures
from tests.support import KERNELS, ROOT, run_command

SUITES = {name: load_folder(KERNELS / name) for name in pages.SUITES}
SUBJECTS = [subject for suite in SUITES.values() for subject in pages.subjects(suite)]
TILED = [
    subject
    for subject in SUBJECTS
    if isinstance(drawn := pages.PICTURES[subject.kernel.name](subject), pictures.Tiles) and not drawn.told
]
"""Kernels whose tiles are drawn to scale."""
PAGES = sorted((ROOT / "docs" / "kernels").rglob("*.md"))
SVGS = sorted((ROOT / "docs" / "kernels").rglob("*.svg"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SVG = "{http://www.w3.org/2000/svg}"


def name_of(subject: pages.Subject) -> str:
    return subject.kernel.name


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """docs/kernels/ in a folder that may be spoilt."""
    folder = tmp_path / "kernels"
    shutil.copytree(pages.DOCS, folder)
    monkeypatch.setattr(pages, "DOCS", folder)
    return folder


# What is committed


def test_no_page_has_drifted():
    made = pages.documents()
    assert [*pages.drifted(made), *pages.unwritten(made)] == []


def test_every_suite_with_kernels_has_pages():
    assert {path.parent.name for path in KERNELS.glob("*/suite.py")} == set(pages.SUITES)


def test_every_kernel_is_drawn_and_nothing_else():
    assert set(pages.PICTURES) == {name_of(subject) for subject in SUBJECTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_link_of_a_page_leads_somewhere(page):
    targets = [target for target in LINK.findall(page.read_text("utf-8")) if "://" not in target]
    assert targets
    assert [
        target for target in targets if not (page.parent / unquote(target.partition("#")[0])).exists()
    ] == []


def test_the_index_leads_to_every_page():
    index = pages.DOCS / "index.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text("utf-8"))}
    assert linked >= {page for page in PAGES if page != index}


@pytest.mark.parametrize("svg", SVGS, ids=lambda path: path.stem)
def test_a_picture_can_be_read_by_anybody(svg):
    text = svg.read_text("utf-8")
    root = ET.fromstring(text)
    assert root.findtext(f"{SVG}title") == f"{svg.parent.name}.{svg.stem}"
    assert len(root.findtext(f"{SVG}desc") or "") > 50
    assert "prefers-color-scheme: dark" in text
    # The widest of the usual typefaces takes 12 units a character at this size, and nothing may be cut off.
    for words in root.iter(f"{SVG}text"):
        x = float(words.get("x") or 0)
        halves = "note" in (words.get("class") or "") and float(words.get("y") or 0) < pictures.HEIGHT - 60
        edge = pictures.RIGHT if halves and x < pictures.RIGHT else pictures.WIDTH
        assert x + 12 * len(words.text or "") <= edge + 12, words.text


# What is drawn and told follows from the kernels


@pytest.mark.parametrize("subject", TILED, ids=name_of)
def test_what_is_drawn_covers_the_matrix_as_the_launch_does(subject):
    drawn = pages.PICTURES[subject.kernel.name](subject)
    assert isinstance(drawn, pictures.Tiles)
    m, n = subject.case.m, subject.case.n
    tiles = -(-m // drawn.bm) * -(-n // drawn.bn)
    if drawn.footprint:
        assert pages.product(drawn.footprint) == pages.product(subject.launch.grid) * drawn.bm * drawn.bn
    else:
        assert pages.product(subject.launch.grid) == tiles
    if subject.case.dtype == "float32":
        assert pages.product(subject.launch.block) * drawn.tm * drawn.tn == drawn.bm * drawn.bn


def test_a_picture_changes_with_the_kernels_parameters():
    suite = SUITES["matmul"]
    kernel = suite.by_name["thread_tiling_2d"]
    drawn = []
    for wide in (64, 128):
        case = suite.case(kernel, {"m": 4096, "n": 4096, "k": 4096}, {"BN": wide})
        subject = pages.Subject(suite=suite, kernel=kernel, case=case, launch=launch_of(kernel, case))
        drawn.append(pages.PICTURES[kernel.name](subject).svg("x"))
    assert "is 64 × 64<" in drawn[0]  # noqa: RUF001
    assert "is 64 × 128<" in drawn[1]  # noqa: RUF001


# As nvcc 13.0 reports them with -Xptxas -v for sm_90.
STATIC = {
    "block_tiling": 2048,
    "shared_tile": 8192,
    "thread_tiling": 8192,
    "thread_tiling_2d": 32768,
    "thread_tiling_2d_vectorized": 32768,
    "double_buffering": 16640,
    "outer_product": 8320,
    "wmma": 1024,
    "transpose_tiled": 4224,
    "transpose_vectorized": 16384,
    "naive": 0,
}


@pytest.mark.parametrize("name", STATIC)
def test_static_shared_memory_is_what_the_compiler_says(name):
    (subject,) = [subject for subject in SUBJECTS if name_of(subject) == name]
    assert pages.shared_bytes(subject) == STATIC[name]


def test_dynamic_shared_memory_is_added():
    (subject,) = [subject for subject in SUBJECTS if name_of(subject) == "loop_tiling_shared"]
    assert ("Shared memory", "262,144 bytes a block (dynamic)") in pages.parameters(subject)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("naive", 0.25),
        ("block_tiling", 4.0),  # 2 * 16 * 16 / (32 * 4)
        ("thread_tiling_2d", 16.0),
        ("wmma_warp_tiling", 32.0),  # halves: 2 * 64 * 64 / (128 * 2)
        # Rows are kept for 4096 / 256 tiles of 8 columns: 2 * 8 * 128 / (136 * 4).
        ("loop_tiling_shared", 64 / 17),
    ],
)
def test_operations_for_a_byte_follow_from_the_tiles(name, expected):
    (subject,) = [subject for subject in SUBJECTS if name_of(subject) == name]
    found = pages.loaded_intensity(subject)
    assert found
    assert found[0] == pytest.approx(expected)


def test_what_the_compiler_reuses_is_not_guessed():
    (subject,) = [subject for subject in SUBJECTS if name_of(subject) == "schedule"]
    assert pages.loaded_intensity(subject) is None


def test_a_thread_of_cutlass_has_its_patches_all_over_its_warps_tile():
    by_name = {subject.kernel.name: subject for subject in SUBJECTS}
    drawn = pages.PICTURES["cutlass"](by_name["cutlass"])
    assert isinstance(drawn, pictures.Hierarchy)
    grid, block, warp, thread = drawn.levels
    # 64 x 64 of a warp is no higher than wide: 4 threads down, 8 across, 16 x 8 each, in patches of 4 x 4.
    assert warp.pieces == [(row, column, 4, 4) for row in (0, 16, 32, 48) for column in (0, 32)]
    assert grid.pieces == [(0, 0, 256, 128)]
    for outer, inner in ((grid, block), (block, warp), (warp, thread)):
        assert outer.part == (inner.rows, inner.columns)
        assert outer.rows % outer.part[0] == outer.columns % outer.part[1] == 0


# What has drifted


def test_a_page_that_was_changed_is_named(copied, capsys):
    page = copied / "matmul" / "naive.md"
    page.write_text(page.read_text("utf-8").replace("`TILE` = 32", "`TILE` = 16"), encoding="utf-8")
    assert pages.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "docs/kernels/matmul/naive.md is not what the suite says: run 'python scripts/kernel_pages.py'.\n"
    )
    assert pages.main([]) == 0
    assert page.read_bytes() == (ROOT / "docs" / "kernels" / "matmul" / "naive.md").read_bytes()


def test_a_picture_that_was_changed_is_named(copied):
    (copied / "matmul" / "wmma.svg").write_text("<svg/>", encoding="utf-8")
    assert list(pages.drifted(pages.documents())) == [
        "docs/kernels/matmul/wmma.svg is not what the suite says: run 'python scripts/kernel_pages.py'."
    ]


def test_a_page_of_no_kernel_is_named(copied):
    (copied / "matmul" / "gone.md").write_text("# matmul.gone\n", encoding="utf-8")
    told = list(pages.drifted(pages.documents()))
    assert told == ["docs/kernels/matmul/gone.md belongs to no kernel: remove it."]


def test_a_kernel_without_a_page_gets_one_that_must_be_written(copied, capsys):
    page = copied / "copy" / "copy.md"
    page.unlink()
    assert pages.main([]) == 1
    assert page.exists()
    told = capsys.readouterr().err
    assert 'docs/kernels/copy/copy.md: write a few sentences below "The idea".' in told
    assert 'docs/kernels/copy/copy.md: write a few sentences below "What limits it".' in told


def test_what_is_written_by_hand_is_kept(copied):
    page = copied / "copy" / "copy.md"
    before = page.read_text("utf-8")
    page.write_text(
        before.replace("One thread copies one element.", "Every thread copies one."), encoding="utf-8"
    )
    assert pages.main([]) == 0
    assert "Every thread copies one." in page.read_text("utf-8")


# Figures


def figure(kernel: str, rate: float | None, **others: object) -> pages.Figure:
    given = {
        "suite": "matmul",
        "kernel": kernel,
        "size": "4096",
        "device": "Card",
        "backend": "cuda",
        "driver": "1",
        "compiler": "nvcc",
        "commit": "abc",
        "date": "2026-01-01",
        "unit": "GFLOP/s",
        "dtype": "float32",
        "rate": rate,
    }
    return pages.Figure(**{**given, **others})  # type: ignore[arg-type]


def told(kernel: str, *figures: pages.Figure) -> list[str]:
    suite = SUITES["matmul"]
    return pages.measured_lines(suite.by_name[kernel], pages.Measured(figures, suite))


def test_figures_stand_beside_the_first_kernels_on_the_same_card():
    lines = told(
        "shared_tile",
        figure("naive", 100.0),
        figure("naive", 1.0, device="Other"),
        figure("shared_tile", 250.0, library_percent=17.5),
    )
    assert lines[0] == "| on | size | GFLOP/s | × naive | % of cublas | commit | date |"  # noqa: RUF001
    assert lines[2] == "| Card (cuda) | 4096 | 250 | 2.5 | 17.5 | abc | 2026-01-01 |"
    assert lines[-1] == "Card (cuda): driver 1; nvcc."


def test_a_figure_that_is_missing_says_why():
    lines = told("shared_tile", figure("shared_tile", None, reason="launch-refused"))
    assert lines[2] == "| Card (cuda) | 4096 | [launch-refused](../../errors.md) | abc | 2026-01-01 |"


def test_a_kernel_without_figures_says_so():
    assert told("shared_tile", figure("naive", 100.0)) == ["None is recorded."]


def test_the_index_shows_the_device_that_has_most():
    suite = SUITES["matmul"]
    figures = [
        figure("naive", 1.0, device="Small"),
        figure("naive", 100.0, size="1024"),
        figure("naive", 200.0),
        figure("wmma", 28_000.0, library_percent=4.0),
    ]
    rows = pages.index_rows(suite, pages.Measured(figures, suite))
    assert rows[2].endswith("| 200 |  |")
    (wmma,) = [row for row in rows if "[wmma]" in row]
    assert wmma.endswith("| 28,000 | 4 |")


def test_what_was_published_is_told_as_it_was():
    (shader,) = [subject for subject in SUBJECTS if name_of(subject) == "compute_shader"]
    text = "\n".join(pages.published_lines(shader))
    assert "| 46.60 |" in text
    assert "| 13.53 |" in text
    assert "| 1,831 |" in text


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two runs on the null device, one after the other."""
    folder = tmp_path_factory.mktemp("records")
    for size in ("64", "96"):
        done = run_command(
            *("run", "--device", "null:0", "--results", str(folder), "--size", size, "--size", "128"),
            *("--max-time", "0.01", "copy.*"),
            cwd=ROOT,
            env={"HARNESS_SUITES": "kernels/copy"},
        )
        assert done.returncode == 0, done.stderr
    return folder


def test_figures_are_recorded_from_runs(stored, copied):
    assert pages.main(["--record", str(stored)]) == 0
    entries = json.loads((copied / "figures.json").read_text("utf-8"))
    assert sorted({(entry["kernel"], entry["size"]) for entry in entries}) == sorted(
        (name, size) for name in ("copy", "copy_unrolled", "copy_vectorized") for size in ("64", "96", "128")
    )
    assert len(entries) == 9
    for entry in entries:
        assert entry["backend"] == "null"
        assert entry["unit"] == "GB/s"
        assert entry["rate"] > 0
        assert entry["date"]
    text = (copied / "copy" / "copy.md").read_text("utf-8")
    assert "(null) | 128 |" in text
    assert "None is recorded." in (copied / "matmul" / "naive.md").read_text("utf-8")


def test_a_newer_figure_replaces_an_older_one(stored):
    files = sorted(stored.rglob("*.jsonl"), key=lambda path: path.name)
    assert len(files) == 2
    newest = {figure.kernel: figure for _, figure in pages.figures_of(files[1]) if figure.size == "128"}
    found = {figure.kernel: figure for figure in pages.record([stored]) if figure.size == "128"}
    assert found == newest


def test_a_case_that_its_device_cannot_run_is_no_figure(stored, monkeypatch):
    (record, _) = sorted(stored.rglob("*.jsonl"), key=lambda path: path.name)
    run = read_run(record)
    rows = tuple(
        dataclasses.replace(row, measurement=None, status="skipped", reason=reason)
        for row, reason in zip(run.rows, ("needs-cuda", "launch-refused"), strict=False)
    )
    monkeypatch.setattr(pages, "read_run", lambda _: dataclasses.replace(run, rows=rows))
    assert [figure.reason for _, figure in pages.figures_of(record)] == ["launch-refused"]


def test_a_folder_without_records_leaves_the_figures_alone(copied, tmp_path, capsys):
    before = (copied / "figures.json").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        pages.main(["--record", str(tmp_path / "nothing")])
    assert stopped.value.code == 2
    assert f"No record of a run lies below {tmp_path / 'nothing'}." in capsys.readouterr().err
    assert (copied / "figures.json").read_bytes() == before


def test_a_record_that_cannot_be_read_is_named(copied, tmp_path, capsys):
    (tmp_path / "bad.jsonl").write_text('{"run": 7}\n', encoding="utf-8")
    with pytest.raises(SystemExit):
        pages.main(["--record", str(tmp_path)])
    assert "bad.jsonl" in capsys.readouterr().err
