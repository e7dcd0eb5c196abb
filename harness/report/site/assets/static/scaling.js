// Figures over the size of a problem, both axes logarithmic: panels above each other with one line a series.
"use strict";
(function (harness) {
  const { format } = harness;
  const log = Math.log10;
  const TALL = 250;
  const GAP = 46;

  /** 1, 2 and 5 of every decade where they are few, else the decades. */
  function ticks(low, high) {
    const all = [];
    for (let power = Math.floor(log(low)); power <= Math.ceil(log(high)); power++)
      for (const step of [1, 2, 5]) all.push(step * 10 ** power);
    const inside = all.filter((at) => at >= low && at <= high);
    return inside.length > 8 ? inside.filter((at) => Number.isInteger(Number(log(at).toFixed(9)))) : inside;
  }

  function panel(surface, { title, series }, box, x, sizes, colours) {
    const values = series.flatMap((one) => one.points.map(([, value]) => value));
    const [low, high] = [Math.min(...values) / 1.6, Math.max(...values) * 1.6];
    const y = harness.logScale(low, high, box.bottom, box.top);
    surface.text(title, box.left, box.top - 10, { fill: colours.muted, size: 12, weight: 600 });
    for (const at of ticks(low, high)) {
      surface.segment(box.left, y(at), box.right, y(at), { stroke: colours.grid });
      surface.text(format.number(at, 1), box.left - 6, y(at) + 4, { fill: colours.muted, align: "right" });
    }
    for (const size of sizes) {
      surface.segment(x(size), box.top, x(size), box.bottom, { stroke: colours.grid });
      surface.text(format.whole(size), x(size), box.bottom + 15, { fill: colours.muted, align: "center" });
    }
    for (const one of series) {
      const points = one.points.map(([size, value]) => [x(size), y(value)]);
      const stroke = colours[one.colour];
      surface.line(points, { stroke, width: 2, dash: one.dashed ? [6, 4] : [] });
      surface.dots(points, { fill: stroke, size: 7 });
    }
  }

  /** panels: [{title, series: [{points: [[size, value]], colour, dashed}]}]; below them the sizes. */
  harness.scaling = function (width, panels) {
    const colours = harness.colours();
    const shown = panels.filter((one) => one.series.length);
    const height = 34 + shown.length * (TALL + GAP);
    const surface = new harness.SvgSurface(width, height, colours.surface);
    const points = shown.flatMap((one) => one.series.flatMap((line) => line.points));
    const sizes = [...new Set(points.map(([size]) => size))].sort((a, b) => a - b);
    const [left, right] = [62, width - 24];
    const x = harness.logScale(sizes[0] / 1.15, sizes.at(-1) * 1.15, left, right);
    shown.forEach((one, at) => {
      const top = 30 + at * (TALL + GAP);
      panel(surface, one, { left, right, top, bottom: top + TALL }, x, sizes, colours);
    });
    surface.text("size N", (left + right) / 2, height - 6, { fill: colours.muted, align: "center" });
    return surface;
  };
})(window.harness);
