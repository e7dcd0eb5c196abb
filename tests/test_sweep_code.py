"""The code of a cubin, separated from the rest of its file: in files of nvcc, and in made-up files."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from harness.device.backends.cubin import (
    code_of_any_compiler,
    code_sha256,
    entries,
    has_no_memory,
    kernel_code,
)

KERNEL = """\
static __device__ float kept[64];
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void k(const float *x, float *y, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : kept[i % 64];
    __syncthreads();
    if (i < n) y[i] = kept[i % 64] = 2 * s[(threadIdx.x + STEP) % 256] + table[i % 4];
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH.")
    folder = tmp_path_factory.mktemp("cubins")

    def compile_(name: str, text: str, *options: str) -> bytes:
        (folder / f"{name}.cu").write_text(text)
        subprocess.run(
            ["nvcc", "-cubin", "-arch=sm_90", *options, "-o", f"{name}.cubin", f"{name}.cu"],
            cwd=folder,
            check=True,
        )
        return Path(folder, f"{name}.cubin").read_bytes()

    return compile_


@pytest.fixture(scope="module")
def plain(compiled):
    return compiled("plain", f"#define STEP 4\n{KERNEL}")


def test_another_text_that_compiles_to_the_same_is_the_same_code(compiled, plain):
    renamed = KERNEL.replace("table", "list")
    other = compiled("other", f"#define STEP 4\n#define UNUSED 7\n// a comment\n{renamed}")
    assert other != plain
    assert code_sha256(other) == code_sha256(plain) is not None


def test_a_variable_of_a_module_is_memory(compiled, plain):
    assert not has_no_memory(plain)
    alone = KERNEL.replace("static __device__ float kept[64];\n", "").replace("kept[i % 64] = ", "")
    assert has_no_memory(compiled("alone", f"#define STEP 4\n{alone}".replace("kept[i % 64]", "0.0f")))
    assert not has_no_memory(b"no cubin")
    assert not has_no_memory(plain[:200])


def test_a_function_that_kernels_call_is_no_kernel(compiled):
    text = (
        "__device__ __noinline__ float half(float x) { return sinf(x) / 2; }\n"
        'extern "C" __global__ void k(float *x, int n) { x[n] = half(x[n]); }\n'
    )
    assert entries(compiled("called", text)) == {"k": (8, 4)}


def test_lines_for_a_debugger_are_no_code(compiled):
    first = compiled("first", f"#define STEP 4\n{KERNEL}", "-lineinfo")
    second = compiled("second", f"// moved down\n#define STEP 4\n{KERNEL}", "-lineinfo")
    assert first != second
    assert code_sha256(first) == code_sha256(second) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("STEP 4", "STEP 5", id="instructions"),
        pytest.param("{1, 2, 3, 4}", "{1, 2, 3, 5}", id="constants"),
        pytest.param("s[256]", "s[512]", id="shared memory"),
        pytest.param("void k(", "void __launch_bounds__(64) k(", id="launch bounds"),
    ],
)
def test_what_changes_how_it_runs_is_other_code(compiled, plain, old, new):
    text = f"#define STEP 4\n{KERNEL}"
    assert old in text
    assert code_sha256(compiled("changed", text.replace(old, new))) != code_sha256(plain)


@pytest.mark.parametrize("new", ["p = one + 2", "p = two + 1"])
@pytest.mark.parametrize("kind", ["__device__", "__constant__"])
def test_a_pointer_to_another_place_is_other_code(compiled, kind, new):
    """The instructions are the same, and so are the bytes of what they read, until it is loaded."""
    text = (
        "__device__ float one[64] = {1}, two[64] = {2};\n"
        f"{kind} float *p = one + 1;\n"
        'extern "C" __global__ void k(float *x) { x[threadIdx.x] = p[threadIdx.x]; }\n'
    )
    before, after = compiled("before", text), compiled("after", text.replace("p = one + 1", new))
    own, other = (kernel_code(binary, "k") for binary in (before, after))
    assert own is not None
    assert other is not None
    assert own.instructions == other.instructions
    assert own.sha256 != other.sha256
    for told in (code_sha256, code_of_any_compiler):
        assert told(before) != told(after)


def elf(*sections: tuple[str, int, bytes | int]) -> bytes:
    """A 64-bit ELF file of sections: name, flags, and content, or size of what the file does not hold."""
    names, place = b"\0", {}
    for name, _, _ in (*sections, (".shstrtab", 0, b"")):
        place[name] = len(names)
        names += name.encode() + b"\0"
    body, headers = b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for name, flags, content in (*sections, (".shstrtab", 0, names)):
        kind, size = (8, content) if isinstance(content, int) else (1, len(content))
        headers.append(
            struct.pack("<IIQQQQIIQQ", place[name], kind, flags, 0, 64 + len(body), size, 0, 0, 1, 0)
        )
        body += b"" if isinstance(content, int) else content
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(headers)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return ident + head + body + b"".join(headers)


PLAIN = (
    (".text.k", 6, b"code"),
    (".nv.shared.k", 3, 64),
    (".nv.constant0.k", 2, b"args"),
    (".strtab", 0, b"a"),
)


@pytest.mark.parametrize(
    ("place", "section", "same"),
    [
        (0, (".text.k", 6, b"cods"), False),
        (0, (".text.k_7c3e", 6, b"code"), True),
        (0, (".text.k", 2, b"code"), False),
        (1, (".nv.shared.k", 3, 128), False),
        (2, (".nv.constant0.k", 2, b"argt"), False),
        (3, (".strtab", 0, b"another name"), True),
        (3, (".debug_line", 0, b"line 3"), True),
    ],
)
def test_only_what_runs_counts(place, section, same):
    changed = [*PLAIN[:place], section, *PLAIN[place + 1 :]]
    assert (code_sha256(elf(*changed)) == code_sha256(elf(*PLAIN))) is same


def test_what_is_no_cubin_has_no_code():
    whole = elf(*PLAIN)
    assert code_sha256(whole) is not None
    broken = [b"", b"//\n// Generated by NVIDIA NVVM Compiler\n", whole[:40], whole[:-70], whole[:80]]
    broken += [elf((".strtab", 0, b"a")), b"\x7fELF\x02\x01" + b"\xff" * 100, b"\x7fELF\x01\x01" + whole[6:]]
    code = struct.pack("<QQ", 64, 4)  # where the file has the code, and how long that is
    assert whole.count(code) == 1
    broken.append(whole.replace(code, struct.pack("<QQ", 64, len(whole))))
    assert [code_sha256(binary) for binary in broken] == [None] * len(broken)
