// One commit: what it did to every case on every card, what it changed in the sources and in the build.
"use strict";
(function (harness) {
  const { el, text, format, state, changes } = harness;

  async function wanted(site) {
    const named = state.get("commit");
    const hint = Number.parseInt(state.get("at"), 10);
    const hinted = Number.isInteger(hint) ? await harness.commit(site, hint).catch(() => null) : null;
    if (named && hinted?.hash === named) return hinted;
    const position = await harness.findCommit(site, named ?? "newest");
    if (position === null)
      throw new harness.Problem(
        `No commit here begins with “${harness.plain(named, 60)}”.`,
        "It may be of another branch, or have been rewritten. Search with “/” for another.",
      );
    return harness.commit(site, position);
  }

  /** What a card has of a commit: its figures, those of the commit before, and what changed there. */
  async function onCard(site, number, position) {
    const card = site.cards[number];
    const data = await harness.measured.block(site, card, position);
    const here = data ? harness.measured.row(data, position) : new Map();
    const before = here.size ? await harness.measured.upTo(site, card, position - 1) : null;
    const [earlier, { epochs, runs }] = await Promise.all([
      before === null ? null : harness.measured.block(site, card, before),
      harness.load(`about/${card.file}`),
    ]);
    const there = earlier ? harness.measured.row(earlier, before) : new Map();
    const own = new Map(site.series.filter((one) => one.card === number).map((one) => [one.case, one]));
    const effects = new Map();
    for (const [kase, value] of here) {
      const side = (figure) => ({ ...own.get(kase), value: figure });
      const apart = harness.epochsApart(epochs, site.cases[kase].suite, before, position);
      const found = harness.difference(site.pair, site.cases[kase], side(there.get(kase) ?? null), side(value), apart);
      effects.set(kase, { ...found, value });
    }
    return {
      card,
      number,
      before,
      effects,
      built: (data?.built ?? []).filter(([at]) => at === position),
      runs: runs.filter((run) => run.commit === position),
    };
  }

  function effects(site, cards) {
    const shown = cards.filter((one) => one.effects.size);
    if (!shown.length) return harness.empty("No card has measured this commit.");
    const numbers = [...new Set(shown.flatMap((one) => [...one.effects.keys()]))];
    const marked = (number) => shown.some((one) => (one.effects.get(number)?.tone ?? "none") !== "none");
    const worst = (number) =>
      Math.max(...shown.map((one) => -format.gain(site.cases[number], one.effects.get(number)?.effect)));
    const rows = numbers
      .map((number) => ({ kase: site.cases[number], number, marked: marked(number), worst: worst(number) }))
      .sort((a, b) => b.marked - a.marked || (a.marked ? b.worst - a.worst : a.kase.order - b.kase.order));
    const column = (one) => ({
      key: `card-${one.number}`,
      label: harness.shortened(one.card.title, 34),
      numeric: true,
      hint: "Sort from worst to best",
      down: true,
      sort(row) {
        const gain = format.gain(row.kase, one.effects.get(row.number)?.effect);
        return gain === null ? null : -gain;
      },
      cell: (row) => {
        const found = one.effects.get(row.number);
        if (!found) return el("span", { class: "none" }, format.NONE);
        const link = harness.caseLink(one.card, row.kase, format.value(found.value, row.kase.unit));
        if (found.effect === null) return el("div", { class: "figure" }, link, el("small", { class: "none" }, "first figure"));
        const words = `${format.effect(row.kase, found.effect)} ${found.tone === "none" ? "" : found.word}`;
        return el(
          "div",
          { class: "figure" },
          link,
          el(
            "small",
            { class: found.tone, title: [found.status, found.why, format.interval(...format.timedEnds(row.kase, found.low, found.high))].filter(Boolean).join("; ") },
            words,
            found.status === "not comparable" ? ", another epoch" : "",
          ),
        );
      },
    });
    const columns = [
      { key: "case", label: "Case", sort: (row) => row.kase.order, cell: (row) => harness.name(row.kase.name) },
      ...shown.map(column),
    ];
    const count = rows.filter((row) => row.marked).length;
    const against = shown.map((one) => `${harness.plain(one.card.title, 40)}: ${one.before === null ? "nothing near" : `#${one.before}`}`);
    return [
      el(
        "p",
        null,
        `Each figure against that of the commit measured before it (${against.join("; ")}). In colour what is more than noise: ${format.count(count, "case")} of ${format.whole(rows.length)}; chance marks one in ${format.whole(Math.round(1 / (1 - site.pair.level)))}.`,
      ),
      harness.table(columns, { id: "order-effects", caption: "Figures of this commit on every card", rows, limit: Math.max(30, count) })
        .node,
    ];
  }

  function build(site, cards) {
    const words = { registers: "registers", local_bytes: "bytes of local memory" };
    const rows = cards.flatMap((one) =>
      one.built.map(([, number, what, before, after]) => ({ card: one.card, kase: site.cases[number], what, before, after })),
    );
    const binaries = cards.flatMap((one) => one.runs.filter((run) => run.compared).map((run) => ({ one, run })));
    if (!rows.length && !binaries.length) return null;
    const columns = [
      {
        key: "case",
        label: "Case",
        sort: (row) => row.kase.order,
        cell: (row) => harness.caseLink(row.card, row.kase, harness.name(row.kase.name)),
      },
      { key: "card", label: "Card", sort: (row) => row.card.title, cell: (row) => harness.cardLink(row.card) },
      {
        key: "what",
        label: "Changed",
        sort: (row) => row.after - row.before,
        cell: (row) =>
          el("span", { class: row.after > row.before ? "bad" : "good" }, `${words[row.what]} ${format.whole(row.before)} → ${format.whole(row.after)}`),
      },
    ];
    return [
      rows.length ? harness.table(columns, { id: "order-build", caption: "Registers and local memory", rows, limit: 40, stack: true }).node : null,
      binaries.map(({ one, run }) =>
        el(
          "p",
          null,
          harness.cardLink(one.card),
          `, ${harness.plain(run.suite, 60)}: `,
          run.rebuilt.length
            ? [
                `${format.whole(run.rebuilt.length)} of ${format.count(run.compared, "binary", "binaries")} differ from `,
                harness.commitLink(site, run.base),
                ": ",
                run.rebuilt.slice(0, 12).map((number, at) => [at ? ", " : "", harness.name(site.cases[number].name)]),
                run.rebuilt.length > 12 ? " …" : "",
              ]
            : [`all ${format.count(run.compared, "binary", "binaries")} are those of `, harness.commitLink(site, run.base)],
          ".",
        ),
      ),
    ];
  }

  async function sources(site, commit) {
    const { chunk } = site.commits;
    const told = await harness.load(`touched/${Math.floor(commit.position / chunk)}`).catch(() => null);
    const paths = told?.paths[commit.position % chunk] ?? [];
    if (!paths.length) return null;
    const { source } = harness.repository(site);
    return el(
      "ul",
      { class: "plain paths" },
      paths.map((path) =>
        el("li", null, path ? harness.away(source(commit.hash, path), el("code", null, text(path, null, 200))) : "and more"),
      ),
    );
  }

  /** Events and changes of which this commit may be the cause. */
  async function told(site, position) {
    const known = await harness.load(`changed/${Math.floor(position / site.commits.every)}`).catch(() => null);
    const mine = (list) => list.filter((one) => one.good < position && position <= one.bad);
    const [own, rows] = known ? [mine(known.events), mine(harness.objects(known.changes))] : [[], []];
    if (!own.length && !rows.length) return harness.empty("No level changed here, as far as the history can tell.");
    const table = (columns, id, caption, list) => harness.table(columns, { id, caption, rows: list, stack: true, limit: 30 }).node;
    const inEvents = new Set(own.flatMap((event) => harness.events.briefs(event).map((one) => one.id)));
    const others = rows.filter((one) => !inEvents.has(one.id)).sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
    return [
      own.length ? table(harness.events.columns(site), "order-events", "Events of which this commit may be the cause", own) : null,
      others.length ? el("details", { class: "section" }, el("summary", null, `${format.count(others.length, "more change")} whose commits this one is among`), table(changes.columns(site), "order-changes", "Changes of which this commit may be the cause", others)) : null,
    ];
  }

  function links(site, commit, before) {
    const { commit: page, diff } = harness.repository(site);
    const elsewhere = page(commit.hash);
    const parent = before && diff(before.hash, commit.hash);
    const step = (position, words, rel) =>
      position >= 0 && position < site.commits.count
        ? el("a", { rel, href: state.address("commit", { commit: String(position) }) }, words)
        : null;
    return el(
      "p",
      { class: "neighbours" },
      step(commit.position - 1, "← Commit before", "prev"),
      " ",
      step(commit.position + 1, "Next commit →", "next"),
      elsewhere ? [" · ", harness.away(elsewhere, "In the repository")] : null,
      parent ? [" · ", harness.away(parent, "Diff")] : null,
    );
  }

  harness.start("commit", async (site, view) => {
    const commit = await wanted(site);
    const [before, paths, changed, ...cards] = await Promise.all([
      harness.commit(site, commit.position - 1),
      sources(site, commit),
      told(site, commit.position),
      ...site.cards.map((_, number) => onCard(site, number, commit.position)),
    ]);
    const measured = cards.find((one) => one.before !== null);
    const built = build(site, cards);
    const last = measured && (await harness.commit(site, measured.before));
    harness.title(format.short(commit.hash), commit.subject);
    harness.replace(
      view,
      harness.crumbs("Commit"),
      el("h1", null, text(commit.subject || "(no subject)", null, 200), " ", el("small", null, el("code", null, format.short(commit.hash)))),
      el("p", null, text(commit.author, null, 80), ", ", format.dateTime(commit.time), `, commit #${commit.position}`),
      links(site, commit, before),
      last ? harness.compareCommand(site, last.hash, commit.hash) : null,
      harness.section("Changes", changed),
      harness.section("Figures", effects(site, cards)),
      built && harness.section("Build", built),
      paths && harness.section("Files touched", paths),
    );
  });
})(window.harness);
