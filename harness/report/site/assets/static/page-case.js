// The history of one case on one card.
"use strict";
(function (harness) {
  const { el, text, format, state, changes, history } = harness;

  // What stands around the chart

  const FLAGS = { outlier: "outlier", clocked: "the clock was down", failed: "failed: no figure", unjudged: "unjudged" };

  function readout(site, data, kase, suite) {
    const { source } = harness.repository(site);
    const file = harness.suites.sourceOf(suite, kase.kernel);
    const node = el("dl", { class: "readout of-commit" });
    let wanted = null;
    const item = harness.fact;
    function draw(index, commit, unknown) {
      const level = data.levelAt(index);
      const share = data.y[index] === null || !level ? null : data.y[index] / level - 1;
      harness.replace(
        node,
        item(
          "commit",
          commit ? harness.commitLink(site, commit.hash, commit.position) : `#${data.x[index]} `,
          commit ? [" ", text(commit.subject, { class: "subject" }, 120)] : unknown,
          commit && file && source(commit.hash, file.path)
            ? [" ", harness.away(source(commit.hash, file.path), "source there")]
            : null,
        ),
        item("author", commit ? text(commit.author, null, 60) : unknown),
        item("date", commit ? format.dateTime(commit.time) : unknown),
        item(FLAGS[data.flags.get(index)] ?? "figure", format.value(data.y[index], kase.unit)),
        item("against its level", format.effect(kase, share)),
        harness.TRACES.filter(({ key }) => data.traces[key]).map(({ key, label, unit }) =>
          item(label, format.value(data.traces[key][index], unit)),
        ),
      );
    }
    async function show(index) {
      wanted = index;
      if (index === null) return;
      const loaded = harness.commit(site, data.x[index]).catch(() => null);
      const commit = await Promise.race([
        loaded,
        new Promise((resolve) => setTimeout(resolve, 30, undefined)),
      ]);
      if (wanted !== index) return;
      draw(index, commit, commit === undefined ? "…" : format.NONE);
      if (commit !== undefined) return;
      const late = await loaded;
      if (wanted === index) draw(index, late, format.NONE);
    }
    return { node, show };
  }

  function describe(site, data, kase) {
    return (index) => {
      const flag = data.flags.get(index);
      const parts = [`Commit ${data.x[index]}`, format.value(data.y[index], kase.unit)];
      if (flag) parts.push(FLAGS[flag]);
      const clock = data.traces.sm_clock_mhz?.[index];
      if (clock) parts.push(`${clock} MHz`);
      const change = data.changes.find((one) => one.at === index);
      if (change)
        parts.push(
          `change ${format.letter(data.changes.indexOf(change))}: ${format.effect(kase, change.effect)} ${format.meaning(kase, change.effect).word}`,
        );
      return `${parts.join(", ")}.`;
    };
  }

  function facts(data, kase, one) {
    const last = data.y.findLast((value) => value !== null) ?? null;
    const fails = data.y.at(-1) === null;
    const item = (name, value, note) => harness.fact(name, value, note ? el("small", null, note) : null);
    const stands = format.standing(kase, one);
    return el(
      "dl",
      { class: "facts" },
      item(
        fails ? "newest figure" : "newest",
        format.value(last, kase.unit),
        fails ? "the newest commit has none" : "",
      ),
      item(
        one.open !== null || one.unjudged !== null ? "now" : "over 90 days",
        el("span", { class: stands.tone }, stands.text),
      ),
      format.known(data.noise)
        ? item("noise of a point", format.share(data.noise), "relative standard deviation")
        : item("noise of a point", "not known", "too few points"),
      item("smallest change that counts", format.share(data.floor)),
      item("points", format.whole(data.n), data.failed.length ? `${data.failed.length} failed` : ""),
      item("better is", { none: "neither", unknown: "not known" }[kase.direction] ?? kase.direction),
    );
  }

  function changeTable(site, data, kase, show) {
    const rows = data.changes.map((change, index) => ({ change, index }));
    const columns = [
      {
        key: "at",
        label: "Change",
        sort: (row) => row.index,
        cell: ({ change, index }) =>
          el(
            "div",
            { class: "letter" },
            el(
              "button",
              {
                type: "button",
                class: `flag ${history.toneOf(change)}`,
                onclick: (event) => show(change, event.currentTarget.closest("tr")),
                title: "Show it in the chart",
              },
              format.letter(index),
              el("span", { class: "hidden" }, `: show this ${change.kind} in the chart`),
            ),
            el("small", null, change.kind),
            changes.state(change),
          ),
      },
      {
        ...changes.effectColumn(site, (row) => row.change),
        cell: ({ change }) => [
          changes.effect(site, change),
          el("small", { class: "levels" }, changes.levels(site, change)),
        ],
      },
      changes.commitColumn(site, (row) => row.change),
      changes.causeColumn((row) => row.change),
      {
        key: "when",
        label: "Since",
        sort: (row) => row.change.time,
        down: true,
        cell: ({ change }) => format.time(change.time),
      },
      {
        key: "told",
        label: "In words",
        wide: true,
        cell: ({ change }) => [
          el("p", null, harness.changes.sentence(change)),
          changes.triage(change),
          fixedBy(data, change),
          compareLink(site, change),
          harness.commandsOf(site, change),
        ],
      },
    ];
    return harness.table(columns, {
      id: "order",
      caption: "Changes of this case",
      rows: rows.reverse(),
      stack: true,
      mark: (row) => (row.change.id === state.get("change") ? "chosen" : null),
      empty: harness.empty(
        format.known(data.noise)
          ? "This case has not changed by more than its noise."
          : "Too few points to know the noise: nothing can be said yet.",
      ),
    }).node;
  }

  function fixedBy(data, change) {
    if (!change.fixed_by) return null;
    const at = data.changes.findIndex((one) => one.id === change.fixed_by);
    return el("small", null, at < 0 ? "Fixed since." : `Fixed by change ${format.letter(at)}.`);
  }

  function compareLink(site, change) {
    const card = site.cards[change.card].file;
    const address = state.address("compare", {
      left: `${card}@${change.good_hash}`,
      right: `${card}@${change.bad_hash}`,
    });
    const { diff } = harness.repository(site);
    const elsewhere = diff(change.good_hash, change.bad_hash);
    return el(
      "small",
      null,
      el("a", { href: address }, "All cases before and after"),
      elsewhere ? [" · ", harness.away(elsewhere, "Diff of the sources")] : null,
    );
  }

  function epochList(data) {
    const rows = data.epochs.filter((epoch) => epoch.changed.length);
    if (!rows.length) return null;
    return harness.section(
      "Epochs",
      el(
        "p",
        null,
        "At these commits the environment changed; a change of the level there says nothing about the code.",
      ),
      el(
        "ul",
        { class: "plain" },
        rows.map((epoch) =>
          el(
            "li",
            null,
            el("strong", null, text(epoch.label, null, 80)),
            ` from commit #${data.x[epoch.start]}: `,
            epoch.changed.map((line, index) => [index ? ", " : "", text(line, null, 120)]),
          ),
        ),
      ),
    );
  }

  function neighbours(site, cardNumber, caseNumber) {
    const here = site.series.filter((one) => one.card === cardNumber).map((one) => one.case);
    here.sort((a, b) => site.cases[a].order - site.cases[b].order || a - b);
    const at = here.indexOf(caseNumber);
    const card = site.cards[cardNumber].file;
    const to = (index, words, rel) => {
      const kase = site.cases[here[index]];
      const href = kase && state.address("case", { card, case: kase.name });
      return kase ? el("a", { rel, href, title: harness.plain(kase.name) }, words) : null;
    };
    const others = site.series.filter((one) => one.case === caseNumber && one.card !== cardNumber);
    return el(
      "div",
      { class: "neighbours" },
      el(
        "p",
        null,
        to(at - 1, "← Previous case", "prev"),
        " ",
        to(at + 1, "Next case →", "next"),
      ),
      others.length
        ? el(
            "p",
            null,
            "On other cards: ",
            others.map((one, index) => [
              index ? ", " : "",
              harness.caseLink(
                site.cards[one.card],
                site.cases[caseNumber],
                text(site.cards[one.card].title, null, 60),
              ),
            ]),
          )
        : null,
    );
  }

  /** The kernel's source as it is at the newest commit. */
  function sourceLine(site, suite, kase) {
    const found = harness.suites.sourceOf(suite, kase.kernel);
    if (!found) return null;
    const { source } = harness.repository(site);
    const newest = site.commits.newest.hash;
    const name = el("code", null, text(found.path, null, 160), found.line ? `:${found.line}` : "");
    return el("p", null, "Source: ", harness.away(source(newest, found.path, found.line), name));
  }

  /** Buttons that give what is in view of the history as files. */
  function downloads(site, data, card, kase, stack) {
    const picture = () => {
      const [first, end] = stack.visible();
      return stack.picture({
        title: `${harness.plain(kase.name, 100)} on ${harness.plain(card.title, 60)}`,
        lines: [
          `${format.quantity(kase)} in ${harness.plain(kase.unit, 20)}, commits #${data.x[first] ?? ""} to #${data.x[end - 1] ?? ""}. Published ${format.dateTime(site.generated_at)}.`,
        ],
        legend: history.pictureLegend(data),
      });
    };
    return harness.chartDownloads(`${card.file}-${kase.name}`, picture, async () => {
      const value = `value_${kase.unit.replace(/[^A-Za-z0-9]+/g, "_")}`;
      const beside = harness.TRACES.map(({ key }) => key);
      const rows = [["position", "hash", "time_utc", value, "level", ...beside, "flag"]];
      const [from, to] = stack.visible();
      for (let index = from; index < to; index++) {
        const commit = await harness.commit(site, data.x[index]);
        rows.push([
          data.x[index],
          commit?.hash.replace(/[^0-9a-zA-Z]/g, ""),
          commit && new Date(commit.time * 1000).toISOString(),
          data.y[index],
          data.levelAt(index),
          ...beside.map((key) => data.traces[key]?.[index]),
          data.flags.get(index),
        ]);
      }
      return harness.csv(rows);
    });
  }

  const OVERLAYS = [
    ["", "nothing"],
    ["cards", "other cards"],
    ["sizes", "other sizes"],
    ["kernels", "other kernels"],
  ];
  const MOST_LINES = 8;

  /** The series that are to be drawn over this one: of the same case, kernel or size. */
  function others(site, one, kind) {
    const kase = site.cases[one.case];
    const fits = {
      cards: (other) => other.case === one.case,
      sizes: (other, its) => other.card === one.card && its.suite === kase.suite && its.kernel === kase.kernel,
      kernels: (other, its) => other.card === one.card && its.suite === kase.suite && its.size === kase.size,
    }[kind];
    if (!fits) return [];
    return site.series.filter((other) => {
      const its = site.cases[other.case];
      return other !== one && its.metric === kase.metric && fits(other, its);
    });
  }

  async function overlaid(site, one, data) {
    const kind = state.get("over");
    const chosen = others(site, one, kind);
    if (!chosen.length) return [];
    const kase = site.cases[one.case];
    const name = (other) => {
      const its = site.cases[other.case];
      return harness.plain({ cards: site.cards[other.card].title, sizes: its.size, kernels: its.kernel }[kind] || its.name, 40);
    };
    const rest = await Promise.all(
      chosen.slice(0, MOST_LINES - 1).map(async (other) => ({
        words: name(other),
        data: history.unpack(await harness.series(site, other)),
      })),
    );
    return [{ words: `${name({ ...one, kase })} (this)`, data }, ...rest];
  }

  function chartControls(site, one, figures, figure) {
    const overlays = OVERLAYS.filter(([kind]) => !kind || others(site, one, kind).length);
    return harness.form(
      { class: "filters", "aria-label": "What the chart shows" },
      figures.length > 1
        ? harness.select("Figure", figures.map(({ name, label }) => [name, label]), figure, (name) =>
            state.go({ figure: name === figures[0].name ? null : name }),
          )
        : null,
      overlays.length > 1
        ? harness.select("Draw beside it", overlays, state.get("over") ?? "", (over) => state.go({ over }))
        : null,
    );
  }

  function overlayLegend(data) {
    if (!data.overlaid.length) return null;
    const { lines } = history.overlay(data);
    return el(
      "ul",
      { class: "legend", "aria-label": "Lines drawn beside" },
      lines.map((line) => el("li", null, harness.lineSample(line), line.words)),
    );
  }

  // The page

  function limits(data) {
    const [first, last] = [data.x[0], data.x.at(-1)];
    const edge = Math.max(0.5, (last - first) * 0.012);
    return [first - edge, last + edge];
  }

  function mountChart(site, data, card, kase, { holder, bar, keys }, read, range) {
    const chosen = () => state.get("change");
    const noteRange = harness.noteRange(holder, (min, max) => ({
      from: String(Math.max(0, Math.ceil(min))),
      to: String(Math.max(0, Math.floor(max))),
    }));
    const stack = new harness.Stack(holder, {
      x: data.x,
      limits: limits(data),
      span: Math.min(4, data.x.at(-1) - data.x[0] + 1),
      panels: history.panels(site, data, kase, chosen),
      xTicks: harness.dateTicks(site),
      label: `History of ${harness.plain(kase.name)}`,
      describedBy: keys,
      describe: describe(site, data, kase),
      onCursor: (index) => read.show(index),
      onRange: (min, max) => noteRange(stack.isWhole(), min, max),
      keys: { n: () => nextChange(1), p: () => nextChange(-1) },
    });
    function nextChange(way) {
      const at = stack.cursor ?? -1;
      const found =
        way > 0 ? data.changes.find((one) => one.at > at) : data.changes.findLast((one) => one.at < at);
      if (found) stack.point(found.at);
    }
    function show(change) {
      const around = Math.max(20, (limits(data)[1] - limits(data)[0]) * 0.06, (change.bad - change.good) * 3);
      stack.setRange(change.good - around, change.bad + around);
      stack.point(change.at);
    }
    const zero = el(
      "label",
      { class: "check" },
      el("input", {
        type: "checkbox",
        checked: state.get("zero") === "1",
        onchange: (event) => (state.note({ zero: event.target.checked ? "1" : null }), rescale(stack)),
      }),
      "from zero",
    );
    harness.replace(
      bar,
      harness.chartButtons(
        stack,
        zero,
        el("span", { class: "gap" }),
        downloads(site, data, card, kase, stack),
      ),
    );
    const change = data.changes.find((one) => one.id === chosen());
    if (range[0] !== null || range[1] !== null)
      stack.setRange((range[0] ?? data.x[0]) - 0.4, (range[1] ?? data.x.at(-1)) + 0.4);
    else if (change) show(change);
    if (stack.cursor === null) read.show(data.x.length - 1);
    harness.stack = stack;
    return show;
  }

  function rescale(stack) {
    for (const u of stack.plots) u.setScale("x", { min: stack.range[0], max: stack.range[1] });
  }

  function chartSummary(data, kase) {
    const values = data.y.filter((value) => value !== null);
    if (!values.length) return "No point has a figure.";
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    return (
      `${format.count(data.n, "point")} of commits #${data.x[0]} to #${data.x.at(-1)}, from ${format.number(low)} to ${format.value(high, kase.unit)}, ` +
      `${format.count(data.levels.length, "level")}, ${format.count(data.changes.length, "change")}.`
    );
  }

  const COMPILED = [
    ["spill_bytes", "Spilled"],
    ["occupancy_percent", "Occupancy"],
    ["registers", "Registers"],
  ];

  /** What the same kernel was compiled to for cards that need not be there, over the commits: a row a card. */
  function compiled(site, kase) {
    const rows = new Map();
    for (const one of site.series) {
      const card = site.cards[one.card];
      const its = site.cases[one.case];
      if (!card.name.startsWith("static-") || its.suite !== kase.suite || its.kernel !== kase.kernel) continue;
      if (!rows.has(card)) rows.set(card, new Map());
      const found = rows.get(card);
      // What several sizes share is told of the first of them.
      if (!found.has(its.metric) || its.size === kase.size) found.set(its.metric, one);
    }
    if (!rows.size) return null;
    const spark = harness.sparks(site);
    const columns = [
      { key: "card", label: "Compiled for", cell: (row) => text(row.card.name.slice("static-".length), null, 40) },
      ...COMPILED.map(([key, label]) => ({ key, label, numeric: true, cell: (row) => spark(row.found.get(key)) })),
    ];
    const listed = [...rows].map(([card, found]) => ({ card, found }));
    const order = { numeric: true };
    listed.sort((a, b) => a.card.name.localeCompare(b.card.name, "en", order));
    const caption = "What the kernel was compiled to, by architecture: newest figure and how it came there";
    return harness.section(
      "Without a card",
      harness.table(columns, { id: "order-compiled", caption, rows: listed }).node,
    );
  }

  harness.start("case", async (site, view) => {
    const cardNumber = harness.wantedCard(site);
    const card = site.cards[cardNumber];
    const name = state.get("case");
    const caseNumber = site.cases.findIndex((kase) => kase.name === name);
    const one = site.series.find((series) => series.card === cardNumber && series.case === caseNumber);
    if (caseNumber < 0 || !one) {
      throw new harness.Problem(
        name
          ? `The card “${harness.plain(card.title, 60)}” has no case “${harness.plain(name, 100)}”.`
          : "The address names no case.",
        "Choose a case on the overview, under “All cases”. A kernel that was renamed has its new name there.",
      );
    }
    const own = site.cases[caseNumber];
    const whole = history.unpack(await harness.series(site, one));
    const figures = history.figuresOf(whole, own);
    const figure = figures.some(({ name }) => name === state.get("figure")) ? state.get("figure") : own.metric;
    const { data, kase } = history.inFigure(whole, own, figure);
    const suite = await harness.suites.load(site, kase.suite);
    data.published = harness.suites.drawn(suite, kase, cardNumber);
    data.overlaid = await overlaid(site, one, whole);
    const range = await Promise.all(
      ["from", "to"].map((key) => (state.get(key) ? harness.findCommit(site, state.get(key)) : null)),
    );
    harness.title(kase.name, card.title);
    const read = readout(site, data, kase, suite);
    const moves = "← → point by point, Home End, shift ← → move, n p changes";
    const chart =
      data.n && harness.chartFigure(read.node, chartSummary(data, kase), moves, el("div", null, history.legend(data), overlayLegend(data)));
    let show = () => {};
    harness.replace(
      view,
      harness.crumbs(
        el(
          "a",
          { href: state.address("card", { card: card.file, suite: kase.suite, size: kase.size }) },
          text(card.title, null, 60),
        ),
        text(kase.suite, null, 40),
      ),
      el("h1", null, harness.name(kase.name, 180)),
      neighbours(site, cardNumber, caseNumber),
      sourceLine(site, suite, own),
      facts(whole, own, one),
      chartControls(site, one, figures, figure),
      chart
        ? chart.node
        : harness.empty(
            "This case has no point yet. Measure it with “asv run”, then run “harness publish” again.",
          ),
      compiled(site, own),
      harness.section(
        "Changes",
        changeTable(site, whole, own, (change, row) => {
          state.note({ change: change.id });
          for (const other of view.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
          row.classList.add("chosen");
          show(change);
          view.querySelector(".chart").focus();
          rescale(harness.stack);
        }),
      ),
      whole.changes.map((change, index) => changes.why(change, format.letter(index))),
      harness.suites.published(site, suite, own, cardNumber),
      harness.suites.demand(suite, own, data.demand),
      epochList(data),
    );
    view.addEventListener("shown", () => {
      if (chart) show = mountChart(site, data, card, kase, chart, read, range);
    });
  });
})(window.harness);
