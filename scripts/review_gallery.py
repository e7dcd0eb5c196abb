"""Write every face of every sample review into a folder, to be looked at.

    python scripts/review_gallery.py FOLDER

In FOLDER each sample has a folder of its own: comment.md and summary.md as GitHub gets them, review.html,
check.json, annotations.txt and the review itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a command: the folder above is where `tests` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.output.review.faces import faces, write_faces
from harness.output.review.grouping import review_outcome
from tests.review_samples import LINKS, SAMPLES


def main(folder: Path) -> None:
    for name, make in SAMPLES.items():
        review = make()
        write_faces(folder / name, faces(review, LINKS))
        found = review_outcome(review)
        print(f"{name:14} {found.conclusion:8} {found.state:13} {found.headline}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
