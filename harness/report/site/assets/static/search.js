// Searches cases, kernels, cards and commits. A page loads it when it is first asked for.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const MOST = 12;

  /** The best of a list: every word is in its text; sooner and shorter is better. */
  function best(words, list, textOf) {
    const found = [];
    for (const one of list) {
      const hay = textOf(one).toLowerCase();
      if (words.every((word) => hay.includes(word)))
        found.push({ one, at: words.length ? hay.indexOf(words[0]) : 0, length: hay.length });
    }
    found.sort((a, b) => a.at - b.at || a.length - b.length);
    return found.map(({ one }) => one);
  }

  async function commitOf(site, words) {
    const named = words.length === 1 && /^[0-9a-f]{4,64}$/.test(words[0]);
    const position = named ? await harness.findCommit(site, words[0]).catch(() => null) : null;
    const commit = position === null ? null : await harness.commit(site, position);
    return commit
      ? [{ href: state.address("commit", { commit: commit.hash }), name: format.short(commit.hash), note: commit.subject }]
      : [];
  }

  /** What the words lead to, as links: [{href, name, note}]. */
  async function results(site, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const cards = best(words, site.cards, (card) => `${card.name} ${card.gpu}`).map((card) => ({
      href: state.address("card", { card: card.file }),
      name: card.title,
      note: card.name,
    }));
    const kernels = new Map(site.cases.map((kase) => [`${kase.suite}.${kase.kernel}`, kase]));
    const ofKernels = best(words, [...kernels.keys()], (name) => name).map((name) => ({
      href: state.address("index", { q: name, show: "cases" }),
      name,
      note: "every case of this kernel",
    }));
    const cases = best(words, site.series, (one) => `${site.cases[one.case].name} ${site.cards[one.card].name}`);
    const ofCases = cases.slice(0, MOST).map((one) => ({
      href: state.address("case", { card: site.cards[one.card].file, case: site.cases[one.case].name }),
      name: site.cases[one.case].name,
      note: `on ${site.cards[one.card].title}`,
    }));
    return [
      ...(await commitOf(site, words)),
      ...cards.slice(0, 3),
      ...(kernels.size > 1 ? ofKernels.slice(0, 3) : []),
      ...ofCases,
    ].slice(0, MOST);
  }

  function dialog(site) {
    const list = el("ul", { class: "found", id: "found", role: "listbox", "aria-label": "Found" });
    let shown = [];
    let chosen = 0;
    let turn = 0;
    const input = el("input", {
      type: "search",
      name: "Search",
      role: "combobox",
      "aria-label": "Search cases, kernels, cards and commits",
      "aria-controls": "found",
      "aria-expanded": "true",
      placeholder: "case, kernel, card, or digits of a commit",
      autocomplete: "off",
      spellcheck: "false",
    });
    const node = el(
      "dialog",
      { class: "search", "aria-label": "Search" },
      input,
      list,
      el("p", { class: "keys" }, "↑ ↓ choose, Enter opens, Esc closes"),
    );
    function draw() {
      harness.replace(
        list,
        shown.map(({ href, name, note }, index) =>
          el(
            "li",
            { role: "option", id: `found-${index}`, "aria-selected": String(index === chosen) },
            el("a", { href, tabindex: "-1", onclick: () => node.close() }, harness.name(name), el("small", null, text(note, null, 100))),
          ),
        ),
      );
      if (!shown.length && input.value.trim()) list.append(el("li", { class: "none" }, "Nothing is called so."));
      if (shown.length) input.setAttribute("aria-activedescendant", `found-${chosen}`);
      else input.removeAttribute("aria-activedescendant");
      list.children[chosen]?.scrollIntoView({ block: "nearest" });
    }
    input.addEventListener("input", async () => {
      const mine = ++turn;
      const found = await results(site, input.value);
      if (mine !== turn) return;
      [shown, chosen] = [found, 0];
      draw();
    });
    input.addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (move && shown.length) {
        event.preventDefault();
        chosen = (chosen + move + shown.length) % shown.length;
        draw();
      } else if (event.key === "Enter" && shown[chosen]) {
        event.preventDefault();
        list.children[chosen].querySelector("a").click();
      }
    });
    node.addEventListener("click", (event) => event.target === node && node.close());
    node.addEventListener("close", () => node.remove());
    document.body.append(node);
    node.showModal();
    input.focus();
  }

  harness.openSearch = (site) => document.querySelector("dialog.search") ?? dialog(site);
})(window.harness);
