"""Kernels that differ in anything they are made of never count as identical or as cached."""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
from pathlib import Path
from py_compile import PycInvalidationMode

import numpy as np
import pytest

from harness import HostFunction
from harness.device.backends import nvcc
from harness.suite import sources, suite_files
from harness.suite.loader import load_folder
from harness.suite.sources import Program
from harness.system.cache import BinaryCache
from tests import toy
from tests.pairs import Built, Pair
from tests.support import GPU, IMPORT_PATH, Done, commit, make_repository, run_command, write_files

pytestmark = pytest.mark.fault

HELPER = "FACTOR = 2\nROUNDS = 1\n"
SLOW = "FACTOR = 2\nROUNDS = 400\n"
WRONG = "FACTOR = 3\nROUNDS = 1\n"

MAKE = """\
def one(case, stream):
    def call(x, y, n):
        for _ in range(helper.ROUNDS):
            y[:] = helper.FACTOR * x
    return call
"""
ON_CPU = "{'cpu': HostFunction(one)}"
ELSEWHERE = "sys.path.insert(0, str(Path(__file__).parent.parent / 'shared'))\n"

OPENCL = """\
__kernel void one(__global const float* x, __global float* y, int n) {
    y[get_global_id(0)] = FACTOR * x[get_global_id(0)];
}
"""


def suite(imports: str = "import helper", body: str = MAKE, source: str = ON_CPU) -> str:
    return toy.twice(imports, body, source)


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


def verdict_of(harness, repository: Path, device: str = "cpu") -> tuple[str, str, int]:
    quick = ("--budget", "1", "--no-save", "--json")
    done: Done = harness("compare", "HEAD~1", "--device", device, *quick, cwd=repository)
    assert done.out, done.err
    (verdict,) = done.json[0]["verdicts"]
    return verdict["status"], verdict["reason"], done.status


LATE = MAKE.replace("        for", "        import helper\n        for")


@pytest.mark.parametrize("body", [MAKE, LATE], ids=["when it is loaded", "when it is launched"])
def test_a_file_that_a_function_imports_from_beside(harness, repository, body):
    imports = ELSEWHERE + ("import helper" if body is MAKE else "")
    files = {"kernels/twice/suite.py": suite(imports, body), "kernels/shared/helper.py": HELPER}
    commit(repository, files, 1)
    commit(repository, {"kernels/shared/helper.py": WRONG}, 2)
    # Were base's module head's too, head would be right.
    assert verdict_of(harness, repository) == ("failed", "wrong-result", 1)


@pytest.mark.parametrize("place", ["twice", "shared"])
def test_a_row_has_no_hash_of_a_function_that_imports_from_beside(harness, repository, place):
    imports = "import helper" if place == "twice" else ELSEWHERE + "import helper"
    commit(repository, {"kernels/twice/suite.py": suite(imports), f"kernels/{place}/helper.py": HELPER}, 1)
    done = harness("run", "--commit", "HEAD", "--device", "cpu", "--json", cwd=repository)
    row = done.json[0]["rows"][0]["row"]
    hashes = row["source_sha256"], row["resources"]["binary_sha256"]
    assert row["status"] == "measured"
    assert all(hashes) if place == "twice" else hashes == (None, None)


BY_VARIABLE = "'one.cl', macros={'FACTOR': int(os.environ['A_FACTOR'])}"


def test_a_variable_that_base_sets_is_not_heads(harness, repository):
    def suite_by(factor: int) -> str:
        return suite(f"import os\nos.environ.setdefault('A_FACTOR', '{factor}')", "", BY_VARIABLE)

    commit(repository, {"kernels/twice/suite.py": suite_by(2), "kernels/twice/one.cl": OPENCL}, 1)
    commit(repository, {"kernels/twice/suite.py": suite_by(3)}, 2)
    assert verdict_of(harness, repository, "opencl:0") == ("failed", "wrong-result", 1)


OF_DATA = "import os, pathlib\nos.environ['OUR_DATA'] = str(pathlib.Path(__file__).parents[1] / 'data')"


def test_a_variable_may_name_each_sides_own_checkout(harness, repository):
    files = {"kernels/twice/suite.py": suite(OF_DATA, "", "'one.cl', macros={'FACTOR': 2}")}
    files |= {"kernels/twice/one.cl": OPENCL, "kernels/data/x/y.bin": "2"}
    commit(repository, files, 1)
    commit(repository, {"kernels/twice/one.cl": "// two\n" + OPENCL, "kernels/data/x/y.bin": "3"}, 2)
    assert verdict_of(harness, repository, "opencl:0") == ("identical", "same-code", 0)


def sides(tmp_path: Path, base: dict[str, str], head: dict[str, str]) -> tuple[Path, Path]:
    """Suite folders of two repositories, as an export and a working tree would be."""
    made = []
    for name, files in (("base", base), ("head", {**base, **head})):
        (tmp_path / name / ".git").mkdir(parents=True)
        write_files(tmp_path / name, {f"kernels/{file}": text for file, text in files.items()})
        made.append(tmp_path / name / "kernels" / "twice")
    return made[0], made[1]


def inspected(folders: tuple[Path, Path], scratch: Path, device: str) -> Built:
    """Return what workers built of the one kernel of both sides."""
    pair = Pair(*folders, scratch, device)
    return pair.built(pair.of("one", n=64))


@pytest.fixture
def is_identical(tmp_path):
    def tell(base: dict[str, str], head: dict[str, str], device: str = "cpu") -> bool:
        found = inspected(sides(tmp_path, base, head), tmp_path / "scratch", device)
        assert (found.base.message, found.head.message) == ("", "")
        return found.identical

    return tell


FUNCTION = {"twice/suite.py": suite(), "twice/helper.py": HELPER}


@pytest.mark.parametrize(
    "head",
    [
        pytest.param({"twice/helper.py": SLOW}, id="a module"),
        pytest.param({"twice/table.txt": "1"}, id="a file that nobody names"),
        pytest.param({"twice/deep/er/table.txt": "1"}, id="a file in a folder"),
        pytest.param({"twice/helper.py": f"{HELPER}# a comment\n"}, id="a comment, of which nobody can tell"),
    ],
)
def test_a_function_is_as_its_whole_folder(is_identical, head):
    assert not is_identical(FUNCTION, head)


OTHER = suite().replace(
    '[Kernel("one"', '[Kernel("other", {"cuda": "other.cu"}, block=1, grid=1), Kernel("one"'
)
BESIDE = {**FUNCTION, "twice/suite.py": OTHER, "twice/other.cu": "// 1"}


@pytest.mark.parametrize(
    ("helper", "head", "identical"),
    [
        pytest.param(HELPER, {"twice/other.cu": "// 2"}, True, id="which only a compiler reads"),
        pytest.param(HELPER, {"twice/other.cu": "// 2", "twice/tile.cuh": ""}, False, id="with a header"),
        pytest.param(HELPER, {"twice/other.cu": "// 2", "twice/helper.py": SLOW}, False, id="with a module"),
        pytest.param(HELPER, {"twice/suite.py": OTHER.replace("2 * x", "x + x")}, False, id="suite.py alone"),
        *(
            pytest.param(f"{HELPER}{code}\n", {"twice/other.cu": "// 2"}, False, id=code)
            for code in (
                "PLACE = __file__",
                "import os; PLACE = os.environ",
                "import sys; PLACE = sys.path[0]",
                "import sys; PLACE = sys.modules",
                "import importlib.util; PLACE = importlib.util.find_spec('helper').origin",
                "from importlib.util import find_spec as found",
                "from inspect import getfile as found",
                "from pkg_resources import resource_string as found",
                "def place(kernel): return kernel.root",
            )
        ),
    ],
)
def test_the_source_of_another_kernel_counts_if_a_function_may_find_it(is_identical, helper, head, identical):
    assert is_identical({**BESIDE, "twice/helper.py": helper}, head) is identical


@pytest.mark.parametrize("name", ["n", "map"], ids=["in place of the problem's", "further"])
def test_what_a_setup_gives_is_as_its_whole_folder(is_identical, name):
    """A structure may go by an array's own name, as a tensor map does."""
    body = f"def setup(case, arrays):\n    return {{'{name}': bytes([helper.ROUNDS % 256])}}"
    text = suite(body=body, source=f"'one.cu', setup=setup, args=('x', 'y', '{name}')")
    files = {"twice/suite.py": text, "twice/helper.py": HELPER, "twice/one.cu": "void one();\n"}
    assert not is_identical(files, {"twice/helper.py": SLOW}, "null")


def test_a_function_is_identical_to_itself(is_identical):
    prelude = suite().replace("headline=", "prelude={'cuda': '../portable/cuda.h'}, headline=")
    files = {**FUNCTION, "twice/suite.py": prelude, "portable/cuda.h": "// read to be hashed\n"}
    assert is_identical(files, {"other/suite.py": "another suite"})


def test_a_folder_that_a_link_leads_to(tmp_path):
    base, head = sides(tmp_path, FUNCTION, {})
    for folder, text in ((base, "1"), (head, "2")):
        write_files(folder.parent, {"elsewhere/table.txt": text})
        (folder / "data").symlink_to("../elsewhere")
        (folder / "loop").symlink_to(".")
        (folder / "itself").symlink_to("itself")
        (folder / "nowhere").symlink_to("suite.py/x")
    assert not inspected((base, head), tmp_path / "scratch", "cpu").identical


@pytest.mark.parametrize(
    "body",
    [
        "TABLE = (Path(__file__).parent.parent / 'shared' / 'table.txt').read_text()\n" + MAKE,
        MAKE.replace(
            "    def call",
            "    np.loadtxt(Path(__file__).parent.parent / 'shared' / 'table.txt')\n    def call",
        ),
        MAKE.replace(
            "    def call",
            "    subprocess.run(['cat', f'{Path(__file__).parent.parent}/shared/table.txt'])\n    def call",
        ),
        "sys.path.append(str(Path(__file__).parent.parent / 'shared'))\n" + MAKE,
        "NAMES = os.listdir(Path(__file__).parent.parent / 'shared')\n" + MAKE,
        "NAMES = [*(Path(__file__).parent.parent / 'shared').glob('*')]\n" + MAKE,
        "sqlite3.connect(Path(__file__).parent.parent / 'shared' / 'table.txt').close()\n" + MAKE,
    ],
    ids=[
        *("when it is loaded", "when it is made", "by a command", "perhaps later"),
        *("by its names", "by a pattern", "a database"),
    ],
)
def test_a_function_that_reaches_beside_its_folder_is_measured(is_identical, body):
    files = {
        **FUNCTION,
        "twice/suite.py": suite("import helper, os, sqlite3, subprocess\nimport numpy as np", body),
    }
    assert not is_identical({**files, "shared/table.txt": "1"}, {"shared/table.txt": "2"})


GENERATED = {
    "twice/suite.py": suite(
        "",
        "def one(case, arch):\n    return (Path(__file__).parent / 'template.cu').read_text()\n",
        "Generated(one)",
    ),
    "twice/template.cu": "// one\nvoid one() {}\n",
}


def test_a_template_that_a_generator_reads(is_identical):
    assert not is_identical(GENERATED, {"twice/template.cu": "void one() { slow(); }\n"}, "null")


def test_a_comment_in_generated_text(is_identical):
    assert is_identical(GENERATED, {"twice/template.cu": "// two\nvoid one() {}\n"}, "null")


def test_generated_text_does_not_outlive_the_run(tmp_path, own_cache):
    suite_ = load_folder(sides(tmp_path, GENERATED, {})[0])
    kernel = suite_.kernels[0]

    def text(run: str) -> str:
        (tmp_path / run).mkdir(exist_ok=True)
        case = suite_.case(kernel, {"n": 64})
        return sources.program(suite_, kernel, case, "null", scratch=tmp_path / run).text

    first = text("one")
    (suite_.root / "template.cu").write_text("another\n")
    assert text("one") == first
    assert text("two") == "another\n"
    assert not (own_cache / "generated").exists()


TEXT = {
    "twice/suite.py": suite("", "", "'one.cl'"),
    "twice/one.cl": '#include "factor.h"\n' + OPENCL,
    "twice/factor.h": "#define FACTOR 2\n",
}


@pytest.mark.parametrize(
    ("head", "identical"),
    [
        pytest.param({"twice/factor.h": "// two\n#define FACTOR 2\n"}, True, id="a comment in a header"),
        pytest.param({"twice/one.cl": '// x\n#include "factor.h"\n' + OPENCL}, True, id="a comment"),
        pytest.param({"twice/factor.h": "#define FACTOR 3\n"}, False, id="a header"),
        pytest.param({"twice/notes.txt": "1"}, True, id="a file that is not compiled"),
        pytest.param(
            {"twice/suite.py": suite("", "", "'one.cl', options={'opencl': ('-cl-mad-enable',)}")},
            False,
            id="an option",
        ),
    ],
)
def test_self_contained_text_is_as_its_code(is_identical, head, identical):
    assert is_identical(TEXT, head, "opencl:0") is identical


LINE = "void one() { f(__LINE__); }\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("#define SLOW 1 \\\n\nfoo\n", "#define SLOW 1 \\\nfoo\n", id="a line that goes on"),
        pytest.param("int a = 1'000; s(\"it's /*\"); x(); /**/", "int a = 1'000; s(\"it's /*\"); y(); /**/",
                     id="a quote between digits"),
        pytest.param('s(R"(\nhttp://a\n)");', 's(R"(\nhttp://b\n)");', id="a slash in a raw string"),
        pytest.param('s(R"(")"); x(); // "', 's(R"(")"); y(); // "', id="a quote in a raw string"),
        pytest.param(LINE, "// above\n" + LINE, id="code that is made of its line"),
        pytest.param("/**/f(__builtin_COLUMN());", "/*..*/f(__builtin_COLUMN());", id="of its column"),
        pytest.param('#line 1 "a"\nf(__FILE_NAME__);', '#line 1 "b"\nf(__FILE_NAME__);', id="of its file"),
        pytest.param('f(sizeof("\u2028"));', 'f(sizeof("\u2028\u2028"));', id="a line separator"),
        pytest.param("#define A 1\f+ 2\n", "#define A 1\n+ 2\n", id="a form feed"),
    ],
)  # fmt: skip
def test_what_looks_like_a_comment_and_is_code(one, other):
    codes = {Program("t.one", "one", text).code_sha256 for text in (one, other)}
    assert len(codes) == 2
    assert None not in codes


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('#include "/abs/x.h"', ()),
        ("#include HEADER", ()),
        ("#/**/include <x.h>\n", ("-I/own",)),
        ("#inc\\\nlude HEADER", ()),
        ("%:include <../x.h>", ()),
        ("#include </abs/x.h>", ()),
        ("#if __has_include(<x.h>)", ()),
        ('asm(".incbin \\"x\\"");', ()),
        ("#embed <x>", ()),
        ("", ("-I/own",)),
        ("", ("-include", "x.h")),
        ("", ("@options",)),
        ("", ("-Xcompiler", "-include,x.h")),
        ("", ("-Xptxas", "--options-file=x")),
        ("", ("extra.o",)),
    ],
)
def test_what_may_read_another_file(text, options):
    assert not sources.is_self_contained(text, options, system_headers=True)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            "#include <cuda_fp16.h>  // half\n#include <cuda/std/array>",
            ("-lineinfo", "-DTILE=4", "-D", "A=1"),
        ),
        ("// #include OWN\n", ("--use_fast_math", "-Xptxas", "-v", "-gencode", "arch=compute_90,code=sm_90")),
    ],
)
def test_what_reads_the_compilers_own_files_only(text, options):
    assert sources.is_self_contained(text, options, system_headers=True)
    assert sources.is_self_contained(text, options, system_headers=False) is ("<" not in text)


def test_a_header_in_a_folder_of_opencls(is_identical, tmp_path):
    own = tmp_path / "own"
    write_files(own, {"factor.h": "#define FACTOR 2\n"})
    kernel = f"'one.cl', options={{'opencl': ('-I', {str(own)!r})}}"
    files = {"twice/suite.py": suite("", "", kernel), "twice/one.cl": "#include <factor.h>\n" + OPENCL}
    assert not is_identical(files, {}, "opencl:0")


def test_a_changed_header_of_opencls_is_compiled_again(harness, tmp_path):
    own = tmp_path / "own"
    kernel = f"'one.cl', options={{'opencl': ('-I', {str(own)!r})}}"
    write_files(
        tmp_path / "kernels" / "twice",
        {"suite.py": suite("", "", kernel), "one.cl": "#include <factor.h>\n" + OPENCL},
    )
    write_files(own, {"factor.h": "#define FACTOR 2\n"})
    checked = ("check", "--device", "opencl:0")
    assert harness(*checked, cwd=tmp_path).status == 0
    write_files(own, {"factor.h": "#define FACTOR 3\n"})
    assert harness(*checked, cwd=tmp_path).status == 1


KERNEL = '#include <own.h>\nextern "C" __global__ void one(float* y) { y[0] = OWN; }\n'


@pytest.fixture
def compiled(tmp_path):
    """Compiles a text with nvcc as the CUDA backend does, for no card; tells whether the cache had it."""
    if not nvcc.version():
        pytest.skip("nvcc is not on PATH.")
    source = tmp_path / "source"
    source.mkdir()

    asked: list[tuple[str, ...]] = []

    def compile_(options: tuple[str, ...]) -> bytes:
        asked.append(options)
        command = ["nvcc", "-cubin", "-arch=sm_90", *options, "-o", "one.cubin", "one.cu"]
        subprocess.run(command, cwd=source, check=True)
        return Path(source, "one.cubin").read_bytes()

    def compiled(text: str = KERNEL, options: tuple[str, ...] = ()) -> tuple[bytes, bool]:
        """The binary, and whether it came from the cache."""
        asked.clear()
        (source / "one.cu").write_text(text)
        program = Program("t.one", "one", text, options)
        binary = nvcc.through_cache(BinaryCache(tmp_path / "cache"), program, options, "sm_90", compile_)
        return binary, not asked

    return compiled


def test_a_header_in_a_folder_of_nvccs(compiled, tmp_path):
    first, second = tmp_path / "first", tmp_path / "sec ond"
    options = (f"-I{first}", "-I", str(second))
    write_files(second, {"own.h": '#include "deep/value.h"\n', "deep/value.h": "#define OWN 1.0f\n"})
    binary, cached = compiled(options=options)
    assert not cached
    assert compiled(options=options) == (binary, True)
    write_files(second, {"deep/value.h": "#define OWN 2.0f\n"})
    changed, cached = compiled(options=options)
    assert (cached, changed == binary) == (False, False)
    # One of the same name where the compiler looks first; the folder was not even there before.
    write_files(first, {"own.h": "#define OWN 3.0f\n"})
    shadowed, cached = compiled(options=options)
    assert (cached, shadowed in (binary, changed)) == (False, False)
    shutil.rmtree(first)
    assert compiled(options=options) == (changed, False)


@pytest.mark.parametrize("name", ["CPATH", "NVCC_APPEND_FLAGS"])
def test_what_the_environment_has_nvcc_do(compiled, tmp_path, monkeypatch, name):
    own, other = (
        write_files(tmp_path / value, {"own.h": f"#define OWN {value}.0f\n"}) for value in ("1", "2")
    )
    binaries = []
    for folder in (own, other, own):
        monkeypatch.setenv(name, str(folder) if name == "CPATH" else f"-I{folder}")
        assert nvcc.environment() == (f"{name}={os.environ[name]}",)
        binaries.append(compiled())
    assert [cached for _, cached in binaries] == [False, False, True]
    assert binaries[0][0] == binaries[2][0] != binaries[1][0]
    write_files(own, {"own.h": "#define OWN 3.0f\n"})
    assert not compiled()[1]


@pytest.mark.parametrize("option", ["@{}", "-Xptxas=--options-file={}", "--options-file={}"])
def test_options_that_lead_to_a_file_are_never_kept(tmp_path, option):
    made = iter([b"one", b"two"])
    options = (option.format(tmp_path / "options"),)
    for binary in (b"one", b"two"):
        built = nvcc.through_cache(
            BinaryCache(tmp_path),
            Program("t.one", "one", "", options),
            options,
            "sm_90",
            lambda _: next(made),
        )
        assert built == binary


@pytest.fixture
def entry(tmp_path):
    """A cache with one binary, and where it lies."""
    cache = BinaryCache(tmp_path / "cache")
    cache.put("abc", b"binary")
    assert cache.get("abc") == b"binary"
    return cache, tmp_path / "cache" / "ab" / "abc"


def test_an_entry_that_was_edited(entry):
    cache, path = entry
    path.write_bytes(path.read_bytes().replace(b"binary", b"canary"))
    assert cache.get("abc") is None


@pytest.mark.parametrize("size", [0, 1, 20, -1])
def test_an_entry_that_is_torn(entry, size):
    cache, path = entry
    path.write_bytes(path.read_bytes()[:size])
    assert cache.get("abc") is None


def test_an_entry_at_the_place_of_another(entry):
    cache, path = entry
    path.rename(path.with_name("abd"))
    assert cache.get("abd") is None


def test_an_entry_of_a_newer_version(entry):
    cache, path = entry
    path.write_bytes(path.read_bytes().replace(b"harness binary 1", b"harness binary 2"))
    assert cache.get("abc") is None
    cache.put("abc", b"binary")
    assert cache.get("abc") == b"binary"


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
def test_what_is_no_file_is_no_entry(entry, tmp_path, kind):
    cache, path = entry
    path.rename(tmp_path / "kept")
    {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
    }[kind]()
    assert cache.get("abc") is None
    cache.put("abc", b"binary")
    assert (cache.get("abc") == b"binary") is (kind != "folder")


def test_a_cache_that_can_only_be_read(entry, tmp_path):
    cache, path = entry
    path.parent.chmod(0o500)
    try:
        cache.put("abc", b"another")
    finally:
        path.parent.chmod(0o700)
    assert cache.get("abc") in (b"binary", b"another")  # root writes all the same


def test_an_absolute_header_of_the_working_tree_is_no_commits(harness, repository):
    header = repository / "shared" / "factor.h"
    text = f'#include "{header}"\n' + OPENCL
    files = {"kernels/twice/suite.py": suite("", "", "'one.cl'"), "kernels/twice/one.cl": text}
    commit(repository, {**files, "shared/factor.h": "#define FACTOR 2\n"}, 1)
    done = harness("check", "--commit", "HEAD", "--device", "opencl:0", cwd=repository)
    assert done.status == 2
    assert f"{header} lies in the working tree" in done.err


def test_an_absolute_header_takes_part(is_identical, tmp_path):
    write_files(tmp_path / "own", {"factor.h": "#define FACTOR 2\n"})
    text = f'#include "{tmp_path}/own/factor.h"\n' + OPENCL
    files = {"twice/suite.py": suite("", "", "'one.cl'"), "twice/one.cl": text}
    assert is_identical(files, {}, "opencl:0")
    base = suite_files.tree_sha256(load_folder(tmp_path / "base" / "kernels" / "twice"))
    write_files(tmp_path / "own", {"factor.h": "#define FACTOR 3\n"})
    assert suite_files.tree_sha256(load_folder(tmp_path / "base" / "kernels" / "twice")) != base


@pytest.mark.parametrize("place", ["twice", "shared"])
def test_bytecode_of_another_source(tmp_path, place):
    imports = "import helper" if place == "twice" else ELSEWHERE + "import helper"
    files = {"twice/suite.py": suite(imports), f"{place}/helper.py": HELPER}
    folder, _ = sides(tmp_path, files, {})
    helper = folder.parent / place / "helper.py"
    py_compile.compile(str(helper), doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    helper.write_text(WRONG)
    loaded = load_folder(folder)
    x, y = np.ones(4), np.zeros(4)
    case = loaded.case(loaded.kernels[0], {"n": 64})
    source = loaded.kernels[0].source_for("cpu")
    assert isinstance(source, HostFunction)
    source.function(case, 0)(x, y, 4)
    assert y[0] == 3


def test_another_function_of_the_same_text(is_identical):
    text = "void one() {}\nvoid slow() { wait(); }\n"
    files = {"twice/suite.py": suite("", "", "'one.cu'"), "twice/one.cu": text}
    assert not is_identical(files, {"twice/suite.py": suite("", "", "'one.cu', entry='slow'")}, "null")


ON_A_CARD = KERNEL.replace("(float* y) { y[0] = OWN; }", "(const float* x, float* y, int n) BODY").replace(
    "BODY", "{\n    if (threadIdx.x < n) y[threadIdx.x] = OWN * x[threadIdx.x];\n}"
)
LIBRARY = """\
#include <own.h>
__global__ void twice(const float* x, float* y, int n) { y[threadIdx.x] = OWN * x[threadIdx.x]; }
extern "C" int one(void* stream, const float* x, float* y, int n) {
    twice<<<1, n, 0, (cudaStream_t)stream>>>(x, y, n);
    return 0;
}
"""
BY_FOLDER = "'one.cu', options={'cuda': ('-I', str(Path(__file__).parent.parent / 'own'))}"
AS_LIBRARY = "{'cuda': HostLibrary('one.cu', include=lambda: [str(Path(__file__).parent.parent / 'own')])}"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "text"), [(BY_FOLDER, ON_A_CARD), (AS_LIBRARY, LIBRARY)], ids=["kernel", "library"]
)
def test_a_changed_header_on_a_card(harness, repository, source, text):
    files = {
        "kernels/twice/suite.py": suite("from harness import HostLibrary", "", source),
        "kernels/twice/one.cu": text,
        "kernels/own/own.h": "#define OWN 2.0f\n",
    }
    commit(repository, files, 1)
    checked = ("check", "--device", GPU)
    assert harness(*checked, cwd=repository).status == 0
    commit(repository, {"kernels/own/own.h": "#define OWN 3.0f\n"}, 2)
    assert harness(*checked, cwd=repository).status == 1
    assert verdict_of(harness, repository, GPU) == ("failed", "wrong-result", 1)
    commit(repository, {"kernels/own/own.h": "#define OWN 2.0f\n"}, 3)
    assert harness(*checked, cwd=repository).status == 0


@pytest.mark.gpu
def test_a_comment_in_a_header_on_a_card(harness, repository):
    files = {
        "kernels/twice/suite.py": suite("", "", BY_FOLDER),
        "kernels/twice/one.cu": ON_A_CARD,
        "kernels/own/own.h": "#define OWN 2.0f\n",
    }
    commit(repository, files, 1)
    commit(repository, {"kernels/own/own.h": "// two\n#define OWN 2.0f\n"}, 2)
    assert verdict_of(harness, repository, GPU) == ("identical", "same-code", 0)


INSTALLED = """\
from harness import Axis, HostFunction, Input, Kernel, Output, Problem, Suite
TOP


class Twice(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return 2 * x


def make(case, stream):
    def launch(x, y, n):
        LAUNCH
        op.twice(x, y)

    return launch


suite = Suite("toy", Twice(), [Kernel("one", {"cpu": HostFunction(make)})], headline="GB/s")
"""
OP = "import numpy as np\n\n\ndef twice(x, y):\n    np.multiply(x, FACTOR, out=y)\n"


@pytest.mark.parametrize(
    ("where", "head"),
    [("TOP", "HEAD"), ("LAUNCH", None)],
    ids=["loaded", "launched in the working tree"],
)
def test_a_package_of_the_working_tree_is_no_commits(tmp_path, where, head):
    """After `pip install -e .` both commits would import the working tree."""
    root = make_repository(tmp_path / "repository")
    text = INSTALLED.replace(where, "from own import op")
    for other in ("TOP", "LAUNCH"):
        text = text.replace(other, "")
    files = {"harness.toml": "suites = ['kernels/*']\n", "kernels/toy/suite.py": text}
    commit(root, {**files, "src/own/op.py": OP.replace("FACTOR", "1 + 1")}, 1)
    commit(root, {"src/own/op.py": OP.replace("FACTOR", "2")}, 2)
    done = run_command(
        *("compare", "HEAD~1", *filter(None, [head]), "--device", "cpu:0", "--no-save", "--budget", "1"),
        cwd=root,
        env={"PYTHONPATH": f"{IMPORT_PATH}{os.pathsep}{root / 'src'}"},
    )
    assert done.returncode in (1, 2, 3), done.stdout + done.stderr
    # A terminal breaks a long path wherever it ends.
    told = "".join((done.stdout + done.stderr).split())
    # The file itself, or what Python has made of it.
    assert re.search(r"src/own/(__pycache__/)?op\.\S+liesintheworkingtree", told)
