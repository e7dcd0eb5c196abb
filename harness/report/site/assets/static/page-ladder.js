// What others published, and the newest figures of the same kernels on every card beside it.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const COLOURS = ["line-a", "line-c", "line-b", "warn"];

  /** Every ladder of the site: [{id, title, suite, name}]. */
  const laddersOf = (site) =>
    (site.suites ?? []).flatMap((suite) =>
      suite.ladders.map((one) => ({
        id: `${suite.name}.${one.name}`,
        title: one.title,
        suite: suite.name,
        name: one.name,
      })),
    );

  /** The newest figure of each of a suite's cases on each card, in the suite's unit. */
  function figuresOf(site, suite) {
    const found = new Map();
    for (const one of site.series) {
      const kase = site.cases[one.case];
      if (kase.suite !== suite.suite || kase.unit !== suite.unit || !format.known(one.last)) continue;
      found.set(`${one.card} ${kase.kernel} ${kase.size}`, { value: one.last, kase, card: one.card });
    }
    return (card, kernel, size) => found.get(`${card} ${kernel} ${size}`) ?? null;
  }

  /** Of a kernel that is held against a host's: the host is that of the card. */
  function baseOf(site, ladder, figures, card, size) {
    if (!ladder.against) return figures(card, ladder.rungs[0].kernel, size);
    const host = site.cards[card].host;
    const there = site.cards.findIndex((one, at) => one.host === host && figures(at, ladder.against, size));
    return there < 0 ? null : figures(there, ladder.against, size);
  }

  /** Which kernel stands for a card where the author's was not measured there: the fastest at the largest size. */
  function standIn(site, ladder, figures, card, sizes) {
    for (const size of [...sizes].reverse()) {
      const timed = ladder.comparable
        .filter((kernel) => kernel !== ladder.against)
        .map((kernel) => figures(card, kernel, size))
        .filter(Boolean);
      if (timed.length) return timed.reduce((a, b) => (b.value > a.value ? b : a)).kase.kernel;
    }
    return null;
  }

  const sizesOf = (ladder) => [...new Set(ladder.rungs.map((rung) => rung.size).filter(Boolean))];

  const isEven = (size) => /^\d+$/.test(size);

  /** Lines of the chart: the author's dashed, ours whole; rates, and speed-ups over the base. */
  function linesOf(site, suite, ladder, figures) {
    const sizes = sizesOf(ladder).filter(isEven);
    const lines = [];
    const add = (words, colour, dashed, rate, speedUp) => {
      const points = (of) => sizes.map((size) => [Number(size), of(size)]).filter(([, value]) => value > 0);
      const line = { words, colour, dashed, rates: points(rate), speedUps: points(speedUp) };
      if (line.rates.length) lines.push(line);
    };
    const author = harness.plain(ladder.card || "author", 30);
    const labels = [...new Set(ladder.rungs.map((rung) => rung.label))];
    labels.forEach((label, at) => {
      const rung = (size) => ladder.rungs.find((one) => one.label === label && one.size === size);
      const base = ladder.against && ladder.rungs.some((one) => one.label === label && one.kernel === ladder.against);
      add(
        `${harness.plain(label, 40)}, published (${author})`,
        base ? "muted" : ["text", "line-d"][at % 2],
        true,
        (size) => rung(size)?.rate,
        (size) => (base ? null : rung(size)?.speed_up),
      );
    });
    let drawn = 0;
    site.cards.forEach((card, number) => {
      const rungs = ladder.rungs.filter((rung) => rung.plain);
      const own = [...new Set(rungs.map((rung) => rung.kernel))].filter((kernel) =>
        sizes.some((size) => figures(number, kernel, size)),
      );
      const held = own.filter((kernel) => kernel !== ladder.against);
      const other = ladder.against && !held.length ? standIn(site, ladder, figures, number, sizes) : null;
      for (const kernel of other && !own.includes(other) ? [...own, other] : own) {
        const base = kernel === ladder.against;
        add(
          `${harness.plain(kernel, 40)}, ${harness.plain(card.gpu || card.name, 40)}`,
          base ? "text" : COLOURS[drawn++ % COLOURS.length],
          false,
          (size) => figures(number, kernel, size)?.value,
          (size) => {
            const mine = figures(number, kernel, size);
            const from = baseOf(site, ladder, figures, number, size);
            return base || !mine || !from ? null : mine.value / from.value;
          },
        );
      }
    });
    return lines;
  }

  function chart(view, suite, ladder, lines) {
    const of = ladder.against ? ` over ${harness.plain(ladder.against, 40)}` : " over the first rung";
    const panels = [
      { title: harness.plain(suite.unit, 20), series: lines.map((line) => ({ ...line, points: line.rates })) },
      { title: `speed-up${of}`, series: lines.map((line) => ({ ...line, points: line.speedUps })) },
    ].map((one) => ({ ...one, series: one.series.filter((line) => line.points.length) }));
    const words = `${panels[0].title} and speed-up${of} by size, both axes logarithmic. Dashed: as published.`;
    const legend = el("ul", { class: "legend" });
    const holder = harness.fitted(view, words, (width) => {
      harness.replace(
        legend,
        lines.map((line) => el("li", null, harness.lineSample(line), line.words)),
      );
      return harness.scaling(width, panels);
    });
    return el("figure", null, holder, legend, el("figcaption", null, words));
  }

  /** A figure of ours with its speed-up, as a link to its history. */
  function ours(site, ladder, figures, rung, card) {
    const mine = rung.plain && figures(card, rung.kernel, rung.size);
    const repaired = rung.repaired && figures(card, rung.repaired, rung.size);
    if (!mine && !repaired) return format.NONE;
    const base = baseOf(site, ladder, figures, card, rung.size);
    const link = (one) =>
      harness.caseLink(site.cards[card], one.kase, format.number(one.value));
    const ratio = mine && base && base.kase !== mine.kase ? format.speedUp(mine.value / base.value) : "";
    const gain = mine && repaired ? `, gains ${format.speedUp(repaired.value / mine.value)}` : "";
    return [
      mine ? link(mine) : format.NONE,
      ratio ? el("small", null, ratio) : null,
      repaired ? el("small", null, "repaired: ", link(repaired), gain) : null,
    ];
  }

  function table(site, suite, ladder, figures) {
    const unit = harness.plain(suite.unit, 20);
    const measured = site.cards
      .map((_, card) => card)
      .filter((card) =>
        ladder.rungs.some((rung) => [rung.kernel, rung.repaired].some((name) => figures(card, name, rung.size))),
      );
    const told = (key, label) => ({
      key,
      label,
      numeric: true,
      sort: (row) => Number(row.rung[key] ?? NaN),
      cell: (row) => text(row.rung.told[key] || format.NONE, null, 24),
    });
    const optional = [
      ["average", `Published average, ${unit}`],
      ["time_ms", "Published, ms"],
      ["speed_up", "Published speed-up"],
      ["peak_percent", "Published, % of peak"],
    ];
    const columns = [
      {
        key: "label",
        label: "Rung",
        sort: (row) => row.at,
        cell: ({ rung }) => text(rung.label, null, 80),
      },
      ...(sizesOf(ladder).length > 1
        ? [{ key: "size", label: "Size", sort: (row) => row.at, cell: ({ rung }) => text(rung.size, null, 30) }]
        : []),
      told("rate", `Published, ${unit}`),
      ...optional
        .filter(([key]) => ladder.rungs.some((rung) => rung.told[key]))
        .map(([key, label]) => told(key, label)),
      ...measured.map((card) => ({
        key: `card-${card}`,
        label: `${harness.plain(site.cards[card].gpu || site.cards[card].name, 40)}, ${unit}`,
        numeric: true,
        sort: ({ rung }) => figures(card, rung.kernel, rung.size)?.value,
        cell: ({ rung }) => ours(site, ladder, figures, rung, card),
      })),
    ];
    const measuredAt = (rung) => measured.some((card) => figures(card, rung.kernel, rung.size));
    const known = ladder.rungs.filter((rung) => Object.values(rung.told).some(Boolean) || measuredAt(rung));
    const rows = (known.length ? known : ladder.rungs).map((rung, at) => ({ rung, at }));
    const caption = `${harness.plain(ladder.title, 80)}: published, and measured here`;
    const none = measured.length
      ? null
      : harness.empty(
          "None of it has a history here. “harness report ladder” shows what was measured by hand and by sweeps.",
        );
    return [harness.table(columns, { id: "rungs", caption, rows, stack: true }).node, none];
  }

  function chooser(all, chosen) {
    return harness.form(
      { class: "filters", "aria-label": "What is shown" },
      harness.select(
        "Ladder",
        all.map((one) => [one.id, `${one.id}: ${one.title}`]),
        chosen.id,
        (id) => state.go({ ladder: id }),
      ),
    );
  }

  harness.start("ladder", async (site, view) => {
    const all = laddersOf(site);
    const wanted = state.get("ladder") ?? all[0]?.id;
    const chosen = all.find((one) => one.id === wanted);
    if (!chosen) {
      throw new harness.Problem(
        wanted ? `There is no ladder “${harness.plain(wanted, 80)}” here.` : "No suite here has a ladder.",
        "A suite says what others published with Suite(ladders=[Ladder(…)]); publish again with the suite there.",
      );
    }
    const suite = await harness.suites.load(site, chosen.suite);
    const ladder = suite.ladders.find((one) => one.name === chosen.name);
    const figures = figuresOf(site, suite);
    const lines = sizesOf(ladder).filter(isEven).length > 1 ? linesOf(site, suite, ladder, figures) : [];
    const drawing = lines.length ? chart(view, suite, ladder, lines) : null;
    harness.title(ladder.title);
    harness.replace(
      view,
      harness.crumbs(text(chosen.suite, null, 40)),
      el("h1", null, text(ladder.title, null, 120)),
      chooser(all, chosen),
      harness.suites.source(ladder),
      ladder.card
        ? el(
            "p",
            null,
            "Published figures are of: ",
            el("strong", null, text(ladder.card, null, 60)),
            sizesOf(ladder).length === 1 ? `, size ${harness.plain(sizesOf(ladder)[0], 30)}` : "",
            ".",
          )
        : null,
      ladder.note ? el("p", { class: "note" }, text(ladder.note, null, 400)) : null,
      drawing ? harness.section("Over the size", drawing) : null,
      harness.section("Rungs", table(site, suite, ladder, figures)),
    );
  });
})(window.harness);
