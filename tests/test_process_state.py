"""Settings of a process that the sides of a comparison are held to, with frameworks that are made up."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from harness.device.process_state import differences, process_state

NOWHERE = Path("/nowhere")
TORCH = """
    backends.cuda.matmul.allow_tf32 backends.cuda.matmul.fp32_precision
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    backends.cuda.matmul.allow_fp16_accumulation
    backends.cuda.flash_sdp_enabled() backends.cuda.mem_efficient_sdp_enabled()
    backends.cuda.math_sdp_enabled() backends.cuda.cudnn_sdp_enabled()
    backends.cuda.preferred_blas_library() backends.cuda.preferred_linalg_library()
    backends.cuda.cufft_plan_cache.max_size
    backends.cudnn.allow_tf32 backends.cudnn.benchmark backends.cudnn.benchmark_limit
    backends.cudnn.deterministic backends.cudnn.enabled backends.cudnn.version()
    backends.mkldnn.enabled backends.fp32_precision
    are_deterministic_algorithms_enabled() cuda.get_allocator_backend()
    get_default_device() get_default_dtype() get_float32_matmul_precision()
    get_num_interop_threads() get_num_threads()
    is_autocast_enabled() is_grad_enabled() is_inference_mode_enabled()
    utils.deterministic.fill_uninitialized_memory version.cuda
"""
CUPY = """
    cuda.get_allocator() get_default_memory_pool().get_limit() cuda.runtime.runtimeGetVersion()
    _core.get_routine_accelerators() _core.get_reduction_accelerators()
"""
SINGLE = [
    *(("torch", path) for path in TORCH.split()),
    *(("cupy", path) for path in CUPY.split()),
    *(("numba.np.ufunc.parallel", path) for path in ("_get_num_threads()", "_threading_layer")),
]
TABLES = [
    ("torch._dynamo.config", "get_config_copy()"),
    ("torch._inductor.config", "get_config_copy()"),
    ("jax", "config.values"),
    ("numba.core.config", "__dict__"),
    *(
        ("triton", f"knobs.{group}.knobs")
        for group in ("autotuning", "compilation", "language", "nvidia", "amd", "runtime")
    ),
]


def framework(path, value):
    """An object at which the path, with calls where it has brackets, leads to a value."""
    for part in reversed(path.split(".")):
        name, inner = part.removesuffix("()"), value
        value = SimpleNamespace(**{name: (lambda inner=inner: inner) if part.endswith("()") else inner})
    return value


def changed(monkeypatch, module, path, before, after):
    """The differences that are told where base and head have these values at the path of a framework."""
    states = []
    for value in (before, after):
        made = SimpleNamespace(**value) if path == "__dict__" else framework(path, value)
        monkeypatch.setitem(sys.modules, module, made)
        states.append(process_state(NOWHERE))
    return differences(*states)


@pytest.mark.parametrize(("module", "path"), SINGLE)
def test_a_setting_of_a_framework_that_differs_is_told(monkeypatch, module, path):
    told = f"{module}.{path}".removesuffix("()")
    assert changed(monkeypatch, module, path, True, False) == (f"{told}: True → False",)


@pytest.mark.parametrize(("module", "path"), TABLES)
def test_an_entry_of_a_frameworks_table_that_differs_is_told(monkeypatch, module, path):
    told = f"{module}.{path}".rpartition(".")[0]
    before, after = {"level": 1, "same": 2, "_cache": 3}, {"level": 2, "same": 2, "_cache": 4}
    assert changed(monkeypatch, module, path, before, after) == (f"{told}.level: 1 → 2",)


def test_the_kind_of_cupys_pool_of_pinned_memory_is_told(monkeypatch):
    pool = SimpleNamespace(get_default_pinned_memory_pool=Plain)
    monkeypatch.setitem(sys.modules, "cupy", pool)
    assert process_state(NOWHERE)["cupy.get_default_pinned_memory_pool().__class__"] == "Plain"


def test_settings_of_python_and_numpy_are_told(tmp_path):
    told = process_state(tmp_path)
    names = ("gc.isenabled", "gc.get_threshold", "sys.getswitchinterval", "sys.getrecursionlimit")
    assert {*names, "numpy.getbufsize", "CPU affinity", "nice", "version of numpy"} <= told.keys()


def test_what_one_side_alone_has_counts_for_variables_only():
    base, head = {"torch.flag": "1", "environment A": "1"}, {"cupy.flag": "2", "environment B": "2"}
    assert differences(base, head) == ("environment A: 1 → none", "environment B: none → 2")
    assert differences(base, base) == ()


def test_variables_of_the_harness_and_the_checkouts_place_are_left_out(monkeypatch, tmp_path):
    for name in ("HARNESS_CACHE_DIR", "PYTHONPATH", "PWD", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("THEIRS", f"{tmp_path}/data")
    monkeypatch.setenv("LONG", "x" * 999)
    told = process_state(tmp_path)
    assert told["environment THEIRS"] == "<checkout>/data"
    assert told["environment LONG"] == "x" * 120
    assert "ours" not in told.values()


class Plain:
    """Its text has an address, which no two processes have in common."""

    def limit(self) -> None:
        pass


class Named:
    def __str__(self) -> str:
        return "named"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Plain(), None),
        ((1, Plain()), None),
        ((1, Named()), "['1', 'named']"),
        (Plain().limit, "Plain.Plain.limit"),
        (os.getpid, "getpid"),
        (os, None),
        (Named(), "named"),
    ],
    ids=["object", "object in a list", "list", "method", "function", "module", "text"],
)
def test_a_value_has_words_that_are_the_same_in_every_process(monkeypatch, value, words):
    monkeypatch.setitem(sys.modules, "torch", framework("get_default_device()", value))
    assert process_state(NOWHERE).get("torch.get_default_device") == words


def test_a_framework_that_raises_or_warns_costs_no_other_setting(monkeypatch):
    def raises() -> None:
        raise RuntimeError("CUDA is gone")

    def warns() -> int:
        warnings.warn("use another name", DeprecationWarning, stacklevel=1)
        return 8

    torch = ModuleType("torch")
    torch.__dict__.update(get_num_threads=warns, is_grad_enabled=raises, is_autocast_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    told = process_state(NOWHERE)
    assert (told["torch.get_num_threads"], told["torch.is_autocast_enabled"]) == ("8", "True")
    assert "torch.is_grad_enabled" not in told
