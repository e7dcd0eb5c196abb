"""Settings of a process that may affect a kernel's time and are not in its source.

They are flags of frameworks, numbers of threads, the environment, and versions. Only loaded modules are read.
A setting that cannot be read is left out, because versions of a framework differ.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.system.cache import export_root

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "backends.cuda.matmul.allow_tf32",
        "backends.cuda.matmul.fp32_precision",
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        "backends.cuda.matmul.allow_fp16_accumulation",
        "backends.cuda.flash_sdp_enabled()",
        "backends.cuda.mem_efficient_sdp_enabled()",
        "backends.cuda.math_sdp_enabled()",
        "backends.cuda.cudnn_sdp_enabled()",
        "backends.cuda.preferred_blas_library()",
        "backends.cuda.preferred_linalg_library()",
        "backends.cuda.cufft_plan_cache.max_size",
        "backends.cudnn.allow_tf32",
        "backends.cudnn.benchmark",
        "backends.cudnn.benchmark_limit",
        "backends.cudnn.deterministic",
        "backends.cudnn.enabled",
        "backends.mkldnn.enabled",
        "backends.fp32_precision",
        "are_deterministic_algorithms_enabled()",
        "cuda.get_allocator_backend()",
        "get_default_device()",
        "get_default_dtype()",
        "get_float32_matmul_precision()",
        "get_num_interop_threads()",
        "get_num_threads()",
        "is_autocast_enabled()",
        "is_grad_enabled()",
        "is_inference_mode_enabled()",
        "utils.deterministic.fill_uninitialized_memory",
        "version.cuda",
        "backends.cudnn.version()",
    ),
    "torch._dynamo.config": ("get_config_copy()",),
    "torch._inductor.config": ("get_config_copy()",),
    "triton": tuple(
        f"knobs.{group}.knobs"
        for group in ("autotuning", "compilation", "language", "nvidia", "amd", "runtime")
    ),
    "cupy": (
        "cuda.get_allocator()",
        "get_default_memory_pool().get_limit()",
        "get_default_pinned_memory_pool().__class__",
        "_core.get_routine_accelerators()",
        "_core.get_reduction_accelerators()",
        "cuda.runtime.runtimeGetVersion()",
    ),
    "jax": ("config.values",),
    # Its public call would start the threads.
    "numba.np.ufunc.parallel": ("_get_num_threads()", "_threading_layer"),
    "numba.core.config": ("__dict__",),
    "numpy": ("getbufsize()", "geterr()"),
    "gc": ("isenabled()", "get_threshold()"),
    "sys": ("getswitchinterval()", "getrecursionlimit()"),
}
"""Attributes to read from loaded modules. Those with brackets are called, and mappings give entries."""
_OURS = ("HARNESS_", "TORCH_EXTENSIONS_DIR", "PYTHONPATH", "PWD")
"""Variables that this harness sets for each of its processes."""
_MOST_LETTERS = 120


def process_state(root: Path) -> dict[str, str]:
    """Return settings of this process by name. Paths in the checkout of the suite at `root` are
    made equal.
    """
    top = str(export_root(root) or root)
    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a framework warns about its older names
        for name, paths in _SETTINGS.items():
            if module := sys.modules.get(name):
                for path in paths:
                    with suppress(Exception):  # a framework's own code may raise anything
                        found |= _entries(f"{name}.{path}", _read(module, path))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    found |= {f"environment {name}": value for name, value in variables.items()}
    found |= {f"version of {name}": version for name, version in _versions()}
    with suppress(AttributeError, OSError):
        found["CPU affinity"] = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        found["nice"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    return {name: value.replace(top, "<checkout>")[:_MOST_LETTERS] for name, value in found.items()}


def _read(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part.removesuffix("()"))
        if part.endswith("()"):
            owner = owner()
    return owner


def _entries(name: str, value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        name = name.rpartition(".")[0]
        told = {f"{name}.{key}": _told(each) for key, each in value.items() if not str(key).startswith("_")}
    else:
        told = {name.removesuffix("()"): _told(value)}
    return {key: each for key, each in told.items() if each is not None}


def _told(value: Any) -> str | None:
    """Return a value as text that is the same in every process; None if it has no such text."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return str(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        told = [_told(each) for each in value]
        return None if None in told else str(told)
    if isinstance(value, ModuleType):
        return None
    if isinstance(value, type) or callable(value):
        owner = getattr(value, "__self__", None)
        of = f"{type(owner).__qualname__}." if owner is not None and not isinstance(owner, ModuleType) else ""
        return f"{of}{getattr(value, '__qualname__', type(value).__qualname__)}"
    text = str(value)
    return None if " at 0x" in text else text


def _versions() -> Iterator[tuple[str, str]]:
    for name, module in tuple(sys.modules.items()):
        version = getattr(module, "__dict__", {}).get("__version__")
        if "." not in name and not name.startswith("_") and isinstance(version, str):
            yield name, version


def differences(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings that differ, as ``torch.get_num_threads: 8 → 1``.

    A library's settings count if both sides loaded it; a variable also counts on one side alone.
    """
    both = base.keys() & head.keys()
    alone = {name for name in base.keys() ^ head.keys() if name.startswith("environment ")}
    return tuple(
        f"{name}: {base.get(name, 'none')} → {head.get(name, 'none')}"
        for name in sorted(both | alone)
        if base.get(name) != head.get(name)
    )
