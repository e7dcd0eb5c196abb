"""The geometry of a kernel's launch in Python: from its launch in the repository, or guessed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from harness.init.bodies import index_axes, python_name, translate
from harness.init.cpp import Expression, Token, split, text_at, text_of, tokens
from harness.init.readings import FoundKernel
from harness.init.repository import Repository

_THREADS = re.compile(r"(?i)(k|num_?)?(threads|block_?(size|dim|threads))(_?per_?block)?")
"""Names of template parameters for the number of threads of a block."""


class Geometry:
    """Block, grid and dynamic shared memory of a kernel in Python, with their evidence."""

    def __init__(
        self, repository: Repository, each: FoundKernel, axes: Sequence[str], shape: Sequence[str]
    ) -> None:
        """Find the geometry. `shape` is that of the largest array, which a guessed grid covers."""
        self.repository, self.each, self.axes = repository, each, axes
        self.launch = each.launch
        self.known = self._known()
        self.body = text_of(each.kernel.body)
        planar = "threadIdx.y" in self.body or "blockIdx.y" in self.body
        self.shape = axes if planar and len(shape) < 2 else shape
        self.notes: dict[str, str] = {}
        block = self._said(1)
        bounds = self._python(each.kernel.bounds) if each.kernel.bounds else None
        threads = block or ((bounds,) if bounds else None)
        if block is None:
            self.notes["block"] = "of __launch_bounds__, its most" if bounds else self._not_said(1)
        if threads is None and (count := next(filter(_THREADS.fullmatch, self._template_numbers()), "")):
            square = "threadIdx.y" in self.body and "block" in count.lower()
            threads = (f"c.{python_name(count)}",) * (2 if square else 1)
            self.notes["block"] += f"; {count} is a parameter of its template"
        if threads is None:
            threads = ("16", "16") if "threadIdx.y" in self.body and len(self.shape) > 1 else ("256",)
        if block is None and len(given := self._given(1)) == 1:  # a parameter of the launching function
            self.known[given[0].text] = threads[0]
        grid = self._said(0)
        if grid is None:
            self.notes["grid"] = self._not_said(0)
            grid = self._guessed_grid(threads)
        elif grid != ("1",) and not any("c." in part for part in grid):
            self.notes["grid"] = "the launch's own number: correct it where it follows a size"
        if each.launched_at:
            self.notes["launch"] = each.launched_at
        self.block, self.grid = callable_of(threads), callable_of(grid)
        shared = self._said(2)
        self.shared = callable_of(shared) if shared and shared != ("0",) else ""
        words = {token.text for token in each.kernel.body}
        if not self.shared and {"extern", "__shared__"} <= words:
            self.notes["dynamic_shared_bytes"] = (
                "the kernel has extern __shared__: write how many bytes it takes"
            )

    def _given(self, number: int) -> Expression:
        """Return the launch's expression for grid (0), block (1) or shared bytes (2); empty without one."""
        return (*(self.launch.geometry if self.launch else ()), (), (), ())[number]

    def _not_said(self, number: int) -> str:
        if not (given := self._given(number)):
            return "guessed: no launch was found"
        return f"guessed: the launch says {text_of(given)}, which was not understood"

    def _known(self) -> dict[str, str]:
        """Return names around the launch that are an axis or a template parameter, in Python."""
        found = {name: f"c.{python_name(name)}" for name in self.each.names if name in self.each.integers}
        found |= {axis: f"c.{python_name(axis)}" for axis in self.axes}
        found |= {number: f"c.{python_name(number)}" for number in self._template_numbers()}
        if self.launch is not None:
            for parameter, argument in zip(self.each.kernel.parameters, self.launch.arguments, strict=False):
                if parameter.name in self.each.integers and len(argument) == 1 and argument[0].kind == "word":
                    found[argument[0].text] = f"c.{python_name(parameter.name)}"
            for parameter_, text in zip(self.each.kernel.template, self.launch.template, strict=False):
                if re.fullmatch(r"[A-Za-z_]\w*", text) and not parameter_.is_type:
                    found[text] = f"c.{python_name(parameter_.name)}"
        return found

    def _template_numbers(self) -> list[str]:
        return [parameter.name for parameter in self.each.kernel.template if not parameter.is_type]

    def _meaning(self, name: str) -> Expression | None:
        """Return the value of a name at the launch; None without one, or for 0, which a call sets later."""
        of_launch = self.launch.names.get(name) if self.launch else None
        found = of_launch or self.repository.meaning(self.each.file, name)
        return found if found and text_of(found) != "0" else None

    def _python(self, expression: Expression, depth: int = 0) -> str | None:
        def name_of(name: str) -> str | None:
            if name in self.known:
                return self.known[name]
            value = self._meaning(name) if depth <= 6 else None
            inner = self._python(value, depth + 1) if value else None
            return f"({inner})" if inner else None

        return translate(self._with_members(_with_sizes(expression)), name_of)

    def _with_members(self, expression: Expression) -> Expression:
        """Return an expression with the numbers of a dim3 instead of `block.x` and the like."""
        found: list[Token] = []
        for token in expression:
            if [each.text for each in found[-1:]] == ["."] and token.text in {"x", "y", "z"} and found[:-1]:
                parts = self._parts(found[-2].text)
                if parts is not None:
                    found[-2:] = [*tokens("("), *parts["xyz".index(token.text)], *tokens(")")]
                    continue
            found.append(token)
        return tuple(found)

    def _parts(self, name: str) -> list[Expression] | None:
        """Return the numbers of a dim3 by name, x first; None without a dim3 with values."""
        value = self._meaning(name) or ()
        is_made = text_at(value, 0) == "dim3" and text_at(value, 1) in {"(", "{"}
        made = split(value[2:-1]) if is_made else []
        members = [self._meaning(f"{name}.{axis}") for axis in "xyz"]  # assigned one by one
        if not any((*made, *members)):
            return None
        rest = itertools.repeat(tuple(tokens("1")))
        return [member or part for member, part in zip(members, itertools.chain(made, rest), strict=False)]

    def _said(self, number: int) -> tuple[str, ...] | None:
        """Return the launch's numbers in Python, x first; None if they are not understood."""
        expression = self._given(number)
        name = expression[0].text if len(expression) == 1 else ""
        if name not in self.known and (parts := self._parts(name)):
            return self._all(parts)
        if text_at(expression, 0) == "dim3" and text_at(expression, 1) in {"(", "{"}:
            return self._all(split(expression[2:-1]))
        return self._all([expression])

    def _all(self, parts: Sequence[Expression]) -> tuple[str, ...] | None:
        found = [self._python(part) for part in parts]
        if not found or None in found:
            return None
        while len(found) > 1 and found[-1] == "1":
            found.pop()
        return tuple(str(part) for part in found)

    def _guessed_grid(self, threads: Sequence[str]) -> tuple[str, ...]:
        lower = {axis.lower(): axis for axis in self.axes}
        if {"m", "n"} <= lower.keys() and {"BM", "BN"} <= {*self._template_numbers()}:
            return f"ceil_div(c.{lower['n']}, c.BN)", f"ceil_div(c.{lower['m']}, c.BM)"
        dimensions = 1 + sum(f"blockIdx.{axis}" in self.body for axis in "yz")
        compared = index_axes(self.each.kernel, self.axes)
        if compared.keys() == {*"xyz"[:dimensions]}:
            given = zip((compared[each] for each in "xyz"[:dimensions]), (*threads, *"11"), strict=False)
            return tuple(
                _blocks(f"c.{python_name(axis)}", side if of_thread else "1")
                for (axis, of_thread), side in given
            )
        lengths = [f"c.{python_name(axis)}" for axis in reversed(self.shape)]  # x runs along the last axis
        if dimensions == 1 or len(lengths) < 2:
            return (f"ceil_div({' * '.join(reversed(lengths))}, {' * '.join(threads)})",)
        return tuple(map(_blocks, lengths[:dimensions], (*threads, *"11")))


def _blocks(length: str, side: str) -> str:
    """Return the expression for the number of blocks with this side that cover a length."""
    return length if side == "1" else f"ceil_div({length}, {side})"


def _with_sizes(expression: Expression) -> Expression:
    """Return an expression with numbers instead of `sizeof(float)` and the like."""
    sizes = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "half": 2, "__half": 2, "char": 1, "size_t": 8}
    text = text_of(expression)
    known = re.sub(r"\bsizeof\((\w+)\)", lambda found: str(sizes.get(found[1], found[0])), text)
    return expression if known == text else tuple(tokens(known))


def callable_of(parts: Sequence[str]) -> str:
    """Return one to three numbers as an argument of `Kernel`: numbers, or a function of the case."""
    text = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return f"lambda c: {text}" if "c." in text else text
