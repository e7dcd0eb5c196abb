"""The name by which a benchmark file imports the tracks: ``from harness.integrations import asv_tracks``."""

__all__ = ["SuiteTracks"]

from harness.integrations.asv.tracks import SuiteTracks
