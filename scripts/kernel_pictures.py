"""Pictures of kernels, as SVG for light and dark pages: how each cuts the matrices, from its own parameters.

One language in all of them. The left half is the whole problem, the right half what one block does with it.
A hue is a matrix: A blue, B orange, C green. Its strength is where the data are: pale in device memory,
stronger in shared memory, solid in registers. What one of several does (a warp, a thread) is always solid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product
from typing import ClassVar

WIDTH = 720
HEIGHT = 486
EDGE = 140
"""Of a matrix in the left half."""
GAP = 16
TOP = 66
LEFT = 30
RIGHT = 384
ZOOM = 296
"""Largest size of the drawing in each half, in both directions."""
DRAWN_FOR = 256
"""Edge of the matrices in the left half, in elements: one scale for all kernels, so that tiles compare."""

STYLE = """
.page { fill: #f6f8fa; stroke: #d0d7de; }
.text { fill: #1f2328; font: 22px system-ui, -apple-system, "Segoe UI", sans-serif; }
.head { font-weight: 600; }
.name { font: 600 24px system-ui, -apple-system, "Segoe UI", sans-serif; }
.note { fill: #4c555e; font-size: 21px; }
.a { fill: #0969da; stroke: #0969da; } .b { fill: #c2570c; stroke: #c2570c; }
.c { fill: #1a7f37; stroke: #1a7f37; }
.n { fill: #57606a; stroke: #57606a; }
.pale { fill-opacity: 0.08; } .band { fill-opacity: 0.22; stroke: none; } .shared { fill-opacity: 0.36; }
.solid { fill-opacity: 1; } .tile { fill-opacity: 0.3; stroke-width: 2.5; }
.dash { fill: none; stroke-dasharray: 6 4; }
.grid { fill: none; stroke-opacity: 0.45; stroke-width: 0.8; }
.line { stroke: #57606a; stroke-width: 2.4; fill: none; } .tip { fill: #57606a; }
.inner { fill: none; stroke: #f6f8fa; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) {
.page { fill: #161b22; stroke: #3d444d; } .text { fill: #e6edf3; } .note { fill: #b1bac4; }
.a { fill: #58a6ff; stroke: #58a6ff; } .b { fill: #f0883e; stroke: #f0883e; }
.c { fill: #3fb950; stroke: #3fb950; }
.n { fill: #9198a1; stroke: #9198a1; } .line { stroke: #9198a1; } .tip { fill: #9198a1; }
.inner { stroke: #161b22; }
.pale { fill-opacity: 0.12; } .band { fill-opacity: 0.28; stroke: none; } .shared { fill-opacity: 0.45; }
}
"""

Legend = tuple[tuple[str, str], ...]
"""Strength and what it stands for here."""


TIMES = "\N{MULTIPLICATION SIGN}"


def by(*extents: int) -> str:
    return f" {TIMES} ".join(f"{extent:,}" for extent in extents)


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass
class Canvas:
    """Shapes of one picture, in the order in which they are painted."""

    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> None:
        rounded = f' rx="{number(radius)}"' if radius else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
            f'{rounded} class="{style}"/>'
        )

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        styles = f"text {style}".strip()
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" class="{styles}">{escape(words)}</text>')

    def grid(
        self, x: float, y: float, columns: int, rows: int, cell: tuple[float, float], style: str
    ) -> None:
        """Lines between cells, columns by rows of them, `cell` wide and high."""
        wide, high = cell
        lines = [f"M{number(x + i * wide)} {number(y)}v{number(rows * high)}" for i in range(columns + 1)]
        lines += [f"M{number(x)} {number(y + j * high)}h{number(columns * wide)}" for j in range(rows + 1)]
        self.parts.append(f'<path d="{"".join(lines)}" class="{style} grid"/>')

    def arrow(self, x: float, y: float, along: float, *, down: bool = False) -> None:
        """From (x, y), so long, to the right or down."""
        end = (x, y + along) if down else (x + along, y)
        self.parts.append(
            f'<path d="M{number(x)} {number(y)}L{number(end[0])} {number(end[1])}" class="line"/>'
        )
        tip = ((-6, -9), (0, 2), (6, -9)) if down else ((-9, -6), (2, 0), (-9, 6))
        corners = " ".join(f"{number(end[0] + dx)},{number(end[1] + dy)}" for dx, dy in tip)
        self.parts.append(f'<polygon points="{corners}" class="tip"/>')

    def legend(self, entries: Legend) -> None:
        x = float(LEFT)
        for style, words in entries:
            self.box(x, HEIGHT - 37, 18, 18, f"n {style}")
            self.text(x + 26, HEIGHT - 20, words, "note")
            x += 26 + 12.4 * len(words) + 26

    def captions(self, x: float, head: str, notes: Sequence[str]) -> None:
        self.text(x, 40, head, "head")
        for line, words in enumerate(notes):
            self.text(x, 394 + 28 * line, words, "note")

    def svg(self, title: str, description: str) -> str:
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                    f'height="{HEIGHT}" role="img" aria-labelledby="title description">'
                ),
                f'<title id="title">{escape(title)}</title>',
                f'<desc id="description">{escape(description)}</desc>',
                f"<style>{STYLE}</style>",
                f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10" class="page"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


@dataclass(frozen=True)
class Picture:
    """What is drawn of a kernel: `words` say it for who cannot see it."""

    @property
    def reused(self) -> tuple[int, int] | None:
        """Rows and columns of C that share what is loaded for them; None where nothing tells."""
        return None

    def words(self) -> str:
        raise NotImplementedError

    def draw(self, canvas: Canvas) -> None:
        raise NotImplementedError

    def svg(self, title: str) -> str:
        canvas = Canvas()
        self.draw(canvas)
        return canvas.svg(title, self.words())


@dataclass(frozen=True, kw_only=True)
class Tiles(Picture):
    """A product cut into tiles of C, one a block: bm rows by bn columns, walking along k in steps of bk."""

    bm: int
    bn: int
    bk: int = 1
    tm: int = 1
    tn: int = 1
    threads: tuple[int, int] = (1, 1)
    """Of a block, x first."""
    footprint: tuple[int, int] | None = None
    """Rows and columns of C that the whole grid covers at a time, where it strides over C."""
    problem: int = 4096
    part: tuple[int, int] | None = None
    """Rows and columns of C of one dispatch, where the grid is launched in parts."""
    told: str = ""
    """Text on the part that a block computes, if the drawing shows another part."""
    notes: tuple[str, ...] = ()
    """Below the left half, where what would stand there is not right."""

    @property
    def reused(self) -> tuple[int, int] | None:
        return self.bm, self.bn

    def grid_words(self) -> str:
        if self.told:
            return self.told
        tile = f"Each block computes a tile of {self.bm} by {self.bn} elements of C"
        if self.footprint:
            rows, columns = self.footprint
            return f"{tile}; the grid covers {rows:,} by {columns:,} elements at a time and strides over C."
        if self.part:
            rows, columns = self.part
            return f"{tile}; one dispatch computes {rows:,} by {columns:,} elements of C."
        return f"{tile} from a band of {self.bm} rows of A and a band of {self.bn} columns of B."

    def overview(self, canvas: Canvas, notes: Sequence[str] = ()) -> None:
        """The left half: A below, B above, C where their bands cross."""
        scale = EDGE / (self.problem if self.footprint or self.part else DRAWN_FOR)
        canvas.captions(LEFT, "the matrices", notes or self.notes or self._notes())
        a, b, c = corners(LEFT, TOP, EDGE, EDGE)
        canvas.box(*a, EDGE, EDGE, "a pale")
        canvas.box(*b, EDGE, EDGE, "b pale")
        canvas.box(*c, EDGE, EDGE, "c pale")
        rows, columns = self.footprint or self.part or (self.bm, self.bn)
        high, wide = rows * scale, columns * scale
        at_row, at_column = self._chosen(high, wide)
        canvas.box(a[0], a[1] + at_row, EDGE, high, "a band")
        canvas.box(b[0] + at_column, b[1], wide, EDGE, "b band")
        if self.footprint or self.part:
            canvas.grid(*c, round(EDGE / wide), round(EDGE / high), (wide, high), "c")
        if self.part:
            for i, j in product(range(round(EDGE / wide)), range(round(EDGE / high))):
                canvas.box(c[0] + i * wide - 4, c[1] + j * high - 4, 8, 8, "c solid", radius=4)
        canvas.box(c[0] + at_column, c[1] + at_row, wide, high, "c tile")
        canvas.arrow(a[0] + 12, a[1] + EDGE - 14, 84)
        canvas.text(a[0] + 104, a[1] + EDGE - 8, "k", "note")
        canvas.arrow(b[0] + 18, b[1] + 12, 84, down=True)
        canvas.text(b[0] + 13, b[1] + 124, "k", "note")
        canvas.text(a[0], a[1] - 10, "A", "name")
        canvas.text(b[0] - 24, b[1] + 20, "B", "name")
        canvas.text(c[0] + EDGE + 8, c[1] + EDGE, "C", "name")

    def _chosen(self, high: float, wide: float) -> tuple[float, float]:
        """Position of the drawn tile, in whole tiles from the corner of C."""
        if self.footprint or self.part:
            return (0.0, 0.0)
        return int(EDGE * 0.3 / high) * high, int(EDGE * 0.6 / wide) * wide

    def _notes(self) -> tuple[str, ...]:
        if self.footprint:
            rows, columns = self.footprint
            return f"C of {self.problem:,}: the grid covers", f"{by(rows, columns)} at a time"
        if self.part:
            rows, columns = self.part
            return f"dispatches of {by(rows, columns)}", f"from x0, y0; C has {self.problem:,}"
        return f"drawn for {by(DRAWN_FOR, DRAWN_FOR)};", f"a block's tile is {by(self.bm, self.bn)}"

    def frames(self, depth: float) -> tuple[float, Corners]:
        """The right half's scale, units an element, and corners, for bands of a depth along k."""
        scale = (ZOOM - GAP) / (depth + max(self.bm, self.bn))
        return scale, corners(RIGHT, TOP, depth * scale, depth * scale)


Corner = tuple[float, float]
Corners = tuple[Corner, Corner, Corner]


def name_corners(canvas: Canvas, at: Corners, width: float) -> None:
    """The names of the right half's A, B and C, of which C is so wide."""
    a, b, c = at
    canvas.text(a[0], a[1] - 10, "A", "name")
    canvas.text(b[0] - 24, b[1] + 20, "B", "name")
    canvas.text(c[0] + width + 6, c[1] + 20, "C", "name")


def corners(x: float, y: float, width_a: float, height_b: float) -> Corners:
    """The upper left corners of A, B and C, where A is so wide and B so high."""
    return (x, y + height_b + GAP), (x + width_a + GAP, y), (x + width_a + GAP, y + height_b + GAP)


@dataclass(frozen=True, kw_only=True)
class Direct(Tiles):
    """One element of C a thread, nothing staged: what counts is which elements a warp touches together."""

    along: str = "columns"
    """Which way the 32 threads of a warp lie in C: rows (downwards) or columns."""

    @property
    def reused(self) -> tuple[int, int]:
        return 1, 1

    def words(self) -> str:
        lie = "down a column of C" if self.along == "rows" else "along a row of C"
        return (
            f"{self.grid_words()} A warp's 32 threads lie {lie}; each walks along k, reading A and B from "
            "device memory."
        )

    def draw(self, canvas: Canvas) -> None:
        self.overview(canvas)
        depth = 20.0 if self.bm >= 32 else 40.0
        scale, _ = self.frames(depth)
        spare = (ZOOM - GAP - (depth + self.bm) * scale) / 2
        a, b, c = corners(RIGHT, TOP + spare, depth * scale, depth * scale)
        down = self.along == "rows"
        lanes_m, lanes_n = (32, 1) if down else (1, 32)
        deep = depth * scale
        canvas.captions(RIGHT, "one block, one warp", self._reads(down=down))
        canvas.box(*a, deep, self.bm * scale, "a pale")
        canvas.box(*b, self.bn * scale, deep, "b pale")
        canvas.box(*c, self.bn * scale, self.bm * scale, "c pale")
        if scale >= 3:
            canvas.grid(*c, self.bn, self.bm, (scale, scale), "c")
        step = 6 * scale
        canvas.box(a[0], a[1], deep, lanes_m * scale, "a band")
        canvas.box(b[0], b[1], lanes_n * scale, deep, "b band")
        canvas.box(a[0] + step, a[1], scale, lanes_m * scale, "a solid")
        canvas.box(b[0], b[1] + step, lanes_n * scale, scale, "b solid")
        canvas.box(*c, lanes_n * scale, lanes_m * scale, "c solid")
        tall = self.bm * scale
        canvas.arrow(
            a[0] + step + scale + 4, a[1] + (tall - 12 if tall > 40 else tall + 16), deep - step - scale - 12
        )
        name_corners(canvas, (a, b, c), self.bn * scale)
        canvas.legend((("pale", "device memory"), ("solid", "a warp's 32 threads, one step")))

    def _reads(self, *, down: bool) -> tuple[str, str]:
        if down:
            return "a load of A: 32 rows,", "32 places in memory"
        return "a load of B: 32 neighbours;", "of A: one, for all 32"


@dataclass(frozen=True, kw_only=True)
class Staged(Tiles):
    """Tiles of A and B in shared memory; a thread has tm by tn elements of C in registers."""

    held: ClassVar[str] = "shared"
    """Memory of the tiles of A and B."""
    outer: bool = False
    """Whether the tiles are multiplied as outer products: a column of A by a row of B at a time."""

    def words(self) -> str:
        how = (
            "adding outer products of a column and a row"
            if self.outer
            else "a row of A by a column of B a thread"
        )
        thread = "one element" if self.tm * self.tn == 1 else f"{self.tm} by {self.tn} elements"
        return (
            f"{self.grid_words()} It stages {self.bm} by {self.bk} of A and {self.bk} by {self.bn} of B in "
            f"shared memory, {how}; a thread keeps {thread} of C in registers."
        )

    def draw(self, canvas: Canvas) -> None:
        self.overview(canvas)
        scale, (a, b, c) = self.frames(self.bk)
        high, wide, deep = self.bm * scale, self.bn * scale, self.bk * scale
        canvas.captions(RIGHT, "one block, one step", self._says())
        canvas.box(*a, deep, high, f"a {self.held}")
        canvas.box(*b, wide, deep, f"b {self.held}")
        canvas.box(*c, wide, high, "c pale")
        canvas.grid(*c, self.bn // self.tn, self.bm // self.tm, (self.tn * scale, self.tm * scale), "c")
        # The thread's patch, a third of the way down.
        row = (self.bm // self.tm // 3) * self.tm * scale
        column = (self.bn // self.tn * 5 // 8) * self.tn * scale
        tall, broad = self.tm * scale, self.tn * scale
        if self.outer:
            at = self.bk // 3 * scale
            canvas.box(*c, wide, high, "c band")
            canvas.box(a[0] + at, a[1], scale, high, "a solid")
            canvas.box(b[0], b[1] + at, wide, scale, "b solid")
        else:
            canvas.box(a[0], a[1] + row, deep, tall, "a solid")
            canvas.box(b[0] + column, b[1], broad, deep, "b solid")
        canvas.box(c[0] + column, c[1] + row, broad, tall, "c solid")
        name_corners(canvas, (a, b, c), wide)
        solid = f"a column {TIMES} a row" if self.outer else "one thread"
        shared = (("shared", "shared memory"),) if self.held == "shared" else ()
        canvas.legend((("pale", "device memory"), *shared, ("solid", solid)))

    def _says(self) -> tuple[str, str]:
        x, y = self.threads
        if self.outer:
            return f"{by(x, y)} threads add {self.bk}", "outer products per step"
        each = "an element" if self.tm * self.tn == 1 else f"{by(self.tm, self.tn)} elements"
        return f"{by(x, y)} threads,", f"{each} of C each"


@dataclass(frozen=True, kw_only=True)
class Scheduled(Staged):
    """Block tiles and thread tiles with nothing staged: a thread reads straight from device memory."""

    held: ClassVar[str] = "pale"

    @property
    def reused(self) -> None:
        """What is used again is for the compiler to find."""
        return

    def words(self) -> str:
        return (
            f"{self.grid_words()} A thread computes {self.tm} by {self.tn} elements, walking along k in "
            f"steps of {self.bk}; A and B are read from device memory through the caches."
        )

    def _says(self) -> tuple[str, str]:
        return f"{by(*self.threads)} threads, each has", f"{by(self.tm, self.tn)} elements of C"


@dataclass(frozen=True, kw_only=True)
class WarpFragments(Tiles):
    """A warp's array of tensor-core fragments, 16 by 16 each, straight from device memory."""

    def words(self) -> str:
        each = self.bm // self.bk
        return (
            f"{self.grid_words()} One warp holds {each} by {each} accumulator fragments of {self.bk} by "
            f"{self.bk} in registers and loads {each} fragments of A and {each} of B for each step along k."
        )

    def draw(self, canvas: Canvas) -> None:
        self.overview(canvas)
        scale, (a, b, c) = self.frames(self.bk)
        edge = self.bk * scale
        each = self.bm // self.bk
        canvas.captions(
            RIGHT,
            "one warp, one step",
            (f"{each * each} tensor-core product{'s' * (each > 1)} of", by(16, 16, 16)),
        )
        canvas.box(*a, edge, each * edge, "a solid")
        canvas.box(*b, each * edge, edge, "b solid")
        canvas.box(*c, each * edge, each * edge, "c solid")
        for (x, y), columns, rows in ((a, 1, each), (b, each, 1), (c, each, each)):
            for i, j in product(range(columns), range(rows)):
                canvas.box(x + i * edge, y + j * edge, edge, edge, "inner")
        name_corners(canvas, (a, b, c), each * edge)
        canvas.legend((("pale", "device memory"), ("solid", "fragments in a warp's registers")))


@dataclass(frozen=True, kw_only=True)
class WholeRows(Tiles):
    """Whole rows of A and whole columns of B in shared memory, which grows with k."""

    shared_bytes: int = 0

    @property
    def reused(self) -> tuple[int, int]:
        """A block keeps its rows for all the columns that it strides along."""
        strides = self.problem // self.footprint[1] if self.footprint else 1
        return self.bm, self.bn * strides

    def words(self) -> str:
        return (
            f"{self.grid_words()} It holds {self.bm} whole rows of A and {self.bn} whole columns of B in "
            f"shared memory: {self.shared_bytes // 1024} KiB at k = {self.problem:,}."
        )

    def draw(self, canvas: Canvas) -> None:
        self.overview(canvas)
        depth = 28.0
        scale, (a, b, c) = self.frames(depth)
        deep, edge = depth * scale, self.bm * scale
        canvas.captions(
            RIGHT,
            "one block, all of k",
            (f"shared memory: {self.shared_bytes // 1024} KiB", f"at k = {self.problem:,}"),
        )
        canvas.box(*a, deep, edge, "a shared")
        canvas.box(*b, edge, deep, "b shared")
        canvas.box(*c, edge, edge, "c pale")
        canvas.grid(*c, self.bn, self.bm, (scale, scale), "c")
        row, column = 2 * scale, 5 * scale
        canvas.box(a[0], a[1] + row, deep, scale, "a solid")
        canvas.box(b[0] + column, b[1], scale, deep, "b solid")
        canvas.box(c[0] + column, c[1] + row, scale, scale, "c solid")
        canvas.arrow(a[0] + 34, a[1] - 18, deep - 40)
        canvas.text(a[0] + 34, a[1] - 34, "all of k", "note")
        name_corners(canvas, (a, b, c), edge)
        canvas.legend((("pale", "device memory"), ("shared", "shared memory"), ("solid", "one thread")))


LINE = 16
"""Elements of a cache line."""


@dataclass(frozen=True, kw_only=True)
class HostLoop(Picture):
    """Three loops on one core: a row of A, a column of B, and the cache lines that they touch."""

    def words(self) -> str:
        return (
            "One core computes one element of C after another from a row of A and a column of B. Of A it "
            f"uses whole cache lines of {LINE} elements; of B one element of each line."
        )

    def draw(self, canvas: Canvas) -> None:
        Tiles(bm=8, bn=8).overview(canvas, ("one element of C at a time,", "row after row"))
        canvas.captions(
            RIGHT, "cache lines, one core", ("A: all of a line is used;", f"B: one element in {LINE}")
        )
        cell = 17.0
        canvas.text(RIGHT, TOP + 24, "A", "name")
        for column in range(LINE):
            canvas.box(RIGHT + column * cell, TOP + 38, cell, cell, "a solid")
        canvas.grid(RIGHT, TOP + 38, LINE, 1, (cell, cell), "inner")
        canvas.text(RIGHT, TOP + 104, "B", "name")
        for row in range(7):
            y = TOP + 118 + row * (cell + 8)
            canvas.box(RIGHT, y, LINE * cell, cell, "b pale")
            canvas.grid(RIGHT, y, LINE, 1, (cell, cell), "b")
            canvas.box(RIGHT + 5 * cell, y, cell, cell, "b solid")
        canvas.legend((("pale", "fetched"), ("solid", "used")))


@dataclass(frozen=True, kw_only=True)
class HostBlas(Picture):
    """How a host's BLAS cuts a product: panels packed for the caches, a small tile in vector registers."""

    def words(self) -> str:
        return (
            "The library copies a panel of B and a block of A into the order in which they are read, keeps "
            "them in the caches, and multiplies them into a small tile of C in vector registers on each core."
        )

    def draw(self, canvas: Canvas) -> None:
        canvas.captions(LEFT, "the matrices", ("bands of C go to", "different cores"))
        a, b, c = corners(LEFT, TOP, EDGE, EDGE)
        for place, hue in ((a, "a"), (b, "b"), (c, "c")):
            canvas.box(*place, EDGE, EDGE, f"{hue} pale")
        band = EDGE / 4
        canvas.grid(*c, 1, 4, (EDGE, band), "c")
        canvas.box(a[0] + 40, a[1] + band, 44, band, "a shared")
        canvas.box(b[0], b[1] + 40, EDGE, 44, "b shared")
        canvas.box(c[0], c[1] + band, EDGE, band, "c band")
        canvas.box(c[0] + 84, c[1] + band + 12, 10, 10, "c solid")
        canvas.text(a[0], a[1] - 10, "A", "name")
        canvas.text(b[0] - 24, b[1] + 20, "B", "name")
        canvas.text(c[0] + EDGE + 8, c[1] + EDGE, "C", "name")
        canvas.captions(RIGHT, "one core", ("packed once, read in order,", "used many times"))
        levels = (
            ("b shared", 296.0, "panel of B: last cache"),
            ("a shared", 230.0, "block of A: L2 cache"),
            ("c solid", 96.0, "tile of C: registers"),
        )
        for level, (style, wide, words) in enumerate(levels):
            y = TOP + 10 + level * 100
            canvas.text(RIGHT, y + 12, words, "")
            canvas.box(RIGHT, y + 24, wide, 44, style)
            if style != "c solid":
                canvas.grid(RIGHT, y + 24, round(wide / 16), 1, (wide / round(wide / 16), 44), style[0])
        canvas.legend((("pale", "memory"), ("shared", "packed, in cache"), ("solid", "registers")))


@dataclass(frozen=True, kw_only=True)
class Levels(Picture):
    """A library's own hierarchy, tiles within tiles. The sizes drawn are examples: the library chooses them
    for each shape and card.
    """

    tiles: tuple[tuple[str, int, int], ...] = (("block", 128, 128), ("warp", 64, 64), ("instruction", 16, 8))
    """Names, rows and columns of C, from the largest."""

    def words(self) -> str:
        names = " tiles, these into ".join(name for name, _, _ in self.tiles)
        return f"The library cuts C into {names} tiles; it chooses their sizes for each shape and card."

    def draw(self, canvas: Canvas) -> None:
        _, bm, bn = self.tiles[0]
        Tiles(bm=bm, bn=bn).overview(canvas, ("tiles are chosen for", "each shape and card"))
        canvas.captions(RIGHT, "one block's tile of C", ("dashed: the sizes are", "the library's choice"))
        scale = 276 / max(bm, bn)
        strengths = ("pale", "shared", "solid")
        high, wide = bm, bn
        for strength, (_, rows, columns) in zip(strengths, self.tiles, strict=True):
            cell = (columns * scale, rows * scale)
            canvas.grid(RIGHT, TOP, wide // columns, high // rows, cell, "c dash")
            canvas.box(RIGHT, TOP, *cell, f"c {strength}")
            high, wide = rows, columns
        canvas.legend(tuple(zip(strengths, (name for name, _, _ in self.tiles), strict=True)))


@dataclass(frozen=True, kw_only=True)
class Level:
    """One of a hierarchy: a tile of C with what of A and B it is made from, and who shares it out."""

    name: str
    rows: int
    columns: int
    deep: int
    """Elements along k that are held at once."""
    held: str
    """Memory of A and B: pale for device memory, shared, solid for registers."""
    part: tuple[int, int]
    """Rows and columns of C of one of the next level."""
    notes: tuple[str, ...]
    patch: tuple[int, int] = (0, 0)
    """Rows and columns of a piece of the part, where that is spread over the tile; zero where it is whole."""

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]:
        """Row, column, rows and columns of what of C one of the next level has."""
        high, wide = self.patch if self.patch[0] else self.part
        down, across = self.part[0] // high, self.part[1] // wide
        every_row = self.rows // down if down > 1 else 0
        every_column = self.columns // across if across > 1 else 0
        return [(i * every_row, j * every_column, high, wide) for i, j in product(range(down), range(across))]


@dataclass(frozen=True, kw_only=True)
class Hierarchy(Picture):
    """A product cut in four levels, each inside the one before, from the grid to the registers."""

    levels: tuple[Level, ...]
    told: str = ""
    """Where the tiles are others."""

    @property
    def reused(self) -> tuple[int, int]:
        return self.levels[0].part

    def words(self) -> str:
        first, *between = self.levels[:-1]
        parts = [f"the grid in tiles of {by(*first.part)}, along all of k {PLACES[first.held]}"]
        parts += [
            f"a {each.name} of {by(each.rows, each.columns)} in tiles of {by(*each.part)}, "
            f"{each.deep} along k {PLACES[each.held]}"
            for each in between
        ]
        last = self.levels[-1]
        parts.append(f"one {last.name} sums {by(last.rows, last.columns)} elements up in registers")
        return f"C is cut in four levels{self.told and f', {self.told}'}: {'; '.join(parts)}."

    def draw(self, canvas: Canvas) -> None:
        for at, level in enumerate(self.levels):
            x, y = LEFT - 6 + 342.0 * (at % 2), 16.0 + 212 * (at // 2)
            self._level(canvas, level, x, y)
            canvas.text(x + 170, y + 24, f"{at + 1} {level.name}", "head")
            for line, words in enumerate(level.notes):
                canvas.text(x + 170, y + 56 + 28 * line, words, "note")
        canvas.legend((("pale", "device memory"), ("shared", "shared memory"), ("solid", "one of the next")))

    def _level(self, canvas: Canvas, level: Level, x: float, y: float) -> None:
        gap, room = 6.0, 158.0
        largest = max(level.rows, level.columns)
        deep = max(level.deep, largest / 6)  # a step of 8 along k could not be seen beside a tile of 256
        scale = (room - gap) / (deep + largest)
        edge, high, wide = deep * scale, level.rows * scale, level.columns * scale
        a, b, c = (x, y + edge + gap), (x + edge + gap, y), (x + edge + gap, y + edge + gap)
        canvas.box(*a, edge, high, f"a {level.held}")
        canvas.box(*b, wide, edge, f"b {level.held}")
        canvas.box(*c, wide, high, "c pale")
        cell = level.patch if level.patch[0] else level.part
        canvas.grid(
            *c, level.columns // cell[1], level.rows // cell[0], (cell[1] * scale, cell[0] * scale), "c"
        )
        for row, column, rows, columns in level.pieces:
            canvas.box(a[0], a[1] + row * scale, edge, rows * scale, "a band")
            canvas.box(b[0] + column * scale, b[1], columns * scale, edge, "b band")
            canvas.box(c[0] + column * scale, c[1] + row * scale, columns * scale, rows * scale, "c solid")


PLACES = {"pale": "in device memory", "shared": "in shared memory", "solid": "in registers"}


@dataclass(frozen=True, kw_only=True)
class Moved(Picture):
    """A suite that moves data: X to Y, in tiles or in a line, with what one warp reads and writes."""

    tile: int = 0
    """Edge of the tile that a block turns over; 0 for a copy."""
    by_shared: bool = False
    items: int = 1
    threads: int = 256
    vector: int = 1
    """Elements of an access."""

    def _each(self) -> str:
        """What a thread copies."""
        if self.items == 1:
            return "one element" if self.vector == 1 else f"one vector of {self.vector}"
        unit = "elements" if self.vector == 1 else f"vectors of {self.vector}"
        return f"{self.items} {unit}, {self.threads} apart"

    def words(self) -> str:
        if not self.tile:
            unit = "elements" if self.vector == 1 else "vectors"
            return f"A thread copies {self._each()}; a warp reads and writes neighbouring {unit}."
        if self.vector > 1:
            patch = by(self.vector, self.vector)
            return (
                f"A block turns over a {self.tile} by {self.tile} tile by way of a swizzled tile in shared "
                f"memory: a thread reads {patch} elements, a warp along {2 * self.vector} rows of X, "
                "and writes along rows of Y too."
            )
        way = "by way of a padded tile in shared memory" if self.by_shared else "straight to Y"
        lies = "along a row of Y too" if self.by_shared else "down a column of Y, a row apart"
        return (
            f"A block turns over a {self.tile} by {self.tile} tile {way}: a warp reads along a row of X and "
            f"writes {lies}."
        )

    def draw(self, canvas: Canvas) -> None:
        if self.tile:
            self._turned(canvas)
        else:
            self._copied(canvas)

    def _copied(self, canvas: Canvas) -> None:
        block = 32.0 * self.items
        columns = self.items
        canvas.captions(
            LEFT,
            "the arrays",
            (
                f"a block of {self.threads} threads copies",
                f"{self.threads * self.items * self.vector:,} elements",
            ),
        )
        for y, hue, name in ((TOP + 50, "a", "X"), (TOP + 190, "c", "Y")):
            canvas.text(LEFT, y - 12, name, "name")
            canvas.box(LEFT, y, 300, 54, f"{hue} pale")
            canvas.box(LEFT + 64, y, block, 54, f"{hue} shared")
            canvas.grid(LEFT + 64, y, columns, 1, (32.0, 54), hue)
        canvas.arrow(LEFT + 64 + block / 2, TOP + 110, 70, down=True)
        canvas.captions(
            RIGHT,
            "one thread",
            (self._each(), "all loads, then all stores" if self.items > 1 else "one load, one store"),
        )
        pitch = 296 / self.items
        for y, hue, name in ((TOP + 50, "a", "X"), (TOP + 190, "c", "Y")):
            canvas.text(RIGHT, y - 12, name, "name")
            for item in range(self.items):
                x = RIGHT + item * pitch
                canvas.box(x, y, pitch, 54, f"{hue} shared")
                canvas.box(x + pitch * 0.5, y, 10, 54, f"{hue} solid")
        for item in range(self.items):
            canvas.arrow(RIGHT + item * pitch + pitch * 0.5 + 5, TOP + 110, 70, down=True)
        canvas.legend((("pale", "device memory"), ("shared", "one block"), ("solid", "one thread")))

    def _turned(self, canvas: Canvas) -> None:
        canvas.captions(
            LEFT,
            "the arrays",
            (f"tiles of {by(self.tile, self.tile)};", f"drawn for {by(DRAWN_FOR, DRAWN_FOR)}"),
        )
        tile = self.tile * EDGE / DRAWN_FOR
        near, far = (2, 5) if DRAWN_FOR // self.tile > 5 else (0, 2)
        for (x, y), hue, name, (column, row) in (
            ((LEFT + 28.0, TOP), "a", "X", (far, near)),
            ((LEFT + 28.0 + EDGE + GAP, TOP + EDGE + GAP), "c", "Y", (near, far)),
        ):
            canvas.box(x, y, EDGE, EDGE, f"{hue} pale")
            canvas.box(x + column * tile, y + row * tile, tile, tile, f"{hue} solid")
            canvas.text(x - 26, y + 20, name, "name")
        edge = 124.0
        cell = edge / self.tile
        line = (5 if self.vector == 1 else 8) * cell
        lower, right = TOP + edge + 48, RIGHT + edge + 48
        notes = ("read along a row,", "written along a row" if self.by_shared else "written down a column")
        if self.vector > 1:
            notes = (f"a thread turns {by(self.vector, self.vector)},", "read and written along rows")
        canvas.captions(RIGHT, "one block, one warp", notes)
        canvas.box(RIGHT, TOP, edge, edge, "a pale")
        warp = 2 * self.vector if self.vector > 1 else 1  # rows of X that a warp reads
        canvas.box(RIGHT, TOP + line, edge, warp * cell, "a solid")
        canvas.box(right, lower, edge, edge, "c pale")
        if self.vector > 1:
            canvas.box(right, TOP, edge, edge, "n shared")
            canvas.box(right + line, TOP, warp * cell, edge, "n solid")
            for step in range(self.vector):
                first = lower + (step * self.tile // self.vector + 2) * cell
                canvas.box(right, first, edge, 2 * cell, "c solid")
            canvas.arrow(RIGHT + edge + 8, TOP + edge / 2, 30)
            canvas.arrow(right + edge / 2, TOP + edge + 8, 30, down=True)
        elif self.by_shared:
            canvas.box(right, TOP, edge + cell, edge, "n shared")
            canvas.box(right + edge, TOP, cell, edge, "n solid")
            canvas.box(right + line, TOP, cell, edge, "n solid")
            canvas.box(right, lower + line, edge, cell, "c solid")
            canvas.arrow(RIGHT + edge + 8, TOP + edge / 2, 30)
            canvas.arrow(right + edge / 2, TOP + edge + 8, 30, down=True)
        else:
            canvas.box(right + line, lower, cell, edge, "c solid")
            canvas.arrow(RIGHT + edge + 8, TOP + edge / 2, 62)
            canvas.arrow(right + edge / 2, TOP + edge / 2, edge / 2 + 36, down=True)
        canvas.text(RIGHT, TOP + edge + 26, "X", "name")
        canvas.text(right - 26, lower + edge, "Y", "name")
        entries: Legend = (("pale", "device memory"), ("solid", "one warp"))
        canvas.legend((entries[0], ("shared", "shared memory"), entries[1]) if self.by_shared else entries)
