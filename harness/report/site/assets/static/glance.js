// Every kernel on every card as coloured squares.
"use strict";
(function (harness) {
  const { el, format, state } = harness;

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
    const count = new Map();
    const group = (stands) => shade(stands).replace(/-\d$/, "-2");
    for (const { stands } of rows.flatMap((row) => [...row.cards.values()].flat()))
      count.set(group(stands), (count.get(group(stands)) ?? 0) + 1);
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
        label: harness.shortened(card.title, site.cards.length > 4 ? 16 : 34),
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
    const present = words.filter(([kind]) => count.has(kind));
    return el(
      "div",
      { class: "glance" },
      el(
        "div",
        { class: "shares", "aria-hidden": "true" },
        present.map(([kind]) => el("span", { class: `square ${kind}`, style: { "flex-grow": String(count.get(kind)) } })),
      ),
      el(
        "ul",
        { class: "legend" },
        present.map(([kind, label]) =>
          el("li", null, el("span", { class: `square ${kind}` }), el("strong", null, format.whole(count.get(kind))), ` ${label}`),
        ),
      ),
      harness.table(columns, {
        id: "order-glance",
        caption: "Every kernel on every card, a square a size",
        rows,
        limit: MOST,
        empty: harness.empty("No kernel matches the filter."),
      }).node,
    );
  };
})(window.harness);
