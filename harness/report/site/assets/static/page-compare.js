// Two commits of one card, or two cards: every case side by side.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;

  /** "card@commit" in two; a card's name may hold an @, a commit's cannot. */
  function parse(side) {
    const at = side.lastIndexOf("@");
    return at < 0
      ? { card: side, commit: "newest" }
      : { card: side.slice(0, at), commit: side.slice(at + 1) || "newest" };
  }

  async function resolve(site, wanted) {
    const card = site.cards.find((one) => one.file === wanted.card);
    if (!card)
      return {
        ...wanted,
        error: wanted.card
          ? `There is no card “${harness.plain(wanted.card, 60)}” here. Choose one of the list.`
          : "Choose a card.",
      };
    const position =
      wanted.commit === "newest"
        ? (card.newest?.commit ?? null)
        : await harness.findCommit(site, wanted.commit);
    if (position === null) {
      const error =
        wanted.commit === "newest"
          ? "This card has no run yet. Measure with “asv run”, then run “harness publish” again."
          : `No commit here begins with “${harness.plain(wanted.commit, 60)}”. Give at least four digits of a hash, a position or “newest”.`;
      return { ...wanted, info: card, error };
    }
    const [data, commit] = await Promise.all([
      harness.measured.block(site, card, position),
      harness.commit(site, position),
    ]);
    const row = data ? harness.measured.row(data, position) : new Map();
    const nearest = row.size ? null : await harness.measured.upTo(site, card, position);
    return {
      ...wanted,
      info: card,
      number: site.cards.indexOf(card),
      position,
      commit_: commit,
      row,
      nearest,
    };
  }

  async function defaults(site) {
    const right = state.get("right");
    const left = state.get("left");
    const first = site.cards.find((card) => card.newest) ?? site.cards[0];
    const rightSide = right ? parse(right) : { card: left ? parse(left).card : first.file, commit: "newest" };
    if (left) return [parse(left), rightSide];
    const card = site.cards.find((one) => one.file === rightSide.card);
    const before = card?.newest ? await harness.measured.upTo(site, card, card.newest.commit - 1) : null;
    return [{ card: rightSide.card, commit: before === null ? "newest" : String(before) }, rightSide];
  }

  const joined = (side) => `${side.card}@${side.commit}`;

  function picker(site, side, name, others) {
    const go = (patch) => state.go({ ...others, [name]: joined({ ...side, ...patch }) });
    const cards = site.cards.map((card) => [card.file, card.title]);
    if (!side.info) cards.unshift([side.card, "Choose a card"]);
    const title = name === "left" ? "Left" : "Right";
    const input = harness.input(`${title} commit`, side.commit.replace(/^([0-9a-f]{10})[0-9a-f]{20,}$/, "$1"), () => {}, {
      type: "text",
      placeholder: "hash, position or newest",
      onchange: (event) => go({ commit: event.target.value.trim() || "newest" }),
    });
    return el(
      "fieldset",
      { class: "side" },
      el("legend", null, title),
      harness.select(`${title} card`, cards, side.card, (card) => go({ card })),
      input,
      outcome(site, side, go),
    );
  }

  function outcome(site, side, go) {
    if (side.error) return el("p", { class: "bad", role: "alert" }, side.error);
    const { commit_: commit, row, nearest, position } = side;
    const told = el(
      "p",
      null,
      commit
        ? [
            harness.commitLink(site, commit.hash, commit.position),
            " ",
            text(commit.subject, { class: "subject" }, 120),
            ", ",
            format.date(commit.time),
          ]
        : `commit #${position}`,
      ` (#${position})`,
    );
    if (row.size) return told;
    const use =
      nearest === null
        ? " Nothing near it was measured either."
        : el(
            "button",
            { type: "button", onclick: () => go({ commit: String(nearest) }) },
            `Use #${nearest}, the newest measured before it`,
          );
    return [
      told,
      el("p", { class: "bad", role: "alert" }, "This card measured nothing at this commit. ", use),
    ];
  }

  function pairs(site, left, right, epochs) {
    const sideOf = (side) => {
      const own = new Map(site.series.filter((one) => one.card === side.number).map((one) => [one.case, one]));
      return (number) => ({ value: side.row.get(number) ?? null, ...own.get(number) });
    };
    const [of, to] = [sideOf(left), sideOf(right)];
    const numbers = [...new Set([...left.row.keys(), ...right.row.keys()])];
    const rows = numbers.map((number) => {
      const kase = site.cases[number];
      const apart = epochs ? harness.epochsApart(epochs, kase.suite, left.position, right.position) : [];
      const [a, b] = [of(number), to(number)];
      const found = harness.difference(site.pair, kase, a, b, apart);
      // Two cards differ, whatever the noise.
      if (!epochs && found.tone !== "none") found.status = found.word;
      return { kase, a: a.value, b: b.value, ...found };
    });
    return rows.sort((x, y) => x.kase.order - y.kase.order);
  }

  /** What a group of rows did together: how many, their geometric mean, the smallest and the largest change. */
  function together(label, tone, rows) {
    const logs = rows.map((row) => Math.log1p(format.timed(row.kase, row.effect)));
    const mean = Math.expm1(logs.reduce((sum, one) => sum + one, 0) / logs.length);
    const ends = [Math.min(...logs), Math.max(...logs)].map(Math.expm1);
    return { label, tone, count: rows.length, mean, ends };
  }

  function summary(site, rows) {
    const known = rows.filter((row) => row.effect !== null && format.judged(row.kase));
    if (!known.length) return el("p", { class: "sum" }, "No case has a figure on both sides.");
    const beyond = (tone) => known.filter((row) => row.tone === tone);
    const groups = [
      ["Slower or worse", "bad", beyond("bad")],
      ["Faster or better", "good", beyond("good")],
      ["All", "none", known],
    ]
      .filter(([, , list]) => list.length)
      .map((group) => together(...group));
    const columns = [
      { key: "label", label: "Right against left", cell: ({ label }) => label },
      harness.figure("count", "Cases"),
      {
        key: "mean",
        label: "Geometric mean",
        numeric: true,
        cell: ({ mean, tone }) => el("strong", { class: tone }, format.change(mean)),
      },
      { key: "range", label: "Range", numeric: true, cell: ({ ends }) => format.interval(...ends) },
    ].map(({ sort, ...column }) => column);
    return [
      harness.table(columns, { id: "order-sum", caption: "All cases together", rows: groups, stack: true }).node,
      el(
        "p",
        { class: "sum" },
        `A plus is slower. ${format.number(site.pair.level * 100, 3)} % confidence intervals, from the noise of both sides: expect ${format.number(known.length * (1 - site.pair.level), 1)} false positives. “harness compare” of the two commits says more.`,
      ),
    ];
  }

  function table(rows, left, right) {
    const head = (side) => harness.plain(`${side.info.title} #${side.position}`, 60);
    const value = (key, label, side) =>
      harness.column(
        key,
        label,
        (figure, { kase }) => el("span", { title: kase.unit }, format.value(figure, kase.unit)),
        { hint: head(side), numeric: true },
      );
    const columns = [
      {
        key: "case",
        label: "Case",
        sort: (row) => row.kase.order,
        cell: (row) => harness.caseLink(right.info, row.kase, harness.name(row.kase.name)),
      },
      value("a", "Left", left),
      value("b", "Right", right),
      {
        key: "effect",
        label: "Difference",
        sort: (row) => format.gain(row.kase, row.effect),
        hint: "Sort from worst to best",
        axis: harness.changeAxis(),
        cell: (row) =>
          row.effect === null
            ? el("span", { class: "none" }, row.why)
            : el(
                "div",
                { class: "with-balance" },
                harness.whisker(
                  format.timed(row.kase, row.effect),
                  ...(row.low === null ? [null, null] : format.timedEnds(row.kase, row.low, row.high)),
                  row.tone,
                ),
                el(
                  "span",
                  { class: row.tone },
                  `${format.effect(row.kase, row.effect)} ${row.word}`,
                  el("small", { class: "none" }, format.interval(...format.timedEnds(row.kase, row.low, row.high))),
                ),
              ),
      },
      {
        key: "status",
        label: "Verdict",
        sort: (row) => harness.VERDICTS.indexOf(row.status),
        cell: (row) =>
          el(
            "span",
            { class: row.tone },
            row.status,
            row.status && row.why ? el("small", { class: "none" }, text(row.why, null, 200)) : null,
          ),
      },
    ];
    return harness.table(columns, {
      id: "order",
      caption: "Both sides of every case",
      rows,
      stack: true,
      empty: harness.empty("No case matches. Clear the filter to see the rest."),
    });
  }

  /** What comparisons told of the problem between both commits of one card. */
  function problemChanges(told, left, right) {
    const [first, last] = [left.position, right.position].sort((a, b) => a - b);
    const between = (told ?? []).filter((one) => one.base < last && one.head > first);
    const lines = new Set(between.flatMap((one) => one.changes.map((change) => `${one.suite}: ${change}`)));
    if (!lines.size) return null;
    return el(
      "section",
      { "aria-label": "Changes of the problem" },
      el("p", { class: "bad" }, "The problem changed in between, and with it what verified means:"),
      el("ul", null, ...[...lines].map((line) => el("li", null, text(line, null, 400)))),
    );
  }

  function comparison(site, left, right, epochs) {
    if (left.error || right.error) return null;
    const rows = pairs(site, left, right, epochs);
    if (!rows.length) return harness.empty("Neither side has a figure.");
    const list = table(rows, left, right);
    const sum = el("div", { class: "summary", "aria-live": "polite" });
    function update() {
      const suite = state.get("suite");
      const matches = harness.wordFilter();
      const verdict = state.get("verdict");
      const shown = rows.filter(
        ({ kase, status }) =>
          (!suite || kase.suite === suite) && (!verdict || status === verdict) && matches(kase.name),
      );
      list.update(shown);
      harness.replace(sum, summary(site, shown));
    }
    const form = harness.form(
      { class: "filters", role: "search", "aria-label": "Filter" },
      harness.filterFields(
        rows.map((row) => row.kase.suite),
        update,
        "part of a case's name",
      ),
      harness.select(
        "Verdict",
        [["", "All"], ...harness.VERDICTS.filter((one) => rows.some((row) => row.status === one))],
        state.get("verdict") ?? "",
        (verdict) => (state.note({ verdict }), update()),
      ),
    );
    update();
    return [sum, form, list.node];
  }

  harness.start("compare", async (site, view) => {
    harness.title("Compare");
    if (!site.cards.length) {
      harness.replace(
        view,
        el("h1", null, "Compare"),
        harness.empty(
          "There is nothing to compare yet. Measure with “asv run”, then run “harness publish” again.",
        ),
      );
      return;
    }
    const [left, right] = await Promise.all((await defaults(site)).map((side) => resolve(site, side)));
    const both = { left: joined(left), right: joined(right) };
    const swap = () => state.go({ left: both.right, right: both.left });
    const ofOne = !left.error && !right.error && left.number === right.number;
    const card = ofOne ? await harness.load(`about/${left.info.file}`) : null;
    harness.replace(
      view,
      el("h1", null, "Compare"),
      el(
        "p",
        { class: "lead" },
        "Two commits of one card, or two cards. A commit is named by the first digits of its hash, its position, or “newest”.",
      ),
      harness.form(
        { class: "sides", "aria-label": "Both sides" },
        picker(site, left, "left", both),
        el("button", { type: "button", name: "swap", class: "swap", onclick: swap }, "Swap sides"),
        picker(site, right, "right", both),
      ),
      card && problemChanges(card.problem_changes, left, right),
      comparison(site, left, right, card?.epochs),
    );
  });
})(window.harness);
