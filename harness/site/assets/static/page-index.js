// The overview: what is open now, what else happened, the cards, and a way to every case.
"use strict";
(function (harness) {
  const { el, text, format, state, changes } = harness;

  const SECTIONS = [
    { key: "open", title: "Open regressions", test: changes.isOpen, empty: "No regression is open." },
    {
      key: "improvement",
      title: "Improvements",
      test: (c) => c.kind === "improvement",
      empty: "No improvement is on record.",
    },
    {
      key: "environment",
      title: "Changes of clocks, heat, power and environment",
      test: (c) => c.kind === "environment",
      empty: "No figure moved without the code.",
      grouped: true,
    },
    {
      key: "acknowledged",
      title: "Acknowledged regressions",
      test: (c) => c.state === "acknowledged",
      empty: "None is acknowledged.",
      folded: true,
    },
    {
      key: "fixed",
      title: "Fixed regressions",
      test: (c) => c.state === "fixed" && c.kind === "regression",
      empty: "None has been fixed yet.",
      folded: true,
    },
  ];

  function matcher(site) {
    const card = state.get("card");
    const suite = state.get("suite");
    const matches = harness.wordFilter();
    return {
      active: Boolean(card || suite || state.get("q")?.trim()),
      change(c) {
        const kase = site.cases[c.case];
        if (card && site.cards[c.card].file !== card) return false;
        if (suite && kase.suite !== suite) return false;
        const where = [kase.name, site.cards[c.card].name];
        const what = [c.subject, c.author, c.bad_hash, c.sentence, format.cause(c.attribution)[0]];
        return matches([...where, ...what].join(" "));
      },
      kase: (kase) => (!suite || kase.suite === suite) && matches(kase.name),
      card,
    };
  }

  /** How many there are in all; the list has only the newest hundreds. */
  const counted = (site, key) =>
    key === "open" ? (site.counts.new ?? 0) + (site.counts.expired ?? 0) : (site.counts[key] ?? 0);

  function summary(site, list) {
    const open = Math.max(counted(site, "open"), list.filter(changes.isOpen).length);
    const { newest } = site.commits;
    const verdict = open
      ? `${format.count(open, "regression is", "regressions are")} open.`
      : "No regression is open.";
    return el(
      "div",
      { class: "lead" },
      el("p", { class: `verdict ${open ? "bad" : "good"}` }, verdict),
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

  /** The commits behind what is open, worst first: where to look. */
  function suspects(site, list) {
    const open = list.filter(changes.isOpen);
    if (open.length < 2) return null;
    const groups = new Map();
    for (const change of open) groups.set(change.bad, [...(groups.get(change.bad) ?? []), change]);
    const worst = (group) => Math.max(...group.map((change) => Math.abs(change.effect)));
    const ordered = [...groups.values()].sort((a, b) => b.length - a.length || worst(b) - worst(a));
    const rest = ordered.length - 5;
    const row = (group) => {
      const cards = new Set(group.map((change) => change.card)).size;
      const cases = new Set(group.map((change) => change.case)).size;
      const [first] = group;
      const among = first.commits > 1 ? " or one shortly before" : "";
      return el(
        "li",
        null,
        harness.commitLink(site, first.bad_hash, first.bad),
        " ",
        text(first.subject, { class: "subject" }, 100),
        el(
          "small",
          null,
          `${among ? `${among.trim()}: ` : ""}${format.count(cases, "case")} on ${format.count(cards, "card")}, up to ${format.share(worst(group))}`,
        ),
      );
    };
    return el(
      "section",
      { class: "suspects" },
      el("h2", null, "Where to look"),
      el("ol", null, ordered.slice(0, 5).map(row)),
      rest > 0 ? el("p", { class: "more" }, `and ${format.count(rest, "commit")} more`) : null,
    );
  }

  function counters(site, list) {
    return el(
      "ul",
      { class: "counters" },
      SECTIONS.map(({ key, title, test }) => {
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
    const cards = [["", "All cards"], ...site.cards.map((card) => [card.file, card.name])];
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

  function section(site, list, { key, title, test, empty, folded, grouped }) {
    const all = list.filter(test);
    const listed = (shown) => (grouped ? changes.group(shown) : shown);
    const count = el("span", { class: "count" });
    const heading = el("h2", { id: `section-${key}`, tabindex: "-1" }, title, " ", count);
    const table = harness.table(grouped ? changes.groupColumns(site) : changes.columns(site), {
      id: `order-${key}`,
      caption: title,
      rows: listed(all),
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
            `${format.count(missing, "older one is", "older ones are")} not listed here; the page of each case has all of its own.`,
          )
        : null;
    const node = folded
      ? el("details", { class: "section" }, el("summary", null, heading), table.node, rest)
      : el("section", { class: "section" }, heading, table.node, rest);
    function update(match) {
      const shown = all.filter(match.change);
      table.update(listed(shown));
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
    if (!card.calibration) return el("a", { href: address }, "Not calibrated");
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
        sort: (card) => card.name,
        cell: (card) =>
          el(
            "div",
            { class: "what" },
            el("a", { href: state.address("card", { card: card.file }) }, harness.name(card.name, 100)),
            el(
              "small",
              null,
              text(card.gpu, null, 100),
              card.driver ? [", driver ", text(card.driver, null, 40)] : null,
            ),
            badge(card),
          ),
      },
      {
        key: "open",
        label: "Open",
        numeric: true,
        sort: (card) => card.open,
        cell: (card) => el("span", { class: card.open ? "bad" : null }, format.whole(card.open)),
      },
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

  /** A row per case, a column per card: the newest figure and where it went in 90 days. */
  function allCases(site) {
    const byCase = new Map();
    for (const one of site.series) {
      if (!byCase.has(one.case)) byCase.set(one.case, new Map());
      byCase.get(one.case).set(one.card, one);
    }
    const rows = site.cases
      .map((kase, index) => ({ kase, series: byCase.get(index) ?? new Map() }))
      .filter((row) => row.series.size);
    rows.sort((a, b) => a.kase.order - b.kase.order);
    const box = el("div");
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
    }
    function column(card, number) {
      return {
        key: `card-${number}`,
        label: harness.plain(card.name, 34),
        numeric: true,
        hint: "Sort by change over 90 days",
        sort: (row) => row.series.get(number)?.effect_90,
        cell: (row) => {
          const one = row.series.get(number);
          if (!one) return el("span", { class: "none" }, format.NONE);
          const moved = format.moved(row.kase, one.effect_90, one.floor);
          return el(
            "div",
            { class: "figure" },
            harness.caseLink(card, row.kase, format.value(one.last, row.kase.unit)),
            el("small", { class: moved.tone }, moved.text),
          );
        },
      };
    }
    const heading = el("h2", { id: "section-cases", tabindex: "-1" }, "All cases");
    return { node: el("section", { class: "section" }, heading, box), update };
  }

  function problems(site) {
    if (!site.problems.length) return null;
    return el(
      "details",
      { class: "section note" },
      el("summary", null, el("h2", null, `Not read: ${format.count(site.problems.length, "problem")}`)),
      el(
        "ul",
        null,
        site.problems.slice(0, 100).map((problem) => el("li", null, text(problem, null, 300))),
      ),
    );
  }

  harness.start("index", async (site, view) => {
    harness.title("Overview");
    const list = await harness.load("changes");
    const parts = SECTIONS.map((one) => section(site, list, one));
    const cases = allCases(site);
    const update = () => {
      const match = matcher(site);
      for (const part of [...parts, cases]) part.update(match);
    };
    const open = parts[0];
    harness.replace(
      view,
      el("h1", null, text(site.project || "GPU history", null, 80)),
      summary(site, list),
      counters(site, list),
      suspects(site, list),
      site.commits.count === 0
        ? harness.empty(
            "The history is empty. Measure some commits with “asv run HEAD~5..HEAD”, then run “harness publish” again.",
          )
        : null,
      filters(site, update),
      open.node,
      el(
        "section",
        { class: "section" },
        el("h2", { id: "section-cards", tabindex: "-1" }, "Cards"),
        cards(site),
      ),
      parts.slice(1).map((part) => part.node),
      cases.node,
      problems(site),
    );
    update();
    view.addEventListener("shown", () => state.get("show") && reveal(state.get("show")));
  });
})(window.harness);
