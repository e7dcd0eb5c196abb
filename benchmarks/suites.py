"""One class a suite, for asv to find."""

from __future__ import annotations

from typing import Any

from harness.integrations.asv import tracks


class Matmul(tracks.SuiteTracks):
    folder = "kernels/matmul"

    def setup_cache(self) -> Any:
        return self.measure()


class Copy(tracks.SuiteTracks):
    folder = "kernels/copy"

    def setup_cache(self) -> Any:
        return self.measure()


class Transpose(tracks.SuiteTracks):
    folder = "kernels/transpose"

    def setup_cache(self) -> Any:
        return self.measure()
