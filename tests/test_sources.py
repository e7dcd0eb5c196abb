"""The one text that a compiler gets, and the hash of everything that it can come from."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil

import pytest

from harness import Axis, Kernel, Output, Problem, Step, Suite
from harness.errors import LaunchError, SuiteError
from harness.suite.sources import Program, program
from harness.suite.suite_files import tree_sha256


class Line(Problem):
    n = Axis((8,))
    y = Output("n")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "kernels" / "line"
    made.mkdir(parents=True)
    (tmp_path / "kernels" / "portable").mkdir()
    return made


def put(folder, **files):
    """Files by name, with __ for a dot."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")


def text_of(folder, backend="cuda", *, prelude=None, **changes):
    return built(folder, backend, prelude=prelude, **changes).text


def built(folder, backend="cuda", *, prelude=None, **changes):
    kernel = Kernel("one", "one.cu", block=32, grid=1, **changes)
    suite = Suite("line", Line(), [kernel], prelude=prelude or {}, root=folder)
    return program(suite, kernel, suite.case(kernel, {"n": 8}), backend)


def lines_as_compiled(text):
    """Return the place of each line but directives, as a compiler names it: file:line."""
    place, number, found = "", 0, {}
    for line in text.splitlines():
        if match := re.fullmatch(r'#line (\d+) "(.*)"', line):
            number, place = int(match[1]), match[2]
            continue
        if line.strip():
            found[line.strip()] = f"{place}:{number}"
        number += 1
    return found


def test_macros_then_the_prelude_then_the_source(folder):
    put(folder.parent / "portable", cuda__h="// prelude")
    put(folder, one__cu="// source\n")
    text = text_of(
        folder, prelude={"cuda": "../portable/cuda.h"}, macros={"TILE": 16, "TWICE": lambda c: 2 * c.n}
    )
    assert text == (
        '#define TILE 16\n#define TWICE 16\n#line 1 "cuda.h"\n// prelude\n#line 1 "one.cu"\n// source\n\n'
    )


def test_a_prelude_is_its_backends_alone(folder):
    put(folder.parent / "portable", cuda__h="// prelude")
    put(folder, one__cu="// source\n")
    prelude = {"cuda": "../portable/cuda.h", "opencl": "../portable/missing.h"}
    assert "prelude" in text_of(folder, "cuda", prelude=prelude)
    assert "prelude" not in text_of(folder, "null", prelude=prelude)


def test_the_function_the_name_and_the_options(folder):
    put(folder, one__cu="")
    made = built(folder, "cuda", entry="other", options={"cuda": ("-lineinfo",), "opencl": ("-w",)})
    assert (made.name, made.function, made.options) == ("line.one", "other", ("-lineinfo",))
    assert built(folder, "null", options={"cuda": ("-lineinfo",)}).options == ()


def test_every_line_keeps_its_place_around_includes(folder):
    put(folder, one__cu='a1\n#include "b.h"\na3\n\na5\n  #  include "b2.h" // why\na7')
    put(folder, b__h='b1\nb2\n#include "c.h"\nb4', b2__h="b2_1\n", c__h="c1\n\nc3\n")
    assert lines_as_compiled(text_of(folder)) == {
        "a1": "one.cu:1",
        "b1": "b.h:1",
        "b2": "b.h:2",
        "c1": "c.h:1",
        "c3": "c.h:3",
        "b4": "b.h:4",
        "a3": "one.cu:3",
        "a5": "one.cu:5",
        "b2_1": "b2.h:1",
        "a7": "one.cu:7",
    }


@pytest.mark.parametrize(
    ("source", "line"),
    [
        pytest.param('#include "b.h"\nhere', 2, id="on the first line"),
        pytest.param('#include "b.h"\n\n\nhere', 4, id="with empty lines after it"),
        pytest.param('#include "b.h"\n#include "b.h"\nhere', 3, id="twice running"),
        pytest.param('x\n\t#include"b.h"\nhere', 3, id="with a tab and no space"),
        pytest.param('x\r\n#include "b.h"\r\nhere\r\n', 3, id="with carriage returns"),
    ],
)
def test_the_line_right_after_an_include(folder, source, line):
    (folder / "one.cu").write_bytes(source.encode())
    put(folder, b__h="b1\nb2\nb3")
    assert lines_as_compiled(text_of(folder))["here"] == f"one.cu:{line}"


def test_an_include_is_relative_to_the_file_that_has_it(folder):
    (folder / "sub").mkdir()
    put(folder, one__cu='#include "sub/b.h"\n', c__h="outer\n")
    put(folder / "sub", b__h='#include "c.h"\n', c__h="inner\n")
    assert "inner" in text_of(folder)
    assert "outer" not in text_of(folder)


@pytest.mark.parametrize(
    "line", ["#include <cuda_fp16.h>", '// #include "b.h"', 'x = "#include";', "#pragma unroll"]
)
def test_other_lines_are_left_alone(folder, line):
    put(folder, one__cu=f"{line}\n")
    assert text_of(folder) == f'#line 1 "one.cu"\n{line}\n\n'


def test_an_include_in_a_comment_is_none(folder):
    put(folder, one__cu='/* As in\n#include "gone.h"\n#include "b.h"\n*/\n#include "b.h"\nchar c = \'"\';\n')
    put(folder, b__h="/* b */\n")
    text = text_of(folder)
    assert '/* As in\n#include "gone.h"\n#include "b.h"\n*/\n' in text
    assert text.count("/* b */") == 1


def test_text_that_looks_like_a_replacement_is_left_alone(folder):
    put(folder, one__cu='#include "b.h"\n', b__h=r"char c = '\n'; // \1 \g<0>")
    assert r"char c = '\n'; // \1 \g<0>" in text_of(folder)


def test_a_prelude_may_include_what_is_beside_it(folder):
    put(folder.parent / "portable", cuda__h='#include "words.h"\n', words__h="// words")
    put(folder, one__cu="// source\n")
    assert "// words\n" in text_of(folder, prelude={"cuda": "../portable/cuda.h"})


def test_pragma_once_is_kept(folder):
    # One text has no files to a compiler, which could not tell a second time from a first.
    put(folder, one__cu='#include "a.h"\n#include "b.h"\n', c__h="#pragma once\nint c = 1;\n")
    put(folder, a__h='#pragma once\n#include "c.h"\n', b__h='#pragma once\n#include "c.h"\n')
    text = text_of(folder)
    assert text.count("int c = 1;") == 1
    assert "#pragma once" not in text


def test_a_byte_order_mark_is_no_text(folder):
    (folder / "one.cu").write_bytes(b"\xef\xbb\xbfint x;")
    assert text_of(folder) == '#line 1 "one.cu"\nint x;\n'


def test_a_missing_source_is_a_sentence(folder):
    with pytest.raises(SuiteError) as raised:
        text_of(folder)
    assert raised.value.message.startswith(f"Cannot read kernel source {folder / 'one.cu'}: ")
    assert raised.value.message.endswith("Check the name in suite.py.")


def test_a_missing_include_says_who_asked_for_it(folder):
    put(folder, one__cu='#include "b.h"\n', b__h='#include "c.h"\n')
    with pytest.raises(SuiteError) as raised:
        text_of(folder)
    assert raised.value.message.startswith(f"Cannot read kernel source {folder / 'c.h'}, included by b.h: ")
    assert "name the folder that has it in the kernel's include" in raised.value.message


def test_a_source_that_is_no_text_is_a_sentence(folder):
    (folder / "one.cu").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SuiteError, match="Cannot read kernel source"):
        text_of(folder)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"one__cu": '#include "one.cu"\n'}, id="itself"),
        pytest.param({"one__cu": '#include "b.h"\n', "b__h": '#include "one.cu"\n'}, id="by way of another"),
        pytest.param(
            {"one__cu": '#include "b.h"\n', "b__h": '#include "c.h"\n', "c__h": '#include "b.h"\n'},
            id="below",
        ),
        # Each turn makes the path longer unless it is made plain: sub/../sub/../one.cu.
        pytest.param(
            {"one__cu": '#include "sub/b.h"\n', "sub/b__h": '#include "../one.cu"\n'},
            id="by way of a folder",
        ),
    ],
)
def test_a_cycle_is_a_sentence(folder, files):
    (folder / "sub").mkdir()
    put(folder, **files)
    with pytest.raises(SuiteError, match="includes itself"):
        text_of(folder)


def test_the_programs_hash_covers_text_and_options_only(folder):
    put(folder, one__cu="// source\n")
    first = built(folder)
    assert built(folder).sha256 == first.sha256
    assert built(folder, macros={"TILE": 1}).sha256 != first.sha256
    assert built(folder, options={"cuda": ("-w",)}).sha256 != first.sha256
    assert built(folder, about="another word").sha256 == first.sha256
    put(folder, one__cu="// source \n")
    assert built(folder).sha256 != first.sha256


CODE = """\
#define TILE 4
/* A kernel. */
__global__ void one(float* y)
{
    y[0] = 1.0f;  // one
    const char* text = "no // comment, no /* comment */";
    const char quote = '"', escaped = '\\'';
}
"""


def code_of(text, options=()):
    return Program("line.one", "one", text, options).code_sha256


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("// one", "// two", id="a comment"),
        pytest.param("  // one", "", id="no comment"),
        pytest.param("// one", "// one \\\n y[1] = 2;", id="a comment that goes on"),
        pytest.param("/* A kernel. */", "/* One\n * kernel:\n y[1] = 2; // */", id="a long comment"),
        pytest.param("/* A kernel. */", "// it's a \"kernel", id="quotes in a comment"),
        pytest.param("1.0f;", "1.0f; \t", id="spaces at the end"),
        pytest.param("{\n", "{\n\n  \n", id="empty lines"),
        pytest.param("{\n", '{\n#line 77 "one.cu"\n', id="the line's number"),
        pytest.param("\n", "\r\n", id="line ends"),
    ],
)
def test_what_is_no_code_changes_no_code(old, new):
    assert old in CODE
    assert code_of(CODE.replace(old, new)) == code_of(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("1.0f", "2.0f", id="a number"),
        pytest.param("TILE 4", "TILE 5", id="a macro"),
        pytest.param("1.0f;  //", "1.0f;  y[1] = 2.0f;  //", id="a statement before a comment"),
        pytest.param("// one", "\n y[1] = 2;", id="code in a comment's place"),
        pytest.param("no // comment", "no // command", id="what looks like a comment in a text"),
        pytest.param("no /* comment */", "no /**/", id="what looks like a long comment in a text"),
        pytest.param("/* A kernel. */", "", id="a comment that parts words"),
        pytest.param('"no', '"  no', id="spaces in a text"),
        pytest.param("'\"'", "' '", id="a character"),
        pytest.param("#define", "//#define", id="code that is commented out"),
    ],
)
def test_what_is_code_does(old, new):
    text = CODE.replace("/* A kernel. */\n__global__", "__global__/* A kernel. */")
    assert old in text
    assert code_of(text.replace(old, new)) != code_of(text)


def test_options_are_code():
    assert (
        len({code_of(CODE), code_of(CODE, ("-w",)), code_of(CODE, ("-w", "-G")), code_of(CODE, ("-w-G",))})
        == 4
    )


@pytest.fixture
def suite(folder):
    put(folder.parent / "portable", cuda__h="// prelude", other__h="// other")
    put(folder, one__cu="// source\n", suite__py="# suite\n", helper__py="# helper\n")
    (folder / "sub").mkdir()
    put(folder / "sub", b__h="// b\n")
    kernel = Kernel("one", "one.cu", block=32, grid=1)
    prelude = {"cuda": "../portable/cuda.h", "opencl": "../portable/missing.h"}
    return Suite("line", Line(), [kernel], prelude=prelude, root=folder)


@pytest.mark.parametrize("name", ["one.cu", "suite.py", "helper.py", "sub/b.h", "../portable/cuda.h"])
def test_the_trees_hash_changes_with_any_file(suite, name):
    before = tree_sha256(suite)
    path = suite.root / name
    kept = path.read_text()
    path.write_text(kept + " ")
    assert tree_sha256(suite) != before
    path.write_text(kept)
    assert tree_sha256(suite) == before


@pytest.mark.parametrize("name", ["one.cu", "../portable/cuda.h"], ids=["by a source", "by a prelude"])
def test_the_trees_hash_changes_with_what_is_included_from_outside(suite, name):
    (suite.root / name).write_text('#include "../portable/other.h"\n')
    before = tree_sha256(suite)
    put(suite.root.parent / "portable", other__h="// changed")
    assert tree_sha256(suite) != before


def test_the_trees_hash_changes_with_what_a_link_leads_to(suite):
    put(suite.root, one__cu='#include "x.h"\n')
    (suite.root / "x.h").symlink_to("../portable/other.h")
    before = tree_sha256(suite)
    put(suite.root.parent / "portable", other__h="// changed")
    assert tree_sha256(suite) != before


def test_the_trees_hash_changes_with_names(suite):
    hashes = {tree_sha256(suite)}
    (suite.root / "one.cu").rename(suite.root / "two.cu")
    hashes.add(tree_sha256(suite))
    (suite.root / "new.txt").touch()
    hashes.add(tree_sha256(suite))
    (suite.root / "new.txt").unlink()
    (suite.root / "helper.py").unlink()
    hashes.add(tree_sha256(suite))
    assert len(hashes) == 4


def test_names_and_contents_do_not_run_together(suite):
    put(suite.root, ab="c", x="")
    before = tree_sha256(suite)
    (suite.root / "ab").unlink()
    put(suite.root, a="bc")
    assert tree_sha256(suite) != before


def test_the_trees_hash_is_of_what_builds_can_read(suite):
    before = tree_sha256(suite)
    put(suite.root.parent / "portable", other__h="// changed")
    for cache in (suite.root / "__pycache__", suite.root / "sub" / "__pycache__"):
        cache.mkdir()
        (cache / "suite.cpython-311.pyc").write_bytes(os.urandom(8))
    (suite.root / "empty").mkdir()
    assert tree_sha256(suite) == before


def test_the_trees_hash_knows_no_place_and_no_times(suite, tmp_path):
    before = tree_sha256(suite)
    shutil.copytree(suite.root.parent, tmp_path / "elsewhere")
    os.utime(tmp_path / "elsewhere" / "line" / "one.cu", (0, 0))
    moved = Suite(
        suite.name, suite.problem, suite.kernels, prelude=suite.prelude, root=tmp_path / "elsewhere" / "line"
    )
    assert tree_sha256(moved) == before


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("wmma::mma_sync(d, a, b, c);", True),
        ("#include <mma.h>", True),
        ('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");', True),
        ('asm("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32");', True),
        ("__hmma_m16n16k16_mma_f32f32(d, a, b, c, 0, 0);", True),
        ("// no mma here\ny[i] = 2 * x[i];", False),
        ("/* wmma */ float gamma = comma * summary;", False),
    ],
)
def test_what_may_use_tensor_cores(text, may):
    program = Program("line.one", "one", text)
    assert program.may_use_tensor_cores == may
    assert dataclasses.replace(program, kind="library").may_use_tensor_cores
    assert dataclasses.replace(program, kind="host").may_use_tensor_cores
    assert dataclasses.replace(program, tree_sha256="of files beside it").may_use_tensor_cores


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("cg::grid_group grid = cg::this_grid(); grid.sync();", id="a method"),
        pytest.param("auto g = cooperative_groups::this_grid(); cg::sync(g);", id="a function"),
        pytest.param("this_grid().sync();", id="of no variable"),
        pytest.param("auto g = this_grid(); for (int i = 0; i < n; ++i) { g.sync(); }", id="in a loop"),
        pytest.param("auto g = cg::this_grid(); g.barrier_wait(g.barrier_arrive());", id="in two parts"),
        pytest.param("everyone(cg::this_grid());", id="in another function"),
        pytest.param("scaled<256>(x);", id="in a template"),
        pytest.param("cudaCGSynchronizeGrid(handle, 0);", id="of the runtime"),
        pytest.param("auto g = this_grid();\n#if __CUDA_ARCH__ >= 700\ng.sync();\n#endif\n", id="for cards"),
        pytest.param("newer(x);", id="for cards, with a stub for others"),
        pytest.param("if (n) { x[0] = 1; } cg::sync(cg::this_grid()); if (n) x[1] = 2;", id="between ifs"),
    ],
)
def test_a_kernel_that_waits_for_its_grid_needs_a_cooperative_launch(folder, body):
    put(folder, one__cu=WAITING.replace("BODY", body))
    with pytest.raises(LaunchError, match=r"one of line\.one waits for its whole grid.*cooperative=True"):
        built(folder)
    assert built(folder, cooperative=True).function == "one"
    assert built(folder, entry="other").function == "other"
    step = [Step("one", block=32, grid=1)]
    with pytest.raises(LaunchError, match="write the step as a kernel of its own"):
        built(folder, "null", entry="other", steps=step, cooperative=True)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("auto grid = cg::this_thread_block(); grid.sync(); cg::sync(grid);", id="a block's"),
        pytest.param("auto grid = cg::this_cluster(); grid.sync();", id="a cluster's"),
        pytest.param("Barrier grid; grid.sync(); grid->sync();", id="another type's"),
        pytest.param("auto g = cg::this_grid(); x[g.thread_rank()] = g.size();", id="a grid's size"),
        pytest.param("auto g = cg::this_grid(); // g.sync();\n/* g.sync(); */", id="a comment"),
        pytest.param('auto g = cg::this_grid(); printf("g.sync(); %s", "\\"g.sync();");', id="a text"),
        pytest.param("auto g = cg::this_grid();\n#ifdef WAITS\ng.sync();\n#endif\n", id="under a condition"),
        pytest.param("auto g = cg::this_grid(); if (n > 1) g.sync(); else { g.sync(); }", id="under an if"),
        pytest.param(
            "auto g = this_grid(); if constexpr (N) { for (;;) g.sync(); }", id="under an if's loop"
        ),
        pytest.param("auto g = cg::this_grid(); n && (g.sync(), 1);", id="under &&"),
        pytest.param("auto g = cg::this_grid(); if (g.is_valid()) g.sync();", id="asked for"),
        pytest.param("cudaGridDependencySynchronize();", id="for the kernel before"),
        pytest.param("both(x); Holder h; h.everyone(x);", id="of one of two functions"),
    ],
)
def test_a_kernel_that_may_not_wait_for_its_grid_is_launched_as_it_says(folder, body):
    put(folder, one__cu=WAITING.replace("BODY", body))
    assert built(folder).function == "one"


WAITING = """\
#ifndef ONE
#define ONE
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ void everyone(const cg::grid_group &all) { all.sync(); }
template <int N> __device__ void scaled(float *x) noexcept { everyone(cg::this_grid()); }
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900)
__device__ void newer(float *x) { cg::this_grid().sync(); }
#else
__device__ void newer(float *x) { assert(false); }
#endif
__device__ void both(cg::grid_group g) { g.sync(); }
__device__ void both(float *x) { x[0] = 1; }
extern "C" __global__ void __launch_bounds__(256) one(float *x, int n) { BODY }
extern "C" __global__ void other(float *x, int n) { x[0] = 1; }
#endif
"""
