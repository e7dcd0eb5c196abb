"""How a kernel is launched: what its launch in the repository says, in Python, or a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.init.bodies import translate
from harness.init.cpp import Expression, Token, split, text_of
from harness.init.readings import INTEGERS, FoundKernel
from harness.init.repository import Repository


class Geometry:
    """Block, grid and dynamic shared memory of a kernel, in Python, and what they rest on."""

    def __init__(
        self, repository: Repository, each: FoundKernel, axes: Sequence[str], renamed: Mapping[str, str]
    ) -> None:
        self.each, self.axes, self.renamed = each, axes, renamed
        self.launch = each.launch
        self.integers = {
            p.name for p in each.kernel.parameters if not p.pointer and each.types[p.name] in INTEGERS
        }
        self.names = {**repository.names_of(each.file), **(each.launch.names if each.launch else {})}
        self.known = self._known()
        self.notes: dict[str, str] = {}
        where = each.launched_at
        block = self._said(1)
        bounds = self._python(each.kernel.bounds) if each.kernel.bounds else None
        threads = block or ((bounds,) if bounds else None)
        if block is None:
            self.notes["block"] = "of __launch_bounds__, its most" if bounds else self._not_said(1)
        if threads is None:
            threads = ("16", "16") if self._is_flat_matrix() else ("256",)
        if (
            block is None
            and each.launch
            and len(each.launch.geometry) > 1
            and len(each.launch.geometry[1]) == 1
        ):
            self.known[each.launch.geometry[1][0].text] = threads[
                0
            ]  # a parameter of the function that launches
        grid = self._said(0)
        if grid is None:
            self.notes["grid"] = self._not_said(0)
            grid = self._guessed_grid(threads)
        elif grid != ("1",) and not any("c." in part for part in grid):
            self.notes["grid"] = "the launch's own number: correct it where it follows a size"
        if where:
            self.notes["launch"] = where
        self.block, self.grid = _callable(threads), _callable(grid)
        shared = self._said(2)
        self.shared = _callable(shared) if shared and shared != ("0",) else ""
        words = {token.text for token in each.kernel.body}
        if not self.shared and {"extern", "__shared__"} <= words:
            self.notes["dynamic_shared_bytes"] = (
                "the kernel has extern __shared__: write how many bytes it takes"
            )

    def _not_said(self, number: int) -> str:
        if self.launch is None or len(self.launch.geometry) <= number:
            return "guessed: no launch was found"
        return f"guessed: the launch says {text_of(self.launch.geometry[number])}, which was not understood"

    def _known(self) -> dict[str, str]:
        """Names of the launch's surroundings that are an axis or a parameter of the template, in Python."""
        found = {name: f"c.{self.renamed[name]}" for name in self.each.names if name in self.integers}
        found |= {axis: f"c.{self.renamed[axis]}" for axis in self.axes}
        found |= {
            parameter.name: f"c.{parameter.name}"
            for parameter in self.each.kernel.template
            if not parameter.is_type
        }
        if self.launch is not None:
            for parameter, argument in zip(self.each.kernel.parameters, self.launch.arguments, strict=False):
                if parameter.name in self.integers and len(argument) == 1 and argument[0].kind == "word":
                    found[argument[0].text] = f"c.{self.renamed[parameter.name]}"
            for parameter_, text in zip(self.each.kernel.template, self.launch.template, strict=False):
                if re.fullmatch(r"[A-Za-z_]\w*", text) and not parameter_.is_type:
                    found[text] = f"c.{parameter_.name}"
        return found

    def _python(self, expression: Expression, depth: int = 0) -> str | None:
        def name_of(name: str) -> str | None:
            if name in self.known:
                return self.known[name]
            if depth > 6 or name not in self.names:
                return None
            inner = self._python(self.names[name], depth + 1)
            return f"({inner})" if inner else None

        return translate(_with_sizes(expression), name_of)

    def _said(self, number: int) -> tuple[str, ...] | None:
        """What the launch says for grid, block or shared bytes, x first; None where it is not understood."""
        if self.launch is None or len(self.launch.geometry) <= number:
            return None
        expression = self.launch.geometry[number]
        if len(expression) == 1 and expression[0].text in self.names and expression[0].text not in self.known:
            name = expression[0].text
            if (value := self.names[name])[:1] and value[0].text == "dim3":
                expression = value
        elif len(expression) == 1 and f"{expression[0].text}.x" in self.names:
            parts = [self.names.get(f"{expression[0].text}.{part}") for part in "xyz"]
            return self._all([part for part in parts if part is not None])
        if expression[:1] and expression[0].text == "dim3" and expression[1].text in {"(", "{"}:
            return self._all(split(expression[2:-1]))
        return self._all([expression])

    def _all(self, parts: Sequence[Expression]) -> tuple[str, ...] | None:
        found = [self._python(part) for part in parts]
        if not found or None in found:
            return None
        while len(found) > 1 and found[-1] == "1":
            found.pop()
        return tuple(str(part) for part in found)

    def _is_flat_matrix(self) -> bool:
        text = text_of(self.each.kernel.body)
        return "threadIdx.y" in text and len(self.axes) > 1

    def _guessed_grid(self, threads: Sequence[str]) -> tuple[str, ...]:
        axes = [f"c.{self.renamed[axis]}" for axis in self.axes]
        text = text_of(self.each.kernel.body)
        macros = {p.name for p in self.each.kernel.template}
        lower = {axis.lower(): axis for axis in self.axes}
        if {"m", "n"} <= lower.keys() and "blockIdx.y" in text:
            m, n = f"c.{self.renamed[lower['m']]}", f"c.{self.renamed[lower['n']]}"
            if {"BM", "BN"} <= macros:
                return f"ceil_div({n}, c.BN)", f"ceil_div({m}, c.BM)"
            return f"ceil_div({n}, {threads[0]})", f"ceil_div({m}, {(*threads, threads[0])[1]})"
        if len(axes) > 1 and "blockIdx.y" in text:
            return f"ceil_div({axes[1]}, {threads[0]})", f"ceil_div({axes[0]}, {(*threads, '1')[1]})"
        return (f"ceil_div({' * '.join(axes)}, {' * '.join(threads)})",)


def _with_sizes(expression: Expression) -> Expression:
    """With the numbers of `sizeof(float)` and the like."""
    sizes = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "half": 2, "__half": 2, "char": 1, "size_t": 8}
    found: list[Token] = []
    at = 0
    while at < len(expression):
        token = expression[at]
        texts = [each.text for each in expression[at : at + 4]]
        if token.text == "sizeof" and len(texts) == 4 and texts[2] in sizes and texts[3] == ")":
            found.append(Token(str(sizes[texts[2]]), token.line, "number"))
            at += 4
            continue
        found.append(token)
        at += 1
    return tuple(found)


def _callable(parts: Sequence[str]) -> str:
    """One to three numbers as `Kernel` takes them: numbers as they are, or a function of the case."""
    text = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return f"lambda c: {text}" if "c." in text else text
