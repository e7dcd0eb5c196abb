// Tables that sort by a click on a heading, with the order in the address.
"use strict";
(function (harness) {
  const { el, state } = harness;

  const none = (value) => value === null || value === undefined || Number.isNaN(value);

  function compare(left, right) {
    if (none(left) || none(right)) return none(left) - none(right);
    if (typeof left === "number" && typeof right === "number") return left - right;
    return String(left).localeCompare(String(right), "en", { numeric: true });
  }

  function sorted(rows, columns, order) {
    const column = columns.find((one) => one.key === order.key);
    if (!column?.sort) return rows;
    const way = order.down ? -1 : 1;
    const keyed = rows.map((row, index) => [column.sort(row), index, row]);
    // What has no figure stays at the end either way.
    keyed.sort(
      (a, b) => (none(a[0]) || none(b[0]) ? compare(a[0], b[0]) : way * compare(a[0], b[0])) || a[1] - b[1],
    );
    return keyed.map((entry) => entry[2]);
  }

  function readOrder(id, start) {
    const noted = state.get(id);
    if (!noted) return { ...start };
    return { key: noted.replace(/^-/, ""), down: noted.startsWith("-") };
  }

  /**
   * columns: [{key, label, cell(row), sort(row)?, numeric?, down? (first order is downwards), hint?, axis? (node below the label)}]; the first heads its row.
   * options: caption, rows, id (key of the order in the address), stack (cards on a phone), limit, empty (node), mark(row) class.
   * Gives {node, update(rows)}.
   */
  harness.table = function (columns, options) {
    const limit = options.limit ?? 200;
    const order = readOrder(options.id, options.order ?? {});
    let rows = options.rows;
    let all = false;
    const body = el("tbody", { role: options.stack && "rowgroup" });
    const heads = columns.map((column) => head(column));
    const more = el("p", { class: "more" });
    const table = el(
      "table",
      { class: options.stack ? "stack" : null, role: options.stack && "table" },
      el("caption", { class: "hidden" }, options.caption),
      el("thead", { role: options.stack && "rowgroup" }, el("tr", { role: options.stack && "row" }, heads)),
      body,
    );
    const box = el("div", { class: "scroll" }, table);
    new ResizeObserver(reachable).observe(box);
    const nothing = el("div", null, options.empty ?? harness.empty("Nothing to show."));

    /** A stop for the keyboard where, and only where, there is something to scroll to. */
    function reachable() {
      const scrolls = box.scrollWidth > box.clientWidth;
      const wanted = { role: "region", tabindex: "0", "aria-label": harness.plain(options.caption) };
      for (const [name, value] of Object.entries(wanted)) {
        if (scrolls) box.setAttribute(name, value);
        else box.removeAttribute(name);
      }
    }

    function head(column) {
      const properties = {
        scope: "col",
        role: options.stack && "columnheader",
        class: column.numeric ? "number" : null,
      };
      if (!column.sort) return el("th", properties, column.label);
      const button = el(
        "button",
        { type: "button", title: column.hint, onclick: () => sortBy(column) },
        column.label,
      );
      return el("th", properties, button, column.axis);
    }

    function sortBy(column) {
      const again = order.key === column.key;
      order.down = again ? !order.down : Boolean(column.down ?? column.numeric);
      order.key = column.key;
      state.note({ [options.id]: (order.down ? "-" : "") + order.key });
      draw();
    }

    function cell(column, index, row) {
      const content = column.cell(row);
      const properties = {
        class: column.numeric ? "number" : column.wide ? "wide" : null,
        "data-label": column.label,
      };
      if (index === 0)
        return el("th", { ...properties, scope: "row", role: options.stack && "rowheader" }, content);
      return el("td", { ...properties, role: options.stack && "cell" }, content);
    }

    function draw() {
      columns.forEach((column, index) => {
        if (!column.sort) return;
        const value = order.key === column.key ? (order.down ? "descending" : "ascending") : "none";
        heads[index].setAttribute("aria-sort", value);
      });
      const inOrder = sorted(rows, columns, order);
      const shown = all ? inOrder : inOrder.slice(0, limit);
      harness.replace(
        body,
        shown.map((row) =>
          el(
            "tr",
            { role: options.stack && "row", class: options.mark?.(row) },
            columns.map((column, index) => cell(column, index, row)),
          ),
        ),
      );
      box.hidden = rows.length === 0;
      nothing.hidden = rows.length !== 0;
      reachable();
      more.hidden = shown.length === rows.length;
      if (!more.hidden) {
        const button = el(
          "button",
          { type: "button", onclick: () => ((all = true), draw()) },
          `Show all ${harness.format.whole(rows.length)}`,
        );
        harness.replace(more, `The first ${limit} are shown. `, button);
      }
    }

    draw();
    return {
      node: el("div", { class: "table" }, box, nothing, more),
      update(next) {
        rows = next;
        draw();
      },
    };
  };

  /** A column of what stands in the rows by its key: `show(value, row)` makes the cell. */
  harness.column = (key, label, show, more) => ({
    key,
    label,
    sort: (row) => row[key],
    cell: (row) => show(row[key], row),
    ...more,
  });

  /** Of figures; `show` is given the value alone, as it may take digits besides. */
  harness.figure = (key, label, show = harness.format.whole, more) =>
    harness.column(key, label, (value) => show(value), { numeric: true, figure: true, ...more });

  /** Columns without those of figures that no row has. */
  harness.told = (columns, rows) =>
    columns.filter(({ figure, key }) => !figure || rows.some((row) => harness.format.known(row[key])));

  // Small drawings inside cells: the figure beside each says the same in digits.

  /** A bar from the left edge; share is of the longest. */
  harness.bar = function (share) {
    const width = `${(Math.max(0, Math.min(1, share || 0)) * 100).toFixed(1)}%`;
    return el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: "bar-of", style: { width } }));
  };

  /** The scale of a column of bars, which begin at zero. */
  harness.barAxis = (longest) =>
    el("span", { class: "bar-axis", "aria-hidden": "true" }, el("span", null, "0"), el("span", null, longest));

  const CHANGES = { width: 160, height: 14, linear: 0.01, reach: 5, ticks: [-1, -0.1, 0, 0.1, 1] };
  /** Where a change stands on the scale of all changes: linear up to 1 %, logarithmic from there to 500 %. */
  function changeAt(effect) {
    const { width, linear, reach } = CHANGES;
    const share = Math.log1p(Math.abs(effect) / linear) / Math.log1p(reach / linear);
    return (width / 2 + Math.sign(effect) * Math.min(1, share) * (width / 2 - 4)).toFixed(1);
  }

  const changeTicks = () =>
    CHANGES.ticks.flatMap((tick) => [
      harness.svg("line", {
        class: tick ? "tick" : "zero",
        x1: changeAt(tick),
        x2: changeAt(tick),
        y1: 0,
        y2: CHANGES.height,
      }),
      harness.svg(
        "text",
        { x: changeAt(tick), y: CHANGES.height + 9 },
        tick ? `${tick > 0 ? "+" : "−"}${Math.abs(tick) * 100}` : "0\u00a0%",
      ),
    ]);

  const onChangeScale = (name, top, ...marks) =>
    harness.svg(
      "svg",
      {
        class: name,
        viewBox: `0 ${top} ${CHANGES.width} ${CHANGES.height + 11 - top}`,
        width: CHANGES.width,
        preserveAspectRatio: "xMidYMin slice", // the figures below the ticks are cut off where the heading has them
        "aria-hidden": "true",
      },
      changeTicks(),
      marks,
    );

  /** The scale of a column of changes, in percent. */
  harness.changeAxis = () => onChangeScale("whisker axis", CHANGES.height);

  /** A change with its interval; every table draws them on the same scale. `low` and `high` may be null. */
  harness.whisker = (effect, low, high, tone) =>
    onChangeScale(
      `whisker ${tone}`,
      0,
      harness.format.known(low) && harness.format.known(high)
        ? harness.svg("line", { class: "interval", x1: changeAt(low), x2: changeAt(high), y1: 7, y2: 7 })
        : null,
      harness.svg("circle", { cx: changeAt(effect), cy: 7, r: 3 }),
    );

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
