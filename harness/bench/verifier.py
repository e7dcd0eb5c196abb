"""Verifying one kernel of one case on an open device, against the suite's reference."""

from __future__ import annotations

__all__ = ["UNSEEN", "Checker", "emulator"]

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.bench import verify
from harness.bench.buffers import Arena, digest, same_bits
from harness.bench.measure import Subject
from harness.device.backends.base import Device
from harness.errors import OutOfMemoryError
from harness.records import Check, Verification
from harness.spec.suite import Case, Kernel, Problem, Suite, argument_names, numpy_dtype

INTEGER_CHECK_ELEMENTS = 2**20
"""The exact check runs on cases with outputs up to this size: it is for indexing mistakes, which show when
small."""
TOLERANCE = "-tolerance"
"""Beside the outputs in a kept reference, under what no output can be called."""
MOST_KEPT_BYTES = 2**29
UNSEEN = "unseen"
"""Data that kernels are to meet for the first time: neither they nor their reference are kept."""
RUNS_PER_CHECK = 2
"""A race need not show at the first run."""


class Checker:
    """Verifies kernels of one suite on one device; `report` is told what it is about to do."""

    def __init__(self, device: Device, suite: Suite, scratch: Path, report: Callable[[str], object]) -> None:
        self.device, self.suite, self.scratch, self.report = device, suite, scratch, report

    def check(self, case: Case, arena: Arena, subject: Subject, seed: int) -> Verification:
        checks = []
        bound = self.suite.problem.integer_bound(case)
        elements = max(
            int(np.prod(output.shape_at(case), dtype=np.int64))
            for output in self.suite.problem.outputs.values()
        )
        if bound is not None and elements <= INTEGER_CHECK_ELEMENTS:
            checks.append(self._check(case, arena, subject, "integers", seed, bound))
        # Last, so that what is timed afterwards is random data: integers draw less power and run faster.
        if not checks or checks[-1].passed:
            checks.append(self._check(case, arena, subject, "random", seed, 0))
        return Verification(passed=all(check.passed for check in checks), checks=tuple(checks))

    def demands(
        self, case: Case, seed: int, inputs: verify.Arrays | None = None, *, reference: bool = True
    ) -> dict[str, str]:
        """What the problem asks of a kernel on `inputs`, or on its own data: a short text each, alike where
        the same is asked. Without `reference`, which takes longest, all else. Raises what the suite's own
        functions raise.
        """
        problem = self.suite.problem
        _check_host_memory(problem, case)
        given = self.inputs(case, seed) if inputs is None else inputs
        references, tolerances, largest = [], [], 0.0
        for part, band in verify.bands(problem, case):
            cut = verify.cut(problem, given, band)
            if not reference:
                tolerance = verify.tolerance_of(problem, part, cut)
            elif inputs is None:
                found, tolerance = self._reference(part, cut, ("random", seed, band))
                references.append(digest(found.values()))
            else:  # not kept: it would be taken for what the problem's own data lead to
                found, tolerance = verify.reference_of(problem, part, cut)
                references.append(digest(found.values()))
            tolerances.append(_bound_digest(np.asarray(tolerance, np.float64)))
            largest = max(largest, float(np.max(tolerance)))
        return {
            **({"reference (digest)": _short(references)} if reference else {}),
            "largest tolerance": f"{largest:.6g}",
            "tolerance (digest)": _short(tolerances),
            "integer bound": str(problem.integer_bound(case)),
        }

    def _check(
        self,
        case: Case,
        arena: Arena,
        subject: Subject,
        data: Literal["integers", "random"],
        seed: int,
        bound: int,
    ) -> Check:
        problem = self.suite.problem
        self.report("reference")
        _check_host_memory(problem, case)
        inputs = self._inputs(case, data, seed, bound)
        arena.write(inputs)
        outputs: dict[str, NDArray[Any]] = {}
        found: dict[str, list[verify.Comparison]] = {}
        for _ in range(RUNS_PER_CHECK):
            self.report("verify")
            arena.poison()
            self.device.launch(subject.built, subject.launch, subject.arguments)
            self.device.synchronize()
            earlier, outputs = outputs, {name: arena.read(name) for name in problem.outputs}
            if earlier and all(same_bits(outputs[name], earlier[name]) for name in outputs):
                break  # what has been compared already
            found = self._compare(case, inputs, outputs, (data, seed))
            if any(comparison.wrong for parts in found.values() for comparison in parts):
                break
        return verify.combine(found, data, seed, arena.damage(inputs))

    def wrong(
        self,
        case: Case,
        key: tuple[str, int],
        inputs: verify.Arrays,
        outputs: verify.Arrays,
        *,
        in_full: bool,
    ) -> str:
        """What is wrong with outputs for inputs, which `key` names, in words; empty if nothing.

        Unless `in_full`, large outputs are compared in a band only, or not at all if the problem has none.
        """
        self.report("verify")
        bands = None
        if not in_full and max(array.size for array in outputs.values()) > INTEGER_CHECK_ELEMENTS:
            band = verify.sample(self.suite.problem, case, np.random.default_rng(key[1]))
            if band is None:
                return ""
            bands = [band]
        return verify.combine(self._compare(case, inputs, outputs, key, bands), "random", key[1]).message

    def _compare(
        self,
        case: Case,
        inputs: verify.Arrays,
        outputs: verify.Arrays,
        key: tuple[str, int],
        bands: Sequence[tuple[Case, slice]] | None = None,
    ) -> dict[str, list[verify.Comparison]]:
        """Every band of every output, or these."""
        problem = self.suite.problem
        found: dict[str, list[verify.Comparison]] = {name: [] for name in outputs}
        for part, band in verify.bands(problem, case) if bands is None else bands:
            reference, tolerance = self._reference(part, verify.cut(problem, inputs, band), (*key, band))
            allowed = 0.0 if key[0] == "integers" else tolerance
            for name, values in verify.cut(problem, outputs, band).items():
                place = verify.origin(problem, name, band)
                found[name].append(verify.compare(values, reference[name], allowed, place))
        return found

    def _inputs(self, case: Case, data: str, seed: int, bound: int) -> dict[str, NDArray[Any]]:
        if data == "integers":
            return verify.integer_data(self.suite.problem, case, bound, np.random.default_rng(seed))
        return self.inputs(case, seed)

    def inputs(self, case: Case, seed: int) -> dict[str, NDArray[Any]]:
        """The case's data, by way of the run's scratch folder where they are not too large to keep."""
        problem = self.suite.problem
        # A problem's own data() may look at the kernel; the usual one does not, and kernels share it.
        own = type(problem).data is not Problem.data
        kernel = (case.kernel, sorted(case.macros.items())) if own else ()
        folder = self._folder(case, "inputs", kernel, seed)
        if folder.is_dir():
            kept = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
            # A file keeps the bits of a type that is not NumPy's own, and not its name.
            return {
                name: array.view(numpy_dtype(problem.inputs[name].dtype_at(case)))
                for name, array in kept.items()
            }
        inputs = self.new_inputs(case, seed)
        if all(isinstance(array, np.ndarray) for array in inputs.values()) and (
            sum(array.nbytes for array in inputs.values()) <= MOST_KEPT_BYTES
        ):
            _keep(folder, inputs)
        return inputs

    def new_inputs(self, case: Case, seed: int) -> dict[str, NDArray[Any]]:
        """The case's data for a seed, of which nothing is kept."""
        return self.suite.problem.data(case, np.random.default_rng(seed))

    def _folder(self, case: Case, *key: object) -> Path:
        identity = repr((self.suite.name, sorted(case.sizes.items()), case.dtype, key))
        return self.scratch / hashlib.sha256(identity.encode()).hexdigest()

    def _reference(
        self, case: Case, inputs: verify.Arrays, key: tuple[object, ...]
    ) -> tuple[dict[str, NDArray[np.float64]], Any]:
        """The reference, by way of the run's scratch folder: kernels of a ladder compute the same and
        share it.
        """
        if key[0] == UNSEEN or key[-1] != slice(None):  # or a band of a case too large to keep
            return verify.reference_of(self.suite.problem, case, inputs)
        folder = self._folder(case, key)
        if folder.is_dir():
            kept = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
            return kept, kept.pop(TOLERANCE)
        reference, tolerance = verify.reference_of(self.suite.problem, case, inputs)
        _keep(folder, {**reference, TOLERANCE: np.asarray(tolerance)})
        return reference, tolerance


def _bound_digest(tolerance: NDArray[np.float64]) -> str:
    """Of a bound; one number for all elements is the same bound as an array of it."""
    first = tolerance.reshape(-1)[:1]
    return digest([first if (tolerance == first).all() else tolerance])


def _short(digests: list[str]) -> str:
    return digests[0][:12] if len(digests) == 1 else digest([np.array(digests)])[:12]


def _keep(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with contextlib.suppress(OSError):  # a full disk costs time, not the answer
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, array in arrays.items():
            np.save(unfinished / f"{name}.npy", array)
        unfinished.rename(folder)


def emulator(problem: Problem, kernel: Kernel, case: Case) -> Callable[..., list[tuple[Any, NDArray[Any]]]]:
    """What the kernel should compute, over the null device's byte arrays."""
    names = argument_names(problem, kernel)
    known: dict[str, dict[str, NDArray[np.float64]]] = {}
    """By their inputs: the same few data sets come again and again."""

    def emulate(*arguments: Any) -> list[tuple[Any, NDArray[Any]]]:
        views = dict(zip(names, arguments, strict=True))
        inputs = {
            name: views[name].view(numpy_dtype(array.dtype_at(case))).reshape(array.shape_at(case))
            for name, array in problem.inputs.items()
        }
        if (key := digest(inputs.values())) not in known:
            known[key], _ = verify.reference_of(problem, case, inputs)
        reference = known[key]
        return [
            (views[name], reference[name].astype(numpy_dtype(array.dtype_at(case))))
            for name, array in problem.outputs.items()
        ]

    return emulate


def _check_host_memory(problem: Problem, case: Case) -> None:
    """Refuse what the host could not verify: out of memory, the system ends a process of its own choice."""
    import psutil

    needed, free = verify.host_bytes(problem, case), psutil.virtual_memory().available
    if needed > free:
        raise OutOfMemoryError(
            f"Verifying {case.id} needs {needed / 2**30:.1f} GiB of host memory; "
            f"{free / 2**30:.1f} GiB are free: use a smaller size."
        )
