// The overview: what is open now, what else happened, the cards, and a way to every case.
"use strict";
(function (harness) {
  const { el, text, format, state, events } = harness;

  const EARLY = "The newest figures are off their level, and it is too early to say whether that stays.";
  const SECTIONS = [
    { key: "open", title: "Open regressions", test: events.isOpen, empty: "No regression is known." },
    {
      key: "unjudged",
      title: "Unjudged",
      test: (event) => event.state === "unjudged",
      optional: true,
      note: `${EARLY} A comparison of both commits settles it.`,
    },
    {
      key: "improvement",
      title: "Improvements",
      test: (event) => event.kind === "improvement" && !event.state,
      optional: true,
    },
    {
      key: "change",
      title: "Changes without a known direction",
      test: (event) => event.kind === "change" && !event.state,
      optional: true,
      note: "It is unknown which way is better. Set “directions” in [tool.harness] of pyproject.toml.",
    },
    {
      key: "environment",
      title: "Changes of clocks, heat, power and environment",
      test: (event) => event.kind === "environment" && !event.state,
      optional: true,
    },
    {
      key: "acknowledged",
      title: "Acknowledged regressions",
      test: (event) => event.state === "acknowledged",
      optional: true,
      folded: true,
    },
    {
      key: "fixed",
      title: "Fixed regressions",
      test: (event) => event.state === "fixed",
      optional: true,
      folded: true,
    },
    {
      key: "stale",
      title: "Stale: open, and not measured for long",
      test: (event) => event.state === "stale",
      optional: true,
      folded: true,
    },
  ];

  const sectionsOf = (list) => SECTIONS.filter(({ optional, test }) => !optional || list.some(test));

  function matcher(site) {
    const card = state.get("card");
    const suite = state.get("suite");
    const matches = harness.wordFilter();
    return {
      active: Boolean(card || suite || state.get("q")?.trim()),
      event(event) {
        if (card && !events.onCard(site, event, card)) return false;
        const kases = events.briefs(event).map((one) => site.cases[one.case]);
        if (suite && !kases.some((kase) => kase.suite === suite)) return false;
        const where = [...kases.map((kase) => kase.name), ...event.cards.map((number) => site.cards[number].title)];
        const what = [event.worst.sentence, event.cause, format.cause(event.worst.attribution)[0]];
        const who = event.suspects.flatMap((one) => [one.subject, one.author, one.hash]);
        return matches([...where, ...what, ...who].join(" "));
      },
      kase: (kase) => (!suite || kase.suite === suite) && matches(kase.name),
      card,
    };
  }

  /** How many there are in all; the list has only the first of them. */
  const counted = (site, key) =>
    key === "open" ? site.events.new + site.events.expired : (site.events[key] ?? 0);

  /** Green only where something was judged, and nothing is open or waits for a verdict. */
  function verdict(site) {
    const open = site.counts.new + site.counts.expired;
    const sum = (key) => site.cards.reduce((total, card) => total + card[key], 0);
    const [unjudged, unknown, series] = [sum("unjudged"), sum("unknown"), sum("series")];
    // What became better waits as well, and is none of those that are counted.
    const worse = ({ case: number, unjudged: effect }) =>
      effect !== null && format.meaning(site.cases[number], effect).tone === "bad" ? format.timed(site.cases[number], effect) : 0;
    const worst = site.series.map(worse).reduce((most, effect) => (Math.abs(effect) > Math.abs(most) ? effect : most), 0);
    const waits = `${format.count(unjudged, "case")} became worse too lately to judge, up to ${format.change(worst)}.`;
    const few = unknown
      ? `${format.whole(unknown)} of ${format.whole(series)} series have too few points for their noise to be known.`
      : "";
    if (open) {
      const by = counted(site, "open");
      const culprits = by === open ? "" : `, of ${format.count(by, "event")}`;
      return { tone: "bad", words: `${format.count(open, "regression is", "regressions are")} open${culprits}.`, more: unjudged ? waits : few };
    }
    if (unjudged) return {
        tone: "unjudged",
        words: waits,
        more: `No regression is known. ${EARLY} ${few}`,
      };
    if (series && unknown === series)
      return { tone: "unjudged", words: "Nothing can be judged yet.", more: "No series has enough points for its noise to be known." };
    return { tone: series ? "good" : "unjudged", words: series ? "No regression is open." : "Nothing is measured yet.", more: few };
  }

  function summary(site) {
    const { newest } = site.commits;
    const { tone, words, more } = verdict(site);
    return el(
      "div",
      { class: "lead" },
      el("p", { class: `verdict ${tone}` }, words),
      more ? el("p", null, more) : null,
      newest
        ? el(
            "p",
            null,
            "Newest commit ",
            harness.commitLink(site, newest.hash, site.commits.count - 1),
            " ",
            text(newest.subject, { class: "subject" }, 120),
            ", ",
            format.time(newest.time),
            ".",
          )
        : null,
    );
  }

  function counters(site, list) {
    const sections = sectionsOf(list);
    if (sections.length < 2) return null; // the section below says it
    return el(
      "ul",
      { class: "counters" },
      sections.map(({ key, title, test }) => {
        const count = Math.max(counted(site, key), list.filter(test).length);
        const jump = (event) => {
          event.preventDefault();
          state.note({ show: key });
          reveal(key);
        };
        return el(
          "li",
          { class: key === "open" && count ? "bad" : null },
          el(
            "a",
            { href: `#show=${key}`, onclick: jump },
            el("strong", null, format.whole(count)),
            " ",
            title,
          ),
        );
      }),
    );
  }

  function reveal(key) {
    const heading = document.getElementById(`section-${key}`);
    if (!heading) return;
    const fold = heading.closest("details");
    if (fold) fold.open = true;
    heading.focus({ preventScroll: true });
    heading.scrollIntoView();
  }

  function filters(site, update) {
    const cards = [["", "All cards"], ...site.cards.map((card) => [card.file, card.title])];
    return harness.form(
      { class: "filters", role: "search", "aria-label": "Filter" },
      harness.select("Card", cards, state.get("card") ?? "", (card) => (state.note({ card }), update())),
      harness.filterFields(
        site.cases.map((kase) => kase.suite),
        update,
        "kernel, commit, author, cause",
      ),
    );
  }

  function section(site, list, { key, title, test, empty, folded, note }) {
    const all = list.filter(test);
    const count = el("span", { class: "count" });
    const heading = el("h2", { id: `section-${key}`, tabindex: "-1" }, title, " ", count);
    const table = harness.table(events.columns(site), {
      id: `order-${key}`,
      caption: title,
      rows: all,
      stack: true,
      limit: key === "open" ? 100 : 20,
      empty: harness.empty(all.length ? "Nothing here matches the filter. Clear it to see the rest." : empty),
    });
    const missing = counted(site, key) - all.length;
    const rest =
      missing > 0
        ? el(
            "p",
            { class: "more" },
            `${format.count(missing, "older one is", "older ones are")} not listed here; the pages of cases and commits have all of their own.`,
          )
        : null;
    const node = folded
      ? el("details", { class: "section" }, el("summary", null, heading), table.node, rest)
      : el("section", { class: "section" }, heading, note && all.length ? el("p", null, note) : null, table.node, rest);
    function update(match) {
      const shown = all.filter(match.event);
      table.update(shown);
      harness.replace(
        count,
        shown.length === all.length
          ? format.whole(all.length + Math.max(0, missing))
          : `${shown.length} of ${all.length}`,
      );
      if (folded && match.active && shown.length) node.open = true;
    }
    return { node, update };
  }

  function calibration(card) {
    const address = state.address("calibration", { card: card.file });
    if (card.name.startsWith("static-")) return el("span", { class: "none" }, format.NONE);
    if (!card.calibration) return el("span", { class: "none" }, "Not calibrated");
    const { verdicts, false_alarms: alarms, bound } = card.calibration;
    return el(
      "a",
      { href: address },
      `${format.whole(alarms)} false in ${format.count(verdicts, "verdict")}`,
      format.known(bound) ? `, at most ${format.rough(bound)}` : null,
    );
  }

  function cards(site) {
    if (!site.cards.length) return harness.noCards();
    const newest = (card) => {
      if (!card.newest) return "No run yet";
      const { commit, hash, measured_at: at, cases, failed } = card.newest;
      return el(
        "div",
        null,
        harness.commitLink(site, hash, commit),
        " ",
        format.time(at),
        el("small", null, format.count(cases, "case"), failed ? `, ${failed} failed` : ""),
      );
    };
    const badge = (card) => {
      const image = el("img", {
        src: `badges/${encodeURIComponent(card.file)}.svg`,
        alt: "",
        loading: "lazy",
        height: 20,
      });
      image.addEventListener("error", () => image.remove());
      return image;
    };
    const columns = [
      {
        key: "name",
        label: "Card",
        sort: (card) => card.title,
        cell: (card) =>
          el(
            "div",
            { class: "what" },
            el("a", { href: state.address("card", { card: card.file }) }, text(card.title, null, 100)),
            el(
              "small",
              null,
              card.name === card.title ? null : [harness.name(card.name, 100), ", "],
              card.driver ? ["driver ", text(card.driver, null, 40)] : null,
            ),
            badge(card),
          ),
      },
      harness.figure("open", "Open", (open) => el("span", { class: open ? "bad" : null }, format.whole(open))),
      {
        key: "newest",
        label: "Newest run",
        sort: (card) => card.newest?.measured_at,
        down: true,
        cell: newest,
      },
      harness.figure("points", "Points"),
      {
        key: "health",
        label: "Health",
        cell: (card) => (card.health.length ? harness.health(card) : harness.empty("Nothing to say.")),
      },
      {
        key: "calibration",
        label: "False alarms",
        sort: (card) => card.calibration?.bound,
        cell: calibration,
      },
    ];
    return harness.table(columns, { id: "order-cards", caption: "Cards", rows: site.cards, stack: true })
      .node;
  }

  const URGENT = { open: 0, unjudged: 1 };

  /** A row per case, a column per card: the newest figure, how it stands, and a line of how it came there. */
  function allCases(site) {
    const spark = harness.sparks(site);
    const byCase = new Map();
    for (const one of site.series) {
      if (!byCase.has(one.case)) byCase.set(one.case, new Map());
      byCase.get(one.case).set(one.card, one);
    }
    const rows = site.cases
      .map((kase, index) => ({ kase, series: byCase.get(index) ?? new Map() }))
      .filter((row) => row.series.size);
    for (const row of rows) {
      const stand = [...row.series.values()].map((one) => format.standing(row.kase, one));
      row.urgent = Math.min(...stand.map(({ kind }) => URGENT[kind] ?? 2));
      row.worst = row.urgent < 2 ? Math.max(...stand.map(({ effect }) => Math.abs(effect ?? 0))) : 0;
    }
    rows.sort((a, b) => a.urgent - b.urgent || b.worst - a.worst || a.kase.order - b.kase.order);
    const box = el("div");
    const glance = el("div");
    function update(match) {
      const columns = [
        {
          key: "case",
          label: "Case",
          sort: (row) => row.kase.name,
          cell: (row) => harness.name(row.kase.name),
        },
        ...site.cards.map(column).filter((_, number) => !match.card || site.cards[number].file === match.card),
      ];
      const table = harness.table(columns, {
        id: "order-cases",
        caption: "All cases: newest figure, and the change of its level over 90 days",
        rows: rows.filter((row) => match.kase(row.kase)),
        limit: 40,
        empty: harness.empty(
          rows.length
            ? "No case matches the filter. Clear it to see the rest."
            : "No case has a figure yet. Measure with “asv run”, then publish again.",
        ),
      });
      harness.replace(box, table.node);
      harness.replace(glance, harness.glance(site, match.kase));
    }
    function column(card, number) {
      return {
        key: `card-${number}`,
        label: harness.shortened(card.title, 34),
        numeric: true,
        hint: "Sort by what is open or unjudged, else by the change over 90 days",
        sort: (row) => row.series.has(number) && (format.standing(row.kase, row.series.get(number)).effect ?? 0),
        cell: (row) => spark(row.series.get(number), true),
      };
    }
    const heading = el("h2", { id: "section-cases", tabindex: "-1" }, "All cases");
    return {
      glance: rows.length ? harness.section("At a glance", glance) : null,
      node: el("section", { class: "section" }, heading, box),
      update,
    };
  }

  function problems(site) {
    const told = [...site.problems, ...site.unrecorded];
    if (!told.length) return null;
    return el(
      "details",
      { class: "section note" },
      el("summary", null, el("h2", null, `Not read: ${format.count(told.length, "problem")}`)),
      el(
        "ul",
        null,
        told.slice(0, 100).map((problem) => el("li", null, text(problem, null, 300))),
      ),
    );
  }

  harness.start("index", async (site, view) => {
    harness.title("Overview");
    const list = await harness.load("events");
    const parts = sectionsOf(list).map((one) => ({ key: one.key, ...section(site, list, one) }));
    const cases = allCases(site);
    const update = () => {
      const match = matcher(site);
      for (const part of [...parts, cases]) part.update(match);
    };
    const urgent = parts.filter(({ key }) => key === "open" || key === "unjudged");
    harness.replace(
      view,
      el("h1", null, text(site.project || "GPU history", null, 80)),
      summary(site),
      counters(site, list),
      site.commits.count === 0
        ? harness.empty(
            "The history is empty. Measure some commits with “asv run HEAD~5..HEAD”, then run “harness publish” again.",
          )
        : null,
      filters(site, update),
      urgent.map((part) => part.node),
      el(
        "section",
        { class: "section" },
        el("h2", { id: "section-cards", tabindex: "-1" }, "Cards"),
        cards(site),
      ),
      cases.glance,
      parts.filter((part) => !urgent.includes(part)).map((part) => part.node),
      cases.node,
      problems(site),
    );
    update();
    view.addEventListener("shown", () => state.get("show") && reveal(state.get("show")));
  });
})(window.harness);
