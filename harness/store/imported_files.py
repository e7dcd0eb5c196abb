"""A file of any other harness that is known, by what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import StoreError
from harness.store.google_benchmark_files import read_google_benchmark
from harness.store.imported import FORMATS, LARGEST_BYTES, Format, ImportedFile
from harness.store.nvbench_files import read_nvbench
from harness.system.files import read_regular


def read_imported(path: Path, wanted: Format | None = None) -> ImportedFile:
    """A file of any known format; of the `wanted` one alone, where one is. Raises StoreError."""
    content = _loaded(path)
    found = _format_of(content)
    if found is None:
        raise StoreError(
            f"{path} is no file of {' or '.join(FORMATS)}: expected what --json FILE or --jsonbin FILE of an "
            "nvbench executable writes, or --benchmark_out=FILE of a Google Benchmark executable."
        )
    if wanted and found != wanted:
        raise StoreError(f"{path} is a file of {found}, not of {wanted}: 'harness import {found}' reads it.")
    return read_nvbench(path, content) if found == "nvbench" else read_google_benchmark(path, content)


def _format_of(content: Any) -> Format | None:
    if not isinstance(content, dict) or not isinstance(content.get("benchmarks"), list):
        return None
    if isinstance(content.get("context"), dict):
        return "google-benchmark"
    is_nvbench = "meta" in content or "devices" in content
    return "nvbench" if is_nvbench else None


def _loaded(path: Path) -> Any:
    try:
        # Python's own reader takes NaN and Infinity, which these harnesses write.
        return json.loads(read_regular(path, LARGEST_BYTES))
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged, or no JSON at all: {error}. A process that was ended while it wrote leaves "
            "such a file: run it again."
        ) from None
