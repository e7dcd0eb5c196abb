// What a suite says of a case: what others published, and what its kernel asks of a card.
"use strict";
(function (harness) {
  const { el, text, format } = harness;

  /** The document of a suite; null where none was published. */
  async function load(site, name) {
    const known = (site.suites ?? []).find((one) => one.name === name);
    return known ? harness.load(`suites/${known.file}`) : null;
  }

  /** Every rung of every ladder that a case's kernel stands on, or repairs. */
  function rungsOf(suite, kase) {
    return (suite?.ladders ?? []).flatMap((ladder) =>
      ladder.rungs
        .filter((rung) => (rung.kernel === kase.kernel || rung.repaired === kase.kernel) && hasFigure(rung))
        .map((rung) => ({ ...rung, ladder, repairs: rung.kernel !== kase.kernel })),
    );
  }

  const hasFigure = (rung) => Object.values(rung.told).some(Boolean);

  /** What a chart can show: of the same size, on a card of the same family, in the same unit. */
  function drawn(suite, kase, card) {
    const unit = suite && kase.unit === suite.unit;
    return rungsOf(unit ? suite : null, kase)
      .filter((rung) => rung.rate && rung.plain && !rung.repairs && rung.size === kase.size)
      .filter((rung) => rung.ladder.cards.includes(card))
      .map((rung) => ({
        value: rung.rate,
        words: `${harness.plain(rung.ladder.author || rung.ladder.title, 28)}, ${harness.plain(rung.ladder.card, 24)}: ${harness.plain(rung.told.rate, 16)}`,
      }));
  }

  /** Author, title and date of a publication, and its address where it has one. */
  function source(ladder) {
    const title = ladder.publication || ladder.title;
    const named = text(`“${title}”`, null, 200);
    const linked = /^https?:\/\//.test(ladder.url)
      ? el("a", { href: ladder.url, rel: "noreferrer" }, named)
      : named;
    const others = [ladder.author, ladder.date].filter(Boolean).map((words) => text(words, null, 120));
    return el(
      "p",
      { class: "lead" },
      others.slice(0, 1),
      others.length ? ", " : "",
      linked,
      others.slice(1).map((words) => [", ", words]),
      ". ",
      text(ladder.source, null, 300),
    );
  }

  function remark(rung, kase, card) {
    const parts = [];
    const macros = Object.entries(rung.macros).map(([name, value]) => `${name} = ${value}`);
    if (rung.repairs) parts.push(`of ${rung.kernel}, which this kernel repairs`);
    if (macros.length && !rung.plain) parts.push(`with ${macros.join(", ")}`);
    if (rung.size && rung.size !== kase.size) parts.push("another size");
    if (!rung.ladder.cards.includes(card)) parts.push("another card");
    return harness.plain(parts.join("; "), 200);
  }

  function published(site, suite, kase, card) {
    const all = rungsOf(suite, kase);
    const ladders = [...new Set(all.map((rung) => rung.ladder))];
    if (!ladders.length) return null;
    const unit = harness.plain(suite.unit, 20);
    const told = (key, label) =>
      harness.column(key, label, (_, rung) => text(rung.told[key] || format.NONE, null, 24), { numeric: true });
    const parts = ladders.map((ladder) => {
      const rungs = all.filter((rung) => rung.ladder === ladder);
      const columns = [
        harness.column("label", "As published", (label) => text(label, null, 80)),
        { key: "size", label: "Size", cell: (rung) => text(rung.size || "all", null, 30) },
        { key: "card", label: "Card", cell: () => text(ladder.card, null, 40) },
        told("rate", unit),
        ...[
          ["average", `Average, ${unit}`],
          ["time_ms", "Time, ms"],
          ["speed_up", "Speed-up"],
        ]
          .filter(([key]) => rungs.some((rung) => rung.told[key]))
          .map(([key, label]) => told(key, label)),
        {
          key: "note",
          label: "Note",
          wide: true,
          cell: (rung) => remark(rung, kase, card) || "dashed in the chart",
        },
      ];
      const caption = `Published: ${harness.plain(ladder.title, 80)}`;
      return [
        source(ladder),
        harness.table(columns, { id: `published-${ladder.name}`, caption, rows: rungs, stack: true }).node,
        ladder.note ? el("p", { class: "note" }, text(ladder.note, null, 400)) : null,
      ];
    });
    return harness.section("What others published", parts);
  }

  // What a kernel asks of a card

  function residency(asked) {
    if (!asked) {
      return harness.empty(
        "No record says what this kernel asked of the card: it was not measured with the plugin, or the card is not of NVIDIA's.",
      );
    }
    const by = (extent) => extent.filter((each, at) => at === 0 || each > 1).map(format.whole).join(" × ");
    const item = (name, value, note) => harness.fact(name, value, note ? el("small", null, note) : null);
    const resident = asked.blocks
      ? [
          item("resident blocks", `${asked.blocks} an SM`, `limited by ${harness.plain(asked.limit, 20)}`),
          item("occupancy", format.share(asked.occupancy), "of the warps that an SM can hold"),
          item("waves", format.number(asked.waves, 3), `of ${format.whole(asked.multiprocessors)} SMs`),
          item("last wave", format.share(asked.last_wave), "is full"),
        ]
      : item("resident blocks", "none", `too much ${harness.plain(asked.limit, 20)}`);
    return el(
      "dl",
      { class: "facts" },
      item("block", by(asked.block), "threads"),
      item("grid", by(asked.grid), "blocks"),
      asked.attributes ? item("launch", harness.plain(asked.attributes, 60)) : null,
      item("registers", format.whole(asked.registers), "of a thread"),
      item("shared memory", `${format.whole(asked.shared_bytes)} B`, "of a block"),
      resident,
    );
  }

  function accesses(followed) {
    if (!followed) return null;
    if (followed.problem) return harness.empty("Its accesses are unknown: ", text(followed.problem, null, 300));
    const columns = [
      {
        key: "what",
        label: "Access",
        sort: (one) => one.array,
        cell: (one) => [one.stores ? "store of " : "load of ", text(one.array, null, 60)],
      },
      { key: "space", label: "Memory", cell: (one) => (one.space === "shared" ? "shared" : "device") },
      { key: "bytes", label: "Bytes of a thread", numeric: true, cell: (one) => format.whole(one.bytes) },
      {
        key: "sectors",
        label: "Sectors a request",
        numeric: true,
        sort: (one) => (one.space === "global" ? one.sectors : null),
        cell: (one) =>
          one.space === "global"
            ? el(
                "span",
                { class: one.sectors > one.fewest_sectors * 1.5 ? "bad" : null },
                `${format.number(one.sectors, 3)} (neighbours: ${one.fewest_sectors})`,
              )
            : format.NONE,
      },
      {
        key: "conflicts",
        label: "Bank conflicts",
        numeric: true,
        sort: (one) => (one.space === "shared" ? one.conflicts : null),
        cell: (one) =>
          one.space === "shared"
            ? el(
                "span",
                { class: one.conflicts >= 1.5 ? "bad" : null },
                one.conflicts < 1.005 ? "none" : `${format.number(one.conflicts, 3)}-way`,
              )
            : format.NONE,
      },
    ];
    const caption = `Accesses of a warp at ${harness.plain(followed.size, 40)}, from the source`;
    const table = harness.table(columns, { id: "accesses", caption, rows: followed.found, stack: true });
    return [
      el(
        "p",
        null,
        `How a warp reaches memory, followed in the newest source at ${harness.plain(followed.size, 40)}; caches are not seen.`,
      ),
      table.node,
    ];
  }

  /** How a kernel's warps reach memory; null where nobody followed them. */
  const accessesOf = (suite, kernel) => suite?.accesses.find((one) => one.kernel === kernel) ?? null;

  /** Where a kernel's source lies: {path, line}; null where nobody told. */
  const sourceOf = (suite, kernel) => suite?.sources?.[kernel] ?? null;

  function demand(suite, kase, asked) {
    const followed = accessesOf(suite, kase.kernel);
    if (!asked && !followed?.found.length) return null;
    return harness.section("What it asks of the card", residency(asked), accesses(followed));
  }

  harness.suites = { load, drawn, published, demand, accessesOf, source, sourceOf };
})(window.harness);
