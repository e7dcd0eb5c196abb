"""Makes all processes of base and head use the configuration that Triton's autotuner found first.

Triton stores its choice on disk by the kernel's first line, and stores none for configurations with hooks. So
an edited comment above a kernel would make Triton tune it again, and choose differently.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import textwrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

MODULE = "triton.runtime.autotuner"
_FOLDER = "TRITON_CACHE_DIR"


def keep_tuned(module: Any) -> None:
    """Patch Triton's autotuner. Versions that store nothing on disk stay unchanged."""
    original = getattr(module.Autotuner, "check_disk_cache", None)
    if original is None:
        return

    def checked(tuner: Any, key: Any, configs: Sequence[Any], bench: Callable[[], Any]) -> Any:
        try:
            path = _path(tuner.fn, key, configs)
        except Exception:  # noqa: BLE001 - another version of Triton may hold anything
            return original(tuner, key, configs, bench)
        texts = list(map(str, configs))
        found = _read(path)
        if found in texts:
            tuner.cache[key] = configs[texts.index(found)]
            return True
        bench()
        _write(path, str(tuner.cache[key]))
        return False

    module.Autotuner.check_disk_cache = checked


def _path(kernel: Any, key: Any, configs: Sequence[Any]) -> str:
    """Return the file that stores the choice. Raises any error for a kernel of an unexpected form."""
    while not hasattr(kernel, "src"):
        kernel = kernel.fn  # a heuristic, or another autotuner, around it
    triton, torch = sys.modules.get("triton"), sys.modules.get("torch")
    parts = [
        str(getattr(triton, "__version__", "")),
        torch.cuda.get_device_name() if torch is not None else "",
        str(key),
        *map(str, configs),
        *_code(kernel, set()),
    ]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return os.path.join(os.environ[_FOLDER], f"tuned-{name}")


def _code(kernel: Any, seen: set[int]) -> Iterator[str]:
    """Yield the code of a kernel and of everything that it calls, without comments, and the constants it
    uses.
    """
    seen.add(id(kernel))
    tree = ast.parse(textwrap.dedent(kernel.src))
    yield ast.dump(tree)
    found = getattr(kernel, "__globals__", None)
    if found is None:
        found = kernel.fn.__globals__
    for value in _named(tree, found):
        if hasattr(value, "src") and id(value) not in seen:
            yield from _code(value, seen)
        elif isinstance(getattr(value, "value", value), (bool, int, float, str)):
            yield repr(getattr(value, "value", value))


def _named(tree: ast.AST, found: dict[str, Any]) -> list[Any]:
    """Return the globals that code names, and the names that it takes from modules among them."""
    nodes = list(ast.walk(tree))
    names = sorted({node.id for node in nodes if isinstance(node, ast.Name)})
    attributes = sorted(
        {
            (node.value.id, node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
    )
    return [
        *(found[name] for name in names if name in found),
        *(getattr(found.get(name), attribute, None) for name, attribute in attributes),
    ]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _write(path: str, text: str) -> None:
    own = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(own, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(own, path)
    except OSError:
        return  # the next process tunes again
