// What all pages share: header, footer, the way a page starts, and what it says when it cannot.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const SCHEMA = 2;
  const PAGES = [
    ["index", "Overview"],
    ["card", "Cards"],
    ["ladder", "Ladders"],
    ["compare", "Compare"],
    ["calibration", "Calibration"],
  ];

  function header(name, site, search) {
    const ladders = (site?.suites ?? []).some((suite) => suite.ladders.length);
    const some = { ladder: ladders, calibration: (site?.cards ?? []).some((card) => card.calibration) };
    const pages = PAGES.filter(([page]) => (some[page] ?? true) || page === name);
    const links = pages.map(([page, label]) => {
      const current = page === name || (page === "card" && (name === "case" || name === "run"));
      return el(
        "li",
        null,
        el(
          "a",
          { href: `${page}.html`, "aria-current": page === name ? "page" : current ? "true" : null },
          label,
        ),
      );
    });
    // asv's pages fetch their data, which no browser allows from a disk.
    if (site?.asv && location.protocol !== "file:") links.push(el("li", null, el("a", { href: "../index.html" }, "asv")));
    const button = el("button", {
      type: "button",
      class: "quiet",
      id: "theme",
      onclick: harness.toggleTheme,
    });
    const label = () =>
      harness.replace(
        button,
        harness.theme() === "dark" ? "Light" : "Dark",
        el("span", { class: "hidden" }, " colours"),
      );
    label();
    document.addEventListener("harness-theme", label);
    harness.replace(
      document.getElementById("top"),
      el(
        "div",
        { class: "bar" },
        el("a", { class: "brand", href: "index.html" }, mark(), text(site?.project || "harness", null, 40)),
        el("nav", { "aria-label": "Pages" }, el("ul", null, links)),
        search,
        button,
      ),
    );
  }

  function mark() {
    return harness.svg(
      "svg",
      { viewBox: "0 0 20 20", width: 20, height: 20, "aria-hidden": "true" },
      harness.svg("path", { class: "mark", d: "M1 6h7v7h11" }),
      harness.svg("circle", { class: "mark-dot", cx: 8, cy: 13, r: 2.4 }),
    );
  }

  function footer(site) {
    harness.replace(
      document.getElementById("end"),
      el(
        "p",
        null,
        site
          ? [
              `Published ${format.dateTime(site.generated_at)} by harness `,
              text(site.harness_version, null, 40),
              ". ",
            ]
          : null,
        el("a", { href: "feed.xml" }, "Feed of changes (Atom)"),
        ". ",
        el("a", { href: "static/vendor/LICENSES.txt" }, "Licences"),
        ".",
      ),
    );
  }

  const typing = (target) => /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) || target.isContentEditable;

  /** A button that opens the search, as "/" does anywhere. */
  function searchButton(site) {
    const open = async () => {
      await harness.loadScript("static/search.js");
      harness.openSearch(site);
    };
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      event.preventDefault();
      open();
    });
    return el(
      "button",
      { type: "button", class: "quiet", id: "search", onclick: open, title: "Search", "aria-keyshortcuts": "/" },
      "Search",
      el("kbd", { "aria-hidden": "true" }, "/"),
    );
  }

  /** Says on the page what went wrong and what to do. */
  harness.showProblem = function (node, problem) {
    const advice =
      problem.advice ??
      "Load the page again. If that does not help, report this with the address of the page.";
    harness.replace(
      node,
      el(
        "section",
        { class: "problem", role: "alert" },
        el("h1", null, "This page cannot be shown"),
        el("p", null, text(problem.message)),
        el("p", null, advice),
        el("p", null, harness.link("index.html", "Go to the overview")),
      ),
    );
    harness.title("Cannot be shown");
  };

  harness.title = function (...parts) {
    document.title = [...parts.map((part) => harness.plain(part, 80)), harness.siteTitle].join(" · ");
  };

  /** Where a page is, below the overview. */
  harness.crumbs = (...parts) =>
    el(
      "nav",
      { class: "crumbs", "aria-label": "Where this is" },
      el(
        "ol",
        null,
        [harness.link("index.html", "Overview"), ...parts].map((part) => el("li", null, part)),
      ),
    );

  harness.noCards = () =>
    harness.empty("No card has results yet. Measure with “asv run”, then run “harness publish” again.");

  harness.empty = (...children) => el("p", { class: "empty" }, ...children);

  function check(site) {
    if (!(site?.schema >= 1))
      throw new harness.Problem("data/site.js is damaged: it has no schema.", "Run “harness publish” again.");
    if (site.schema > SCHEMA) {
      throw new harness.Problem(
        `The data has schema ${site.schema}, newer than the ${SCHEMA} these pages know.`,
        "The pages are older than their data. Publish again with the newest harness, or clear the browser's cache.",
      );
    }
  }

  /** Cards as readers name them: by the device, and by host or name where several have the same. */
  function titled(cards) {
    const shared = (card, key) => cards.some((one) => one !== card && one.gpu === card.gpu && one[key] === card[key]);
    return cards.map((card) => {
      const apart = shared(card, "kind") ? (card.host && !shared(card, "host") ? card.host : card.name) : "";
      return { ...card, title: card.gpu ? card.gpu + (apart && ` (${apart})`) : card.name };
    });
  }

  function skipLink() {
    const main = document.getElementById("main");
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the part after # is the state of the view
      main.focus();
      main.scrollIntoView();
    });
  }

  /** Starts a page: `draw(site, view)` now and whenever the view in the address changes. */
  harness.start = async function (name, draw) {
    const main = document.getElementById("main");
    harness.siteTitle = "GPU history";
    skipLink();
    header(name, null);
    footer(null);
    let site;
    let turn = 0;
    async function show() {
      const mine = ++turn;
      const view = el("div", { class: "view" });
      try {
        // A slower, older drawing must not replace a newer one.
        await draw(site, view);
        if (mine !== turn) return;
        const focused = main.contains(document.activeElement)
          ? document.activeElement.getAttribute("name")
          : null;
        harness.replace(main, view);
        if (focused) main.querySelector(`[name="${CSS.escape(focused)}"]`)?.focus();
        view.dispatchEvent(new CustomEvent("shown"));
      } catch (problem) {
        if (mine !== turn) return;
        if (!(problem instanceof harness.Problem)) console.error(problem);
        harness.showProblem(main, problem);
      }
      main.dataset.ready = String(mine);
    }
    try {
      const given = await harness.load("site");
      check(given);
      site = { ...given, cards: titled(given.cards), cases: harness.objects(given.cases), series: harness.objects(given.series) };
      harness.ofPublication(site.generated_at);
      harness.siteTitle = harness.plain(site.project || "GPU history", 60);
      header(name, site, searchButton(site));
      footer(site);
    } catch (problem) {
      harness.showProblem(main, problem);
      main.dataset.ready = "1";
      return;
    }
    state.listen(show);
    await show();
  };

  /** Finds the card that the address names; a Problem where there is none. */
  harness.wantedCard = function (site, file = state.get("card")) {
    const index = site.cards.findIndex((card) => card.file === file);
    if (index >= 0) return index;
    throw new harness.Problem(
      file ? `There is no card “${harness.plain(file, 60)}” here.` : "The address names no card.",
      "Choose a card on the overview. A card that was renamed has its new name there.",
    );
  };

  harness.cardLink = (card, longest = 60) =>
    harness.link(state.address("card", { card: card.file }), text(card.title, null, longest));

  harness.caseLink = (card, kase, ...words) =>
    harness.link(state.address("case", { card: card.file, case: kase.name }), ...words);

  harness.cardSelect = (site, card) =>
    harness.select(
      "Card",
      site.cards.map((one) => [one.file, one.title]),
      card.file,
      (file) => state.go({ card: file }),
    );

  /** A suite and words to filter by; update is called once either changed. */
  harness.filterFields = function (suites, update, placeholder) {
    const note = (key) => (value) => {
      state.note({ [key]: value });
      update();
    };
    const options = [["", "All suites"], ...new Set(suites)];
    return [
      harness.select("Suite", options, state.get("suite") ?? "", note("suite")),
      harness.input("Text", state.get("q") ?? "", note("q"), { placeholder }),
    ];
  };

  /** Whether a text holds all the words that are filtered by. */
  harness.wordFilter = function () {
    const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return (hay) => words.every((word) => hay.toLowerCase().includes(word));
  };

  harness.health = (card) =>
    el(
      "ul",
      { class: "health" },
      card.health.map(({ level, text: words }) =>
        el("li", { class: level }, el("span", { class: "hidden" }, `${level}: `), text(words)),
      ),
    );

  /** To the page of a commit; its position saves looking for it, and null says that it is not of this history. */
  harness.commitLink = function (site, hash, position) {
    const short = el("code", null, format.short(hash));
    if (position === null) return short;
    return harness.link(state.address("commit", { commit: hash, at: position }), short);
  };
})(window.harness);
