// Panels above each other on one shared x axis: uPlot draws them; zoom, keyboard, touch and downloads are ours.
"use strict";
(function (harness) {
  const { el, format, state } = harness;
  const AXIS_WIDTH = 62;
  const AXIS_HEIGHT = 34;
  const MARGIN = 22; // CSS pixels to the right of what is drawn
  const NARROW = 560;

  /** What a card says of itself while it is measured: the key in documents, in words, the unit, a colour. */
  harness.TRACES = [
    { key: "sm_clock_mhz", label: "SM clock", unit: "MHz", colour: "line-a", strip: clocks },
    { key: "memory_clock_mhz", label: "memory clock", unit: "MHz", colour: "line-d", strip: clocks },
    { key: "temperature_c", label: "temperature", unit: "°C", colour: "line-b", strip: () => [20, 90] },
    { key: "power_w", label: "power", unit: "W", colour: "line-c", strip: (most) => [0, most * 1.1] },
  ];

  /** From half of the highest clock: a jitter of 5 MHz stays flat, and throttling is a step. */
  function clocks(most) {
    return [most / 2, most * 1.05];
  }

  /** The range of a trace's strip, the same at every zoom, and wide enough for every figure. */
  harness.stripRange = function ({ strip }, values) {
    const known = values.filter(format.known);
    if (!known.length) return [0, 1];
    const [least, most] = known.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, 0]);
    const [low, high] = strip(most);
    return [Math.min(low, least), Math.max(high, most) || 1];
  };

  /** The traces of a document by key: an array with null where there is no figure, or null. */
  harness.traces = (document) =>
    Object.fromEntries(harness.TRACES.map(({ key }) => [key, harness.figures(document[key])]));

  function padded(min, max) {
    if (min === null || max === null || !Number.isFinite(min)) return [0, 1];
    const pad = (max - min) * 0.12 || Math.abs(max) * 0.05 || 1;
    return [min >= 0 ? Math.max(0, min - pad) : min - pad, max + pad];
  }

  function labelled(ticks) {
    const labels = format.axis(ticks);
    return ticks.map((at, index) => ({ at, label: labels[index] }));
  }

  class Stack {
    /**
     * options: x (ascending numbers), limits [min, max], span (least width of a view), panels, xTicks(min, max, width) → [{at, label}],
     * label (name for assistive technology), onCursor(index | null), onRange(min, max), describe(index) → text.
     * panel: {title, unit, height, series: [{label, values, colour, dash?, hidden?}], range?(min, max, from, to), yTicks?, under?, over?}.
     * under and over get a surface and {left, top, width, height, x(value), y(value), from, to, colours}.
     */
    constructor(mount, options) {
      this.options = options;
      this.range = [...options.limits];
      this.cursor = null;
      this.colours = harness.colours();
      this.node = el("div", {
        class: "chart",
        tabindex: "0",
        role: "application",
        "aria-label": options.label,
        "aria-describedby": options.describedBy,
      });
      mount.append(this.node);
      this.live = el("p", { class: "hidden", "aria-live": "polite" });
      mount.append(this.live);
      this.sync = harness.id("stack");
      this.plots = options.panels.map((panel, index) => this.plot(panel, index));
      this.listen();
    }

    axisWidth() {
      return this.node.clientWidth < NARROW ? 46 : AXIS_WIDTH;
    }

    plot(panel, index) {
      const last = index === this.options.panels.length - 1;
      const holder = el(
        "div",
        { class: "panel" },
        el(
          "p",
          { class: "panel-title", "aria-hidden": "true" },
          panel.title,
          panel.unit ? ` (${panel.unit})` : "",
        ),
      );
      this.node.append(holder);
      const series = panel.series.length
        ? panel.series
        : [{ values: this.options.x.map(() => null), hidden: true }];
      const chart = new window.uPlot(
        {
          width: Math.max(200, this.node.clientWidth),
          height: panel.height + (last ? AXIS_HEIGHT : 4),
          padding: [8, MARGIN, 0, 0],
          legend: { show: false },
          scales: {
            x: { time: false, range: () => this.range },
            y: { range: (u, min, max) => this.yRange(panel, min, max) },
          },
          series: [{}, ...series.map((one) => this.series(one))],
          axes: [this.xAxis(last), this.yAxis(panel)],
          cursor: this.cursorOptions(),
          hooks: {
            drawClear: [(u) => this.paint(u, panel, panel.under)],
            draw: [(u) => this.paint(u, panel, panel.over)],
            setSelect: [(u) => this.selected(u)],
            setCursor: index === 0 ? [(u) => this.moved(u)] : [],
          },
        },
        [this.options.x, ...series.map((one) => one.values)],
        holder,
      );
      return chart;
    }

    series(one) {
      const colour = () => this.colours[one.colour];
      if (one.hidden) return { paths: () => null, points: { show: false }, stroke: colour };
      return { stroke: colour, width: 1.25, dash: one.dash, points: { show: false }, spanGaps: false };
    }

    xAxis(last) {
      const shown = (u) =>
        this.options.xTicks(this.range[0], this.range[1], u.bbox.width / window.uPlot.pxRatio || 600);
      return {
        stroke: () => this.colours.muted,
        font: "11px system-ui, sans-serif",
        size: last ? AXIS_HEIGHT : 4,
        gap: 4,
        splits: (u) => shown(u).map((tick) => tick.at),
        values: (u) => (last ? shown(u).map((tick) => tick.label) : shown(u).map(() => "")),
        grid: { stroke: () => this.colours.grid, width: 1 },
        ticks: { show: last, stroke: () => this.colours.grid, size: 4 },
      };
    }

    yAxis(panel) {
      return {
        stroke: () => this.colours.muted,
        font: "11px system-ui, sans-serif",
        size: () => this.axisWidth(),
        gap: 4,
        space: panel.height > 150 ? 44 : 26,
        splits: panel.yTicks ? () => panel.yTicks.map((tick) => tick.at) : undefined,
        values: (u, splits) => (panel.yTicks ? panel.yTicks.map((tick) => tick.label) : format.axis(splits)),
        grid: { show: !panel.yTicks, stroke: () => this.colours.grid, width: 1 },
        ticks: { show: false },
      };
    }

    cursorOptions() {
      return {
        y: false,
        sync: { key: this.sync },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 7, width: 1.5, fill: () => this.colours.surface },
        bind: {
          mousedown: (u, target, handler) => (event) => {
            this.node.focus({ preventScroll: true });
            if (event.shiftKey) this.startPan(event, u);
            else handler(event);
          },
          dblclick: () => () => this.reset(),
        },
      };
    }

    yRange(panel, min, max) {
      const [from, to] = this.visible();
      if (panel.yTicks) return panel.range();
      return panel.range ? panel.range(min, max, from, to) : padded(min, max);
    }

    /** Indices of the points in view: from (in), to (out). */
    visible(range = this.range) {
      const { x } = this.options;
      return [harness.lowerBound(x, range[0]), harness.lowerBound(x, range[1] + 1e-9)];
    }

    paint(u, panel, draw) {
      if (!draw) return;
      const ratio = window.uPlot.pxRatio;
      const { left, top, width, height } = u.bbox;
      const context = u.ctx;
      context.save();
      context.scale(ratio, ratio);
      const box = { left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio };
      this.drawInto(new harness.CanvasSurface(context), box, [u.scales.y.min, u.scales.y.max], draw);
      context.restore();
    }

    drawInto(surface, box, [low, high], draw) {
      const [min, max] = this.range;
      const [from, to] = this.visible();
      const geometry = {
        ...box,
        from,
        to,
        colours: this.colours,
        x: (value) => box.left + ((value - min) / (max - min)) * box.width,
        y: (value) => box.top + (1 - (value - low) / (high - low)) * box.height,
      };
      // The newest figure's mark is not cut in two.
      surface.clip(box.left, box.top, box.width + MARGIN, box.height, () => draw(surface, geometry));
    }

    selected(u) {
      const { left, width } = u.select;
      if (width < 4) return;
      this.setRange(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    }

    moved(u) {
      if (this.byKey) return; // uPlot moves its cursor with the scale
      const index = u.cursor.left < 0 || u.cursor.left === null ? null : u.cursor.idx;
      if (index === this.cursor) return;
      this.cursor = index ?? null;
      this.options.onCursor?.(this.cursor);
    }

    /** The cursor on a point, as by hand; the point comes into view. */
    point(index) {
      const { x } = this.options;
      const at = Math.max(0, Math.min(x.length - 1, index));
      const [min, max] = this.range;
      const margin = (max - min) * 0.04;
      if (x[at] < min + margin || x[at] > max - margin) {
        const half = (max - min) / 2;
        const clear = this.options.limits;
        if (x[at] < min || x[at] > max) this.setRange(x[at] - half, x[at] + half);
        else if (min > clear[0] && x[at] < min + margin) this.setRange(min - 2 * margin, max - 2 * margin);
        else if (max < clear[1] && x[at] > max - margin) this.setRange(min + 2 * margin, max + 2 * margin);
      }
      this.cursor = at;
      this.byKey = true;
      this.placeCursor();
      this.options.onCursor?.(at);
      clearTimeout(this.speaking);
      this.speaking = setTimeout(() => (this.live.textContent = this.options.describe?.(at) ?? ""), 150);
    }

    placeCursor() {
      if (this.cursor === null) return;
      const [min, max] = this.range;
      const share = (this.options.x[this.cursor] - min) / (max - min);
      for (const u of this.plots)
        u.setCursor({ left: share * u.over.clientWidth, top: u.over.clientHeight / 2 }, false);
    }

    clampRange(min, max) {
      const [low, high] = this.options.limits;
      const least = Math.min(this.options.span, high - low);
      const width = Math.max(least, max - min);
      if (width >= high - low) return [low, high];
      const middle = (min + max) / 2;
      const start = Math.min(Math.max(low, middle - width / 2), high - width);
      return [start, start + width];
    }

    setRange(min, max) {
      const next = this.clampRange(min, max);
      if (next[0] === this.range[0] && next[1] === this.range[1]) return;
      this.range = next;
      this.options.onRange?.(...next);
      if (this.waiting) return;
      // Wheels and fingers ask more often than a screen shows.
      this.waiting = requestAnimationFrame(() => {
        this.waiting = 0;
        for (const u of this.plots) u.setScale("x", { min: this.range[0], max: this.range[1] });
        if (this.byKey) this.placeCursor();
      });
    }

    zoom(factor, around) {
      const [min, max] = this.range;
      const at = around ?? (this.cursor === null ? (min + max) / 2 : this.options.x[this.cursor]);
      this.setRange(at - (at - min) * factor, at + (max - at) * factor);
    }

    pan(share) {
      const step = (this.range[1] - this.range[0]) * share;
      this.setRange(this.range[0] + step, this.range[1] + step);
    }

    reset() {
      this.setRange(...this.options.limits);
    }

    isWhole() {
      return this.range[0] === this.options.limits[0] && this.range[1] === this.options.limits[1];
    }

    redraw() {
      this.colours = harness.colours();
      for (const u of this.plots) u.redraw(false, true);
    }

    listen() {
      const themed = () => this.redraw();
      document.addEventListener("harness-theme", themed);
      let width = this.node.clientWidth;
      const sized = new ResizeObserver(() => {
        if (!this.node.isConnected) {
          sized.disconnect();
          document.removeEventListener("harness-theme", themed);
          return this.plots.forEach((u) => u.destroy());
        }
        if (this.node.clientWidth === width || !this.node.clientWidth) return;
        width = this.node.clientWidth;
        this.plots.forEach((u) => u.setSize({ width, height: u.height }));
      });
      sized.observe(this.node);
      this.node.addEventListener("mousemove", () => (this.byKey = false), { capture: true });
      this.node.addEventListener("keydown", (event) => this.key(event));
      this.node.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      this.touch();
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const at = this.cursor ?? this.visible()[1] - 1;
      const move = (by) => () => this.point(this.cursor === null ? at : at + by);
      const keys = {
        "+": () => this.zoom(0.6),
        "=": () => this.zoom(0.6),
        "-": () => this.zoom(1 / 0.6),
        0: () => this.reset(),
        Home: () => this.point(0),
        End: () => this.point(this.options.x.length - 1),
        ArrowLeft: event.shiftKey ? () => this.pan(-0.2) : move(-1),
        ArrowRight: event.shiftKey ? () => this.pan(0.2) : move(1),
        PageUp: move(-20),
        PageDown: move(20),
        ...this.options.keys,
      };
      const action = keys[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }

    wheel(event) {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      const zooms = event.ctrlKey || event.metaKey || document.activeElement === this.node;
      const pans = Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY);
      // Otherwise the reader is scrolling the page past the chart.
      if (!zooms && !pans) return;
      event.preventDefault();
      if (pans) return this.pan(sideways / 800);
      const unit = event.deltaMode === 1 ? 18 : 1;
      const step = Math.max(-120, Math.min(120, event.deltaY * unit));
      this.zoom(Math.exp(step * (event.ctrlKey ? 0.01 : 0.0025)), this.valueAt(event.clientX));
    }

    valueAt(clientX) {
      const box = this.plots[0].over.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (clientX - box.left) / box.width));
      return this.range[0] + share * (this.range[1] - this.range[0]);
    }

    startPan(event, u) {
      const start = event.clientX;
      const range = [...this.range];
      const perPixel = (range[1] - range[0]) / u.over.clientWidth;
      const move = (next) =>
        this.setRange(
          range[0] - (next.clientX - start) * perPixel,
          range[1] - (next.clientX - start) * perPixel,
        );
      document.addEventListener("mousemove", move);
      document.addEventListener("mouseup", () => document.removeEventListener("mousemove", move), {
        once: true,
      });
    }

    /** One finger pans sideways, two pinch; up and down stays the page's. */
    touch() {
      const fingers = new Map();
      const span = () => {
        const [a, b] = [...fingers.values()];
        return {
          middle: b === undefined ? a : (a + b) / 2,
          width: b === undefined ? 0 : Math.max(8, Math.abs(a - b)),
        };
      };
      this.node.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX);
      });
      this.node.addEventListener("pointermove", (event) => {
        if (!fingers.has(event.pointerId)) return;
        const before = span();
        fingers.set(event.pointerId, event.clientX);
        const after = span();
        const perPixel = (this.range[1] - this.range[0]) / this.plots[0].over.clientWidth;
        if (before.width && after.width) this.zoom(before.width / after.width, this.valueAt(after.middle));
        this.setRange(...this.range.map((edge) => edge - (after.middle - before.middle) * perPixel));
      });
      for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
        this.node.addEventListener(name, (event) => fingers.delete(event.pointerId));
      }
    }

    /** What is in view as an SVG file: {svg, width, height}. */
    picture({ title, lines = [], legend }) {
      const width = 1200;
      const left = 76;
      const inner = width - left - 20;
      const { panels, xTicks } = this.options;
      const top = 40 + lines.length * 16 + (legend ? 22 : 0);
      const total = top + panels.reduce((sum, panel) => sum + panel.height + 26, 0) + 30;
      const { colours } = this;
      const surface = new harness.SvgSurface(width, total, colours.surface);
      surface.text(title, 20, 28, { fill: colours.text, size: 16, weight: 600 });
      lines.forEach((line, index) =>
        surface.text(line, 20, 48 + index * 16, { fill: colours.muted, size: 12 }),
      );
      legend?.(surface, 20, top - 12, colours);
      const ticks = xTicks(this.range[0], this.range[1], inner);
      let y = top;
      panels.forEach((panel, index) => {
        const box = { left, top: y + 18, width: inner, height: panel.height };
        this.picturePanel(surface, panel, this.plots[index], box, ticks, colours);
        y += panel.height + 26;
      });
      for (const tick of ticks) {
        const at = left + ((tick.at - this.range[0]) / (this.range[1] - this.range[0])) * inner;
        tick.label
          .split("\n")
          .forEach((line, row) =>
            surface.text(line, at, y + 8 + row * 14, { fill: colours.muted, align: "center" }),
          );
      }
      return { svg: surface.toString(), width, height: total };
    }

    picturePanel(surface, panel, u, box, ticks, colours) {
      const scale = [u.scales.y.min, u.scales.y.max];
      surface.text(panel.title + (panel.unit ? ` (${panel.unit})` : ""), box.left, box.top - 5, {
        fill: colours.muted,
        size: 12,
        weight: 600,
      });
      const yTicks =
        panel.yTicks ??
        labelled(harness.ticks(scale[0], scale[1], box.height / (box.height > 150 ? 44 : 26)));
      const draw = (layer) => layer && this.drawInto(surface, box, scale, layer);
      draw(panel.under);
      this.drawInto(surface, box, scale, (into, g) => {
        for (const tick of ticks)
          into.segment(g.x(tick.at), box.top, g.x(tick.at), box.top + box.height, { stroke: colours.grid });
        if (!panel.yTicks)
          for (const { at } of yTicks)
            into.segment(box.left, g.y(at), box.left + box.width, g.y(at), { stroke: colours.grid });
        for (const one of panel.series) if (!one.hidden) this.pictureLine(into, g, one, colours);
      });
      const height = (at) => box.top + (1 - (at - scale[0]) / (scale[1] - scale[0])) * box.height + 4;
      for (const { at, label } of yTicks)
        surface.text(label, box.left - 8, height(at), { fill: colours.muted, align: "right" });
      draw(panel.over);
    }

    pictureLine(surface, g, one, colours) {
      const { x } = this.options;
      const style = { stroke: colours[one.colour], width: 1.25, dash: one.dash };
      let stretch = [];
      const end = () => {
        if (stretch.length > 1) surface.line(harness.thin(stretch), style);
        stretch = [];
      };
      for (let index = Math.max(0, g.from - 1); index < Math.min(x.length, g.to + 1); index++) {
        if (one.values[index] === null) end();
        else stretch.push([g.x(x[index]), g.y(one.values[index])]);
      }
      end();
    }
  }

  /** A line with many points per pixel keeps the first, lowest, highest and last of each. */
  harness.thin = function (points) {
    if (points.length < 4000) return points;
    const kept = [];
    let column = [];
    const flush = () => {
      if (!column.length) return;
      const ys = column.map((point) => point[1]);
      const wanted = new Set([
        0,
        column.length - 1,
        ys.indexOf(Math.min(...ys)),
        ys.indexOf(Math.max(...ys)),
      ]);
      kept.push(...column.filter((_, index) => wanted.has(index)));
      column = [];
    };
    for (const point of points) {
      if (column.length && Math.floor(point[0]) !== Math.floor(column[0][0])) flush();
      column.push(point);
    }
    flush();
    return kept;
  };

  /** The buttons of a chart: zoom and pan, for those without wheel and keyboard. */
  harness.chartButtons = function (stack, ...more) {
    const button = (label, name, action) =>
      el("button", { type: "button", "aria-label": name, title: name, onclick: action }, label);
    return el(
      "div",
      { class: "toolbar", role: "group", "aria-label": "Chart" },
      button("+", "Zoom in", () => stack.zoom(0.6)),
      button("−", "Zoom out", () => stack.zoom(1 / 0.6)),
      button("◀", "Earlier", () => stack.pan(-0.25)),
      button("▶", "Later", () => stack.pan(0.25)),
      button("All", "Show everything", () => stack.reset()),
      el("span", { class: "gap" }),
      ...more,
    );
  };

  /** A chart's place on a page: what goes into `bar` and `holder` comes once the page is shown. */
  harness.chartFigure = function (readout, words, moves, legend) {
    const [bar, holder, keys] = [el("div"), el("div", { class: "chart-holder" }), harness.id("keys")];
    const help = `Drag to zoom, shift and drag to move; scroll to zoom after a click. Keys: + − 0 zoom, ${moves}.`;
    const caption = el("figcaption", null, words, " ", el("span", { id: keys, class: "keys" }, help));
    const node = el("figure", { class: "history" }, bar, readout, holder, legend, caption);
    return { node, bar, holder, keys };
  };

  /** Notes the range in view in the address, a moment after it was last changed. */
  harness.noteRange = (holder, show) =>
    state.onceQuiet((whole, min, max) => {
      if (holder.isConnected) state.note(whole ? { from: null, to: null } : show(min, max));
    });

  /** Rows of texts and numbers as a file; nothing for what is not there. */
  harness.csv = (rows) =>
    rows.map((row) => `${row.map((cell) => cell ?? "").join(",")}\r\n`).join("");

  /** Buttons that give what is in view as files: `picture()` is a Stack's, `table()` the text of a CSV. */
  harness.chartDownloads = function (name, picture, table) {
    const file = (kind, blob) =>
      harness.download(`${name.replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 120)}.${kind}`, blob);
    const actions = {
      SVG: () => file("svg", new Blob([picture().svg], { type: "image/svg+xml" })),
      PNG: async () => {
        const { svg, width, height } = picture();
        file("png", await harness.rasterise(svg, width, height));
      },
      CSV: async () => file("csv", new Blob([await table()], { type: "text/csv" })),
    };
    return Object.entries(actions).map(([kind, action]) =>
      el("button", { type: "button", title: `Download what is in view as ${kind}`, onclick: action }, kind),
    );
  };

  harness.Stack = Stack;
})(window.harness);
