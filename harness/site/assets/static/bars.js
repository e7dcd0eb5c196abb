// Small drawings inside table cells. The figure beside each says the same in digits.
"use strict";
(function (harness) {
  const { el } = harness;

  /** A bar from the left edge; share is of the longest, mark a share to tick. */
  harness.bar = function (share, tone) {
    const width = `${(Math.max(0, Math.min(1, share || 0)) * 100).toFixed(1)}%`;
    return el(
      "span",
      { class: "track", "aria-hidden": "true" },
      el("span", { class: `bar-of ${tone ?? ""}`, style: { width } }),
    );
  };

  /** A bar from the middle: to the right where the figure rose, share of the largest of the table. */
  harness.balance = function (share, tone) {
    const size = Math.min(1, Math.abs(share || 0)) * 50;
    const style = { width: `${size.toFixed(1)}%`, left: `${(share < 0 ? 50 - size : 50).toFixed(1)}%` };
    return el("span", { class: "balance", "aria-hidden": "true" }, el("span", { class: tone, style }));
  };

  /** Dots on a scale from -reach to +reach, and a band of what cannot be seen. */
  harness.dotPlot = function (effects, visible, reach) {
    const x = (value) => (100 + (94 * Math.max(-reach, Math.min(reach, value))) / reach).toFixed(1);
    const band =
      visible === null
        ? null
        : harness.svg("rect", {
            class: "unseen",
            x: x(-visible),
            y: 1,
            width: (x(visible) - x(-visible)).toFixed(1),
            height: 18,
          });
    return harness.svg(
      "svg",
      { class: "dot-plot", viewBox: "0 0 200 20", width: 200, height: 20, "aria-hidden": "true" },
      band,
      harness.svg("line", { class: "zero", x1: 100, x2: 100, y1: 0, y2: 20 }),
      effects.map((value) => harness.svg("circle", { cx: x(value), cy: 10, r: 2.6 })),
    );
  };
})(window.harness);
