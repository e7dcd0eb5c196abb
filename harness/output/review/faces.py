"""All faces of a review as files: what is posted, and what a person opens."""

from __future__ import annotations

__all__ = ["faces", "write_faces"]

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.output.review.checks import check_run, workflow_commands
from harness.output.review.comment import comment
from harness.output.review.links import Links
from harness.output.review.model import Review, encode_review
from harness.output.review.page import page
from harness.output.review.summary import summary
from harness.system.cache import write_atomically


def faces(review: Review, links: Links) -> dict[str, bytes]:
    """Each file's name and content."""
    return {
        "review.json": encode_review(review),
        "comment.md": comment(review, links).encode(),
        "summary.md": summary(review, links).encode(),
        "review.html": page(review, links).encode(),
        "check.json": msgspec.json.format(msgspec.json.encode(check_run(review, links)), indent=2),
        "annotations.txt": "".join(f"{line}\n" for line in workflow_commands(review)).encode(),
    }


def write_faces(folder: Path, files: Mapping[str, bytes]) -> None:
    """Each file whole or not at all. Raises StoreError where the folder cannot be written."""
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise StoreError(
            f"Cannot write the report to {folder}: {error.strerror or error}. Choose another folder."
        ) from None
