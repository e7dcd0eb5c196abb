from __future__ import annotations

import pytest

from harness import Axis, Kernel, Output, Problem, Suite
from harness.errors import SuiteError
from harness.sources import program, tree_sha256


class Line(Problem):
    n = Axis((8,))
    y = Output("n")


def make(folder, prelude=None):
    kernel = Kernel("one", "one.cu", block=32, grid=1)
    return kernel, Suite("line", Line(), [kernel], prelude=prelude or {}, root=folder)


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cycle_through_a_folder(tmp_path):
    put(tmp_path / "one.cu", '#include "sub/b.h"\n')
    put(tmp_path / "sub/b.h", '#include "../one.cu"\n')
    kernel, suite = make(tmp_path)
    with pytest.raises(SuiteError, match="includes itself"):
        program(suite, kernel, suite.case(kernel, {"n": 8}), "cuda")


def test_link_out_of_the_folder(tmp_path):
    put(tmp_path / "common/x.h", "// x")
    put(tmp_path / "kernels/line/one.cu", '#include "x.h"\n')
    (tmp_path / "kernels/line/x.h").symlink_to("../../common/x.h")
    _, suite = make(tmp_path / "kernels/line")
    before = tree_sha256(suite)
    put(tmp_path / "common/x.h", "// y")
    assert tree_sha256(suite) != before


def test_what_a_prelude_includes(tmp_path):
    folder = tmp_path / "kernels/line"
    put(folder / "one.cu", "")
    put(tmp_path / "kernels/portable/cuda.h", '#include "words.h"\n')
    put(tmp_path / "kernels/portable/words.h", "// 1")
    kernel, suite = make(folder, {"cuda": "../portable/cuda.h"})
    before = tree_sha256(suite)
    put(tmp_path / "kernels/portable/words.h", "// 2")
    assert "// 2" in program(suite, kernel, suite.case(kernel, {"n": 8}), "cuda").text
    assert tree_sha256(suite) != before


def test_what_a_source_includes_from_outside(tmp_path):
    folder = tmp_path / "kernels/line"
    put(folder / "one.cu", '#include "../shared/words.h"\n')
    put(tmp_path / "kernels/shared/words.h", "// 1")
    kernel, suite = make(folder)
    before = tree_sha256(suite)
    put(tmp_path / "kernels/shared/words.h", "// 2")
    assert tree_sha256(suite) != before


def test_pragma_once(tmp_path):
    put(tmp_path / "one.cu", '#include "a.h"\n#include "b.h"\n')
    put(tmp_path / "a.h", '#pragma once\n#include "c.h"\n')
    put(tmp_path / "b.h", '#pragma once\n#include "c.h"\n')
    put(tmp_path / "c.h", "#pragma once\nint c = 1;\n")
    kernel, suite = make(tmp_path)
    assert program(suite, kernel, suite.case(kernel, {"n": 8}), "cuda").text.count("int c") == 1


def test_byte_order_mark(tmp_path):
    (tmp_path / "one.cu").write_bytes(b"\xef\xbb\xbfint x;")
    kernel, suite = make(tmp_path)
    assert "\ufeff" not in program(suite, kernel, suite.case(kernel, {"n": 8}), "cuda").text
