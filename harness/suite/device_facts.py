"""Facts about the device of a case that a suite may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import NotToldError, NotYetKnownError

if TYPE_CHECKING:
    from harness.records.types import DeviceInfo


@dataclass(frozen=True)
class DeviceFacts:
    """A device as a suite sees it: ``case.device``.

    A fact that the device does not report raises NotToldError, an AttributeError. So ``getattr`` can supply a
    default.
    """

    name: str
    """Name, such as ``NVIDIA H200``."""
    backend: str
    """Its backend: cuda, opencl, opengl, cpu or null."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """Values of the properties."""
    built: bool = False
    """True after the kernel is built, when the number of its resident blocks is known."""

    @property
    def sm_count(self) -> int:
        """Return the number of multiprocessors; on OpenCL of compute units, which are threads on a CPU."""
        return self._fact("sm_count")

    @property
    def capability(self) -> tuple[int, int]:
        """Return CUDA's compute capability, major and minor."""
        major, minor = divmod(self._fact("capability"), 10)
        return major, minor

    @property
    def warp_size(self) -> int:
        return self._fact("warp_size")

    @property
    def shared_bytes_per_block(self) -> int:
        """Return the largest shared memory of one block, opt-in included."""
        return self._fact("shared_bytes_per_block")

    @property
    def shared_bytes_per_sm(self) -> int:
        return self._fact("shared_bytes_per_sm")

    @property
    def registers_per_sm(self) -> int:
        """Return the number of 32-bit registers."""
        return self._fact("registers_per_sm")

    @property
    def threads_per_block(self) -> int:
        """Return the most threads of one block."""
        return self._fact("threads_per_block")

    @property
    def threads_per_sm(self) -> int:
        """Return the most threads resident on one multiprocessor."""
        return self._fact("threads_per_sm")

    @property
    def resident_blocks(self) -> int:
        """Return the blocks of this kernel that one multiprocessor holds at once. Only its grid
        may use it.
        """
        if not self.built:
            raise NotYetKnownError(
                "case.resident_blocks, which is known once the kernel is built: only its grid may ask for it."
            )
        return self._fact("resident_blocks", "case")

    def _fact(self, fact: str, of: str = "case.device") -> int:
        if fact not in self.facts:
            raise NotToldError(
                f"{of}.{fact}, which {self.backend} does not tell of {self.name}: give a default, as in "
                f'getattr({of}, "{fact}", {(0, 0) if fact == "capability" else 1}).'
            )
        return self.facts[fact]


def facts_of(device: DeviceInfo) -> DeviceFacts:
    """Return the facts that a device reports."""
    major, minor = device.compute_capability or (0, 0)
    facts = {
        "sm_count": device.compute_units,
        "capability": 10 * major + minor,
        "warp_size": device.warp_size,
        "shared_bytes_per_block": device.max_shared_bytes,
        "shared_bytes_per_sm": device.shared_bytes_per_sm,
        "registers_per_sm": device.registers_per_sm,
        "threads_per_block": device.max_threads_per_block,
        "threads_per_sm": device.max_threads_per_sm,
    }
    return DeviceFacts(device.name, device.backend, {name: fact for name, fact in facts.items() if fact})
