"""Arrays in files of a folder, one each, for passing them between processes of one host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SUFFIX = ".npy"


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], *, link: bool = False) -> None:
    """Write each array to a file by its name. Raises OSError, and ValueError for Python objects.

    A type that NumPy lacks is written as unsigned integers of its size. With `link`, the file of an array
    that was read gets another name instead of a copy. The reader must not change it.
    """
    import numpy as np

    for name, array in arrays.items():
        if link and isinstance(array, np.memmap) and _linked(array, folder / f"{name}{_SUFFIX}"):
            continue
        own = array.dtype.isbuiltin == 1
        plain = array if own else array.view(f"u{array.dtype.itemsize}")
        np.save(folder / f"{name}{_SUFFIX}", plain, allow_pickle=False)


def _linked(array: np.memmap[Any, Any], path: Path) -> bool:
    """Give the file of an array another name, if the array is all of it and the disk can."""
    import numpy as np

    with contextlib.suppress(OSError, ValueError):
        file = Path(array.filename or "")
        whole = np.load(file, mmap_mode="r", allow_pickle=False)
        same = (array.dtype, array.shape, array.strides) == (whole.dtype, whole.shape, whole.strides)
        if array.mode == "r" and same:
            path.hardlink_to(file)
            return True
    return False


def read_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a folder by name, memory-mapped; none without a folder."""
    import numpy as np

    return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob(f"*{_SUFFIX}")}
