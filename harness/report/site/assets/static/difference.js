// Two figures of one case, and what their noise lets be said of them: the words are those of a comparison.
"use strict";
(function (harness) {
  const { format } = harness;
  const FILES_BACK = 4;
  /** What difference may call a pair of figures, the worst first; of two cards it is the word alone. */
  harness.VERDICTS = [
    ...["slower", "worse", "faster", "better"].flatMap((word) => [`${word} beyond the noise`, word]),
    ...["changed", "unchanged", "inconclusive", "not comparable"],
  ];

  /** The file of figures by commit that holds a position; null where the card measured nothing there. */
  async function block(site, card, position) {
    try {
      const data = await harness.load(`at/${card.file}/${Math.floor(position / site.commits.every)}`);
      return { ...data, cases: Array.from(harness.decode(data.cases)), figures: harness.figures(data.values) };
    } catch (problem) {
      if (problem instanceof harness.Problem) return null;
      throw problem;
    }
  }

  /** The figures of a commit, by case. */
  function row(data, position) {
    const found = new Map();
    const place = data.rows.indexOf(position - data.first);
    if (place < 0) return found;
    const start = place * data.cases.length;
    data.cases.forEach((number, column) => {
      const value = data.figures[start + column];
      if (format.known(value)) found.set(number, value);
    });
    return found;
  }

  /** The newest position up to this one where the card has a figure; null where none is near. */
  async function upTo(site, card, position) {
    const size = site.commits.every;
    for (let k = Math.floor(position / size); k >= 0 && k > position / size - FILES_BACK - 1; k--) {
      const data = await block(site, card, k * size);
      if (!data) continue;
      const near = data.rows.findLast((at) => data.first + at <= position);
      if (near !== undefined) return data.first + near;
    }
    return null;
  }

  harness.measured = { block, row, upTo };

  /** What differs between the epochs of two commits on one card; empty where nothing is known to. */
  harness.epochsApart = function (epochs, suite, left, right) {
    const own = (epochs ?? []).find((one) => one.suite === suite);
    if (!own) return [];
    const contextAt = (position) => {
      const at = harness.lowerBound(own.starts, position + 1) - 1;
      return own.contexts[own.epochs[Math.max(0, at)]];
    };
    const [before, after] = [contextAt(left), contextAt(right)];
    return Object.keys(after)
      .filter((key) => key in before && before[key] !== after[key])
      .map((key) => `${key} ${before[key]} → ${after[key]}`);
  };

  /**
   * What the right figure says against the left. `rule` is the site's: {errors, floor}, the standard errors on
   * each side of an effect's interval, and the smallest change that counts where a side has no floor of its own.
   * A side: {value, noise, floor}; noise is the relative standard deviation of one figure, null where it is not
   * known. `apart` is what differs between their epochs.
   * Gives {effect, low, high, status, word, tone, why}.
   */
  harness.difference = function (rule, kase, left, right, apart = []) {
    const [a, b] = [left.value, right.value];
    const found = { effect: null, low: null, high: null, status: "", word: "", tone: "none", why: "" };
    if (!format.known(a) || !format.known(b))
      return { ...found, why: format.known(a) ? "no figure on the right" : "no figure on the left" };
    if (!(a > 0 && b > 0)) return { ...found, why: "no ratio: a figure is not above zero" };
    found.effect = b / a - 1;
    const { word, tone } = format.meaning(kase, found.effect);
    found.word = word;
    if (apart.length) return { ...found, status: "not comparable", why: `another epoch: ${apart.join(", ")}` };
    if (!format.known(left.noise) || !format.known(right.noise))
      return { ...found, status: "inconclusive", why: "too few points to know the noise" };
    const reach = rule.errors * Math.hypot(left.noise, right.noise);
    const log = Math.log(b / a);
    found.low = Math.expm1(log - reach);
    found.high = Math.expm1(log + reach);
    const floor = Math.max(left.floor ?? rule.floor, right.floor ?? rule.floor);
    if (Math.max(Math.abs(found.low), Math.abs(found.high)) <= floor) return { ...found, status: "unchanged" };
    if (Math.abs(log) <= reach) return { ...found, status: "inconclusive", why: "within the noise" };
    if (Math.abs(found.effect) < floor)
      return { ...found, status: "inconclusive", why: "less than the smallest change that counts" };
    return { ...found, status: tone === "none" ? "changed" : `${word} beyond the noise`, tone };
  };
})(window.harness);
