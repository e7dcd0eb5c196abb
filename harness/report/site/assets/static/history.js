// Draws the history of a case: figures, levels, changes, epochs, and what was set aside.
"use strict";
(function (harness) {
  const { el, format, state, changes } = harness;

  function unpack(series) {
    const flags = new Map();
    for (const index of series.outliers) flags.set(index, "outlier");
    for (const index of series.clocked) flags.set(index, "clocked");
    for (const index of series.failed) flags.set(index, "failed");
    const early = series.changes.find((change) => change.state === "unjudged");
    for (let index = early?.at ?? series.n; index < series.n; index++)
      if (flags.get(index) !== "failed") flags.set(index, "unjudged");
    return {
      ...series,
      x: Array.from(harness.decode(series.commits)),
      y: harness.figures(series.values),
      traces: harness.traces({ ...series, sm_clock_mhz: series.clock_mhz }),
      registers: harness.figures(series.registers),
      published: [],
      overlaid: [],
      flags,
      levelAt(index) {
        return series.levels.find((level) => index >= level.start && index < level.stop)?.level ?? null;
      },
    };
  }

  /** The same history in another figure, where there is what it is made of; `name` as in figuresOf. */
  function inFigure(data, kase, name) {
    const known = figuresOf(data, kase).find((one) => one.name === name);
    if (!known?.of) return { data, kase };
    const shown = { ...data, y: data.x.map((_, index) => known.of(index)), published: [] };
    const turned = known.level ?? null;
    shown.levels = turned ? data.levels.map((one) => ({ ...one, level: turned(one.level) })) : [];
    shown.samples = turned
      ? data.samples.map((one) => ({ ...one, low: turned(one.high), high: turned(one.low), slots: one.slots.map(turned) }))
      : [];
    shown.levelAt = (index) => shown.levels.find((one) => index >= one.start && index < one.stop)?.level ?? null;
    return { data: shown, kase: { ...kase, metric: known.name, unit: known.unit, direction: known.direction } };
  }

  /** The figures that a history can be shown in: [{name, label, unit, direction, of(index)}], its own first. */
  function figuresOf(data, kase) {
    const { work, y, registers } = data;
    const power = data.traces.power_w;
    const ofTime = kase.metric === "time_ms" && kase.unit === "ms";
    const time = work ? (index) => (y[index] ? work / y[index] : null) : ofTime ? (index) => y[index] : null;
    const shares = new Map((data.samples ?? []).map((one) => [one.at, one.library_share]));
    const energy = (index) => (format.known(power[index]) && format.known(time(index)) ? power[index] * time(index) : null);
    const one = (there, name, label, unit, direction, of, level) =>
      there ? [{ name, label, unit, direction, of, level }] : [];
    return [
      { name: kase.metric, label: format.quantity(kase) },
      ...one(work, "time_ms", "time", "ms", "lower", time, (value) => work / value),
      ...one(time && power, "energy_mj", "energy per launch (power × time)", "mJ", "lower", energy),
      ...one(power, "power_w", "power", "W", "lower", (index) => power[index]),
      ...one(registers, "registers", "registers per thread", "registers", "lower", (index) => registers[index]),
      ...one(
        [...shares.values()].some(format.known),
        "library_share",
        "of the library, newest runs",
        "% of the library",
        "higher",
        (index) => (format.known(shares.get(index)) ? shares.get(index) * 100 : null),
      ),
    ];
  }

  /** Where a level begins and ends: half way to its neighbours. */
  function span(data, { start, stop }, g) {
    const middle = (index) => (data.x[index - 1] + data.x[index]) / 2;
    const left = g.x(start > 0 ? middle(start) : data.x[0]);
    const right = g.x(stop < data.n ? middle(stop) : data.x[data.n - 1]);
    return right - left < 3 ? [left - 1.5, right + 1.5] : [left, right];
  }

  function bands(data, surface, g) {
    for (const { start, stop, level } of data.levels) {
      if (stop <= g.from - 1 || start >= g.to + 1) continue;
      const [left, right] = span(data, { start, stop }, g);
      const high = g.y(level * (1 + data.floor));
      surface.rect(left, high, Math.max(1, right - left), g.y(level * (1 - data.floor)) - high, {
        fill: g.colours.band,
      });
    }
  }

  function ranges(data, surface, g, chosen) {
    for (const change of data.changes) {
      if (change.kind === "drift") continue;
      const left = g.x(change.good);
      const width = Math.max(1, g.x(change.bad) - left);
      surface.rect(left, g.top, width, g.height, {
        fill: g.colours.focus,
        alpha: change.id === chosen() ? 0.35 : 0.12,
      });
    }
  }

  function epochs(data, surface, g, labels) {
    let free = -Infinity;
    for (const { start, label } of data.epochs.slice(1)) {
      const x = g.x(data.x[start]);
      if (x < g.left || x > g.left + g.width) continue;
      surface.segment(x, g.top, x, g.top + g.height, { stroke: g.colours.muted, dash: [2, 3] });
      if (!labels || x < free) continue;
      const words = harness.plain(label, 28);
      const fits = x + words.length * 6 < g.left + g.width;
      surface.text(words, fits ? x + 4 : x - 4, g.top + g.height - 5, {
        fill: g.colours.muted,
        size: 10,
        align: fits ? "left" : "right",
      });
      free = x + words.length * 6 + 8;
    }
  }

  /** Points that share a pixel are drawn once. */
  function figures(data, surface, g) {
    const points = new Map();
    for (let index = g.from; index < g.to; index++) {
      if (data.y[index] === null || data.flags.has(index)) continue;
      const point = [g.x(data.x[index]), g.y(data.y[index])];
      const pixel = Math.round(point[0]) * 65536 + Math.round(point[1]);
      if (!points.has(pixel)) points.set(pixel, point);
    }
    const dense = (g.to - g.from) / g.width;
    surface.dots([...points.values()], { fill: g.colours.dots, size: dense > 1 ? 2 : dense > 0.3 ? 3 : 5 });
  }

  function cross(surface, x, y, size, stroke) {
    surface.segment(x - size, y - size, x + size, y + size, { stroke, width: 1.5 });
    surface.segment(x - size, y + size, x + size, y - size, { stroke, width: 1.5 });
  }

  /** Corners of marks about the place that they are of, in units of their size. */
  const SHAPES = {
    down: [[-1, -1], [1, -1], [0, 1]],
    up: [[-1, 1], [1, 1], [0, -1]],
    diamond: [[-1, 0], [0, -1], [1, 0], [0, 1]],
    square: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  };

  function marker(surface, shape, x, y, size, style) {
    surface.shape(SHAPES[shape].map(([right, down]) => [x + right * size, y + down * size]), style);
  }

  const square = (surface, x, y, size, stroke) => marker(surface, "square", x, y, size, { stroke, width: 1.2 });

  const hollow = (surface, x, y, size, stroke) => marker(surface, "diamond", x, y, size, { stroke, width: 1.8 });

  function flagged(data, surface, g) {
    let last = {};
    for (const [index, flag] of [...data.flags].sort((a, b) => a[0] - b[0])) {
      if (index < g.from || index >= g.to) continue;
      const x = g.x(data.x[index]);
      const y = data.y[index] === null ? g.top + g.height - 8 : g.y(data.y[index]);
      // Many in one place are one mark.
      if (last.flag === flag && x - last.x < 3 && Math.abs(y - last.y) < 3) continue;
      last = { flag, x, y };
      if (flag === "failed") cross(surface, x, g.top + g.height - 8, 3.5, g.colours.bad);
      else if (flag === "outlier") surface.ring(x, y, 7, { stroke: g.colours.muted });
      else if (flag === "unjudged") hollow(surface, x, y, 5, g.colours.text);
      else square(surface, x, y, 3, g.colours.muted);
    }
  }

  function levels(data, surface, g) {
    for (const { start, stop, level } of data.levels) {
      if (stop <= g.from - 1 || start >= g.to + 1) continue;
      const y = g.y(level);
      const [left, right] = span(data, { start, stop }, g);
      surface.segment(left, y, right, y, { stroke: g.colours.level, width: 2 });
    }
  }

  /** What others published of this case on such a card: a dashed line; an arrow where it is out of sight. */
  function published(data, surface, g) {
    const bottom = g.top + g.height;
    for (const { value, words } of data.published) {
      const y = g.y(value);
      const style = { fill: g.colours["line-d"], align: "right" };
      const right = g.left + g.width - 6;
      if (y < g.top || y > bottom) {
        const above = y < g.top;
        surface.text(`${words} ${above ? "↑" : "↓"}`, right, above ? g.top + 44 : bottom - 18, style);
        continue;
      }
      surface.segment(g.left, y, g.left + g.width, y, {
        stroke: g.colours["line-d"],
        width: 1.5,
        dash: [7, 4],
      });
      surface.text(words, right, y > g.top + 16 ? y - 5 : y + 14, style);
    }
  }

  const toneOf = (change) =>
    change.state === "unjudged"
      ? "muted"
      : ({ regression: "bad", drift: "bad", improvement: "good" }[change.kind] ?? "muted");

  /** Intervals of the newest figures and, where there is room, the slots that they are the median of. */
  function samples(data, surface, g) {
    const shown = data.samples.filter(({ at }) => at >= g.from && at < g.to);
    if (!shown.length) return;
    const room = g.width / Math.max(1, g.to - g.from);
    for (const { at, low, high, slots } of shown) {
      const x = g.x(data.x[at]);
      if (room > 16)
        surface.dots(
          slots.map((value) => [x + 6, g.y(value)]),
          { fill: g.colours.muted, size: 2 },
        );
      if (room < 5) continue;
      surface.segment(x, g.y(low), x, g.y(high), { stroke: g.colours.dots, width: 1.2 });
      for (const end of [low, high])
        surface.segment(x - 2.5, g.y(end), x + 2.5, g.y(end), { stroke: g.colours.dots, width: 1.2 });
    }
  }

  /** A level that slides. */
  function drifts(data, surface, g) {
    for (const change of data.changes) {
      if (change.kind !== "drift" || !data.levels.length) continue;
      const style = { stroke: g.colours.bad, width: 1.5, dash: [2, 3] };
      surface.segment(g.x(change.good), g.y(change.before), g.x(change.bad), g.y(change.after), style);
    }
  }

  const COLOURS = ["line-a", "line-b", "line-c", "line-d", "warn", "good", "bad", "muted"];

  /** Other series and this one, each in percent of its newest level: what they have in common is not their unit. */
  function overlay(data) {
    const lines = data.overlaid.map((one, index) => {
      const level = one.data.levels.at(-1)?.level ?? one.data.y.findLast((value) => value !== null);
      const share = (value) => (100 * value) / level;
      return { ...one, colour: COLOURS[index % COLOURS.length], share };
    });
    const inView = (line, left, right) => [
      harness.lowerBound(line.data.x, left),
      harness.lowerBound(line.data.x, right + 1e-9),
    ];
    return {
      lines,
      title: "each in percent of its newest level",
      unit: "%",
      height: 190,
      series: [],
      range: (_min, _max, from, to) => {
        let [low, high] = [Infinity, -Infinity];
        for (const line of lines) {
          const [first, last] = inView(line, data.x[from] ?? 0, data.x[to - 1] ?? 0);
          for (let index = first; index < last; index++) {
            const value = line.data.y[index];
            if (value === null || line.data.flags.get(index) === "outlier") continue;
            low = Math.min(low, line.share(value));
            high = Math.max(high, line.share(value));
          }
        }
        if (!(high >= low)) return [0, 100];
        const pad = (high - low) * 0.08 || 1;
        return [low - pad, high + pad];
      },
      over: (surface, g) => {
        for (const line of lines) {
          const fill = g.colours[line.colour];
          const [first, last] = inView(line, data.x[g.from] ?? 0, data.x[g.to - 1] ?? 0);
          const points = [];
          for (let index = first; index < last; index++)
            if (line.data.y[index] !== null) points.push([g.x(line.data.x[index]), g.y(line.share(line.data.y[index]))]);
          surface.dots(harness.thin(points), { fill, size: points.length > g.width / 3 ? 2 : 4 });
          for (const { start, stop, level } of line.data.levels) {
            const [left, right] = span(line.data, { start, stop }, g);
            surface.segment(left, g.y(line.share(level)), right, g.y(line.share(level)), { stroke: fill, width: 2 });
          }
        }
      },
    };
  }

  function markers(data, surface, g, chosen) {
    data.changes.forEach((change, index) => {
      const x = g.x((change.good + change.bad) / 2);
      if (x < g.left - 10 || x > g.left + g.width + 10) return;
      const colour = g.colours[toneOf(change)];
      const mine = change.id === chosen();
      const style = { stroke: colour, width: mine ? 2 : 1, dash: [5, 3] };
      surface.segment(x, g.top + 30, x, g.top + g.height, style);
      if (change.state === "unjudged") hollow(surface, x, g.top + 22, mine ? 8 : 6, g.colours.text);
      else marker(surface, changes.shape(change), x, g.top + 22, mine ? 8 : 6, { fill: colour });
      surface.text(format.letter(index), x, g.top + 11, {
        fill: g.colours.text,
        size: 12,
        weight: 700,
        align: "center",
      });
    });
  }

  function legendItems(data) {
    const items = [
      ["dot", "figure"],
      ["level", "level"],
      ["band", `level ± ${format.share(data.floor)}: what is too little to count`],
    ];
    const kinds = new Set(data.changes.filter((one) => one.state !== "unjudged").map((change) => change.kind));
    if (kinds.has("regression")) items.push(["down", "regression"]);
    if (kinds.has("improvement")) items.push(["up", "improvement"]);
    if (kinds.has("environment")) items.push(["diamond", "change by clocks or environment"]);
    if (kinds.has("drift")) items.push(["drift", "drift: the level slides"]);
    if (data.changes.some((one) => one.state === "unjudged"))
      items.push(["hollow", "unjudged: too early to say whether it stays"]);
    if (data.samples.length) items.push(["interval", "99.9 % interval of a newest figure; beside it its slots"]);
    if (data.outliers.length) items.push(["ring", "outlier"]);
    if (data.clocked.length) items.push(["square", "the clock was down"]);
    if (data.failed.length) items.push(["cross", "failed"]);
    for (const { words } of data.published) items.push(["published", words]);
    if (data.epochs.length > 1) items.push(["epoch", "new epoch: the environment changed"]);
    return items;
  }

  function glyph(surface, kind, x, y, colours) {
    const drawings = {
      dot: () => surface.dots([[x, y]], { fill: colours.dots, size: 5 }),
      level: () => surface.segment(x - 7, y, x + 7, y, { stroke: colours.level, width: 2 }),
      band: () => surface.rect(x - 7, y - 5, 14, 10, { fill: colours.band }),
      down: () => marker(surface, "down", x, y, 5, { fill: colours.bad }),
      up: () => marker(surface, "up", x, y, 5, { fill: colours.good }),
      hollow: () => hollow(surface, x, y, 5, colours.text),
      diamond: () => marker(surface, "diamond", x, y, 5, { fill: colours.muted }),
      ring: () => surface.ring(x, y, 7, { stroke: colours.muted }),
      square: () => square(surface, x, y, 3, colours.muted),
      cross: () => cross(surface, x, y, 3.5, colours.bad),
      published: () =>
        surface.segment(x - 8, y, x + 8, y, { stroke: colours["line-d"], width: 1.5, dash: [5, 3] }),
      drift: () => surface.segment(x - 7, y - 4, x + 7, y + 4, { stroke: colours.bad, width: 1.5, dash: [2, 3] }),
      interval: () => {
        surface.segment(x, y - 6, x, y + 6, { stroke: colours.dots, width: 1.2 });
        surface.dots([-4, 0, 3].map((off) => [x + 5, y + off]), { fill: colours.muted, size: 2 });
      },
      epoch: () =>
        surface.segment(x, y - 6, x, y + 6, { stroke: colours.muted, dash: [2, 3] }),
    };
    drawings[kind]();
  }

  function legend(data) {
    const list = el("ul", { class: "legend" });
    function draw() {
      const colours = harness.colours();
      harness.replace(
        list,
        legendItems(data).map(([kind, words]) => {
          const surface = new harness.SvgSurface(16, 14, "none");
          glyph(surface, kind, 8, 7, colours);
          surface.root.setAttribute("aria-hidden", "true");
          return el("li", null, surface.root, words);
        }),
      );
    }
    draw();
    document.addEventListener("harness-theme", () => list.isConnected && draw());
    return list;
  }

  function pictureLegend(data) {
    return (surface, x, y, colours) => {
      let at = x + 8;
      for (const [kind, words] of legendItems(data)) {
        glyph(surface, kind, at, y - 4, colours);
        surface.text(words, at + 12, y, { fill: colours.muted, size: 11 });
        at += 30 + words.length * 5.8;
      }
    };
  }

  /** A range that holds what was published, where that does not flatten the history. */
  function withPublished(data, low, high) {
    const all = data.published.map((one) => one.value);
    const [least, most] = [Math.min(low, ...all), Math.max(high, ...all)];
    const fits = state.get("zero") === "1" || most - least <= 2 * (high - low);
    return fits ? [least, most] : [low, high];
  }

  function figureRange(data) {
    return (min, max, from, to) => {
      let [low, high] = [min ?? Infinity, max ?? -Infinity];
      for (const { start, stop, level } of data.levels) {
        if (stop <= from || start >= to) continue;
        low = Math.min(low, level * (1 - data.floor));
        high = Math.max(high, level * (1 + data.floor));
      }
      if (!(high >= low)) return [0, 1];
      [low, high] = withPublished(data, low, high);
      if (state.get("zero") === "1") return low >= 0 ? [0, high * 1.22] : [low * 1.1, high * 1.22];
      const room = high - low || Math.abs(high) * 0.05 || 1;
      // Room at the top for the letters of changes.
      return [low - room * 0.12, high + room * 0.3];
    };
  }

  function panels(site, data, kase, chosen) {
    const main = {
      title: format.quantity(kase),
      unit: harness.plain(kase.unit, 20),
      height: window.innerWidth < 600 ? 260 : 330,
      series: [{ label: "figure", values: data.y, colour: "dots", hidden: true }],
      range: figureRange(data),
      under: (surface, g) => {
        bands(data, surface, g);
        ranges(data, surface, g, chosen);
      },
      over: (surface, g) => {
        epochs(data, surface, g, true);
        published(data, surface, g);
        figures(data, surface, g);
        flagged(data, surface, g);
        levels(data, surface, g);
        drifts(data, surface, g);
        samples(data, surface, g);
        markers(data, surface, g, chosen);
      },
    };
    const small = (trace) => {
      const { key, label, unit, colour } = trace;
      const values = data.traces[key];
      const range = values && harness.stripRange(trace, values);
      return values && {
        title: label,
        unit,
        height: 84,
        series: [{ label, values, colour }],
        range: () => range,
        over: (surface, g) => epochs(data, surface, g, false),
      };
    };
    return [
      main,
      data.overlaid.length ? overlay(data) : null,
      ...harness.TRACES.filter(({ key }) => key !== "memory_clock_mhz").map(small),
    ].filter(Boolean);
  }

  harness.history = { unpack, figuresOf, inFigure, overlay, panels, legend, pictureLegend, toneOf };
})(window.harness);
