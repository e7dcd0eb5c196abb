// Commands to copy, addresses of the repository's own pages, and what stands in both.
"use strict";
(function (harness) {
  const { el } = harness;

  /** A word of a command line, quoted where a shell would read it otherwise. */
  function shellWord(word) {
    const plain = harness.plain(word, 400);
    return /^[\w@%+=:,./-]+$/.test(plain) ? plain : `'${plain.replaceAll("'", "'\\''")}'`;
  }

  async function copy(words) {
    try {
      await navigator.clipboard.writeText(words);
      return true;
    } catch {
      // A page from a disk, or of plain http, may have no clipboard but the older one.
      const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
      area.value = words;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  /** A command, shown whole, with a button that copies it. `words` are quoted as a shell needs it. */
  harness.command = function (label, ...words) {
    const line = words.map(shellWord).join(" ");
    const button = el(
      "button",
      {
        type: "button",
        class: "copy",
        title: `Copy: ${line}`,
        onclick: async () => {
          const done = await copy(line);
          harness.replace(button, done ? "Copied" : "Select it, then copy");
          setTimeout(() => harness.replace(button, label), 1600);
        },
      },
      label,
    );
    return el("span", { class: "command" }, button, el("code", null, line));
  };

  /** Cards that no command here measures: what was compiled and not run, and what another harness timed. */
  const ELSEWHERE = /^(static|nvbench|google-benchmark|pytest-benchmark|hyperfine|lines|csv|github-action-benchmark|bencher)-/;

  const ofSuite = (kase) => kase.name.startsWith(`${kase.suite}.${kase.kernel}@`);

  /** The command that measures two commits again, asv's where all benchmarks are its own; null where no card can. */
  harness.compareCommand = function (site, from, to) {
    if (site.cards.every((card) => ELSEWHERE.test(card.name))) return null;
    const program = site.cases.some(ofSuite) ? ["harness", "compare"] : ["asv", "continuous"];
    const command = harness.command("Copy compare", ...program, from.slice(0, 10), to.slice(0, 10));
    return el("div", { class: "commands" }, command);
  };

  /**
   * The commands about a change, or about an event of which it is the worst; at hand where only they can tell more.
   */
  harness.commandsOf = function (site, change, shown = change) {
    if (shown.kind === "environment" && shown.state !== "unjudged") return null;
    const [kase, card] = [site.cases[change.case], site.cards[change.card]];
    const [from, to] = [change.good_hash, change.bad_hash].map((hash) => hash.slice(0, 10));
    const isSuite = ofSuite(kase);
    // A machine is called by its card, unless it has none.
    const backend = /^(opencl|opengl|cpu|null)\b/.exec(card.name);
    const device = backend ? ["--device", backend[0]] : [];
    const asv = ["asv", "continuous", "--bench", `^${kase.name.replace(/\(.*/, "").replaceAll(".", "\\.")}`, from, to];
    const compare = isSuite ? ["harness", "compare", `${from}..${to}`, kase.name, ...device] : asv;
    const parts = [];
    const isMeasured = !ELSEWHERE.test(card.name);
    if (isMeasured) parts.push(harness.command("Copy compare", ...compare));
    if (isMeasured && isSuite && shown.state !== "unjudged" && shown.kind !== "drift")
      parts.push(harness.command("Copy bisect", "harness", "bisect", kase.name, from, to, ...device));
    if (shown.state === "new" || shown.state === "expired") {
      const decided = ["--reason", "why", "--author", "who"];
      parts.push(harness.command("Copy acknowledge", "harness", "history", "--acknowledge", shown.id, ...decided));
    }
    if (!parts.length) return null;
    const list = el("div", { class: "commands" }, parts);
    return shown.state === "unjudged" ? list : el("details", { class: "quietly" }, el("summary", null, "Commands"), list);
  };

  const isHash = (hash) => /^[0-9a-fA-F]+$/.test(hash ?? "");

  /** Where the repository is looked at: {commit, diff, source}, each null where its host is not known to have it. */
  harness.repository = function (site) {
    const url = site.commit_url ?? "";
    const known = /^https?:\/\//.test(url);
    const base = known && url.endsWith("/commit/{}") ? url.slice(0, -"commit/{}".length) : null;
    const gitea = base && /^https?:\/\/[^/]*(codeberg|gitea|forgejo)/.test(url);
    const path = (file) => file.split("/").map(encodeURIComponent).join("/");
    return {
      commit: (hash) => (known && isHash(hash) ? url.replace("{}", hash) : null),
      diff: (from, to) => (base && isHash(from) && isHash(to) ? `${base}compare/${from}...${to}` : null),
      source: (hash, file, line) =>
        base && isHash(hash)
          ? `${base}${gitea ? "src/commit" : "blob"}/${hash}/${path(file)}${line ? `#L${line}` : ""}`
          : null,
    };
  };

  /** A link away from these pages; the words alone where there is no address. */
  harness.away = (href, ...words) => (href ? el("a", { href, rel: "noreferrer" }, ...words) : el("span", null, ...words));
})(window.harness);
