// Tables that sort by a click on a heading, with the order in the address.
"use strict";
(function (harness) {
  const { el, state } = harness;

  function compare(left, right) {
    const none = (value) => value === null || value === undefined || Number.isNaN(value);
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
    const none = (value) => value === null || value === undefined || Number.isNaN(value);
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
      el("caption", { class: options.showCaption ? null : "hidden" }, options.caption),
      el("thead", { role: options.stack && "rowgroup" }, el("tr", { role: options.stack && "row" }, heads)),
      body,
    );
    const box = el("div", { class: "scroll" }, table);
    new ResizeObserver(reachable).observe(box);
    const none = el("div", null, options.empty ?? harness.empty("Nothing to show."));

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
      if (!column.sort)
        return el(
          "th",
          properties,
          column.label || el("span", { class: "hidden" }, column.name ?? "Details"),
        );
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
      none.hidden = rows.length !== 0;
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
      node: el("div", { class: "table" }, box, none, more),
      update(next) {
        rows = next;
        draw();
      },
    };
  };
})(window.harness);
