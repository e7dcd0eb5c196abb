"""Runs nvcc through the binary cache, which also stores the files and folders that nvcc read.

It needs no card.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.device.backends.cubin import built_for, entries
from harness.errors import BuildError
from harness.suite.kernel import is_for
from harness.suite.sources import INSTANCE, INSTANCE_FILE, Program, is_self_contained, unusual_options
from harness.system.cache import BinaryCache, Manifest
from harness.system.files import read_regular, scratch_folder
from harness.system.process import finished

STANDARD = ("-std=c++17",)
"""Options of every compilation, before a kernel's own."""
PACKAGE = "nvidia-cuda-nvcc"
"""PyPI package of nvcc."""
UNKNOWN = "nvcc of unknown version"

_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_FOLDERS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_OTHERS = ("NVCC_CCBIN", "CUDA_INC_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH")
"""Variables that nvcc and the host's compiler use: nvcc's documentation, section 4; GCC's, section 3.21."""

_INCLUDE = re.compile(
    r"(?:-I|--?include-path|--?isystem|--?system-include)(?:=(?P<given>.*)|(?P<joined>.+))?\Z"
)
_PRE_INCLUDE = re.compile(r"--?(?:pre-)?include(?:=(?P<given>.*))?\Z")
_ASKED = re.compile(r"""__has_include\s*\(\s*[<"]([^>"\n]+)""")
_HIDDEN = re.compile(r"""\.inc(?:lude|bin)\b|#\s*embed\b|__has_include\s*\(\s*[<"](?:/|[^>"\n]*\.\.)""")
"""Ways to read or look for a file that no dependency list shows."""


def path() -> str | None:
    """Return the nvcc on PATH, else that of the PyPI package; None without either."""
    return next(paths(), None)


def paths() -> Iterator[str]:
    """Yield each nvcc found: the one on PATH, then that of the PyPI package."""
    yield from filter(None, (shutil.which("nvcc"), packaged(PACKAGE, "nvcc")))


@functools.cache
def packaged(package: str, tool: str) -> str | None:
    """Return a program of a PyPI package; None if the package or the program is missing."""
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return None
    found = (str(file.locate()) for file in files if file.name == tool)
    return next((file for file in found if os.access(file, os.X_OK)), None)


@functools.cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that this nvcc compiles for, such as sm_86, oldest first; empty if unknown.

    nvcc before 13 lists none with a letter, but accepts sm_90a if it lists sm_90.
    """
    if (nvcc := path()) is None:
        return ()
    _, out, _ = finished([nvcc, "--list-gpu-code"])
    return tuple(dict.fromkeys(re.findall(r"^sm_\w+$", out, re.MULTILINE)))


@functools.cache
def version(nvcc: str = "") -> str:
    """Return the version of an nvcc, by default the one found; empty without one. Raises BuildError."""
    if not (nvcc := nvcc or path() or ""):
        return ""
    try:
        _, out, _ = finished([nvcc, "--version"])
    except OSError as error:
        raise BuildError(
            f"{nvcc} cannot be run: {error.strerror or error}. Put one that can first on PATH."
        ) from None
    lines = [line for line in out.splitlines() if "release" in line]
    return f"nvcc {lines[0].partition('release')[2].strip()}" if lines else UNKNOWN


@functools.cache
def _build_of(nvcc: str) -> str:
    """Return the build of the nvcc at a path, because builds of one version may differ; empty for the one
    found.
    """
    if not nvcc:
        return ""
    folder = Path(nvcc).resolve().parent
    files = (Path(nvcc), folder / "ptxas", folder.parent / "nvvm" / "bin" / "cicc")
    return " ".join(_place_size_and_time(file) for file in files if file.is_file())


def _place_size_and_time(file: Path) -> str:
    status = (real := file.resolve()).stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def environment() -> tuple[str, ...]:
    """Return the set variables that change nvcc's output, as NAME=value."""
    return tuple(
        f"{name}={os.environ[name]}" for name in (*_FLAGS, *_FOLDERS, *_OTHERS) if os.environ.get(name)
    )


def identity(nvcc: str = "") -> tuple[str, ...]:
    """Return everything about an nvcc, by default the one found, that can change its output."""
    return version(nvcc) + _build_of(nvcc), *environment(), _host_compiler()


def _host_compiler() -> str:
    """Return file, size and time of the host compiler that nvcc calls; empty without one."""
    found = shutil.which(os.environ.get("NVCC_CCBIN") or "gcc")
    return _place_size_and_time(Path(found)) if found else ""


def specific(arch: str) -> str:
    """Return the architecture with its specific features: sm_90a for sm_90. Older ones have none."""
    return f"{arch}a" if arch[-1:].isdigit() and int(arch.removeprefix("sm_")) >= 90 else arch


def _needed(program: Program) -> str:
    if (nvcc := program.compiler or path()) is None:
        raise BuildError(
            f"{program.name} cannot be compiled: nvcc is not on PATH. Install the CUDA toolkit or add its "
            "bin folder to PATH; to compile only, install this project with its extra 'static'."
        )
    return nvcc


def cubin(
    program: Program, options: Sequence[str], arch: str, timeout_s: float | None = None
) -> tuple[bytes, str]:
    """Return a kernel's binary for an architecture such as sm_90, and the compiler's output.

    `options` are all options. A source that needs features of sm_90a is built for sm_90a, unless the program
    names its architecture. Raises BuildError with the compiler's log, also after the timeout.
    """

    def compile_(target: str) -> tuple[bytes, str]:
        command = [_needed(program), "-cubin", f"-arch={target}", *options]
        return _compiled(program, command, target, timeout_s)

    if program.suffix == ".ptx":
        return compile_(ptx_target(program, arch))
    try:
        return compile_(program.arch or arch)
    except BuildError as error:
        if program.arch or specific(arch) == arch or not _LACKS.search(error.log):
            raise
        return compile_(specific(arch))


def library(program: Program, options: Sequence[str], arch: str) -> bytes:
    """Return the shared library of a host program. Raises BuildError like `cubin`."""
    nvcc, number = _needed(program), arch.removeprefix("sm_")
    # Only for this card: with -arch=sm_90a nvcc 13 compiles everything twice, also to PTX for sm_90.
    target = f"arch=compute_{number},code=sm_{number}"
    shared = ["-shared", "-O3", "-Xcompiler", "-fPIC", "-gencode", target]
    return _compiled(program, [nvcc, *shared, *_runtime(nvcc), *options], arch)[0]


def _runtime(nvcc: str) -> list[str]:
    """Return options for the runtime as a shared library. The PyPI package has it only under its
    full name.
    """
    folder = Path(nvcc).parents[1] / "lib"
    named = sorted(folder.glob("libcudart.so.*"))
    if not named or (folder / "libcudart.so").exists():
        return ["-cudart", "shared"]
    return ["-cudart", "none", "-Xlinker", f"-rpath,{folder}", "-Xlinker", str(named[0])]


def _compiled(
    program: Program, command: Sequence[str], arch: str, timeout_s: float | None = None
) -> tuple[bytes, str]:
    with scratch_folder() as folder:
        source, made = folder / f"kernel{program.suffix}", folder / "made"
        source.write_text(program.text, encoding="utf-8")
        try:
            status, out, err = finished([*command, "-o", str(made), str(source)], folder, timeout_s)
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"{program.name} took more than {timeout_s:g} s to compile for {arch}. Allow more by "
                "--timeout."
            ) from None
        said = (out + err).strip().replace(f"{folder}/", "")
        if status or not made.is_file():
            message = f"{program.name} does not compile for {arch} with {version(program.compiler)}."
            if program.instance and re.search(rf"^{INSTANCE_FILE}\(\d+\): error", said, re.MULTILINE):
                message = f"{program.name}: {program.instance} names no kernel, or more than one."
                said = _first_error(said)
            log = "\n".join(line for line in said.splitlines() if not line.startswith("ptxas info"))
            raise BuildError(message + _where_headers_are(said, command[0]), log=log)
        return made.read_bytes(), said


_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_PACKAGED_HEADERS = (
    (r"cublas", "nvidia-cublas", "libcublas"),
    (r"cusparse(?!Lt)", "nvidia-cusparse", "libcusparse"),
    (r"cufft", "nvidia-cufft", "libcufft"),
    (r"cusolver", "nvidia-cusolver", "libcusolver"),
    (r"curand", "nvidia-curand", "libcurand"),
    (r"npp", "nvidia-npp", "libnpp"),
    (r"nvrtc", "nvidia-cuda-nvrtc", "cuda-nvrtc"),
    (r"nvtx3/", "nvidia-nvtx", "cuda-nvtx"),
    (r"nvml\.h", "nvidia-nvml-dev", "cuda-nvml"),
    (r"cuda_profiler_api\.h|cudaProfiler\.h", "nvidia-cuda-profiler-api", "cuda-profiler-api"),
    (r"thrust/|cub/|cuda/", "nvidia-cuda-cccl", "cuda-cccl"),
)
"""Headers by prefix, with their PyPI package and their part of the toolkit."""


def _where_headers_are(said: str, nvcc: str) -> str:
    """Return what to install for a missing header of NVIDIA's; empty for another."""
    missing = _MISSING.search(said)
    if missing is None:
        return ""
    for begin, package, part in _PACKAGED_HEADERS:
        if re.match(begin, missing[1]):
            if Path(nvcc).parents[1].name.startswith("cu") and "site-packages" in nvcc:
                return f" {missing[1]} comes with another package: pip install {package}."
            return f" {missing[1]} comes with another part of the CUDA toolkit: install {part} of it."
    return ""


def _first_error(said: str) -> str:
    """Return a compiler's output up to the second error, because later errors follow from the first."""
    errors = list(re.finditer(r"^.*: error", said, re.MULTILINE))
    return said[: errors[1].start()].rstrip() if len(errors) > 1 else said


def binary_of(cache: BinaryCache, program: Program, arch: str) -> bytes:
    """Return a program's bytes: its own content, or nvcc's output for an architecture, through the cache."""
    if program.content:
        return program.content

    def compile_(options: tuple[str, ...]) -> bytes:
        if program.kind == "library":
            return library(program, options, arch)
        return cubin(program, options, arch)[0]

    return through_cache(cache, program, (*STANDARD, *program.all_options), arch, compile_)


def through_cache(
    cache: BinaryCache,
    program: Program,
    options: tuple[str, ...],
    arch: str,
    compile_: Callable[[tuple[str, ...]], bytes],
) -> bytes:
    """Return the binary of a program, from the cache or from `compile_`, which gets all options."""
    whole = (*_flags("NVCC_PREPEND_FLAGS"), *options, *_flags("NVCC_APPEND_FLAGS"))
    folders = _folders(whole)
    compiler, *around = identity(program.compiler)
    key = BinaryCache.key(program.text, (program.kind, *options, *around), compiler, program.arch or arch)
    if folders is None or _HIDDEN.search(program.text):
        cache.forgo()
        return compile_(options)
    if binary := cache.get(key):
        return binary
    if is_self_contained(program.text, whole, system_headers=not folders):
        binary = compile_(options)
        cache.put(key, binary)
        return binary
    return _with_manifest(cache, key, program.text, folders, options, compile_)


def _with_manifest(
    cache: BinaryCache,
    key: str,
    text: str,
    folders: Sequence[str],
    options: tuple[str, ...],
    compile_: Callable[[tuple[str, ...]], bytes],
) -> bytes:
    with scratch_folder() as scratch:
        listed = scratch / "headers"
        began_ns = time.time_ns()
        binary = compile_((*options, "-MD", "-MF", str(listed)))
        try:
            headers = headers_of(listed.read_text(encoding="utf-8", errors="surrogateescape"))
            # A file that changed meanwhile may not be the one that was read.
            settled = all(Path(header).stat().st_ctime_ns < began_ns for header in headers)
            texts = [text, *(read_regular(Path(header)).decode(errors="replace") for header in headers)]
            asked = (name for content in texts for name in _ASKED.findall(content))
            manifest = Manifest.of(headers, folders, asked)
        except OSError:
            settled = False
        if settled and not any(map(_HIDDEN.search, texts)):
            cache.put(key, binary, manifest)
        else:
            cache.forgo()
    return binary


def headers_of(rule: str) -> list[str]:
    """Return the headers in a make rule of nvcc's -MD, as absolute paths. The first is the source itself."""
    names = rule.replace("\\\n", " ").partition(" : ")[2]
    words = [word.replace("\\ ", " ").replace("$$", "$") for word in re.split(r"(?<!\\)\s+", names) if word]
    return [word for word in words[1:] if Path(word).is_absolute()]


def _flags(name: str) -> list[str]:
    try:
        return shlex.split(os.environ.get(name, ""))
    except ValueError:
        return ["@"]  # an option that may read any file


def _folders(options: Sequence[str]) -> list[str] | None:
    """Return the folders searched for headers; None if an option may read a file that is listed nowhere."""
    found: list[str] = []
    waiting = iter(unusual_options(options))
    for option in waiting:
        if (match := _PRE_INCLUDE.match(option)) is not None:
            if match["given"] is None:
                next(waiting, "")
        elif (match := _INCLUDE.match(option)) is not None:
            given = match["given"] or match["joined"]
            found += (next(waiting, "") if given is None else given).split(",")
        else:
            return None
    for name in _FOLDERS:
        found += filter(None, os.environ.get(name, "").split(os.pathsep))
    return [str(Path(folder).absolute()) for folder in found]


_LACKS = re.compile(r"not supported on \.target 'sm_")
"""ptxas's message for an instruction or a feature that an architecture lacks."""


def ptx_target(program: Program, arch: str) -> str:
    """Return the target of PTX on an architecture: sm_90, or sm_90a if the text is only for that.

    Raises BuildError for PTX of newer or of other cards.
    """
    match, card = _PTX_TARGET.search(program.text), _NUMBER.match(arch)
    if match is None or card is None:
        return arch
    wanted, capability = _capability(match), _capability(card)
    if capability < wanted or (match["own"] and not is_for(match["arch"], capability)):
        raise BuildError(
            f"{program.name} is PTX for {match['arch']}, which {arch} does not run. Write it anew for {arch} "
            "or an older architecture, or give its CUDA source in its place."
        )
    return match["arch"] if match["own"] and capability == wanted else arch


def check_image(program: Program, arch: str) -> None:
    """Raise BuildError if a cubin is for cards of another architecture."""
    own, card = built_for(program.content), _NUMBER.match(arch)
    if own and card and not is_for(own, _capability(card)):
        raise BuildError(f"{program.name} is a binary for {own}, which {arch} does not run.")


def _capability(match: re.Match[str]) -> tuple[int, int]:
    return int(match["major"]), int(match["minor"])


_NUMBER = re.compile(r"sm_(?P<major>\d+)(?P<minor>\d)")
_PTX_TARGET = re.compile(
    r"^[ \t]*\.target[ \t]+(?P<arch>sm_(?P<major>\d+)(?P<minor>\d)(?P<own>[af]?))", re.MULTILINE
)


def entry(program: Program, binary: bytes) -> str:
    """Return the symbol of a program's kernel; without a cubin, the function's name. Raises BuildError."""
    return entry_among(program, symbols) if (symbols := entries(binary)) else program.function


def entry_among(program: Program, symbols: Collection[str]) -> str:
    """Return the symbol of a program's kernel among these. Raises BuildError as `entry` does."""
    if program.instance:
        return _instance_among(program, symbols)
    if program.function in symbols:
        return program.function
    mangled = re.compile(rf"_Z{len(program.function)}{re.escape(program.function)}(?!I)")
    found = [symbol for symbol in symbols if mangled.match(symbol)]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(map(demangled, found or symbols)) or "none at all"
    what = "more than one kernel function" if found else "no kernel function"
    raise BuildError(
        f"{program.name} has {what} named {program.function!r}: check its entry. There is {listed}."
    )


def _instance_among(program: Program, symbols: Collection[str]) -> str:
    """Return the symbol of the instance, which is contained in the symbol of its marker kernel."""
    marks = [demangled(symbol) for symbol in symbols if INSTANCE in symbol]
    kernels = [symbol for symbol in symbols if INSTANCE not in symbol]
    found = [symbol for symbol in kernels if any(_names(mark, symbol) for mark in marks)]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(map(demangled, kernels)) or "none at all"
    raise BuildError(
        f"{program.name}: {program.instance} is {'none' if not found else 'more than one'} of the compiled "
        f"kernels. There is {listed}."
    )


def _names(mark: str, symbol: str) -> bool:
    """Tell whether a marker kernel belongs to the function with a symbol, by its C++ name."""
    whole, unnamed = demangled(symbol), "(anonymous namespace)"
    if whole == symbol:  # extern "C", where the marker has the parameters too
        return f", &({symbol}(" in mark
    alone = whole.replace(unnamed, "\0").partition("(")[0].replace("\0", unnamed)
    return mark.endswith((f", &({whole})>()", f", &{alone}>()"))


def demangled(symbol: str) -> str:
    """Return a symbol's C++ name; unchanged if it is no C++ name, or the C++ library is missing."""
    demangle = _demangle()
    text = demangle(symbol.encode(), None, None, None) if demangle and symbol.startswith("_Z") else None
    return symbol if text is None else str(text.decode(errors="replace"))


@functools.cache
def _demangle() -> Any:
    try:
        function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    # The result is never freed: a few bytes for each name in a message.
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_char_p
    return function
