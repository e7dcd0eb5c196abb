"""Arrays in files of a folder, one each, for passing them between processes of one host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SUFFIX = ".npy"


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write each array to a file by its name. Raises OSError, and ValueError for Python objects.

    A type that NumPy lacks is written as unsigned integers of its size.
    """
    import numpy as np

    for name, array in arrays.items():
        own = array.dtype.isbuiltin == 1
        plain = array if own else array.view(f"u{array.dtype.itemsize}")
        np.save(folder / f"{name}{_SUFFIX}", plain, allow_pickle=False)


def read_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a folder by name, memory-mapped; none without a folder."""
    import numpy as np

    return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob(f"*{_SUFFIX}")}
