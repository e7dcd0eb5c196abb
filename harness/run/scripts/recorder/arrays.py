"""Digests and values of arrays that a timed function reads, returns and changes."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import random
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_ARRAYS, _DEEPEST = 256, 5
_CHUNK = 2**24
MOST_BYTES = 2**31
"""Largest outputs that are written for a comparison of values, in bytes."""


SEEDS = {"numpy.random": "seed", "torch": "manual_seed", "cupy.random": "seed"}
"""Functions that seed a framework, by the module that has each. CuPy's opens the device."""


def seed_all(seed: int) -> None:
    """Seed every random generator of the modules that the script has loaded."""
    random.seed(seed)
    for name, function in SEEDS.items():
        # A module that is still being imported lacks the function.
        set_seed = getattr(sys.modules.get(name), function, None)
        if set_seed is not None:
            set_seed(seed)


def wait_for(value: Any) -> None:
    """Wait until a value is computed: JAX computes asynchronously."""
    if (jax := sys.modules.get("jax")) is not None:
        jax.block_until_ready(value)


def synchronize() -> None:
    """Wait for the device of each framework in use."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif cupy is not None:
        cupy.cuda.runtime.deviceSynchronize()


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Return whether a value is an array that can be read here."""
    if _is_torch(value):
        return value.layout is sys.modules["torch"].strided and value.device.type != "meta"
    kinds = (("numpy", "ndarray"), ("cupy", "ndarray"))
    return any(
        (module := sys.modules.get(name)) is not None and isinstance(value, getattr(module, kind))
        for name, kind in kinds
    ) or (
        type(value).__module__.partition(".")[0] in ("jaxlib", "jax", "warp") and hasattr(value, "__array__")
    )


def on_host(value: Any) -> Any:
    """Return a copy as a NumPy array, in float32 if NumPy lacks the type."""
    if _is_torch(value):
        torch = sys.modules["torch"]
        value = value.detach()
        if value.is_floating_point() and value.dtype not in (torch.float16, torch.float32, torch.float64):
            value = value.float()
        return value.resolve_conj().resolve_neg().cpu().numpy().copy()
    if hasattr(value, "get"):
        return value.get()
    import numpy as np

    return np.array(value)


def digest(value: Any) -> str:
    """Return a digest of an array's elements."""
    if _is_torch(value) and value.is_cuda:
        try:
            return _digest_on_device(value)
        except RuntimeError:
            pass
    return hashlib.blake2b(on_host(value).tobytes(), digest_size=16).hexdigest()


def _digest_on_device(value: Any) -> str:
    torch = sys.modules["torch"]
    flat = value.detach().contiguous().reshape(-1)
    words = flat.view(torch.int32 if flat.numel() * flat.element_size() % 4 == 0 else torch.uint8)
    sums = []
    for start in range(0, words.numel(), _CHUNK):
        chunk = words[start : start + _CHUNK].to(torch.int64)
        weights = torch.arange(chunk.numel(), device=chunk.device) % 1_000_003 * 2 + 1
        sums += [int(chunk.sum()), int((chunk * weights).sum()), int((chunk * chunk * weights).sum())]
    return hashlib.blake2b(repr((tuple(value.shape), sums)).encode(), digest_size=16).hexdigest()


def walk(value: Any, name: str, seen: set[int] | None = None, deep: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value, with a name for each."""
    seen = set() if seen is None else seen
    if id(value) in seen or deep > _DEEPEST or len(seen) > 50 * _MOST_ARRAYS:
        return
    seen.add(id(value))
    if is_array(value):
        yield name, value
        return
    for inner, each in _inside(value):
        yield from walk(each, f"{name}{inner}", seen, deep + 1)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((f"[{number}]", each) for number, each in enumerate(value[:_MOST_ARRAYS]))
    elif isinstance(value, dict):
        yield from (
            (f"[{key!r}]" if isinstance(key, (str, int)) else "[...]", value[key]) for key in list(value)
        )
    elif isinstance(value, functools.partial):
        yield from (("()", value.func), ("", value.args), ("", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__self__), ("()", value.__func__))
    elif isinstance(value, types.FunctionType):
        yield from ((f".{name}", each) for name, each in reached_by(value).items())
    elif not isinstance(value, (type, types.ModuleType, str, bytes, int, float, types.BuiltinFunctionType)):
        fields = getattr(value, "__dict__", None)
        if isinstance(fields, dict):
            yield from ((f".{key}", each) for key, each in list(fields.items()))


def reached_by(fn: types.FunctionType) -> dict[str, Any]:
    """Return the values that a function can access by name: closure, defaults, and globals in its code."""
    found: dict[str, Any] = {}
    code = fn.__code__
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    names = code.co_varnames[: code.co_argcount]
    found.update(zip(names[len(names) - len(fn.__defaults__ or ()) :], fn.__defaults__ or ()))
    found.update(fn.__kwdefaults__ or {})
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    for each in (code, *inner):
        found.update({name: fn.__globals__[name] for name in each.co_names if name in fn.__globals__})
    return found


class Observed:
    """Runs a function, and restores all arrays after each run."""

    def __init__(self, run: Callable[[], Any], fn: Any, roots: tuple[Any, ...]) -> None:
        self._run = run
        found: dict[str, Any] = {}
        held: set[int] = set()
        for name, value in (*walk(fn, "fn"), *walk(list(roots), "args")):
            if len(found) < _MOST_ARRAYS and id(value) not in held:
                held.add(id(value))
                found[name.removeprefix("fn.")] = value
        self.inputs = found
        self._fixed = {name: digest(value) for name, value in found.items() if not _is_mutable(value)}

    def digests(self) -> dict[str, str]:
        return {name: self._fixed.get(name) or digest(value) for name, value in self.inputs.items()}

    def once(
        self, seed: int, *, path: str = "", rolled: bool = False, inputs_to: str = "", inputs_from: str = ""
    ) -> dict[str, Any]:
        """Run the function once on the author's data, or on these data rolled by one element.

        Returns digests of the inputs before the run, and of returned values, changed arrays and gradients of
        leaves; nothing if no array can be rolled. `path` is a file for their values. Inputs are written to
        `inputs_to`, and floats from `inputs_from` replace them. Every array is restored afterwards.
        """
        if rolled and not any(map(_can_roll, self.inputs.values())):
            return {}
        kept = {name: _copy_of(value) for name, value in self.inputs.items()}
        leaves = [each for each in self.inputs.values() if _is_leaf(each)]
        gradients = [(leaf, leaf.grad) for leaf in leaves]
        try:
            for leaf in leaves:
                leaf.grad = None
            if rolled:
                self._roll()
            if inputs_to:
                _write({name: each for name, each in self.inputs.items() if _can_roll(each)}, inputs_to)
            if inputs_from:
                self._take(inputs_from)
            before = self.digests()
            seed_all(seed)
            returned = self._run()
            wait_for(returned)
            synchronize()
            outputs = dict(walk(_as_array(returned), "returned"))
            inputs = {id(value): name for name, value in self.inputs.items()}
            outputs = {inputs.get(id(value), name): value for name, value in outputs.items()}
            outputs.update(
                (name, value)
                for name, value in self.inputs.items()
                if name not in self._fixed and digest(value) != before[name]
            )
            outputs.update(
                (f"{name}.grad", leaf.grad)
                for name, leaf in self.inputs.items()
                if _is_leaf(leaf) and leaf.grad is not None
            )
            size = _write(outputs, path) if path else 0
            return {
                "inputs": before,
                "outputs": {name: digest(value) for name, value in outputs.items()},
                "written": bool(path) and size <= MOST_BYTES,
            }
        finally:
            self._put_back(kept)
            for leaf, gradient in gradients:
                leaf.grad = gradient

    def _roll(self) -> None:
        for value in filter(_can_roll, self.inputs.values()):
            _assign(value, _rolled(value))

    def _take(self, path: str) -> None:
        """Replace arrays by floats from a file with the same name and shape.

        There is no file if they were too large to write.
        """
        import numpy as np

        if not os.path.exists(path):
            return
        with open(path, "rb") as file:
            for name, dtype, shape, _ in json.loads(file.readline()):
                values = np.frombuffer(file.read(math.prod(shape) * np.dtype(dtype).itemsize), dtype)
                mine = self.inputs.get(name)
                if mine is not None and _can_roll(mine) and list(mine.shape) == shape:
                    _assign(mine, _like(mine, values.reshape(shape).copy()))

    def _put_back(self, kept: dict[str, Any]) -> None:
        for name, value in self.inputs.items():
            _assign(value, kept[name])
        synchronize()


def _as_array(value: Any) -> Any:
    """Return a number as an array, for example the result of a sum; anything else unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (int, float, complex, numpy.generic)):
        return numpy.asarray(value)
    return value


def _is_leaf(value: Any) -> bool:
    return _is_torch(value) and bool(value.requires_grad) and bool(value.is_leaf)


def _copy_of(value: Any) -> Any:
    if _is_torch(value):
        return value.detach().clone()
    return value.copy() if _is_mutable(value) else None


def _is_mutable(value: Any) -> bool:
    """Return whether an array can change; JAX's never do."""
    return _is_torch(value) or hasattr(value, "flags")


def _can_roll(value: Any) -> bool:
    """Return whether an array can be rolled, which is true for floats."""
    if _is_torch(value):
        return bool(value.is_floating_point() and value.numel() > 1)
    return _is_mutable(value) and value.dtype.kind in "fc" and value.size > 1


def _rolled(value: Any) -> Any:
    if _is_torch(value):
        return value.detach().roll(1)
    module: Any = sys.modules[type(value).__module__.partition(".")[0]]
    return module.roll(value, 1)


def _like(value: Any, elements: Any) -> Any:
    """Return a NumPy array as an array of the framework of `value`."""
    if _is_torch(value):
        return sys.modules["torch"].from_numpy(elements)
    return elements if type(value).__module__ == "numpy" else sys.modules["cupy"].asarray(elements)


def _assign(value: Any, elements: Any) -> None:
    if elements is None:
        return
    if _is_torch(value):
        value.data.copy_(elements)  # hidden from autograd, so that a backward pass may follow
    elif getattr(value.flags, "writeable", True):
        value[...] = elements


def _write(outputs: dict[str, Any], path: str) -> int:
    """Write arrays to a file: a line of JSON that describes them, then their elements. Return their bytes.

    Nothing is written if they take more than MOST_BYTES.
    """
    size = sum(_bytes_of(each) for each in outputs.values())
    if size > MOST_BYTES:
        return size
    host = {name: on_host(value) for name, value in outputs.items()}
    described = [
        [name, each.dtype.str, list(each.shape), _type_of(outputs[name])] for name, each in host.items()
    ]
    with open(path, "wb") as file:
        file.write(json.dumps(described).encode() + b"\n")
        file.writelines(each.tobytes() for each in host.values())
    return size


def _bytes_of(value: Any) -> int:
    if _is_torch(value):
        return int(value.numel() * max(4, value.element_size()))
    return int(value.nbytes)


def _type_of(value: Any) -> str:
    return str(value.dtype).rpartition(".")[2]
