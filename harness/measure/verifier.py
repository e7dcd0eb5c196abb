"""Verifies one kernel of one case on an open device, against the suite's reference."""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Device, Timing
from harness.errors import MeasureError, OutOfMemoryError
from harness.measure import verify
from harness.measure.buffers import OUTPUT_GUARD, Buffers, Kept, digest, same_bits
from harness.measure.earlier_arrays import LEAST_ENTRY_BYTES, EarlierArrays, Key
from harness.measure.memory_digest import MemoryDigests
from harness.measure.timing import ENQUEUE_NS, UNWATCHED, Data, Subject, timed
from harness.measure.tolerances import LooseBoundError, check_numbers, too_wide
from harness.records.types import Check, Outputs, Verification
from harness.suite.case_id import without_graph
from harness.suite.kernel import Kernel, argument_names
from harness.suite.layout import element_bits, numpy_dtype
from harness.suite.problem import Case, Problem
from harness.suite.suite import Suite
from harness.suite.suite_data import TOLERANCE, as_declared
from harness.system.array_files import read_arrays, write_arrays
from harness.system.cache import write_atomically
from harness.system.decoding import decode
from harness.system.files import read_regular, try_lock

INTEGER_CHECK_ELEMENTS = 2**20
"""Largest output of the exact check. It finds indexing mistakes, which show at small sizes."""
_FEW_ELEMENTS = 2**22
"""Largest output that is copied and compared, even if a digest would prove it."""
MOST_KEPT_BYTES = 2**29
"""Largest set of inputs that a run's processes share in any case, in bytes."""
MOST_SHARED_BYTES = 2**31
"""Largest set of inputs that they share if there is room, in bytes. A gigabyte is mapped ten times as fast as
it is made."""
MOST_SCRATCH_BYTES = 2**33
"""Size from which the scratch folder gets no more of these, in bytes."""
_SPARE = 4
"""Free disk space and memory that such a set needs, in sizes of the set."""
_REFERENCE_BYTES = 8
"""Bytes per element of a reference."""
UNSEEN = "unseen"
"""Key of data that kernels have not seen before. Neither the data nor their reference is kept."""
TOLERANCE_SETS = 3
"""Sets of data on which a wrong answer must pass before a tolerance is refused."""
RUNS_PER_CHECK = 2
"""Launches per check. A race may not show in the first one."""


Comparisons = dict[str, list[verify.OutputComparison]]
"""Comparisons of each output with its reference, one for each band."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """Digests of outputs that were right in a full comparison with one reference.

    All processes of a command share them in its scratch folder: outputs with the same bits are equally right.
    The caller computes the digest itself, of memory that was poisoned before the launch.
    """

    folder: Path

    def of(self, seen: str) -> Comparisons | None:
        """Return the comparisons of outputs with this digest, if they were right."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return decode(read_regular(self.folder / seen), Comparisons)
        return None

    def add(self, seen: str, found: Comparisons) -> None:
        with contextlib.suppress(OSError):  # A full disk only costs time.
            self.folder.mkdir(exist_ok=True)
            write_atomically(self.folder / seen, msgspec.json.encode(found), durable=False)


class Checker:
    """Verifies kernels of one suite on one device.

    `report` gets the next stage, and returns the previous one.
    """

    beside_base: ClassVar[bool] = False
    """True if outputs are compared with base's. Then NaN equals NaN."""
    tolerance_sets: ClassVar[int] = TOLERANCE_SETS

    def __init__(
        self,
        device: Device,
        suite: Suite,
        scratch: Path,
        report: Callable[[str], Any],
        earlier: EarlierArrays | None = None,
    ) -> None:
        self.device, self.suite, self.scratch, self.report = device, suite, scratch, report
        self._earlier = earlier
        self.digests = MemoryDigests(device, str(scratch))
        self._held: dict[Path, dict[str, NDArray[Any]]] = {}
        """Inputs that are too large for the scratch folder: the last two sets of one case."""

    def digest(self, buffers: Buffers, kept: Kept | None = None) -> str:
        """Return a digest of every output, or of the copies. It is the same in all processes of a command."""
        return self.digests.of(buffers.outputs(kept))

    @contextlib.contextmanager
    def _doing(self, stage: str) -> Iterator[None]:
        """Report a stage, and restore the previous stage at its end."""
        before = self.report(stage)
        yield
        self.report(before)

    def check(self, case: Case, buffers: Buffers, subject: Subject, seed: int) -> Verification:
        """Verify on integers, then on random data, which stay in the buffers. Raises LooseBoundError."""
        self.check_tolerance(case, seed)
        checks = []
        bound = self.suite.problem.integer_bound(case)
        small = verify.largest_output(self.suite.problem, case) <= INTEGER_CHECK_ELEMENTS
        if bound is not None and small:
            checks.append(self._check(case, buffers, subject, "integers", seed, bound))
        # Random data come last, because they are timed afterwards: integers draw less power and run faster.
        if not checks or checks[-1].passed:
            checks.append(self._check(case, buffers, subject, "random", seed, 0))
        return Verification(passed=all(check.passed for check in checks), checks=tuple(checks))

    def held(self, verification: Verification, case: Case, seed: int) -> Outputs:  # noqa: ARG002
        """Return the reference that the outputs of a passed kernel were compared with."""
        return verify.outputs_of(verification, self.suite.problem)

    def expected(
        self,
        case: Case,  # noqa: ARG002
        part: Case,
        inputs: verify.Arrays,
        key: tuple[str, int],
        band: slice,
    ) -> tuple[verify.Arrays, verify.Tolerance]:
        """Return the expected outputs in a band of a case (`part`), and the tolerance."""
        return self._reference(part, verify.cut(self.suite.problem, inputs, band), (*key, band))

    def check_tolerance(self, case: Case, seed: int) -> None:
        """Raise LooseBoundError if a wrong answer passes on each of three sets of data.

        One set may have small answers by chance. A case that is compared in bands is judged by a sample. The
        harness's own tolerances are not checked.
        """
        problem = self.suite.problem
        if self._inputs_folder(case, seed) not in self._held:
            self._held.clear()
        check_host_memory(problem, case)
        self.report("reference")
        if problem.held_to != "reference" and not problem.has_tolerance:
            return
        if (said := self._too_wide(case, seed)) and all(
            self._too_wide(case, seed + later) for later in range(1, self.tolerance_sets)
        ):
            raise LooseBoundError(said)

    def _too_wide(self, case: Case, seed: int) -> str:
        problem = self.suite.problem
        part, band = case, slice(None)
        if verify.largest_output(problem, case) > verify.BAND_ELEMENTS:
            part, band = verify.sample(problem, case, np.random.default_rng(seed)) or (part, band)
        inputs = self.inputs(case, seed)
        expected, tolerance = self.expected(case, part, inputs, ("random", seed), band)
        if isinstance(tolerance, Mapping):  # Base's outputs are random.
            return ""
        return too_wide(problem, part, verify.cut(problem, inputs, band), expected, tolerance)

    def compute_reference(self, case: Case, seed: int) -> None:
        """Call the suite's own functions for a case, so that their errors show before a kernel is checked."""
        inputs = self.inputs(case, seed)
        for part, band in verify.bands(self.suite.problem, case):
            self._reference(part, verify.cut(self.suite.problem, inputs, band), ("random", seed, band))

    def demands(
        self, case: Case, seed: int, inputs: verify.Arrays | None = None, *, reference: bool = True
    ) -> dict[str, str]:
        """Return the problem's requirements for a kernel as short texts by name, on `inputs` or its own data.

        The `reference` takes longest. Raises what the suite's own functions raise.
        """
        problem = self.suite.problem
        if not reference and not problem.has_tolerance and problem.held_to != "reference":
            return {}  # the tolerance depends on the reference
        check_host_memory(problem, case)
        given = self.inputs(case, seed) if inputs is None else inputs
        references, tolerances, largest = [], [], 0.0
        for part, band in verify.bands(problem, case):
            cut = verify.cut(problem, given, band)
            if reference:
                # A result for other data is not kept: it would be mistaken for that of the problem's own
                # data.
                key = "random" if inputs is None else UNSEEN
                found, tolerance = self._reference(part, cut, (key, seed, band))
                # An exact reference has the type of its output, whose change is another difference.
                references.append(digest([np.asarray(each, np.float64) for each in found.values()]))
            else:
                _, tolerance = problem.judged(part, cut, reference=False)
            bound = np.asarray(
                [*tolerance.values()] if isinstance(tolerance, Mapping) else tolerance, np.float64
            )
            first = bound.reshape(-1)[:1]
            # A single number is the same bound as an array of that number.
            tolerances.append(digest([first if (bound == first).all() else bound]))
            largest = max(largest, float(bound.max()))
        return {
            **({"reference (digest)": _short(references)} if reference else {}),
            "largest tolerance": f"{largest:.6g}",
            "tolerance (digest)": _short(tolerances),
            "integer bound": str(problem.integer_bound(case)),
        }

    def _check(
        self,
        case: Case,
        buffers: Buffers,
        subject: Subject,
        data: Literal["integers", "random"],
        seed: int,
        bound: int,
    ) -> Check:
        problem = self.suite.problem
        if data == "integers":  # The other reference exists since the tolerance check.
            self.report("reference")
            inputs = verify.integer_data(problem, case, bound, np.random.default_rng(seed))
        else:
            inputs = self.inputs(case, seed)
        buffers.write(inputs)
        outputs: dict[str, NDArray[Any]] = {}
        found: Comparisons = {}
        proofs = self._proofs(case, data, seed)
        for _ in range(RUNS_PER_CHECK):
            self.report("verify")
            buffers.poison()
            self.device.launch(subject.built, subject.launch, subject.arguments)
            self.device.synchronize()
            seen = self.digest(buffers) if proofs else ""
            if proofs and (proof := proofs.of(seen)):
                found = proof  # the same bits were already compared, for this kernel or another
                continue
            if proofs and (exact := self._of_exact(case, buffers, inputs, (data, seed), seen)):
                found = exact
                proofs.add(seen, found)
                continue
            # Compare this copy: a thread of the kernel may still write the right result a moment later.
            earlier, outputs = outputs, {name: buffers.read(name) for name in problem.outputs}
            if earlier and all(same_bits(outputs[name], earlier[name]) for name in outputs):
                break  # compared already
            found = self._compare(case, inputs, outputs, (data, seed))
            if any(comparison.wrong for parts in found.values() for comparison in parts):
                break
            if proofs and self.digest(buffers) == seen:  # copied since the last comparison
                proofs.add(seen, found)
        return verify.combine(
            found, data, seed, buffers.damage(inputs, self.digests), beside_base=self.beside_base
        )

    def _of_exact(
        self, case: Case, buffers: Buffers, inputs: verify.Arrays, key: tuple[str, int], seen: str
    ) -> Comparisons:
        """Return the comparisons of large outputs whose digest is that of an exact reference; else nothing.

        The digest of the reference is computed faster than the outputs could be copied and compared.
        """
        problem = self.suite.problem
        largest = verify.largest_output(problem, case)
        is_cut = problem.independent is not None and largest > verify.BAND_ELEMENTS
        if problem.held_to != "reference" or problem.has_tolerance or is_cut or largest <= _FEW_ELEMENTS:
            return {}
        expected, _ = self.expected(case, case, inputs, key, slice(None))
        types = {name: numpy_dtype(output.dtype_at(case)) for name, output in problem.outputs.items()}
        if any(expected[name].dtype != dtype for name, dtype in types.items()):
            return {}
        if seen != self.digests.of_host(buffers.packed(name, expected[name]) for name in types):
            return {}
        found = {name: verify.compare_in_parts(expected[name], expected[name], 0.0) for name in types}
        # NaN and infinity are wrong, although the kernel may return the same.
        return {} if any(comparison.wrong for parts in found.values() for comparison in parts) else found

    def _proofs(self, case: Case, data: str, seed: int) -> Proofs | None:
        """Return the proofs of outputs for these data; None if a digest takes longer than a comparison."""
        if self.beside_base or not self.digests.are_fast:  # Base's outputs belong to one kernel.
            return None
        return Proofs(self.folder(case, *self._by_kernel(case), "proofs", data, seed))

    def wrong(
        self,
        case: Case,
        key: tuple[str, int],
        inputs: Callable[[], verify.Arrays],
        read: verify.Reading,
        *,
        in_full: bool,
    ) -> str:
        """Return what is wrong with outputs for the inputs named by `key`; empty if nothing.

        Outputs are read before inputs are made, because making inputs takes long, and a thread of the kernel
        may still write. Unless `in_full`, large outputs are compared in one band, or not at all if the
        problem has no bands.
        """
        self.report("verify")
        problem, only = self.suite.problem, None
        if not in_full and verify.largest_output(problem, case) > INTEGER_CHECK_ELEMENTS:
            only = verify.sample(problem, case, np.random.default_rng(key[1]))
            if only is None:
                return ""
        band = only[1] if only else slice(None)
        outputs = {name: read(name, verify.place(problem, name, band)) for name in problem.outputs}
        found = self._compare(case, inputs(), outputs, key, only)
        return verify.combine(found, "random", key[1], beside_base=self.beside_base).message

    def _compare(
        self,
        case: Case,
        inputs: verify.Arrays,
        outputs: verify.Arrays,
        key: tuple[str, int],
        only: tuple[Case, slice] | None = None,
    ) -> Comparisons:
        """Compare every band of the outputs, or the `only` band that was read."""
        problem = self.suite.problem
        found: Comparisons = {name: [] for name in outputs}
        for part, band in [only] if only else verify.bands(problem, case):
            expected, tolerance = self.expected(case, part, inputs, key, band)
            for name, values in (outputs if only else verify.cut(problem, outputs, band)).items():
                begin = verify.origin(problem, name, band)
                bound = 0.0 if key[0] == "integers" else verify.allowed(tolerance, name)
                found[name] += verify.compare_in_parts(
                    values, expected[name], bound, begin, alike=self.beside_base
                )
        return found

    def inputs(self, case: Case, seed: int) -> dict[str, NDArray[Any]]:
        """Return the case's data: from the run's scratch folder, or from this process if they are large."""
        problem, folder = self.suite.problem, self._inputs_folder(case, seed)
        if kept := read_arrays(folder):
            return as_declared(problem, case, kept)
        if folder in self._held:
            return self._held[folder]
        with self._doing("inputs"), _alone(folder):
            key = self._fetch(case, folder)
            if kept := read_arrays(folder):
                return as_declared(problem, case, kept)
            inputs = problem.seeded(case, seed)
            arrays = inputs.values()
            if not all(isinstance(array, np.ndarray) for array in arrays):
                return inputs
            if self._fits(sum(array.nbytes for array in arrays)):
                self._keep(folder, inputs, key)
            elif _is_alone(problem, inputs) and free_host_bytes() > 2 * verify.host_bytes(problem, case):
                self._held = {**dict([*self._held.items()][-1:]), folder: inputs}
            return inputs

    def _fits(self, size_bytes: int) -> bool:
        """Tell whether the scratch folder has room for a set of inputs.

        Large ones are only written for a GPU: the disk writes them while kernels are timed.
        """
        if size_bytes <= MOST_KEPT_BYTES:
            return True
        if size_bytes > MOST_SHARED_BYTES or self.device.info.kind != "gpu":
            return False
        with contextlib.suppress(OSError):
            used_bytes = sum(file.lstat().st_size for file in self.scratch.glob("*/*"))
            free_bytes = min(shutil.disk_usage(self.scratch).free, free_host_bytes())
            return used_bytes + size_bytes <= MOST_SCRATCH_BYTES and free_bytes > _SPARE * size_bytes
        return False

    def _fetch(self, case: Case, folder: Path) -> Key:
        """Copy an earlier command's arrays into a folder of the run, and return the key to keep them by.

        Small arrays have no key, because computing them is faster. Arrays that another process of this run
        keeps have none either.
        """
        arrays = self.suite.problem.arrays.values()
        elements = sum(math.prod(array.shape_at(case)) for array in arrays)
        if self._earlier is None or _REFERENCE_BYTES * elements < LEAST_ENTRY_BYTES or folder.exists():
            return Key()
        key = self._earlier.key(f"{folder.name} {case.device_facts}")
        if found := self._earlier.get(key):
            with contextlib.suppress(OSError):
                folder.symlink_to(found, target_is_directory=True)
        return key

    def _keep(self, folder: Path, arrays: Mapping[str, NDArray[Any]], key: Key) -> None:
        """Keep arrays for the other processes of the run, and for later commands if they have a key."""
        kept = self._earlier.put(key, arrays) if self._earlier else None
        if kept is None:
            keep(folder, arrays)
            return
        with contextlib.suppress(OSError):
            folder.symlink_to(kept, target_is_directory=True)

    def _inputs_folder(self, case: Case, seed: int) -> Path:
        return self.folder(case, "inputs", self._by_kernel(case), seed)

    def _by_kernel(self, case: Case) -> tuple[object, ...]:
        """Return the kernel if data() may depend on it; nothing for the default data()."""
        shared = type(self.suite.problem).data is Problem.data
        return () if shared else (case.kernel, sorted(case.macros.items()))

    def folder(self, case: Case, *key: object) -> Path:
        of_case = sorted(without_graph(case.sizes).items()), case.dtype, sorted(case.scalars.items())
        identity = repr((self.suite.name, *of_case, key))
        return self.scratch / hashlib.sha256(identity.encode()).hexdigest()

    def _reference(
        self, case: Case, inputs: verify.Arrays, key: tuple[object, ...]
    ) -> tuple[dict[str, NDArray[np.float64]], Any]:
        """Return the reference and tolerance. Kernels of a ladder share them in the run's scratch folder."""
        unkept = key[0] == UNSEEN or key[-1] != slice(None)  # or a band of a case that is too large to keep
        folder = self.folder(case, *self._by_kernel(case), key)
        if not unkept and (kept := read_arrays(folder)):
            return _with_tolerance(kept)
        with self._doing("reference"), contextlib.nullcontext() if unkept else _alone(folder):
            origin = Key() if unkept else self._fetch(case, folder)
            if not unkept and (kept := read_arrays(folder)):
                return _with_tolerance(kept)
            reference, tolerance = verify.reference_of(self.suite.problem, case, inputs)
            by_name = tolerance if isinstance(tolerance, Mapping) else {"": tolerance}
            if key[0] != "integers" and by_name is not tolerance:  # results on integers are exact
                check_numbers(self.suite.problem, case, reference, tolerance)
            if not unkept:
                bounds = {f"{TOLERANCE}{name}": np.asarray(each) for name, each in by_name.items()}
                self._keep(folder, {**reference, **bounds}, origin)
            return reference, tolerance


def _with_tolerance(kept: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[np.float64]], Any]:
    """Return a stored reference and its tolerance, which may be one number per output."""
    by_output = {name: kept.pop(each).item() for name in [*kept] if (each := f"{TOLERANCE}{name}") in kept}
    return kept, by_output or kept.pop(TOLERANCE)


def _is_alone(problem: Problem, inputs: verify.Arrays) -> bool:
    """Tell whether nothing else holds the inputs. A problem's own data() may reuse its arrays."""
    return type(problem).data is Problem.data or all(isinstance(each, np.memmap) for each in inputs.values())


def _short(digests: list[str]) -> str:
    return digests[0][:12] if len(digests) == 1 else digest([np.array(digests)])[:12]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait while another process makes the arrays of a folder, which are found there afterwards.

    The lock ends with its process. Processes that verify at once cannot block each other, because a thread
    for each of them answers its questions.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # A full disk only costs time.
            file = stack.enter_context(folder.with_suffix(".lock").open("wb"))
            try_lock(file.fileno(), wait=True)
        yield


def keep(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with contextlib.suppress(OSError):  # A full disk only costs time.
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            write_arrays(unfinished, arrays)
            unfinished.rename(folder)
        finally:  # Another process may have been first.
            shutil.rmtree(unfinished, ignore_errors=True)


def emulator(problem: Problem, kernel: Kernel, case: Case) -> Callable[..., list[tuple[Any, NDArray[Any]]]]:
    """Return a function that computes a kernel's results in the null device's byte arrays."""
    names = argument_names(problem, kernel)
    references: dict[str, dict[str, NDArray[np.float64]]] = {}
    """References by the digest of their inputs, since the same few data sets recur."""
    layouts = {name: problem.layout(name, case) for name in problem.arrays}

    def emulate(*arguments: Any) -> list[tuple[Any, NDArray[Any]]]:
        views = dict(zip(names, arguments, strict=True))
        inputs = {name: layouts[name].unpack(views[name]) for name in problem.inputs}
        if (key := digest(inputs.values())) not in references:
            references[key] = _stand_in(problem, case, key, inputs)
        return [(views[name], in_memory(name, references[key][name])) for name in problem.outputs]

    def in_memory(name: str, values: NDArray[np.float64]) -> NDArray[Any]:
        layout = layouts[name]
        packed = layout.pack(values.astype(numpy_dtype(layout.dtype)), OUTPUT_GUARD)
        return packed if element_bits(layout.dtype) < 8 else packed.view(numpy_dtype(layout.dtype))

    return emulate


def _stand_in(
    problem: Problem, case: Case, key: str, inputs: verify.Arrays
) -> dict[str, NDArray[np.float64]]:
    """Return the results of a kernel that is not run: the reference, or numbers derived from the inputs."""
    if problem.held_to != "base":
        return verify.reference_of(problem, case, inputs)[0]
    rng = np.random.default_rng(int(key[:8], 16))
    return {name: rng.standard_normal(each.shape_at(case)) for name, each in problem.outputs.items()}


def free_host_bytes() -> int:
    """Return the available host memory in bytes."""
    import psutil

    return int(psutil.virtual_memory().available)


def check_host_memory(problem: Problem, case: Case) -> None:
    """Refuse a case that needs more host memory than there is, before the system kills a process."""
    needed, free = verify.host_bytes(problem, case), free_host_bytes()
    if needed > free:
        raise OutOfMemoryError(
            f"Verifying {case.id} needs {needed / 2**30:.1f} GiB of host memory; "
            f"{free / 2**30:.1f} GiB are free: use a smaller size."
        )


SKIPS = 4.0
"""Largest ratio of a launch's time to that of a launch that finds its results already written.

Both should take equally long. Poison is in the caches like the output, and memory is much less than four
times slower than the L2.
"""
_SINGLES, _SINGLES_NS = 7, 50e6
"""Number of launches timed for this test, and their approximate total time in ns."""
_LONG_NS = 1e6
_LONGEST_BUSY_NS = 10**8
_LAST_LOOKS, _LAST_LOOKS_BYTES = 16, 2**24
"""Most launches checked one by one at the end, since only some may skip work, and most bytes read."""
_TRIES = 5
"""Most sets of unseen data."""
_SPOTS, _SPOT_BYTES = 16, 256
"""Number of places of an output that are checked before a launch may run, and bytes of each."""


class NotAsVerifiedError(MeasureError):
    """A timed kernel that does not do what it did when it was verified."""

    def __init__(self, subject: Subject, message: str) -> None:
        super().__init__(message)
        self.subject = subject


class WrongWhenTimedError(NotAsVerifiedError):
    reason = "wrong-when-timed"


class SkippedWorkError(NotAsVerifiedError):
    reason = "skips-work"


class ForeignStreamError(NotAsVerifiedError):
    reason = "foreign-stream"


@dataclass(slots=True)
class _DataSet:
    seed: int
    kept: Kept | None = None
    """Inputs on the device; None if they come from the host."""
    unseen: Mapping[str, NDArray[Any]] | None = None
    """Inputs on the host, of a set that is used once."""
    digests: dict[Subject, str] = field(default_factory=dict)
    """Digest of each kernel's outputs."""


class Restoring(Data):
    """Restores the arrays that a launch needs, for kernels whose outputs are not checked."""

    def __init__(self, buffers: Buffers) -> None:
        self.buffers, self.restores = buffers, buffers.restores

    def poison(self) -> None:
        if self.restores:
            self.buffers.poison()


class Rotation(Data):
    """The buffers of one case, with the data that verified kernels are timed on.

    `seed` is that of the first set, which the buffers hold. The second set has the next seed. With three
    `sets`, kernels get unseen data at the end. With one, only the first set is used.
    """

    def __init__(
        self,
        checker: Checker,
        buffers: Buffers,
        case: Case,
        seed: int,
        rng: random.Random,
        *,
        sets: Literal[1, 2, 3] = 3,
    ) -> None:
        self.checker, self.buffers, self.case, self.rng = checker, buffers, case, rng
        self._with_unseen = sets == 3
        self.device, self.restores = buffers.device, buffers.restores
        self._sets = [_DataSet(seed + number) for number in range(min(sets, 2))]
        self._in_force = self._sets[0]
        self._slots = self._offers = 0
        self._room: Kept | None = None
        """Room for a sample of outputs on the device. If the device waited for the host to check them, it
        would cool down."""
        self._sampled: tuple[Subject, _DataSet] | None = None
        self._launch_ns = 1.0
        self._poisoned = False
        self._checked_unseen: set[Subject] = set()
        """Kernels that were checked on unseen data."""

    def admit(self, subject: Subject, case: Case, seen: str = "") -> str:
        """Add a kernel that was verified on the first set, which the buffers hold, and return its digest.

        `seen` is the digest of outputs that only a digest proves. Without it the kernel was fully checked.

        Its outputs on the second set are recorded too. They are compared with the reference if the kernel
        could keep state: a sample of large outputs, or all if they equal those of the first set. Raises
        ForeignStreamError for work on another stream, and WrongWhenTimedError.
        """
        first = self._in_force = self._sets[0]
        if not first.digests:
            self._keep(unchanged=not seen)
        first.digests[subject] = seen or self.checker.digest(self.buffers)
        self._use(self._sets[-1])
        self._launch_held(subject)
        digest = self.checker.digest(self.buffers)
        if digest == first.digests[subject]:
            if self._in_force is not first:
                self._compare(subject, case, in_full=True)
        elif self._in_force is first or not subject.built.stateless:
            self._compare(subject, case, in_full=False)
        self._in_force.digests[subject] = digest
        return first.digests[subject]

    def _keep(self, *, unchanged: bool = False) -> None:
        """Keep both sets on the device if memory allows; only one if the problem's data are always the same.

        The first set is copied within the device if a check found the inputs `unchanged`.
        """
        first, *others = map(self._inputs, self._sets)
        if all(same_bits(first[name], other[name]) for other in others for name in first):
            del self._sets[1:]
            return
        for data_set, inputs in zip(self._sets, (first, *others), strict=True):
            is_there = unchanged and data_set is self._sets[0]
            data_set.kept = self.buffers.keep_written() if is_there else self.buffers.keep(inputs)
        self._room = self.buffers.room(self.buffers.problem.outputs)

    def first(self) -> int:
        """Restore the first set, and return its seed."""
        self._use(self._sets[0])
        return self._sets[0].seed

    def _launch_held(self, subject: Subject) -> None:
        self.device.fill_results(subject.built, subject.launch, subject.arguments)
        self.poison()
        self.device.synchronize()
        spots = list(self.buffers.spots(_SPOTS, _SPOT_BYTES))
        looks = [(memory, offset_bytes, held.copy()) for memory, offset_bytes, held in spots]
        was_held = self.device.launch_held(subject.built, subject.launch, subject.arguments, looks)
        changed = ((look[2] != spot[2]).any() for look, spot in zip(looks, spots, strict=True))
        if was_held and any(changed):
            raise ForeignStreamError(
                subject,
                "The kernel's outputs changed while its stream was still held: it works on "
                "a stream or thread of its own, whose time is not measured. Put all work on the stream "
                "that the function is given, or have the two wait for each other with events.",
            )

    def _use(self, data_set: _DataSet) -> None:
        if data_set is not self._in_force:
            self._put(data_set)

    def _put(self, data_set: _DataSet) -> None:
        if data_set.kept is not None:
            self.buffers.restore(data_set.kept)
        else:
            self.buffers.write(self._inputs(data_set))
        self._in_force = data_set

    def _inputs(self, data_set: _DataSet) -> Mapping[str, NDArray[Any]]:
        return data_set.unseen or self.checker.inputs(self.case, data_set.seed)

    def poison(self) -> None:
        self.buffers.poison()
        self._poisoned = True

    def change(self) -> None:
        # Every other time; but from the host at most once, because the device would wait for it.
        self._offers += 1
        on_device = all(data_set.kept for data_set in self._sets)
        if (on_device or self._offers == 1) and self.rng.random() < 0.5:
            self._other()

    def _other(self) -> None:
        self._use(self._sets[0 if self._in_force is self._sets[-1] else 1])

    def sample(self, subject: Subject) -> None:
        """Sample with reservoir sampling: the n-th slot replaces the sample with probability 1 / n."""
        self._slots += 1
        if self._room and self.rng.random() * self._slots < 1:
            self.buffers.save(self._room)
            self._sampled = subject, self._in_force

    def _check(self, subject: Subject) -> None:
        """Raise WrongWhenTimedError for outputs that are neither the verified ones nor right."""
        if self._poisoned and self.checker.digest(self.buffers) != self._in_force.digests[subject]:
            self._compare(subject, self.case, in_full=True)
        self._poisoned = False

    def begin(self, subject: Subject, time_ns: float) -> None:
        """Raise SkippedWorkError for a kernel that is faster if its results are already written.

        Long launches, and those of kernels that read their outputs, are poisoned each time anyway.
        """
        self._launch_ns = time_ns
        if time_ns < _LONG_NS and not self.restores:
            self._check_work(subject)

    def finish(self, subjects: Sequence[Subject], launches: int) -> None:
        """Check the last slot, a sampled slot, the other data and unseen data.

        Raises WrongWhenTimedError and SkippedWorkError.
        """
        self.checker.report("verify")
        self._check(subjects[-1])
        if self._sampled is not None:
            (subject, self._in_force), in_force = self._sampled, self._in_force
            if self.checker.digest(self.buffers, self._room) != self._in_force.digests[subject]:
                self._compare(subject, self.case, in_full=True, kept=self._room)
            self._in_force, self._sampled = in_force, None
        for subject in subjects:
            self._finish(subject, launches)

    def _finish(self, subject: Subject, launches: int) -> None:
        if launches > 1 and not self.restores:
            self._check_work(subject)
        size_bytes = sum(size_bytes for _, _, size_bytes in self.buffers.outputs())
        for number in range(self._affordable(min(_LAST_LOOKS, _LAST_LOOKS_BYTES // size_bytes))):
            self._other()
            if number:
                self.poison()
                self.device.launch(subject.built, subject.launch, subject.arguments)
            else:  # Work that waited for its turn during verification may no longer do so.
                self._launch_held(subject)
            self._check(subject)
        unseen = self._with_unseen and len(self._sets) > 1 and subject not in self._checked_unseen
        if unseen and not subject.built.stateless:
            self._checked_unseen.add(subject)
            self._check_unseen(subject)

    def _check_unseen(self, subject: Subject) -> None:
        """Check on data with an unpredictable seed. Raises SkippedWorkError.

        The known data that launches are compared with are written anew for each launch, because data just
        written are in another cache than data just read. A launch that was slow by chance is repeated.
        """
        kept = None
        count = self._affordable(_SINGLES)
        busy_ns = 4 * (count + 2) * ENQUEUE_NS
        for _ in range(_TRIES):
            seed = random.SystemRandom().getrandbits(63)
            inputs = self.checker.suite.problem.seeded(self.case, seed)
            kept = self.buffers.keep(inputs, kept)
            begun_ns = self._occupy(busy_ns)
            again = [self._timed_on(self._sets[0], subject) for _ in range(count)]
            first = self._timed_on(_DataSet(seed, kept, inputs), subject)
            busy_ns = self._outlasting(busy_ns, begun_ns)
            self._compare(subject, self.case, in_full=False)
            if self.checker.beside_base:
                self._check_fresh(subject)
            self.device.synchronize()  # Outputs too large to compare were not read.
            first_ns, again_ns = first(), median(timing() for timing in again)
            if first_ns <= SKIPS * max(again_ns, self.device.tick_ns()):
                return
        raise SkippedWorkError(
            subject,
            f"A launch takes {again_ns / 1e6:.4g} ms on data that it has seen before, the first on others "
            f"{first_ns / 1e6:.4g} ms: the kernel keeps earlier results.",
        )

    def _check_fresh(self, subject: Subject) -> None:
        """Raise WrongWhenTimedError for outputs of other data. Base's outputs are unknown for unseen data."""
        seen = [data_set.digests.get(subject) for data_set in self._sets]
        if len({*seen}) == len(seen) > 1 and self.checker.digest(self.buffers) in seen:
            raise WrongWhenTimedError(
                subject,
                "On new data the kernel returns the outputs of earlier data: it keeps what it has computed.",
            )

    def _check_work(self, subject: Subject) -> None:
        """Time launches alternately on poisoned and on finished outputs. Raises SkippedWorkError."""
        count = self._affordable(_SINGLES)
        busy_ns, skipped = 3 * count * ENQUEUE_NS, 0
        for _ in range(3):
            planned_ns = busy_ns
            begun_ns = self._occupy(busy_ns)
            fresh, again = [], []
            for _ in range(count):
                self.poison()
                fresh.append(self._timed(subject))
                again.append(self._timed(subject))
            busy_ns = self._outlasting(busy_ns, begun_ns)
            self.device.synchronize()
            # Take the minimum, because other work on the machine only makes times longer.
            fresh_ns, again_ns = min(timing() for timing in fresh), median(timing() for timing in again)
            skips = fresh_ns > SKIPS * max(again_ns, self.device.tick_ns())
            skipped += skips
            if skipped == 2:  # An accident does not happen twice.
                raise SkippedWorkError(
                    subject,
                    f"A launch takes {again_ns / 1e6:.4g} ms with its result in place, and without it "
                    f"{fresh_ns / 1e6:.4g} ms or more: the kernel leaves out work that it finds done.",
                )
            if not skips and busy_ns == planned_ns:
                return

    def _occupy(self, duration_ns: int) -> int:
        """Keep the device busy while work is enqueued. Returns when this began, on the host's clock."""
        self.device.occupy(duration_ns)
        return time.perf_counter_ns()

    def _outlasting(self, busy_ns: int, begun_ns: int) -> int:
        """Return how long to keep the device busy next time, if enqueueing takes as long again.

        Otherwise a launch's time includes waiting for the host: a Triton launch takes about 50 us.
        """
        if self.device.info.kind == "cpu":  # Such a device enqueues nothing.
            return busy_ns
        return max(busy_ns, min(_LONGEST_BUSY_NS, 2 * (time.perf_counter_ns() - begun_ns)))

    def _affordable(self, most: int) -> int:
        """Return how many launches, 1 to `most`, fit into _SINGLES_NS."""
        return max(1, min(most, int(_SINGLES_NS / max(self._launch_ns, 1.0))))

    def _timed_on(self, data_set: _DataSet, subject: Subject) -> Timing:
        self._put(data_set)
        self.poison()
        return self._timed(subject)

    def _timed(self, subject: Subject) -> Timing:
        return timed(self.device, subject, UNWATCHED, 1)

    def _compare(self, subject: Subject, case: Case, *, in_full: bool, kept: Kept | None = None) -> None:
        """Compare the outputs, or their copies, with the reference for the current data."""
        data_set = self._in_force
        inputs, read = partial(self._inputs, data_set), partial(self.buffers.read, kept=kept)
        key = UNSEEN if data_set.unseen else "random", data_set.seed
        if wrong := self.checker.wrong(case, key, inputs, read, in_full=in_full):
            raise WrongWhenTimedError(
                subject,
                f"Right before timing and wrong when timed: {wrong} The kernel keeps something between "
                "launches, works where nobody waits for it, or has a race.",
            )
