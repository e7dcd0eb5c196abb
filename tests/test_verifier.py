"""Checks of a kernel while it is timed, and checks of single launches where the host is slow to enqueue."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from harness import Axis, Case, Input, Kernel, Output, Problem, Suite
from harness.device.backends.null import NullBuilt, NullDevice, devices
from harness.measure import verifier, verify
from harness.measure.buffers import Buffers
from harness.measure.memory_digest import MemoryDigests
from harness.measure.timing import Subject
from harness.measure.verifier import Checker, Rotation, SkippedWorkError, WrongWhenTimedError, emulator
from harness.records.types import Launch
from harness.suite.sources import Program

KERNEL_NS, ENQUEUEING_NS = 10_000, 150_000


class Copy(Problem):
    n = Axis((64,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        return x


class SlowlyEnqueued(NullDevice):
    """A launch that begins on an idle device has the host's time in its own.

    `keeps` makes one longer on new data, `skips` makes one shorter that finds its output in place.
    """

    def __init__(self, *, keeps=False, skips=False):
        super().__init__(dataclasses.replace(devices()[0], kind="gpu"), {})
        self.now_ns = self.busy_until_ns = 0
        self.keeps, self.skips, self.seen = keeps, skips, set()

    def perf_counter_ns(self):
        return self.now_ns

    def occupy(self, duration_ns):
        self.busy_until_ns = self.now_ns + duration_ns

    def timed(self, _built, _launch, arguments, _launches):
        self.now_ns += ENQUEUEING_NS
        time_ns = KERNEL_NS if self.busy_until_ns > self.now_ns else ENQUEUEING_NS
        if self.skips and (arguments[1] == 1).all():
            time_ns -= KERNEL_NS * 9 // 10
        arguments[1][:] = 1
        if self.keeps and (data := arguments[0].tobytes()) not in self.seen:
            self.seen.add(data)
            time_ns += 500_000
        return lambda: time_ns


class Unchecked(Rotation):
    def _compare(self, *_, **__):
        """Right: this is about times."""


def rotation(device, monkeypatch):
    monkeypatch.setattr(verifier, "time", device)
    rng = np.random.default_rng(1)
    buffers = Buffers(device, Copy(), case := Case("toy", "copy", {"n": 64}))
    checker = SimpleNamespace(
        suite=SimpleNamespace(problem=Copy()), inputs=lambda *_: Copy().data(case, rng), beside_base=False
    )
    made = Unchecked(checker, buffers, case, 1, random.Random(1))  # type: ignore[arg-type]
    made._keep()
    subject = SimpleNamespace(
        built=None, launch=None, arguments=buffers.arguments(Kernel("copy", "copy.cu", block=1, grid=1))
    )
    return made, subject


@pytest.mark.parametrize("check", ["_check_unseen", "_check_work"])
def test_a_slow_host_is_not_taken_for_a_kernel_that_keeps_what_it_has_computed(monkeypatch, check):
    made, subject = rotation(SlowlyEnqueued(), monkeypatch)
    getattr(made, check)(subject)


def test_a_kernel_that_keeps_what_it_has_computed_is_found_on_a_slow_host(monkeypatch):
    made, subject = rotation(SlowlyEnqueued(keeps=True), monkeypatch)
    with pytest.raises(SkippedWorkError, match="the kernel keeps earlier results"):
        made._check_unseen(subject)


def test_a_kernel_that_leaves_out_work_is_found_on_a_slow_host(monkeypatch):
    made, subject = rotation(SlowlyEnqueued(skips=True), monkeypatch)
    with pytest.raises(SkippedWorkError, match="leaves out work that it finds done"):
        made._check_work(subject)


@pytest.mark.parametrize(
    ("n", "wrong"), [(64, False), (64, True), (verifier.INTEGER_CHECK_ELEMENTS + 1, True)]
)
def test_a_slot_in_the_middle_whose_result_is_wrong_is_found(tmp_path, n, wrong):
    """However large the output is: what is not as verified is compared in full."""
    device = NullDevice(devices()[0], {})
    suite = Suite("toy", Copy(), [kernel := Kernel("copy", "copy.cu", block=1, grid=1)])
    case = suite.case(kernel, {"n": n})
    checker = Checker(device, suite, tmp_path, lambda stage: None)
    built = NullBuilt(
        Program("toy.copy", "copy", "", emulate=emulator(suite.problem, kernel, case)), "", None
    )
    with Buffers(device, suite.problem, case) as buffers:
        launch = Launch(grid=(1, 1, 1), block=(1, 1, 1))
        subject = Subject(built, launch, buffers.arguments(kernel))
        buffers.write(checker.inputs(case, 1))
        device.launch(built, launch, subject.arguments)
        data = Rotation(checker, buffers, case, 1, random.Random(1), sets=2)
        data.admit(subject, case)
        if wrong:
            subject.arguments[1][:] = 5
        data.sample(subject)  # the first slot is in the sample as long as there is no other
        data.poison()
        device.launch(built, launch, subject.arguments)
        if wrong:
            with pytest.raises(WrongWhenTimedError, match="wrong when timed"):
                data.finish([subject], 1)
        else:
            data.finish([subject], 1)


@pytest.mark.parametrize("digests_are_fast", [False, True, "and prove the reference"])
@pytest.mark.parametrize("wrong_at", [1, 2, None])
def test_each_of_two_launches_is_verified(tmp_path, monkeypatch, wrong_at, digests_are_fast):
    monkeypatch.setattr(MemoryDigests, "are_fast", bool(digests_are_fast))
    monkeypatch.setattr(verifier, "_FEW_ELEMENTS", 0 if isinstance(digests_are_fast, str) else 64)
    device = NullDevice(devices()[0], {})
    launches: list[None] = []
    suite = Suite("toy", Copy(), [kernel := Kernel("copy", "copy.cu", block=1, grid=1)])
    case = suite.case(kernel, {"n": 64})
    checker = Checker(device, suite, tmp_path, lambda stage: None)

    def launch(_built, _launch, arguments):
        launches.append(None)
        arguments[1][:] = arguments[0]
        arguments[1][7] ^= 1 if len(launches) == wrong_at else 0

    device.launch = launch  # type: ignore[method-assign]
    with Buffers(device, suite.problem, case) as buffers:
        found = checker.check(case, buffers, Subject(None, None, buffers.arguments(kernel)), 1)  # type: ignore[arg-type]
    assert (found.passed, len(launches)) == (wrong_at is None, wrong_at or 2)
    assert [check.elements for check in found.checks] == [64]
    assert [check.largest_error for check in found.checks if check.passed] == ([] if wrong_at else [0.0])


def test_a_digest_proves_neither_nan_nor_infinity(tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryDigests, "are_fast", True)
    monkeypatch.setattr(verifier, "_FEW_ELEMENTS", 0)
    monkeypatch.setattr(Copy, "seeded", lambda *_: {"x": np.array([1.0, np.nan] * 32, "float32")})
    found, _ = Checked(tmp_path, monkeypatch).check(copies)
    assert [(check.passed, check.wrong) for check in found.checks] == [(False, 32)]


def test_an_exact_result_is_not_copied_where_a_digest_proves_it(tmp_path, monkeypatch):
    monkeypatch.setattr(verifier, "_FEW_ELEMENTS", 0)
    checked = Checked(tmp_path, monkeypatch)
    found, compared = checked.check(copies)
    assert (found.passed, compared) == (True, 0)
    found, compared = checked.check(errs)
    assert (found.passed, compared) == (False, 1)


class Checked:
    """Kernels that processes of one command check, one after another, where digests are fast as on a GPU."""

    def __init__(self, scratch, monkeypatch):
        monkeypatch.setattr(MemoryDigests, "are_fast", True)
        self.scratch, self.compared = scratch, 0
        compare = Checker._compare

        def counted(*given):
            self.compared += 1
            return compare(*given)

        monkeypatch.setattr(Checker, "_compare", counted)

    def check(self, write, read=None):
        """Check a kernel in a process of its own; returns the verification and how often it was compared."""
        device, self.compared = NullDevice(devices()[0], {}), 0
        suite = Suite("toy", Copy(), [kernel := Kernel("copy", "copy.cu", block=1, grid=1)])
        case = suite.case(kernel, {"n": 64})

        def launch(_built, _launch, arguments):
            write(*arguments[:2])

        device.launch = launch  # type: ignore[method-assign]
        checker = Checker(device, suite, self.scratch, lambda stage: None)
        with Buffers(device, suite.problem, case) as buffers:
            subject = Subject(None, None, buffers.arguments(kernel))  # type: ignore[arg-type]
            if read:
                buffers.read = read(buffers, *subject.arguments[:2])  # type: ignore[method-assign]
            return checker.check(case, buffers, subject, 1), self.compared


def copies(x, y):
    y[:] = x


def errs(x, y):
    y[:] = x
    y[7] ^= 1


def errs_at_its_second_launch():
    launches: list[None] = []

    def write(x, y):
        launches.append(None)
        (errs if len(launches) == 2 else copies)(x, y)

    return write


def changes_its_input(x, y):
    y[:] = x
    x[0] ^= 1


def test_outputs_of_the_same_bits_are_proved_by_their_digest(tmp_path, monkeypatch):
    checked = Checked(tmp_path, monkeypatch)
    first = checked.check(copies)
    assert first[1] == 1
    assert checked.check(copies) == (first[0], 0)


@pytest.mark.parametrize(
    "later",
    [errs, errs_at_its_second_launch(), changes_its_input, lambda x, y: None],
    ids=["wrong", "second launch", "input", "poison"],
)
def test_a_kernel_that_behaves_in_the_first_process_alone_is_found(tmp_path, monkeypatch, later):
    checked = Checked(tmp_path, monkeypatch)
    assert checked.check(copies)[0].passed
    assert not checked.check(later)[0].passed


def test_wrong_outputs_prove_nothing(tmp_path, monkeypatch):
    checked = Checked(tmp_path, monkeypatch)
    assert not checked.check(errs)[0].passed
    assert not checked.check(errs)[0].passed


def test_memory_that_is_right_once_it_is_copied_proves_nothing(tmp_path, monkeypatch):
    """A thread of the kernel may write late, but in time for the copy that is compared."""
    checked = Checked(tmp_path, monkeypatch)

    def in_time_for_the_copy(buffers, x, y):
        read = buffers.read

        def late(*given, **named):
            y[:] = x
            return read(*given, **named)

        return late

    assert checked.check(errs, in_time_for_the_copy)[0].passed
    assert not checked.check(errs)[0].passed


class InBands(Copy):
    independent = "n"


@pytest.mark.parametrize("at", [0, 17, 63])
def test_an_element_of_any_band_is_verified_at_its_place(tmp_path, monkeypatch, at):
    monkeypatch.setattr(verify, "BAND_ELEMENTS", 16)
    device = NullDevice(devices()[0], {})
    suite = Suite("toy", InBands(), [kernel := Kernel("copy", "copy.cu", block=1, grid=1)])
    case = suite.case(kernel, {"n": 64})

    def launch(_built, _launch, arguments):
        arguments[1].view("float32")[:] = arguments[0].view("float32")
        arguments[1].view("float32")[at] = 123

    device.launch = launch  # type: ignore[method-assign]
    with Buffers(device, suite.problem, case) as buffers:
        subject = Subject(None, None, buffers.arguments(kernel))  # type: ignore[arg-type]
        found = Checker(device, suite, tmp_path, lambda stage: None).check(case, buffers, subject, 1)
    assert (
        f"1 of 64 elements of y are wrong on random; the first, y[{at}], is 123" in found.checks[-1].message
    )


def test_a_sample_of_a_large_output_is_all_that_is_read(tmp_path):
    suite = Suite("toy", InBands(), [Kernel("copy", "copy.cu", block=1, grid=1)])
    checker = Checker(NullDevice(devices()[0], {}), suite, tmp_path, lambda stage: None)
    case = suite.case(suite.kernels[0], {"n": 2 * verifier.INTEGER_CHECK_ELEMENTS})
    values, done = checker.inputs(case, 1), []

    def inputs():
        done.append("inputs")
        return values

    def read(_name, part, add):
        done.append(part[0].stop - part[0].start)
        return values["x"][part] + np.float32(add)

    for add in (0, 1):
        wrong = checker.wrong(case, ("random", 1), inputs, partial(read, add=add), in_full=False)
        assert bool(wrong) == add
    assert done == [verify.SAMPLE_ELEMENTS, "inputs"] * 2  # what is written later does not count
    sampled = verify.sample(suite.problem, case, np.random.default_rng(1))
    assert sampled is not None
    assert f"the first, y[{sampled[1].start}]" in wrong


class Counted(Copy):
    """A problem that notes the seeds of which it makes inputs."""

    def __init__(self):
        super().__init__()
        self.made = []

    def seeded(self, case, seed):
        self.made.append(seed)
        return super().seeded(case, seed)


class Reusing(Counted):
    """A problem whose own data() fills the same array again and again."""

    room = np.zeros(64, "float32")

    def data(self, case, rng):
        self.room[:] = rng.standard_normal(64)
        return {"x": self.room}


@pytest.mark.parametrize(
    ("problem", "made"), [(Counted(), [1, 2, 3]), (Reusing(), [1, 2, 1, 2, 3, 1])], ids=["usual", "own"]
)
def test_inputs_too_large_for_the_disk_are_made_once(tmp_path, monkeypatch, problem, made):
    monkeypatch.setattr(verifier, "MOST_KEPT_BYTES", 0)
    monkeypatch.setattr(verifier, "MOST_SHARED_BYTES", 0)
    suite = Suite("toy", problem, [Kernel("copy", "copy.cu", block=1, grid=1)])
    checker = Checker(NullDevice(devices()[0], {}), suite, tmp_path, lambda stage: None)
    case = suite.case(suite.kernels[0], {"n": 64})
    firsts = [checker.inputs(case, seed)["x"][0] for seed in (1, 2, 1, 2, 3)]
    assert firsts[:2] == firsts[2:4]
    assert len(set(firsts)) == 3
    checker.inputs(case, made[-1])
    assert problem.made == made


@pytest.mark.parametrize(
    ("free_bytes", "kind", "made"),
    [
        (2**30, "gpu", [1, 2, 3, 3]),
        (1024, "gpu", [1, 2, 3, 1, 2, 3]),
        (2**30, "cpu", [1, 2, 3, 1, 2, 3]),
    ],
    ids=["room", "no memory", "host"],
)
def test_processes_share_large_inputs_up_to_a_size(tmp_path, monkeypatch, free_bytes, kind, made):
    monkeypatch.setattr(verifier, "MOST_KEPT_BYTES", 0)
    monkeypatch.setattr(verifier, "MOST_SCRATCH_BYTES", 700)  # a file has 256 bytes of data and 128 before
    monkeypatch.setattr(verifier, "free_host_bytes", lambda: free_bytes)
    problem = Counted()
    suite = Suite("toy", problem, [Kernel("copy", "copy.cu", block=1, grid=1)])
    info = dataclasses.replace(devices()[0], kind=kind)
    checkers = [Checker(NullDevice(info, {}), suite, tmp_path, lambda stage: None) for _ in range(2)]
    case = suite.case(suite.kernels[0], {"n": 64})
    first, second = ([each.inputs(case, seed)["x"].copy() for seed in (1, 2, 3)] for each in checkers)
    assert np.array_equal(first, second)
    assert problem.made == made


def test_a_process_that_comes_second_leaves_no_arrays_behind(tmp_path):
    for _ in range(2):
        verifier.keep(tmp_path / "kept", {"x": np.zeros(4)})
    assert [*tmp_path.iterdir()] == [tmp_path / "kept"]
