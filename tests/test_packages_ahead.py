"""Packages of a suite's functions that may be imported before the suite is loaded. No file is run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import Axis, Input, Kernel, Output, Problem, Suite, TorchFunction, TritonFunction
from harness.suite.packages_ahead import packages_ahead
from tests.support import write_files


class Double(Problem):
    n = Axis(default=(32,))
    x = Input("n")
    y = Output("n")


FILES = {
    ".git/HEAD": "",
    "bench/suite.py": "import os.path\nfrom near import size\n",
    "bench/near.py": "",
    "ops/__init__.py": "",
    "ops/fast/__init__.py": "",
    "ops/fast/call.py": "import torch\nfrom ..tools import shape\nfrom . import more\n",
    "ops/fast/more.py": "import packaging.version\n",
    "ops/tools.py": "def shape(x):\n    import msgspec.json\n",
    "ops/other.py": "import os\nos.environ['A'] = '1'\n",
}


def found_in(folder, function=TorchFunction, needs=(), **changed):
    given = {name.replace("__", "/", 1) + ".py": text for name, text in changed.items()}
    write_files(folder, {**FILES, **given})
    kernels = [Kernel("call", function("../ops/fast/call.py", needs=needs))]
    suite = replace(Suite("own", Double(), kernels, headline="GB/s"), root=folder / "bench")
    return packages_ahead(suite, kernels, "cuda")


def test_a_framework_and_the_needed_packages_that_files_import(tmp_path):
    found = found_in(tmp_path, TritonFunction, needs=("msgspec>=0.1", "packaging", "numpy"))
    assert found.packages == ("msgspec.json", "packaging.version", "torch", "triton")
    assert {"suite", "near", "ops"} <= {*found.names}
    assert found.why_not == ""


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("bench__near", "import os\nos.environ['A'] = '1'\n", "near.py mentions environ"),
        ("bench__suite", "import sys\nsys.path.insert(0, 'x')\n", "suite.py mentions .path"),
        ("ops__fast/more", "import ops.other\n", "other.py mentions environ"),
        ("ops__fast/more", "from ops import other\n", "other.py mentions environ"),
        ("ops____init__", "import os\nos.putenv('A', '1')\n", "__init__.py mentions putenv"),
        ("ops__tools", "import importlib\nimportlib.import_module('x')\n", "tools.py mentions import_module"),
        ("ops__tools", "def (\n", "invalid syntax"),
        ("torch", "", "torch is in the suite's repository"),
    ],
)
def test_nothing_is_imported_before_code_that_may_matter_to_it(tmp_path, file, text, why):
    found = found_in(tmp_path, **{file: text})
    assert found.packages == ()
    assert why in found.why_not
