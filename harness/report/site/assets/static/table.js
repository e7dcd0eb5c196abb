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
   * columns: [{key, label, cell(row), sort(row)?, numeric?, down? (first order is downwards), hint?}]; the first heads its row.
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
      return el("th", properties, button);
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
    harness.column(key, label, (value) => show(value), { numeric: true, ...more });

  // Small drawings inside cells: the figure beside each says the same in digits.

  /** A bar from the left edge; share is of the longest. */
  harness.bar = function (share) {
    const width = `${(Math.max(0, Math.min(1, share || 0)) * 100).toFixed(1)}%`;
    return el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: "bar-of", style: { width } }));
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
