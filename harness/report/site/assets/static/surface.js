// One way to draw, on a canvas and into an SVG file: what is downloaded is what is seen.
"use strict";
(function (harness) {
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const round = (value) => Math.round(value * 100) / 100;

  /** Names of the page's colours, as the present theme has them. */
  harness.colours = function () {
    const style = getComputedStyle(document.documentElement);
    const known = {};
    // Asked for with every point, and slow to tell.
    return new Proxy(known, {
      get: (_, name) => (known[name] ??= style.getPropertyValue(`--${String(name)}`).trim()),
    });
  };

  class Surface {
    segment(x, y, toX, toY, style) {
      const ends = [[x, y], [toX, toY]];
      this.line(ends, style);
    }
  }

  class CanvasSurface extends Surface {
    constructor(context) {
      super();
      this.context = context;
    }

    path(points) {
      const { context } = this;
      context.beginPath();
      points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    }

    rect(x, y, width, height, { fill, alpha = 1 }) {
      const { context } = this;
      context.globalAlpha = alpha;
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
    }

    line(points, { stroke, width = 1, dash = [] }) {
      const { context } = this;
      context.strokeStyle = stroke;
      context.lineWidth = width;
      context.setLineDash(dash);
      this.path(points);
      context.stroke();
      context.setLineDash([]);
    }

    shape(points, { fill, stroke, width = 1 }) {
      const { context } = this;
      this.path(points);
      context.closePath();
      if (fill) {
        context.fillStyle = fill;
        context.fill();
      }
      if (stroke) {
        context.strokeStyle = stroke;
        context.lineWidth = width;
        context.stroke();
      }
    }

    /** Round when few and large, square when many and small, which is what a canvas is quick at. */
    dots(points, { fill, size }) {
      const { context } = this;
      context.fillStyle = fill;
      if (size < 4) {
        for (const [x, y] of points) context.fillRect(x - size / 2, y - size / 2, size, size);
        return;
      }
      context.beginPath();
      for (const [x, y] of points) {
        context.moveTo(x + size / 2, y);
        context.arc(x, y, size / 2, 0, 2 * Math.PI);
      }
      context.fill();
    }

    ring(x, y, size, { stroke }) {
      const { context } = this;
      context.strokeStyle = stroke;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, y, size / 2, 0, 2 * Math.PI);
      context.stroke();
    }

    text(words, x, y, { fill, size = 11, align = "left", weight = 400 }) {
      const { context } = this;
      context.font = `${weight} ${size}px ${FONT}`;
      context.fillStyle = fill;
      context.textAlign = align;
      context.textBaseline = "alphabetic";
      context.fillText(words, x, y);
    }

    clip(x, y, width, height, draw) {
      const { context } = this;
      context.save();
      context.beginPath();
      context.rect(x, y, width, height);
      context.clip();
      draw();
      context.restore();
    }
  }

  class SvgSurface extends Surface {
    constructor(width, height, background) {
      super();
      this.root = harness.svg("svg", {
        xmlns: "http://www.w3.org/2000/svg",
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
      });
      this.into = this.root;
      this.clips = 0;
      this.rect(0, 0, width, height, { fill: background });
    }

    add(tag, properties, ...children) {
      this.into.append(harness.svg(tag, properties, ...children));
    }

    path(points, end = "") {
      return points.map(([x, y], index) => `${index ? "L" : "M"}${round(x)} ${round(y)}`).join("") + end;
    }

    rect(x, y, width, height, { fill, alpha = 1 }) {
      this.add("rect", {
        x: round(x),
        y: round(y),
        width: round(Math.max(0, width)),
        height: round(Math.max(0, height)),
        fill,
        "fill-opacity": alpha === 1 ? null : alpha,
      });
    }

    line(points, { stroke, width = 1, dash = [] }) {
      this.add("path", {
        d: this.path(points),
        fill: "none",
        stroke,
        "stroke-width": width,
        "stroke-dasharray": dash.length ? dash.join(" ") : null,
      });
    }

    shape(points, { fill, stroke, width = 1 }) {
      this.add("path", {
        d: this.path(points, "Z"),
        fill: fill ?? "none",
        stroke,
        "stroke-width": stroke ? width : null,
      });
    }

    dots(points, { fill, size }) {
      const d = points.map(([x, y]) => `M${round(x)} ${round(y)}h0`).join("");
      this.add("path", {
        d,
        fill: "none",
        stroke: fill,
        "stroke-width": size,
        "stroke-linecap": size < 4 ? "square" : "round",
      });
    }

    ring(x, y, size, { stroke }) {
      this.add("circle", { cx: round(x), cy: round(y), r: size / 2, fill: "none", stroke, "stroke-width": 1.5 });
    }

    text(words, x, y, { fill, size = 11, align = "left", weight = 400 }) {
      const anchor = { left: "start", center: "middle", right: "end" }[align];
      const font = { "font-size": size, "font-family": FONT, "font-weight": weight };
      this.add("text", { x: round(x), y: round(y), fill, ...font, "text-anchor": anchor }, words);
    }

    clip(x, y, width, height, draw) {
      const id = `clip-${++this.clips}`;
      this.add("clipPath", { id }, harness.svg("rect", { x, y, width, height }));
      const outer = this.into;
      const group = harness.svg("g", { "clip-path": `url(#${id})` });
      outer.append(group);
      this.into = group;
      draw();
      this.into = outer;
    }

    toString() {
      return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(this.root)}\n`;
    }
  }

  /** An SVG file's text as a PNG of twice its size. */
  harness.rasterise = async function (svg, width, height) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = harness.el("canvas", { width: width * 2, height: height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  };

  /** Round numbers between min and max, about `count` of them. */
  harness.ticks = function (min, max, count) {
    if (!(max > min)) return [min];
    const raw = (max - min) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= raw) ?? 10);
    const ticks = [];
    for (let at = Math.ceil(min / step) * step; at <= max + step * 1e-9; at += step)
      ticks.push(Number(at.toPrecision(12)));
    return ticks;
  };

  /** Where a value of a logarithmic axis from `low` to `high` is drawn, between `from` and `to`. */
  harness.logScale = (low, high, from, to) => (value) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);

  /** A drawing as wide as its place, made once `view` is shown and whenever its width or the colours change:
   * `picture(width)` gives a surface, `words` say the same. */
  harness.fitted = function (view, words, picture) {
    const holder = harness.el("div", { class: "roofline" });
    function draw() {
      if (!view.isConnected || !holder.clientWidth) return;
      const { root } = picture(holder.clientWidth);
      root.setAttribute("role", "img");
      root.setAttribute("aria-label", words);
      harness.replace(holder, root);
    }
    view.addEventListener("shown", () => {
      draw();
      const sized = new ResizeObserver(() => (view.isConnected ? draw() : sized.disconnect()));
      sized.observe(view);
    });
    document.addEventListener("harness-theme", draw);
    return holder;
  };

  /** A short stretch of a line, for a legend. */
  harness.lineSample = function ({ colour, dashed }) {
    const surface = new harness.SvgSurface(26, 12, "none");
    const stroke = harness.colours()[colour];
    surface.segment(1, 6, 25, 6, { stroke, width: 2, dash: dashed ? [6, 4] : [] });
    surface.dots([[13, 6]], { fill: stroke, size: 6 });
    surface.root.setAttribute("aria-hidden", "true");
    return surface.root;
  };

  harness.CanvasSurface = CanvasSurface;
  harness.SvgSurface = SvgSurface;
})(window.harness);
