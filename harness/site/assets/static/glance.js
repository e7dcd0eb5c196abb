// Small pictures of many series: a line in a cell, and every kernel on every card as coloured squares.
"use strict";
(function (harness) {
  const { el, format, state } = harness;

  /** The newest figures of every series of a card, small; null where they are not there. */
  async function sparks(card) {
    const data = await harness.load(`sparks/${card.file}`).catch(() => null);
    return data && { points: data.points, values: harness.figures(data.values) };
  }

  /** A line of the newest figures of the series with that place on its card. */
  function line(spark, place) {
    const values = spark.values.slice(place * spark.points, (place + 1) * spark.points);
    const [width, height] = [84, 18];
    const x = (at) => (2 + (at / Math.max(1, spark.points - 1)) * (width - 6)).toFixed(1);
    const y = (value) => (height - 2 - (value / 254) * (height - 4)).toFixed(1);
    const stretches = [];
    let open = null;
    values.forEach((value, at) => {
      if (value === null) return (open = null);
      if (!open) stretches.push((open = []));
      open.push(`${x(at)},${y(value)}`);
    });
    const last = values.findLastIndex((value) => value !== null);
    return harness.svg(
      "svg",
      { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
      stretches.map((points) => harness.svg("polyline", { points: points.join(" ") })),
      last >= 0 ? harness.svg("circle", { cx: x(last), cy: y(values[last]), r: 2 }) : null,
    );
  }

  /** Draws a card's lines into holders, once they are there: `draw(card, place)` gives a holder. */
  harness.sparks = function (site) {
    const places = new Map();
    const counts = site.cards.map(() => 0);
    for (const one of site.series) places.set(one, counts[one.card]++);
    const loaded = new Map();
    return (one) => {
      const holder = el("span", { class: "spark-holder" });
      const card = site.cards[one.card];
      if (!loaded.has(card)) loaded.set(card, sparks(card));
      loaded.get(card).then((spark) => spark && harness.replace(holder, line(spark, places.get(one))));
      return holder;
    };
  };

  /** A class by how much a level moved, which way. */
  function shade({ kind, tone, effect }) {
    if (kind !== "judged") return kind;
    if (tone === "none") return "steady";
    const size = Math.abs(effect);
    return `${tone}-${size > 0.2 ? 3 : size > 0.05 ? 2 : 1}`;
  }

  const MOST = 30;
  const RANK = { open: 3, unjudged: 2, judged: 1, unknown: 0, missing: -1 };

  /** A table of every kernel on every card: a square a size. */
  harness.glance = function (site, shown) {
    const kernels = new Map();
    for (const one of site.series) {
      const kase = site.cases[one.case];
      if (!shown(kase)) continue;
      const key = `${kase.suite}.${kase.kernel}`;
      if (!kernels.has(key)) kernels.set(key, { name: key, order: kase.order, cards: new Map() });
      const row = kernels.get(key);
      if (!row.cards.has(one.card)) row.cards.set(one.card, []);
      row.cards.get(one.card).push({ one, kase, stands: format.standing(kase, one) });
    }
    const rank = (squares) => Math.max(...squares.map(({ stands }) => RANK[stands.kind]));
    const rows = [...kernels.values()];
    // What does not fit on a screen has first what somebody has to look at.
    const urgent = (row) => (kernels.size > MOST ? Math.max(1, ...[...row.cards.values()].map(rank)) : 1);
    rows.sort((a, b) => urgent(b) - urgent(a) || a.order - b.order);
    const square = (card, { kase, stands }) =>
      el("a", {
        class: `square ${shade(stands)}`,
        href: state.address("case", { card: card.file, case: kase.name }),
        title: `${harness.plain(kase.name)}: ${stands.text}`,
        "aria-label": `${harness.plain(kase.name)}: ${stands.text}`,
      });
    const columns = [
      { key: "kernel", label: "Kernel", sort: (row) => row.order, cell: (row) => harness.name(row.name) },
      ...site.cards.map((card, number) => ({
        key: `card-${number}`,
        label: harness.shortened(card.name, site.cards.length > 4 ? 16 : 34),
        hint: "Sort by what is open, then unjudged",
        down: true,
        sort: (row) => (row.cards.has(number) ? rank(row.cards.get(number)) : null),
        cell: (row) =>
          row.cards.has(number)
            ? el("span", { class: "squares" }, row.cards.get(number).map((each) => square(card, each)))
            : el("span", { class: "none" }, format.NONE),
      })),
    ];
    const words = [
      ["open", "open regression"],
      ["unjudged", "unjudged"],
      ["bad-2", "worse over 90 days"],
      ["good-2", "better over 90 days"],
      ["steady", "steady"],
      ["unknown", "too few points"],
    ];
    return el(
      "div",
      { class: "glance" },
      harness.table(columns, {
        id: "order-glance",
        caption: "Every kernel on every card, a square a size",
        rows,
        limit: MOST,
        empty: harness.empty("No kernel matches the filter."),
      }).node,
      el(
        "ul",
        { class: "legend" },
        words.map(([kind, label]) => el("li", null, el("span", { class: `square ${kind}` }), label)),
      ),
    );
  };
})(window.harness);
