// The roofline: what a kernel does per second over what it does per byte moved, under the card's roofs.
// Williams, Waterman, Patterson: Roofline, Communications of the ACM 52(4), 2009.
"use strict";
(function (harness) {
  const { format } = harness;
  const log = Math.log10;

  function decades(low, high) {
    const all = [];
    for (let power = Math.ceil(log(low) - 1e-9); power <= Math.floor(log(high) + 1e-9); power++)
      all.push(10 ** power);
    return all;
  }

  function extent(points, roofs, memory, narrow) {
    const ridge = memory && roofs.length ? roofs.map((roof) => roof.gflops / memory) : [];
    const xs = [...points.map((point) => point.intensity), ...ridge];
    const ys = [...points.map((point) => point.gflops), ...roofs.map((roof) => roof.gflops)];
    return {
      left: Math.min(...xs) / 4,
      right: Math.max(...xs) * (narrow ? 120 : 8),
      low: Math.min(...ys) / 3,
      high: Math.max(...ys) * 2.2,
    };
  }

  function axes(surface, box, span, x, y, colours) {
    for (const at of decades(span.left, span.right)) {
      surface.segment(x(at), box.top, x(at), box.bottom, { stroke: colours.grid });
      surface.text(format.number(at), x(at), box.bottom + 15, { fill: colours.muted, align: "center" });
    }
    for (const at of decades(span.low, span.high)) {
      surface.segment(box.left, y(at), box.right, y(at), { stroke: colours.grid });
      surface.text(format.whole(at), box.left - 6, y(at) + 4, { fill: colours.muted, align: "right" });
    }
    surface.text("FLOP per byte moved", (box.left + box.right) / 2, box.bottom + 32, {
      fill: colours.muted,
      align: "center",
    });
    surface.text("GFLOP/s", box.left, box.top - 8, { fill: colours.muted });
  }

  /** Roofs of one height are one line, with the names of all. */
  function joined(roofs) {
    const heights = [...new Set(roofs.map((roof) => roof.gflops))];
    return heights.map((gflops) => {
      const same = roofs.filter((roof) => roof.gflops === gflops);
      const name = same.map((roof) => roof.name).join(", ");
      return { name, gflops, used: same.some((roof) => roof.used) };
    });
  }

  function drawRoofs(surface, box, span, x, y, { roofs, memory }, colours) {
    for (const { name, gflops, used } of joined(roofs)) {
      const from = memory ? Math.max(span.left, gflops / memory) : span.left;
      const style = {
        stroke: colours[used ? "text" : "muted"],
        width: used ? 1.6 : 1,
        dash: used ? [] : [4, 3],
      };
      surface.segment(x(from), y(gflops), box.right, y(gflops), style);
      // Where the roof begins: kernels and their names stand at its other end.
      surface.text(`${name} ${format.whole(gflops)}`, Math.max(x(from), box.left) + 8, y(gflops) + 14, {
        fill: colours[used ? "text" : "muted"],
      });
    }
    if (!memory) return;
    const top = Math.max(...roofs.map((roof) => roof.gflops), 0) || span.high;
    const end = top / memory;
    surface.clip(box.left, box.top, box.right - box.left, box.bottom - box.top, () => {
      const style = { stroke: colours.text, width: 1.6 };
      surface.segment(x(span.left), y(span.left * memory), x(end), y(top), style);
    });
    const at = Math.max(span.left * 1.15, (span.low / memory) * 1.3);
    surface.text(`memory ${format.whole(memory)} GB/s`, x(at) + 10, y(at * memory) + 12, {
      fill: colours.text,
    });
  }

  /** Labels beside their points, pushed apart where points stand on top of each other. */
  function drawPoints(surface, box, x, y, points, colours) {
    const placed = [...points]
      .sort((a, b) => b.gflops - a.gflops)
      .map((point) => ({ ...point, px: x(point.intensity), py: y(point.gflops) }));
    let last = { px: -Infinity, label: -Infinity };
    for (const point of placed) {
      const crowded = Math.abs(point.px - last.px) < 90;
      point.label = crowded ? Math.max(point.py, last.label + 13) : point.py;
      last = point;
    }
    const over = Math.max(0, (placed.at(-1)?.label ?? 0) - (box.bottom - 6));
    for (const point of placed) {
      const room = box.right - point.px > 110;
      const at = point.px + (room ? 20 : -20);
      const height = point.label - (point.label > point.py ? over : 0);
      const style = { stroke: colours.muted, width: 0.75 };
      surface.segment(point.px, point.py, at + (room ? -3 : 3), height, style);
      surface.text(point.name, at, height + 4, { fill: colours.text, align: room ? "left" : "right" });
    }
    surface.dots(
      placed.map((point) => [point.px, point.py]),
      { fill: colours.accent, size: 8 },
    );
  }

  /** points: [{name, gbytes}], memory: GB/s or null: a bar a kernel, under the roof of the memory. */
  harness.bandwidth = function (width, { points, memory }) {
    const colours = harness.colours();
    const [left, row, top] = [Math.min(210, width * 0.4), 26, 34];
    const surface = new harness.SvgSurface(width, top + points.length * row + 34, colours.surface);
    const most = Math.max(memory ?? 0, ...points.map((point) => point.gbytes)) * 1.06;
    const x = (value) => left + (value / most) * (width - left - 16);
    const bottom = top + points.length * row;
    for (const at of harness.ticks(0, most, (width - left) / 90)) {
      surface.segment(x(at), top - 4, x(at), bottom, { stroke: colours.grid });
      surface.text(format.whole(at), x(at), bottom + 16, { fill: colours.muted, align: "center" });
    }
    points.forEach(({ name, gbytes }, index) => {
      const y = top + index * row;
      surface.rect(left, y + 4, x(gbytes) - left, row - 8, { fill: colours.dots });
      surface.text(name, left - 8, y + row / 2 + 4, { fill: colours.text, align: "right" });
    });
    surface.text("GB/s", left - 8, bottom + 16, { fill: colours.muted, align: "right" });
    if (memory) {
      surface.segment(x(memory), top - 8, x(memory), bottom, { stroke: colours.text, width: 1.6 });
      surface.text(`memory ${format.whole(memory)} GB/s`, x(memory) - 4, top - 14, { fill: colours.text, align: "right" });
    }
    return surface;
  };

  /** points: [{name, intensity, gflops}], roofs: [{name, gflops, used}], memory: GB/s or null. */
  harness.roofline = function (width, data) {
    const height = Math.max(300, Math.min(430, width * 0.62));
    const colours = harness.colours();
    const surface = new harness.SvgSurface(width, height, colours.surface);
    const box = { left: 62, right: width - 10, top: 26, bottom: height - 44 };
    const span = extent(data.points, data.roofs, data.memory, width < 520);
    const x = harness.logScale(span.left, span.right, box.left, box.right);
    const y = harness.logScale(span.low, span.high, box.bottom, box.top);
    axes(surface, box, span, x, y, colours);
    drawRoofs(surface, box, span, x, y, data, colours);
    drawPoints(surface, box, x, y, data.points, colours);
    return surface;
  };
})(window.harness);
