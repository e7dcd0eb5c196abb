// How a change of a case is told: effect, commits, cause, state. The overview and the case page share it.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const changes = (harness.changes = {});
  const STATES = {
    unjudged: "unjudged",
    stale: "stale: not measured for long",
    new: "open",
    expired: "open again: its acknowledgement expired",
    acknowledged: "acknowledged",
    fixed: "fixed",
  };

  changes.address = (site, change) =>
    state.address("case", {
      card: site.cards[change.card]?.file,
      case: site.cases[change.case]?.name,
      change: change.id,
    });

  changes.shape = (change) =>
    ({ regression: "down", drift: "down", improvement: "up" })[change.kind] ?? "diamond";

  /** An interval of a change of time, drawn; the words beside it say the same. */
  function whisker(kase, change, tone) {
    if (!format.known(change.low) || !format.known(change.high)) return null;
    const [low, high] = format.timedEnds(kase, change.low, change.high);
    return harness.whisker(format.timed(kase, change.effect), low, high, tone);
  }

  const interval = (kase, change) =>
    format.known(change.low) && format.known(change.high)
      ? format.interval(...format.timedEnds(kase, change.low, change.high))
      : "";

  changes.effect = function (site, change) {
    const kase = site.cases[change.case];
    const { word, tone } = format.meaning(kase, change.effect);
    const exact = change.low === change.high && format.known(change.before); // no percentage tells a step from 0
    const meant = change.state === "unjudged" ? "unjudged" : change.kind === "environment" ? "none" : tone;
    return el(
      "div",
      { class: `effect ${meant}` },
      el("strong", null, exact ? changes.levels(site, change) : format.effect(kase, change.effect)),
      " ",
      el("span", { class: "word" }, word),
      exact ? null : whisker(kase, change, meant),
      el(
        "small",
        null,
        change.state === "unjudged"
          ? "no interval yet"
          : exact
            ? ""
            : [interval(kase, change), format.probability(change.p_value)]
                .filter(Boolean)
                .join(", "),
      ),
    );
  };

  /** What happened, in words, with a minus where a terminal has a hyphen. */
  changes.sentence = (change) => text((change.sentence ?? "").replace(/(?<![\w.-])-(?=\d)/g, "−"), null, 400);

  /** Why a change is there, by counters and compiled code: what "--explain" of a comparison found. */
  changes.why = function (change, letter) {
    if (!change.diagnosis) return null;
    const { why, counters, loop } = change.diagnosis;
    return harness.section(
      `Reason of change ${letter}`,
      el("p", null, text(why, null, 600)),
      counters ? fold("Hardware counters of a launch", "", counterTable(counters)) : null,
      loop ? fold(loop.title, [loop.places, loop.told].filter(Boolean).join(": "), codeTable(loop)) : null,
    );
  };

  const fold = (title, told, table) =>
    el("details", { class: "quietly" }, el("summary", null, text(title)), told ? el("p", null, text(told, null, 400)) : null, table.node);

  const counterTable = (rows) =>
    harness.table(
      ["Counter (waits in cycles)", "Base", "Head", "Change %"].map((label, index) => ({
        key: label,
        label,
        numeric: index > 0,
        cell: (row) => text(row[index].replace(/^-/, "−")),
      })),
      { id: "order-counters", caption: "Hardware counters of a launch", rows },
    );

  const SIDES = { added: "head alone", removed: "base alone", readdressed: "other addresses", alike: "both" };

  const codeTable = (loop) =>
    harness.table(
      [
        { key: "code", label: "Instruction", cell: (line) => (line.text ? el("code", null, text(line.text)) : "alike") },
        { key: "side", label: "In", cell: (line) => SIDES[line.change] ?? "" },
        { key: "n", label: "Number", numeric: true, cell: (line) => format.whole(line.count) },
        { key: "line", label: "Line", cell: (line) => harness.name(line.place) },
      ],
      { id: "order-code", caption: loop.title, rows: loop.lines },
    );

  changes.levels = (site, change) => {
    const { unit } = site.cases[change.case];
    return `${format.number(change.before)} → ${format.value(change.after, unit)}`;
  };

  /** Of a drift: no commit did it, so none is named but where it begins and ends. */
  changes.slide = (site, change) =>
    el(
      "div",
      { class: "commit" },
      "no single commit: it slides from ",
      harness.commitLink(site, change.good_hash, change.good),
      " to ",
      harness.commitLink(site, change.bad_hash, change.bad),
    );

  changes.commits = function (site, change) {
    if (change.kind === "drift") return changes.slide(site, change);
    const range =
      change.commits > 1
        ? el(
            "small",
            null,
            `one of ${format.whole(change.commits)} commits after `,
            harness.commitLink(site, change.good_hash, change.good),
          )
        : null;
    return el(
      "div",
      { class: "commit" },
      harness.commitLink(site, change.bad_hash, change.bad),
      " ",
      text(change.subject, { class: "subject" }, 120),
      el("small", null, text(change.author, null, 60)),
      range,
    );
  };

  function evidence(change) {
    const parts = [];
    if (format.known(change.cycles_effect)) parts.push(`cycles ${format.change(change.cycles_effect)}`);
    if (format.known(change.clock_before) && format.known(change.clock_after)) {
      const same = Math.abs(change.clock_after / change.clock_before - 1) < 0.003;
      const clocks = same
        ? format.whole(change.clock_after)
        : `${format.whole(change.clock_before)} → ${format.whole(change.clock_after)}`;
      parts.push(`SM clock ${clocks} MHz`);
    }
    return parts.join(", ");
  }

  /** What did it, by cycles and clocks, or as `told`. */
  changes.cause = function (change, told = "") {
    const [name, sentence] = format.cause(change.attribution);
    return el(
      "div",
      { class: "cause" },
      el("strong", { title: told ? null : sentence }, told || name),
      el("small", null, evidence(change)),
      [...(change.static ?? []), ...(change.shifts ?? [])]
        .slice(0, 6)
        .map((difference) => el("small", { class: "static" }, text(difference, null, 80))),
    );
  };

  changes.triage = function (change) {
    if (!change.triage) return null;
    const { reason, author, expires, largest_percent: largest } = change.triage;
    return el(
      "small",
      { class: "triage" },
      "Acknowledged by ",
      text(author, null, 60),
      ": ",
      text(reason),
      expires ? ` (until ${format.date(expires)}` : " (for good",
      format.known(largest) ? `, up to ${format.number(largest)}${"\u00a0"}%)` : ")",
    );
  };

  changes.state = function (change) {
    const words = STATES[change.state];
    return words ? el("span", { class: `tag ${change.state}` }, words) : null;
  };

  /** Case, card and words of a change; its state is that of `stated`, which may be its event. */
  changes.caseCell = function (site, change, stated = change, ...more) {
    const kase = site.cases[change.case];
    return el(
      "div",
      { class: "what" },
      el("a", { href: changes.address(site, change) }, harness.name(kase.name)),
      el(
        "small",
        null,
        "on ",
        text(site.cards[change.card].title, null, 80),
        stated.state === "expired" ? [" ", changes.state(stated)] : null,
      ),
      change.sentence ? el("p", null, changes.sentence(change)) : null,
      changes.triage(change),
      more,
    );
  };

  /** Columns of a table of whose rows `of` gives the change. */
  changes.commitColumn = (site, of) => ({
    key: "commit",
    label: "Commit",
    sort: (row) => of(row).bad,
    down: true,
    cell: (row) => changes.commits(site, of(row)),
  });
  changes.causeColumn = (of) => ({
    key: "cause",
    label: "Cause",
    sort: (row) => of(row).attribution,
    cell: (row) => changes.cause(of(row)),
  });
  changes.effectColumn = (site, of) => ({
    key: "effect",
    label: "Effect, 99.9 % interval",
    axis: harness.changeAxis(),
    sort: (row) => Math.abs(of(row).effect),
    down: true,
    cell: (row) => changes.effect(site, of(row)),
  });
  changes.sinceColumn = (of) => ({
    key: "since",
    label: "Since",
    sort: (row) => of(row).time,
    down: true,
    cell: (row) =>
      el("div", { class: "since" }, format.time(of(row).time), el("small", null, format.ago(of(row).time))),
  });

  /** The columns of a table of changes on the overview. */
  changes.columns = (site) => [
    {
      key: "case",
      label: "Case and card",
      wide: true,
      cell: (c) => changes.caseCell(site, c),
      sort: (c) => site.cases[c.case].name,
    },
    { ...changes.effectColumn(site, (c) => c), hint: "Sort by size of the effect" },
    changes.commitColumn(site, (c) => c),
    changes.causeColumn((c) => c),
    changes.sinceColumn((c) => c),
  ];
})(window.harness);
