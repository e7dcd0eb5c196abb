"""Finds changes of a problem between two commits: sizes, arrays, data, reference and bounds.

A change of the problem changes the meaning of `verified`. So a comparison reports every such change, and also
checks head's kernels against base's problem.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.measure.buffers import digest
from harness.measure.verifier import Checker
from harness.suite.kernel import argument_names
from harness.suite.problem import Case
from harness.suite.suite import Suite

Changes = Mapping[str, tuple[str, str]]
"""Changes by name, each with its text at base and at head."""

_WORK = ("FLOP", "bytes moved")
"""Counts that only define rates. They demand nothing of a kernel."""
_DTYPE = "dtype of "
_MOST_PLACES = 3
MOST_SENTENCES = 60


def suite_changes(base: Suite, head: Suite) -> Changes:
    """Return the differences between the suites as written."""
    return _different(_written(base), _written(head))


def _written(suite: Suite) -> dict[str, str]:
    problem, found = suite.problem, {"headline": suite.headline}
    for name, axis in problem.axes.items():
        default, quick = (", ".join(map(str, sizes)) for sizes in (axis.default, axis.quick))
        found[f"axis {name}"] = f"{default} (quick: {quick})"
    for name, array in problem.arrays.items():
        begins = "" if array.init is None else f" of {array.init:g} at first"
        dtype = array.dtype or "dtype of the kernel"
        columns = " by columns" if array.order == "F" else ""
        ld = "" if array.ld is None or callable(array.ld) else f" with ld {array.ld}"
        found[f"{array.kind} {name}"] = f"{dtype} [{', '.join(array.shape)}]{columns}{ld}{begins}"
    for name, scalar in problem.scalars.items():
        found[f"scalar {name}"] = scalar.dtype + ("" if callable(scalar.value) else f" {scalar.value!r}")
    function = problem.reference_function
    in_words = {"reference": "reference()", "base": "base's outputs"}
    found["outputs are held to"] = (
        f"{function.name} of {function.file}" if function else in_words[problem.held_to]
    )
    found["order of arguments"] = ", ".join(argument_names(problem))
    return found | {f"{_DTYPE}{kernel.name}": kernel.dtype for kernel in suite.kernels}


def case_changes(
    base: Checker, head: Checker, of_base: Case, of_head: Case, seed: int, *, reference: bool
) -> Changes:
    """Return the differences for one case in their values, including the `reference` if asked for.

    Head's problem gets base's data, so that each change shows separately. Raises what a suite's own functions
    raise.
    """
    data = {side: side.inputs(case, seed) for side, case in ((base, of_base), (head, of_head))}
    given = {side: digest(data[side].values())[:12] for side in data}
    same = given[base] == given[head]
    asked = []
    for side, case, inputs in ((base, of_base, None), (head, of_head, None if same else data[base])):
        problem = side.suite.problem
        asked.append(
            {
                "data (digest)": given[side],
                **side.demands(case, seed, inputs, reference=reference),
                **{
                    f"scalar {name}": f"{value:.9g}"
                    for name, value in side.suite.own(case).scalars.items()
                    if callable(problem.scalars[name].value)  # other values are reported as written
                },
                "FLOP": str(problem.flop(case)),
                "bytes moved": str(problem.moved_bytes(case)),
            }
        )
    return _different(*asked)


def _different(base: Mapping[str, str], head: Mapping[str, str]) -> Changes:
    """Return the differences. If only one side has a name, the other side's text is empty."""
    names = dict.fromkeys((*base, *head))
    return {
        name: (base.get(name, ""), head.get(name, "")) for name in names if base.get(name) != head.get(name)
    }


def demanding(changes: Changes) -> bool:
    """Tell whether a kernel that is right by one problem may be wrong by the other."""
    return any(name not in _WORK for name in changes)


def sentences(of_suite: Changes, of_cases: Mapping[str, Changes]) -> tuple[str, ...]:
    """Return a sentence for every change, with the first place where it shows. `of_cases` is by displayed
    case name.
    """
    lines = [
        f"{what}: {before or 'none'} → {after or 'none'}."
        for what, (before, after) in of_suite.items()
        # A kernel that only one commit has is reported by its cases.
        if not what.startswith(_DTYPE) or (before and after)
    ]
    places: dict[str, dict[str, None]] = {}
    for place, changes in of_cases.items():
        for what, (before, after) in changes.items():
            if what != "tolerance (digest)" or "largest tolerance" not in changes:
                places.setdefault(what, {})[f"{before} → {after} at {place}"] = None
    for what, found in places.items():
        left = len(found) - _MOST_PLACES
        more = f" and {left} more" if left > 0 else ""
        lines.append(f"{what}: {', '.join(list(found)[:_MOST_PLACES])}{more}.")
    left = len(lines) - MOST_SENTENCES
    return (*lines[:MOST_SENTENCES], *([f"{left} more changes."] if left > 0 else []))
