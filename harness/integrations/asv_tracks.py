"""Name for importing the tracks in a benchmark file: ``from harness.integrations import asv_tracks``."""

__all__ = ["SuiteTracks"]

from harness.integrations.asv.tracks import SuiteTracks
