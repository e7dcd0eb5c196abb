"""The text for a compiler: macros, then the backend's prelude, then the kernel's source.

With one self-contained text, one hash covers everything that the author wrote. The text is the same for every
backend. For host code, the text distinguishes one program from another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import BuildError, LaunchError, SuiteError
from harness.records.types import Launch
from harness.suite.grid_sync import grid_waiters
from harness.suite.kernel import (
    IMAGES,
    Generated,
    HostFunction,
    HostLibrary,
    Kernel,
    PythonFunction,
    step_names,
)
from harness.suite.layout import Parameter
from harness.suite.problem import Case
from harness.suite.python_functions import PythonCall, check_defined
from harness.suite.suite import Suite
from harness.suite.suite_files import QUOTED_INCLUDE, cached_tree_sha256, functions_sha256, include_folders
from harness.system.cache import write_atomically
from harness.system.files import read_regular

_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*$", re.MULTILINE)

_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
"""A comment or, in a group, a literal, which may contain comment marks."""
_WORDY = re.compile(
    r"""( (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
        | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
        | \.?\d(?:[eEpP][+-]|'?[\w.])* | [^\W\d]\w* ) | //[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)
"""The same as _COMMENT for a text with raw strings or digit separators. It scans each word."""
_MATRIX_PRODUCT = re.compile(r"(?<![A-Za-z])(?:wg|[wh])?mma(?![a-z])")
"""Names in C++ and PTX for a product on tensor cores: mma.sync, wmma, wgmma, __hmma, <mma.h>."""
_ODD_QUOTES = re.compile(r"""R"|\w'\w""")
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
"""A line continued on the next. Compilers join such lines first."""


@functools.lru_cache(maxsize=256)
def _code(text: str) -> str:
    """Return a text without comments, empty lines and line numbers, or unchanged if these may matter."""
    if _SHAPED.search(text):
        return text
    # Not splitlines(), which also splits at a form feed.
    lines = (line.rstrip() for line in _without_comments(text).split("\n"))
    return "\n".join(line for line in lines if line and not line.startswith("#line"))


def _without_comments(text: str) -> str:
    text = _SPLICE.sub("", text)
    return _comment_in(text).sub(lambda match: match[1] or " ", text)


def _comment_in(text: str) -> re.Pattern[str]:
    return _WORDY if _ODD_QUOTES.search(text) else _COMMENT


_SHAPED = re.compile(
    r'R"|\b(?:__LINE__|__FILE_\w+|__builtin_(?:LINE|FILE\w*|COLUMN)|(?:__builtin_)?source_location)\b'
)
"""Code that depends on its layout: a raw string, in which line ends and backslashes count, or __LINE__ and
the like."""

_GAP = r"(?:[ \t]|/\*.*?\*/)*"
_DIRECTIVE = re.compile(rf"(?:#|%:|\?\?=){_GAP}(?:include(?:_next)?|import)\b{_GAP}([^\n]*)", re.DOTALL)
_SEARCH = re.compile(r"__has_include|\bembed\b|__has_embed|\.inc(?:lude|bin)\b")
_SYSTEM_HEADER = re.compile(r"<(?!.*(?:\.\.|//|/\*))[\w+-][\w+./-]*>\s*\Z")

_PLAIN_OPTION = re.compile(
    r"""-{1,2}(?:
        std=\S+ | O\w? | [DU]\w+(?:=.*)? | w | g | G | cl-[\w-]+(?:=\S+)?
        | m64 | dlto | v | allow-unsupported-compiler | disable-warnings | (?:resource|res)-usage
        | (?:generate-)?line-?info | (?:device-)?debug | use_fast_math | restrict
        | (?:ftz|prec-div|prec-sqrt|fmad|maxrregcount|default-stream|rdc|dopt)=\w+
        | (?:arch|gpu-architecture|code|gencode|generate-code)=(?!.*native)[\w,=]+
        | expt-(?:relaxed-constexpr|extended-lambda) | extended-lambda | extra-device-vectorization
        | (?:Xptxas|ptxas-options)=-[\w=,-]+ | diag-suppress=?[\d,]* | W[\w-]+ | l\w+
        | Xcompiler=-(?:f[\w-]+|O\w?|W[\w-]*|w|g)
    )\Z""",
    re.VERBOSE | re.DOTALL,
)
_TWO_WORDS = {
    *("-D", "-U", "-std", "--std", "-arch", "-code", "-gencode", "--generate-code", "-maxrregcount"),
    *("-Xptxas", "--ptxas-options", "-Xcompiler"),
}


def unusual_options(options: Sequence[str]) -> list[str]:
    """Return the options that may make the compiler read a file: all but those known not to."""
    left, waiting = [], iter(options)
    for option in waiting:
        value = next(waiting, "") if option in _TWO_WORDS else None
        whole = option if value is None else f"{option}{'' if option in ('-D', '-U') else '='}{value}"
        if not _PLAIN_OPTION.match(whole) or "file" in whole.partition("ptxas")[2]:
            left += [option] if value is None else [option, value]
    return left


def is_self_contained(text: str, options: Sequence[str], *, system_headers: bool) -> bool:
    """Tell whether a compiler reads no other file of the author's.

    Headers in angle brackets are the compiler's own if `system_headers`, which means that no option names a
    folder.
    """
    code = _SPLICE.sub("", text)
    if 'R"' not in code and (_DIRECTIVE.search(code) or _SEARCH.search(code)):
        code = _without_comments(text)
    named = _DIRECTIVE.findall(code)
    if unusual_options(options) or _SEARCH.search(code) or (named and not system_headers):
        return False
    return all(_SYSTEM_HEADER.match(name) for name in named)


@dataclass(frozen=True)
class Program:
    name: str
    function: str
    text: str
    options: tuple[str, ...] = ()
    emulate: Callable[..., Any] | None = field(default=None, compare=False)
    """Computes the kernel's results on host arrays. The null backend calls it instead of a device."""
    kind: Literal["kernel", "image", "library", "host"] = "kernel"
    """Compiler of the text: the device's, nvcc for the host, or none. CUDA's driver loads an image."""
    parameters: tuple[Parameter, ...] = ()
    host: Callable[[int], Callable[..., object]] | None = field(default=None, compare=False)
    """Returns for a stream the function to call for each launch; for a program of kind host."""
    errors: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Meanings of the error numbers of a library's function."""
    steps: tuple[tuple[str, int], ...] = ()
    """Functions that run after it, each with its number of parameters, which are the first ones."""
    setup: str = ""
    """Identity of the function that returns further arguments."""
    in_parts: bool = False
    """True if its source gets the start of each dispatch, so that it can be launched in parts."""
    python: PythonCall | None = field(default=None, compare=False)
    """A function of a framework's tensors, instead of `host`; for a program of kind host."""
    folders: tuple[str, ...] = ()
    """Folders that the compiler searches, by absolute path. `tree_sha256` covers their contents."""
    content: bytes = field(default=b"", compare=False, repr=False)
    """The bytes of an image, or of a compiled library. The text is their hash."""
    suffix: str = ".cu"
    """Extension of the text's file: CUDA's C++, or .ptx."""
    instance: str = ""
    """The launched template instance in C++; `function` is its name alone."""
    arch: str = ""
    """Architecture to build for, if the suite sets one; else the device's."""
    compiler: str = ""
    """Path of the nvcc to compile with; empty for the default one."""
    tree_sha256: str = ""
    """Hash of the suite's files, if the program depends on more than text and options; else empty."""

    @property
    def compiled(self) -> tuple[str, ...]:
        """Return the compiler's input. Two programs with the same input share one compilation."""
        return self.kind, self.text, self.arch, self.compiler, *self.all_options

    @property
    def is_compiled(self) -> bool:
        """Return True if a compiler makes it from text."""
        return self.kind in ("kernel", "library") and not self.content

    @property
    def all_options(self) -> tuple[str, ...]:
        """Return the compiler's options, with this machine's folders."""
        return *(f"-I{folder}" for folder in self.folders), *self.options

    @property
    def may_use_tensor_cores(self) -> bool:
        """Return True if it may use tensor cores, by its text. A library has no text."""
        whole = self.kind == "kernel" and not self.tree_sha256
        return not whole or bool(_MATRIX_PRODUCT.search(_without_comments(self.text)))

    @property
    def sha256(self) -> str:
        steps = (name for name, _ in self.steps)
        beside = (*steps, *filter(None, (self.setup, self.arch, self.tree_sha256)))
        parts = (self.text, *self.options, *beside)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def code_sha256(self) -> str | None:
        """Return a hash that ignores comments and layout; None if more than the text is compiled."""
        if self.tree_sha256:
            return None
        parts = (_code(self.text), *self.options, *filter(None, (self.arch,)))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def program(
    suite: Suite,
    kernel: Kernel,
    case: Case,
    backend: str,
    arch: str = "",
    launch: Launch | None = None,
    scratch: Path | None = None,
) -> Program:
    """Return the program of a case for a backend. `arch` is its architecture, such as sm_90.

    Generated text is cached in `scratch`, the folder of a run. A `launch` in parts gives a different program,
    whose blocks get the start of their part. Raises SuiteError for a source or header that cannot be read,
    BuildError if a function of the suite fails to generate one, LaunchError if parts are impossible.
    """
    made = _whole(suite, kernel, case, backend, arch, scratch)
    if backend in ("cuda", "null") and made.kind == "kernel":
        _check_grid_sync(made, kernel)
    if made.python is not None and kernel.grid is not None:
        made = dataclasses.replace(made, python=dataclasses.replace(made.python, launch=launch))
    system_headers = backend in ("cuda", "null")
    is_whole = made.kind == "image" or (
        made.kind == "kernel"
        and not made.folders
        and is_self_contained(made.text, made.options, system_headers=system_headers)
    )
    if not is_whole:
        tree = functions_sha256(suite) if made.kind == "host" else cached_tree_sha256(suite)
        made = dataclasses.replace(made, tree_sha256=tree)
    if launch is None or not launch.in_parts or backend in ("cpu", "null"):
        return made
    return _in_parts(made, launch, backend)


def _check_grid_sync(made: Program, kernel: Kernel) -> None:
    """Raises LaunchError for a function that waits for its whole grid and is launched without that right."""
    plain = [name for name, _ in made.steps] + ([] if kernel.cooperative else [made.function])
    if waiting := next((name for name in plain if name in grid_waiters(made.text)), ""):
        step = "" if waiting == made.function else ", and write the step as a kernel of its own"
        raise LaunchError(
            f"{waiting} of {made.name} waits for its whole grid, which a plain launch does not allow: say "
            f"cooperative=True in its Kernel, with a grid that fits the card at once{step}."
        )


def _whole(
    suite: Suite, kernel: Kernel, case: Case, backend: str, arch: str, scratch: Path | None
) -> Program:
    source = kernel.source_for(backend)
    if source is None:
        raise kernel.error(f"has no source for {backend}.")
    made = functools.partial(
        Program,
        name=f"{suite.name}.{kernel.name}",
        function=kernel.function,
        parameters=suite.parameters(kernel, case),
        steps=tuple((step.entry, len(step_names(suite.problem, kernel, step))) for step in kernel.steps),
        setup=_identity(kernel.setup, (), case) if kernel.setup else "",
        arch=kernel.arch,
    )
    options = tuple(kernel.options.get(backend, ()))
    match source:
        case HostFunction():
            text = _identity(source.function, source.needs, case)
            return made(text=text, kind="host", host=lambda stream: source.function(case, stream))
        case PythonFunction():
            call, text = _python_call(suite, kernel, case, source)
            return made(text=text, kind="host", python=call)
        case HostLibrary():
            return _library(made, suite, kernel, case, source)
        case Generated():
            text = _generated(source, suite.root, case, arch, scratch)
            folders = include_folders(suite, kernel)
            return _instantiated(made(text=text, options=options, folders=folders), kernel, case)
    return _of_file(made, suite, kernel, case, backend, source)


def _of_file(
    made: Callable[..., Program], suite: Suite, kernel: Kernel, case: Case, backend: str, name: str
) -> Program:
    file, options = suite.root / name, tuple(kernel.options.get(backend, ()))
    if backend == "opengl":
        return made(text=_glsl(file, case), options=options)
    if name.endswith(IMAGES):
        return made(**_bytes_of(file), kind="image")
    if name.endswith(".ptx"):
        return made(text=_text(file), options=options, suffix=".ptx")
    parts, once = _defines(case, kernel.instance_names), set[Path]()
    folders = _folders_of(file, suite, kernel)
    if prelude := suite.prelude.get(backend):
        parts.append(_flatten(suite.root / prelude, once))
    parts.append(_numbered(file) if folders else _flatten(file, once))
    text = "\n".join(parts) + "\n"
    return _instantiated(made(text=text, options=options, folders=folders), kernel, case)


def _library(
    made: Callable[..., Program], suite: Suite, kernel: Kernel, case: Case, source: HostLibrary
) -> Program:
    file = suite.root / source.file
    if source.file.endswith(".so"):
        return made(**_bytes_of(file), kind="library", errors=source.errors)
    folders = _folders_of(file, suite, kernel)
    text = _numbered(file) if folders else _flatten(file, set())
    searched = tuple(f"-I{folder}" for folder in (source.include() if source.include else ()))
    return made(
        text="\n".join((*_versions(source.needs), *_defines(case), text)) + "\n",
        options=(*searched, *kernel.options.get("cuda", ())),
        folders=folders,
        kind="library",
        errors=source.errors,
    )


def _folders_of(file: Path, suite: Suite, kernel: Kernel) -> tuple[str, ...]:
    """Return the folders searched for a file's headers, its own first; none if the text includes them."""
    folders = include_folders(suite, kernel)
    return (os.path.normpath(file.parent), *folders) if folders else ()


def _defines(case: Case, besides: Collection[str] = ()) -> list[str]:
    """Return macros, without those that are template arguments, because template parameters have
    these names.
    """
    return [f"#define {name} {value}" for name, value in case.macros.items() if name not in besides]


INSTANCE = "harness_instance"
"""Name of an empty template kernel that makes the compiler emit the instance."""
INSTANCE_FILE = "instantiate"
"""File name for the definition of an instance, in compiler messages."""


def _instantiated(made: Program, kernel: Kernel, case: Case) -> Program:
    if not (instance := kernel.instance(case)):
        return made
    appended = f"""\
#line 1 "{INSTANCE_FILE}"
template <typename T, T kernel> __global__ void {INSTANCE}() {{}}
template __global__ void {INSTANCE}<decltype(&{instance}), &{instance}>();
"""
    return dataclasses.replace(made, text=made.text + appended, instance=instance)


_PORTABLE_WORD = re.compile(r"\bBLOCK_[XYZ]\b")
_OWN_WORD = {
    "cuda": re.compile(r"\b(?:blockIdx|gridDim)\b"),
    "opencl": re.compile(r"\b(?:get_group_id|get_num_groups|get_global_size)\b"),
    "opengl": re.compile(r"\bgl_NumWorkGroups\b"),
}
"""Identifiers that a kernel uses for the whole grid, but that describe one dispatch."""
_PORTABLE_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?:HARNESS_)?(?:BLOCK|GRID)_[XYZ]\b.*$", re.MULTILINE
)
_UNIFORM = re.compile(r"\buniform\s+u?int\b([^;]*);")


def _in_parts(whole: Program, launch: Launch, backend: str) -> Program:
    """Return the program for a launch in parts. It gets the extents of the whole grid, which a dispatch
    lacks.
    """
    if problem := _not_in_parts(whole, launch, backend):
        raise LaunchError(
            f"{whole.name} cannot be launched in parts of at most {launch.dispatch} blocks: {problem}"
        )
    extents = zip("XYZ", launch.grid, strict=True)
    defines = [f"#define HARNESS_GRID_{axis} {extent}" for axis, extent in extents]
    version, text = whole.text.split("\n", 1) if backend == "opengl" else ("", whole.text)
    return dataclasses.replace(
        whole,
        text="\n".join(filter(None, (version, "#define HARNESS_DISPATCH 1", *defines, text))),
        in_parts=True,
    )


def _not_in_parts(whole: Program, launch: Launch, backend: str) -> str:
    """Return why a program finds its blocks only in a whole launch; empty if it can be launched in parts."""
    host = "the host enqueues its work, in its own way."
    problem = {"kernel": "", "image": "it is compiled already."}.get(whole.kind, host)
    if launch.has_attributes:
        problem = "its blocks may wait for one another."
    if whole.steps or problem:
        return "it has steps." if whole.steps else problem
    code = _without_comments(whole.text)
    used = _PORTABLE_DEFINE.sub("", code)
    if found := _OWN_WORD[backend].search(used):
        return f"it finds its block by {found[0]}; write the words BLOCK_X and GRID_X of the portable header."
    if backend == "opengl":
        return _without_origin(code, launch)
    if not _PORTABLE_WORD.search(used):
        if backend == "opencl" and "get_global_id" in used:  # OpenCL itself counts threads from the offset
            return ""
        return "it does not find its block by BLOCK_X, BLOCK_Y or BLOCK_Z of the portable header."
    unknown = "its prelude knows nothing of HARNESS_DISPATCH: take the headers of kernels/portable."
    return "" if "HARNESS_DISPATCH" in code else unknown


def _without_origin(code: str, launch: Launch) -> str:
    assert launch.dispatch is not None
    declared = set(re.findall(r"\w+", " ".join(_UNIFORM.findall(code))))
    directions = zip(("x0", "y0", "z0"), launch.grid, launch.dispatch, strict=True)
    missing = [name for name, whole, part in directions if whole > part and name not in declared]
    if not missing:
        return ""
    return f"it has no uniform int {missing[0]}, the first invocation of a part."


def _glsl(path: Path, case: Case) -> str:
    """Return GLSL with its version first and numbers for files. Comments map the numbers to
    names, for logs.
    """
    text = "\n".join(("#version 430", *_defines(case), _flatten(path, set()))) + "\n"
    numbers: dict[str, int] = {}

    def numbered(line: re.Match[str]) -> str:
        return f"{line[1]} {numbers.setdefault(line[2], len(numbers))} // {line[2]}"

    return re.sub(r'^(#line \d+) "([^"\n]*)"$', numbered, text, flags=re.MULTILINE)


def lacking(kernel: Kernel, backend: str) -> str:
    """Return which packages a kernel lacks on a backend, and what to do; empty if none."""
    source = kernel.source_for(backend)
    if source is None or isinstance(source, str) or backend == "null":
        return ""
    groups = source.packages if isinstance(source, PythonFunction) else ()
    if not source.needs and not groups:
        return ""
    from harness.system import packages

    missing = packages.lacking(source.needs, groups)
    return missing and f"{kernel.name} {missing}"


def check_functions(suite: Suite, kernels: Iterable[Kernel]) -> None:
    """Raise SuiteError if a Python file lacks the function of a kernel."""
    for kernel in kernels:
        for source in kernel.sources.values():
            if isinstance(source, PythonFunction) and (suite.root / source.file).is_file():
                file = Path(os.path.normpath(suite.root / source.file))
                text = read_regular(file).decode("utf-8-sig", errors="replace")
                check_defined(file, source.name or kernel.function, text)


def _versions(needs: tuple[str, ...]) -> list[str]:
    """Return a comment for each package with its version, which may change the program."""
    if not needs:
        return []
    from harness.system import packages

    return [f"// {version}" for version in packages.versions(needs)]


def _identity(function: Callable[..., Any], needs: tuple[str, ...], case: Case) -> str:
    """Return everything that a host function depends on: its file, its packages, the case."""
    import inspect

    try:
        file = Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8")
    except (OSError, TypeError) as error:
        raise SuiteError(f"The source of {function!r} cannot be read: {error}.") from None
    return "\n".join((*_versions(needs), function.__qualname__, *_values(case), file))


def _values(case: Case) -> list[str]:
    """Return type, sizes and macros of a case, as far as they distinguish programs."""
    sizes = [f"{axis}={size}" for axis, size in case.sizes.items()]
    return [case.dtype, *sizes, *(f"{macro}={value}" for macro, value in sorted(case.macros.items()))]


def _python_call(suite: Suite, kernel: Kernel, case: Case, source: PythonFunction) -> tuple[PythonCall, str]:
    """Return a function of a Python file and its text. The file is only read: its framework may
    be missing.
    """
    from harness.system import packages

    file, name = Path(os.path.normpath(suite.root / source.file)), source.name or kernel.function
    try:
        text = read_regular(file).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(
            f"Cannot read {file}: {error}. Check the name in suite.py, which is relative to its folder."
        ) from None
    check_defined(file, name, text)
    brought = [packages.first_installed(group) for group in source.packages]
    identity = (
        *_versions((*filter(None, brought), *source.needs)),
        *(source.framework, source.file, name),
        *_values(case),
    )
    code = functions_sha256(suite, parsed=True)
    call = PythonCall(
        framework=source.framework,
        file=file,
        name=name,
        parameters=suite.parameters(kernel, case),
        outputs=tuple(name for name in suite.problem.outputs if name not in suite.problem.inputs),
        macros=case.macros,
        root=suite.root,
        code_sha256=hashlib.sha256("\n".join((*identity, code)).encode()).hexdigest(),
        cards=kernel.cards,
        written=tuple(suite.problem.outputs),
    )
    _check_first_axes(kernel, call)
    return call, "\n".join((*identity, text))


def _check_first_axes(kernel: Kernel, call: PythonCall) -> None:
    """Raise SuiteError if a kernel spans cards, and an array has no row for each card."""
    for parameter in call.parameters if kernel.cards > 1 else ():
        layout = parameter.layout
        if layout and (not layout.plain or layout.shape[:1] != (kernel.cards,)):
            raise kernel.error(
                f"spans {kernel.cards} cards, and {parameter.name} is of shape {layout.shape}; expected "
                f"rows without padding, and a first axis of {kernel.cards}, of which each card gets one row."
            )


def _generated(source: Generated, root: Path, case: Case, arch: str, scratch: Path | None) -> str:
    """Return the function's text for a case. It is cached, because importing a compiler takes longer."""
    asked = repr((str(root), case.id, case.dtype, sorted(case.macros.items()), arch))
    file = scratch and scratch / f"generated-{hashlib.sha256(asked.encode()).hexdigest()}"
    if file is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return read_regular(file).decode()
    try:
        text = source.function(case, arch)
    except Exception as error:
        raise BuildError(
            f"{case.suite}.{case.kernel} could not be generated: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(text, str):
        raise SuiteError(f"{case.suite}.{case.kernel}: its function gave {text!r}; expected source text.")
    if file is not None:
        with contextlib.suppress(OSError):  # A full disk only costs time.
            write_atomically(file, text.encode(), durable=False)
    return text


def _bytes_of(path: Path) -> dict[str, Any]:
    """Return the `content` of a program whose file is compiled already, with its hash as the `text`."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise SuiteError(
            f"Cannot read {path}: {error.strerror or error}. Check the name in suite.py."
        ) from None
    return {"text": hashlib.sha256(content).hexdigest(), "content": content}


def _numbered(path: Path) -> str:
    """Return the text of a file unchanged, for a compiler that finds its includes."""
    return f'#line 1 "{path.name}"\n{_text(path)}'


def _text(path: Path, by: str = "") -> str:
    try:
        text = read_regular(path).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        do = "Check the name in suite.py."
        if by:
            do = (
                "Write that file, or name the folder that has it in the kernel's include, such as 'include/'."
            )
        raise SuiteError(f"Cannot read kernel source {path}{by}: {why}. {do}") from None


def _flatten(path: Path, once: set[Path], including: tuple[Path, ...] = ()) -> str:
    """Return a file's text with quoted includes expanded, and #line for compiler messages.

    `once` collects the files with #pragma once, which has no effect in a single text.
    """
    path = Path(os.path.normpath(path))
    if path in including:
        raise SuiteError(f"{path} includes itself.")
    if path in once:
        return ""
    text = _text(path, f", included by {including[-1].name}" if including else "")
    if _ONCE.search(text):
        once.add(path)
        text = _ONCE.sub("", text)

    comments = [each.span() for each in _comment_in(text).finditer(text) if not each[1]]

    def include(match: re.Match[str]) -> str:
        if any(begin < match.start() < end for begin, end in comments):
            return match[0]
        line = text.count("\n", 0, match.end()) + 2
        return f'{_flatten(path.parent / match[1], once, (*including, path))}\n#line {line} "{path.name}"'

    return f'#line 1 "{path.name}"\n' + QUOTED_INCLUDE.sub(include, text)
