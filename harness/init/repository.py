"""The files of a repository that may contain kernels, read once, and their includes."""

from __future__ import annotations

import codecs
import os
import posixpath
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from harness.init import opencl_text
from harness.init.cpp import CudaLaunch, Expression, SourceFile, read
from harness.init.guessed_suite import LeftOut, attempt
from harness.system.files import read_regular
from harness.system.git import ask, repository_of

CPP_SUFFIXES = (
    *(".cu", ".cuh", ".hip", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc"),
    *(".cpp", ".cc", ".cxx", ".c"),
)
NOT_THEIRS = {
    *("third_party", "3rdparty", "thirdparty", "external", "extern", "vendor", "vendored", "deps"),
    *("node_modules", "build", "dist", ".venv", "venv", "site-packages", ".git", ".asv", "__pycache__"),
}
"""Folders of foreign or generated files."""
TESTS = {"test", "tests", "testing", "unittest", "unit_tests"}
_MOST_BYTES = 4 * 2**20
_BUILT = re.compile(r"configure_file\s*\(\s*\S+\s+\"?([^\s\")]+)", re.IGNORECASE)
_CMAKE = re.compile(r"(?:target_)?include_directories\s*\(([^)]*)\)", re.IGNORECASE)
_BENCHMARK = re.compile(rb"^[ \t]*(NVBENCH_BENCH\w*|BENCHMARK\w*)[ \t]*\(", re.MULTILINE)
_TORCH = re.compile(r"(?:torch|ATen|c10)/")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)', re.MULTILINE)
_DECLARED = re.compile(
    r"\b(?!return\b|case\b|else\b)[a-z_]\w*\s+([A-Z][A-Z0-9_]{2,})\s*[=\[;,){(]"
    r"|\b([A-Z][A-Z0-9_]{2,})\s*=(?!=)|\benum\b[^{;]*\{([^}]*)\}"
)
"""A type and a name, an assigned name, or an enumerator."""
_FLAG = re.compile(
    r"(?<![\w-])--?(expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|use_fast_math)\b"
)
_BUILD = ("CMakeLists.txt", ".cmake", "Makefile", ".mk", "setup.py")
_STATEMENT = re.compile(r"^\w+[ \t]*\([^()]*(?:\([^()]*\)[^()]*)*\)|^\S.*(?:\n\t.*)*", re.MULTILINE)
"""A command of CMake, or a line of a Makefile with its recipe."""
_CUDA_FILE = re.compile(r"[\w./-]+\.cu\b")
_ADDED = re.compile(r"(?:cuda_)?add_(?:executable|library)\s*\(\s*(\S+)([^()]*)\)")
_TARGET = re.compile(r"\s*target_\w+\s*\(\s*(\S+)|([^\s:=$]+)\s*:(?!=)")
"""Target of a CMake command `target_compile_options(name`, or of a Makefile rule `name:`."""
_HIP_NAME = re.compile(r"(?i)(?:.*[-_.])?(?:hip|hipified|rocm)(?:[-_.].*)?")
_HIP_CALL = re.compile(r"\bhip(?:LaunchKernel|Malloc|Memcpy|Free|Device|Stream|Event|Get|Error|Memset)\w*")
_CUDA_CALL = re.compile(r"\bcuda(?:LaunchKernel|Malloc|Memcpy|Free|Device|Stream|Event|Get|Error|Memset)\w*")
_FOR_BOTH = re.compile(r"^[ \t]*#[ \t]*(?:el)?if.*(?:HIP|ROCM|AMD|CUDA|NVCC|NVIDIA)", re.MULTILINE)
"""A condition for compiling a file for another vendor's card."""
_ARCHES = {"tcgen05.": "sm_100a", "wgmma.": "sm_90a", "cp.async.bulk": "sm_90", "__cluster_dims__": "sm_90"}
"""Architecture that an instruction needs, the most demanding first."""
_SEEN = re.compile("__global__|<<<")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TOOLKIT = re.compile(
    r"(?:cuda|cuda_(?:runtime|fp|bf16|gl|texture|pipeline|awbarrier|profiler|occupancy|vdpau|egl)\w*"
    r"|cu(?:blas|fft|rand|sparse|solver|pti|dnn)\w*|npp\w*|nv\w+|mma|cooperative_groups|math_constants"
    r"|(?:device|vector|driver|host|builtin|channel|texture|surface)_(?:types|functions|launch_parameters"
    r"|defines|descriptor|indirect_functions))\.h(?:pp)?|(?:cub|thrust|cuda|nv|cooperative_groups|crt)/.+"
)
"""CUDA's own headers, which some files include in quotes."""


class Repository:
    """The files of a folder: those that git knows, or all of them without git."""

    def __init__(self, folder: Path, suites: Sequence[str] = ()) -> None:
        self.folder = folder
        self.top = repository_of(folder)
        self.passed_over = Counter[str]()
        """Number of skipped files, by folder name or another reason."""
        self.unread: dict[str, str] = {}
        """Files with kernels that could not be read, each with the reason."""
        self.every_file: list[str] = []
        """The files of `files`, and those in test folders."""
        self.files = self._listed(suites)
        self._added: dict[str, str] = {}
        # Each file is read once, and its includes are resolved once.
        self.bytes_of, self.text, self.source = cache(self._bytes_of), cache(self._text), cache(self._source)
        self._closure, self._resolve = cache(self._found_closure), cache(self._resolved)
        self._includes = cache(lambda name: _INCLUDE.findall(self.text(name)))
        self.meaning = cache(self._meaning)

    def _listed(self, suites: Sequence[str]) -> list[str]:
        found = []
        for name in self._all_names():
            parts = name.split("/")[:-1]
            why = next((part for part in parts if part in NOT_THEIRS), "")
            if not why and any(name.startswith(f"{suite}/") for suite in suites):
                why = "suites"
            if not why and not _is_text(name):
                why = "names that are not UTF-8"
            if not why:
                self.every_file.append(name)
                why = next((part for part in parts if part.lower() in TESTS), "")
            if why:
                self.passed_over[why] += 1
            else:
                found.append(name)
        return found

    def _all_names(self) -> list[str]:
        if self.top is not None:
            told = ask(self.folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
            return sorted({os.fsdecode(name) for name in told.split(b"\0") if name})
        names = []
        for place, folders, files in os.walk(self.folder):
            folders[:] = [name for name in folders if name not in NOT_THEIRS]
            inside = os.path.relpath(place, self.folder)
            names += [name if inside == "." else posixpath.join(inside, name) for name in files]
        return sorted(names)

    @cached_property
    def not_fetched(self) -> list[str]:
        """Return submodules without files."""
        paths = re.findall(r"^\s*path\s*=\s*(.*\S)", self.text(".gitmodules"), re.MULTILINE)
        return [path for path in paths if not any((self.folder / path).glob("*"))]

    @cached_property
    def sources(self) -> dict[str, SourceFile]:
        """Return the C++ and OpenCL files with a kernel or a launch."""
        found = {}
        for name in self.files:
            if name.endswith((*CPP_SUFFIXES, opencl_text.SUFFIX)) and _SEEN.search(self.text(name)):
                source = self.source(name)
                if source.kernels or source.launches:
                    found[name] = source
        return found | {name: self.source(name) for name in self._added}

    def add(self, name: str, text: str) -> None:
        """Add CUDA text from another file, under its own name, `file.py::name`. Call it before `sources`."""
        self._added[name] = text

    @cached_property
    def executables(self) -> list[tuple[str, str, int]]:
        """Return C++ files with benchmarks: the file, its benchmark library, and the number of benchmarks."""
        found = []
        for name in self.files:
            if name.endswith(CPP_SUFFIXES) and (uses := _BENCHMARK.findall(self.bytes_of(name))):
                whose = "nvbench" if uses[0].startswith(b"NV") else "Google Benchmark"
                found.append((name, whose, len(uses)))
        return found

    def options_of(self, file: str) -> tuple[tuple[str, ...], str]:
        """Return options that the nearest build gives nvcc for a file, and the files that contain them.

        Only options that may be required are included. A CMake folder inherits its parent's, except fast
        math.
        """
        found: dict[str, str] = {}
        own = True
        for folder in PurePosixPath(file).parents:
            for build in self._builds.get(str(folder), ()):
                if own or posixpath.basename(build) == "CMakeLists.txt":
                    flags = self._flags(build, file)
                    found |= {each: build for each in flags if own or each != "--use_fast_math"}
            own = own and str(folder) not in self._builds
        return tuple(found), ", ".join(dict.fromkeys(found.values()))

    @cached_property
    def _builds(self) -> dict[str, list[str]]:
        """Return the build files by folder."""
        names = [name for name in self.files if name.endswith(_BUILD)]
        names += [
            name for name in self.files if name.endswith(".py") and b"cuda_cflags" in self.bytes_of(name)
        ]
        found: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            found.setdefault(posixpath.dirname(name) or ".", []).append(name)
        return found

    def _flags(self, build: str, file: str) -> list[str]:
        """Return the flags in a build's statements, without those for other files or other targets."""
        text = re.sub(r"#.*", "", self.text(build)).replace("\\\n", " ")
        whole = build.endswith(".py")
        statements = [text] if whole else [each[0] for each in _STATEMENT.finditer(text)]
        sources = {each[1]: _cuda_files(each[2]) for each in _ADDED.finditer(text)}
        found = []
        for each in statements:
            target = _TARGET.match(each)
            name = (target[1] or target[2]) if target else ""
            files = _cuda_files(each) or sources.get(name, set())
            if posixpath.basename(file) in files or not (files or name not in ("", PurePosixPath(file).stem)):
                found += [f"--{flag}" for flag in _FLAG.findall(each)]
        return found

    def hip_of(self, name: str) -> str:
        """Return the evidence that a file is HIP, which nvcc does not compile; empty for CUDA."""
        if name in self._added or name.endswith(".hip"):
            return "" if name in self._added else "by its name, .hip"
        texts = [self.text(file) for file in self._closure(name)[0]]
        if any(_FOR_BOTH.search(text) for text in texts):
            return ""
        included = (each for file in self._closure(name)[0] for _, each in self._includes(file))
        if header := next((each for each in included if each.startswith("hip/")), ""):
            return f"it includes {header}"
        own = self.text(name)
        if any(_CUDA_CALL.search(text) for text in texts) or re.search(r"#\s*include\s*[<\"]cuda", own):
            return ""
        if call := _HIP_CALL.search(own):
            return f"it calls {call[0]}"
        part = next((each for each in name.split("/") if _HIP_NAME.fullmatch(each)), "")
        return f"by its name, {part}" if part else ""

    def arch_of(self, name: str) -> tuple[str, str]:
        """Return the architecture that a file and the headers beside it need, and the reason; empty for any.

        A library header found through a folder does not count: it has code for all architectures.
        """
        text = "\n".join(self.text(file) for file, folder in self._closure(name)[0].items() if not folder)
        return next(((arch, what) for what, arch in _ARCHES.items() if what in text), ("", ""))

    def torch_headers(self, name: str) -> list[str]:
        """Return PyTorch headers that a file includes and the repository lacks."""
        included = [each for file in self._closure(name)[0] for each in self._includes(file)]
        return [
            each
            for kind, each in included
            if _TORCH.match(each) and self._resolve(each, posixpath.dirname(name), kind) is None
        ]

    @cached_property
    def _launches(self) -> dict[str, list[tuple[str, CudaLaunch]]]:
        found: dict[str, list[tuple[str, CudaLaunch]]] = {}
        for name, source in self.sources.items():
            for launch in () if self.hip_of(name) else source.launches:
                found.setdefault(launch.name, []).append((name, launch))
        return found

    @cached_property
    def _definers(self) -> Counter[str]:
        found = Counter[str]()
        for source in self.sources.values():
            kernels = [kernel.name for kernel in source.kernels]
            around = {launch.within.name for launch in source.launches if launch.within}
            found.update([*kernels, *around.difference(kernels)])
        return found

    def launches_of(self, name: str, file: str) -> list[tuple[str, CudaLaunch]]:
        """Yield the launches, instantiations and calls of a file's kernel or function with their files, its
        own first.

        If other files define the same name, only files that can see this one count.
        """
        found = self._launches.get(name, [])
        if self._definers[name] > 1:
            found = [each for each in found if file in self._closure(each[0])[0]]
        return sorted(found, key=lambda each: each[0] != file)

    def _bytes_of(self, name: str) -> bytes:
        """Return a file's bytes; none if it is no file, unreadable or larger than any source."""
        try:
            return read_regular(self.folder / name, _MOST_BYTES)
        except OSError:
            return b""

    def _text(self, name: str) -> str:
        if name in self._added:
            return self._added[name]
        content = self.bytes_of(name)
        encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
        text = content.decode(encoding, errors="replace")
        return opencl_text.as_cuda(text) if name.endswith(opencl_text.SUFFIX) else text

    def undecodable(self, name: str) -> str:
        """Return the first byte of a file that is not UTF-8, which suites require; empty without one."""
        try:
            self.bytes_of(name).decode()
        except UnicodeDecodeError as error:
            return f"byte {error.object[error.start]:#x} at {error.start}"
        return ""

    def _source(self, name: str) -> SourceFile:
        """Return the contents of a file; nothing for an unreadable one, which is added to `unread`."""
        found = attempt(name, name, lambda: read(self.text(name)))
        if isinstance(found, LeftOut):
            self.unread[name] = found.why
            return SourceFile((), (), {})
        return found

    # --- includes -------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> set[str]:
        return set(self.files)

    @cached_property
    def _by_base(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.files:
            if name.endswith(CPP_SUFFIXES):
                found.setdefault(posixpath.basename(name), []).append(name)
        return found

    @cached_property
    def include_folders(self) -> list[tuple[str, str]]:
        """Return the build's include folders, each after the folder of the build file, below which it
        applies.

        `compile_commands.json` applies to all files.
        """
        found: dict[tuple[str, str], None] = {}
        for name in self.files:
            if posixpath.basename(name) == "CMakeLists.txt" or name.endswith(".cmake"):
                here = posixpath.dirname(name)
                for group in _CMAKE.findall(self.text(name)):
                    for word in re.findall(r'"[^"]*"|\S+', group):
                        found[here, _cmake_folder(word.strip('"'), here)] = None
            elif posixpath.basename(name) == "compile_commands.json":
                for word in re.findall(r"-I\s*([^\s\"\\]+)", self.text(name)):
                    inside = os.path.relpath(word, self.folder) if word[0] == "/" else word
                    found["", posixpath.normpath(inside)] = None
        headers = (PurePosixPath(name) for names in self._by_base.values() for name in names)
        every = {str(folder) for header in headers for folder in header.parents}
        return [each for each in found if each[1] in every]

    @cached_property
    def _made(self) -> set[str]:
        """Return the names of files that CMake generates."""
        cmake = [name for name in self.files if name.endswith(("CMakeLists.txt", ".cmake"))]
        return {posixpath.basename(found) for name in cmake for found in _BUILT.findall(self.text(name))}

    def _resolved(self, included: str, folder: str, kind: str) -> tuple[str, str] | None:
        """Return the file of an include in `folder`, and the folder that has to be searched, which may be
        empty.

        `kind` is the opening character: `"` or `<`. A plain name in angle brackets is a library's, unless the
        build has a folder for it.
        """
        beside = posixpath.normpath(posixpath.join(folder, included))
        if kind == '"' and beside in self._known:
            return beside, ""
        for below, searched in self.include_folders:
            if below and not f"{folder}/".startswith(f"{below}/"):
                continue
            inside = posixpath.normpath(posixpath.join(searched, included))
            if inside in self._known:
                return inside, searched
        if kind == '"' or "/" in included:
            for candidate in self._by_base.get(posixpath.basename(included), []):
                if candidate.endswith(f"/{included}") or candidate == included:
                    return candidate, candidate[: -len(included)].rstrip("/") or "."
        return None

    def _found_closure(self, name: str) -> tuple[dict[str, str], list[str]]:
        """Return every file that a file includes, with the folder that finds it, and the missing files."""
        found, missing, waiting = {name: ""}, [], deque([name])
        while waiting:
            here = waiting.popleft()
            for kind, included in self._includes(here):
                resolved = self._resolve(included, posixpath.dirname(here), kind)
                if resolved is None:
                    # It is generated or missing, and not a library's.
                    made = posixpath.basename(included) in self._made
                    own = kind == '"' and not _TOOLKIT.fullmatch(included)
                    if made or (own and not (self.folder / posixpath.dirname(here) / included).exists()):
                        missing.append(included)
                elif resolved[0] not in found:
                    found[resolved[0]] = resolved[1]
                    waiting.append(resolved[0])
        return found, missing

    def includes_of(self, name: str) -> tuple[tuple[str, ...], list[str]]:
        """Return the folders that a file's includes need, and the missing ones.

        A file that has toolkit headers in quotes needs at least its own folder. Without any folder, quoted
        includes are expanded before nvcc runs.
        """
        found, missing = self._closure(name)
        folders = tuple(dict.fromkeys(filter(None, found.values())))
        own = (posixpath.dirname(name) or ".",)
        return folders or (own if self._quotes_toolkit(found) else ()), list(dict.fromkeys(missing))

    def _quotes_toolkit(self, files: Iterable[str]) -> bool:
        return any(
            kind == '"' and _TOOLKIT.fullmatch(included) and not self._resolve(included, "", kind)
            for file in files
            for kind, included in self._includes(file)
        )

    def _meaning(self, name: str, word: str) -> Expression | None:
        """Return the value of a macro, constant or alias at the top of a file or its includes.

        A macro with parameters or without text has no tokens. None if no file defines the word.
        """
        for file in self._closure(name)[0]:
            if word in self.text(file) and word in self.source(file).names:
                return self.source(file).names[word]
        return None

    def texts(self, name: str) -> Iterable[str]:
        """Yield the text of a file, and of the repository's files that it includes."""
        return map(self.text, self._closure(name)[0])

    def declares(self, name: str, word: str) -> bool:
        """Return whether a file or its includes declare a word in any scope: `SIZE = 1`, `enum {SIZE}`."""
        texts = (text for file in self._closure(name)[0] if word in (text := self.text(file)))
        groups = (group for text in texts for found in _DECLARED.findall(text) for group in found)
        return any(word in re.findall(r"\w+", group) for group in groups)

    def has_library(self, name: str) -> bool:
        """Return whether a file or its includes use headers from outside of the repository."""
        return any(
            self._resolve(included, posixpath.dirname(file), kind) is None
            for file in self._closure(name)[0]
            for kind, included in self._includes(file)
        )

    def including(self, name: str, fits: Callable[[str], bool]) -> str | None:
        """Return a matching file that includes this one, directly or indirectly; None without one."""
        base = posixpath.basename(name).encode()
        includers = [
            other for other in self.files if other.endswith(CPP_SUFFIXES) and base in self.bytes_of(other)
        ]
        for other in [*includers, *self.sources]:
            if other != name and name in self._closure(other)[0] and not self.hip_of(other) and fits(other):
                return other
        return None


def _cuda_files(text: str) -> set[str]:
    """Return the CUDA files named in a text, without folders."""
    return {posixpath.basename(name) for name in _CUDA_FILE.findall(text)}


def _is_text(name: str) -> bool:
    """Return whether a file's name can be written into suite.py and a record, which are UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cmake_folder(word: str, here: str) -> str:
    """Return a folder that a CMake file in `here` names, relative to the repository's top."""
    word = word.removeprefix("$<BUILD_INTERFACE:").rstrip(">")
    for variable in ("${PROJECT_SOURCE_DIR}", "${CMAKE_SOURCE_DIR}"):
        if word.startswith(variable):
            return posixpath.normpath(word.replace(variable, "."))
    for variable in ("${CMAKE_CURRENT_SOURCE_DIR}", "${CMAKE_CURRENT_LIST_DIR}"):
        word = word.replace(variable, ".")
    return posixpath.normpath(posixpath.join(here, word))
