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

  const sizesOf = (ladder) => [...new Set(ladder.rungs.map((rung) => rung.size).filter(Boolean))];

  /** Lines of the chart: the author's dashed, ours whole; rates, and speed-ups over the base. */
  function linesOf(site, ladder) {
    const author = harness.plain(ladder.card || "author", 30);
    let [published, drawn] = [0, 0];
    return ladder.curves.map((one) => {
      const dashed = one.card === null;
      const card = site.cards[one.card];
      const colours = dashed ? ["text", "line-d"] : COLOURS;
      const at = dashed ? published++ : drawn;
      if (!dashed && !one.is_base) drawn++;
      return {
        words: dashed
          ? `${harness.plain(one.name, 40)}, published (${author})`
          : `${harness.plain(one.name, 40)}, ${harness.plain(card.title, 40)}`,
        colour: one.is_base ? (dashed ? "muted" : "text") : colours[at % colours.length],
        dashed,
        rates: one.points.map(([size, rate]) => [size, rate]),
        speedUps: one.points.filter((point) => point[2] !== null).map(([size, , speedUp]) => [size, speedUp]),
      };
    });
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

  const ofCard = (rung, card) => rung.ours.find((one) => one.card === card);

  /** A figure of ours with its speed-up, as a link to its history. */
  function ours(site, rung, card) {
    const one = ofCard(rung, card);
    if (!one) return format.NONE;
    const link = ([number, value]) =>
      harness.caseLink(site.cards[card], site.cases[number], format.number(value));
    const gain = one.gain === null ? "" : `, gains ${format.speedUp(one.gain)}`;
    return [
      one.own ? link(one.own) : format.NONE,
      one.speed_up === null ? null : el("small", null, format.speedUp(one.speed_up)),
      one.repaired ? el("small", null, "repaired: ", link(one.repaired), gain) : null,
    ];
  }

  function table(site, suite, ladder) {
    const unit = harness.plain(suite.unit, 20);
    const measured = [...new Set(ladder.rungs.flatMap((rung) => rung.ours.map((one) => one.card)))].sort(
      (a, b) => a - b,
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
        label: `${harness.plain(site.cards[card].title, 40)}, ${unit}`,
        numeric: true,
        sort: ({ rung }) => ofCard(rung, card)?.own?.[1],
        cell: ({ rung }) => ours(site, rung, card),
      })),
    ];
    const known = ladder.rungs.filter((rung) => Object.values(rung.told).some(Boolean) || rung.ours.length);
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
    const lines = linesOf(site, ladder);
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
      harness.section("Rungs", table(site, suite, ladder)),
    );
  });
})(window.harness);
