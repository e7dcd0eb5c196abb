"""Converts OpenCL C to CUDA C++, line by line, so that one reader understands both."""

from __future__ import annotations

import re

SUFFIX = ".cl"

_AXES = {"0": "x", "1": "y", "2": "z"}
_WORK_ITEMS = {
    "get_global_id": "(blockIdx.{0} * blockDim.{0} + threadIdx.{0})",
    "get_global_size": "(blockDim.{0} * gridDim.{0})",
    "get_group_id": "blockIdx.{0}",
    "get_local_id": "threadIdx.{0}",
    "get_local_size": "blockDim.{0}",
    "get_num_groups": "gridDim.{0}",
}
"""OpenCL's functions of a work-item's position, and CUDA's names for the values."""
_PLACE = re.compile(rf"\b({'|'.join(_WORK_ITEMS)})\s*\(\s*([012])\s*\)")
_KERNEL = re.compile(r"\b(?:__)?kernel\b(?=\s+(?:void|__attribute__)\b)")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
_SPACE = re.compile(r"\b(?:__(?:global|private)|global|private)\b(?=\s+[A-Za-z_])")
_CONSTANT = re.compile(r"\b(?:__)?constant\b(?=\s+[A-Za-z_])")
_ATOMIC = re.compile(r"\batom(?:ic)?_(add|sub|inc|dec|min|max|and|or|xor|xchg|cmpxchg)\b")


def as_cuda(text: str) -> str:
    """Return an OpenCL source in CUDA's words, with unchanged line numbers.

    `__local` stays, because a kernel with a local memory parameter is refused by that word.
    """
    text = _ATTRIBUTE.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = _KERNEL.sub('extern "C" __global__', text)
    text = _CONSTANT.sub("const", _SPACE.sub("", text))
    text = _PLACE.sub(lambda found: _WORK_ITEMS[found[1]].format(_AXES[found[2]]), text)
    return _ATOMIC.sub(lambda found: f"atomic{found[1].capitalize()}", text)
