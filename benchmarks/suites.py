"""One class a suite, for asv to find."""

from __future__ import annotations

from typing import Any

from harness.integrations import asv_tracks


class Matmul(asv_tracks.SuiteTracks):
    folder = "kernels/matmul"

    def setup_cache(self) -> Any:
        return self.measure()


class Copy(asv_tracks.SuiteTracks):
    folder = "kernels/copy"

    def setup_cache(self) -> Any:
        return self.measure()


class Transpose(asv_tracks.SuiteTracks):
    folder = "kernels/transpose"

    def setup_cache(self) -> Any:
        return self.measure()
