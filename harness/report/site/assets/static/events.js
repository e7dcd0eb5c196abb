// What one commit did, or one card by itself, to however many cases: a row of the overview and of a commit's page.
"use strict";
(function (harness) {
  const { el, text, format, state, changes } = harness;
  const events = (harness.events = {});

  const CAUSES = {
    dependency: "A dependency or the toolchain",
    measurement: "How it is measured",
    card: "The card, not the code",
    "not the code": "Not the code",
  };

  events.isOpen = (event) => event.state === "new" || event.state === "expired";
  events.briefs = (event) => harness.objects(event.brief);

  function what(site, event) {
    const { worst } = event;
    const more = event.changes - 1;
    const rest = events.briefs(event).slice(1);
    const where = event.cards.length > 1 ? ` on ${event.cards.length} cards` : "";
    const row = (one) => {
      const kase = site.cases[one.case];
      const { word } = format.meaning(kase, one.effect);
      return el(
        "li",
        null,
        el("a", { href: changes.address(site, one) }, harness.name(kase.name)),
        " on ",
        text(site.cards[one.card].title, null, 60),
        ` ${format.effect(kase, one.effect)} ${word}`,
        one.state === event.state ? null : [" ", changes.state(one)],
      );
    };
    return changes.caseCell(
      site,
      worst,
      event,
      more > 0
        ? el(
            "details",
            null,
            el("summary", null, `and ${format.count(more, "more change")} of ${format.count(event.cases, "case")}${where}`),
            el("ul", { class: "plain" }, rest.map(row), more > rest.length ? el("li", null, `… ${more - rest.length} more`) : null),
          )
        : null,
      harness.commandsOf(site, worst, event),
    );
  }

  function suspects(site, event) {
    const exact = event.commits === 1 || event.accused !== null;
    const [first, ...others] = event.suspects;
    const line = (one) => [
      harness.commitLink(site, one.hash, one.position),
      " ",
      text(one.subject, { class: "subject" }, 120),
    ];
    const rest = event.commits - event.suspects.length;
    if (event.kind === "drift") return changes.slide(site, event);
    return el(
      "div",
      { class: "commit" },
      leading(event, exact),
      line(first),
      el("small", null, text(first.author, null, 60)),
      exact
        ? event.commits > 1 && event.accused !== null
          ? el("small", null, `alone of ${format.whole(event.commits)} it touches what changed`)
          : null
        : others.map((one) => el("small", null, line(one))),
      !exact && rest > 0 ? el("small", null, `and ${format.whole(rest)} more`) : null,
      event.loose ? el("small", null, `${event.loose} of ${format.count(event.cases, "case")} may be of other commits`) : null,
    );
  }

  /** What is said above the suspects. */
  function leading(event, exact) {
    if (event.likely === 0) {
      const who = event.commits === 1 ? "this one" : `none of ${format.whole(event.commits)}`;
      return el("small", null, `no commit is accused: ${who} touches ${event.commits === 1 ? "no " : ""}code`);
    }
    return exact ? null : el("small", null, `at least one of ${format.whole(event.commits)}, likeliest first:`);
  }

  function cause(event) {
    const byPaths = event.cause === "code" && event.worst.attribution !== "code";
    const told = byPaths ? "Code, by the files it touches" : CAUSES[event.cause];
    // What cycles and clocks do not tell, files do.
    if (told && event.worst.attribution === "unknown") return el("div", { class: "cause" }, changes.cause(event.worst, told));
    return el("div", { class: "cause" }, changes.cause(event.worst), told ? el("small", null, told) : null);
  }

  /** The columns of a table of events. */
  events.columns = (site) => [
    {
      key: "case",
      label: "Case and card",
      wide: true,
      sort: (event) => site.cases[event.worst.case].name,
      cell: (event) => what(site, event),
    },
    { ...changes.effectColumn(site, (event) => event.worst), hint: "Sort by the largest effect" },
    {
      key: "commit",
      label: "Commit",
      sort: (event) => event.bad,
      down: true,
      cell: (event) => suspects(site, event),
    },
    { key: "cause", label: "Cause", sort: (event) => event.worst.attribution, cell: cause },
    changes.sinceColumn((event) => event.suspects[0]),
  ];

  /** Whether an event is of a card's. */
  events.onCard = (site, event, file) => event.cards.some((number) => site.cards[number].file === file);
})(window.harness);
