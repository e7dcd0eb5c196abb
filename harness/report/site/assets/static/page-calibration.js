// What the harness says of code that did not change: how often it cried wolf, and what it can see.
"use strict";
(function (harness) {
  const { el, format, state } = harness;

  function alarms({ verdicts, false_alarms: count, bound, measured_at: at }) {
    const rate = format.known(bound)
      ? ` The rate of false alarms is below ${format.rough(bound)} with 95${"\u00a0"}% confidence.`
      : "";
    return el(
      "p",
      { class: "lead" },
      `Compared with itself, code was called slower or faster ${format.count(count, "time")} in ${format.count(verdicts, "verdict")}.${rate} Measured ${format.dateTime(at)}.`,
    );
  }

  function planted(list) {
    const share = (row) => (row.planted ? row.found / row.planted : null);
    const rows = list
      .map((row) => ({ ...row, percent: Number(row.percent), share: share(row) }))
      .sort((a, b) => a.percent - b.percent);
    const columns = [
      harness.column("percent", "Planted slowdown", (percent) => `${percent}${"\u00a0"}%`),
      harness.figure("planted", "Planted"),
      harness.figure("found", "Found"),
      harness.column("share", "Share found", (found) =>
        el("div", { class: "with-bar" }, harness.bar(found), el("strong", null, format.share(found))),
      ),
    ];
    const empty = harness.empty("No slowdown was planted on this card. “harness calibrate” does it.");
    return harness.table(columns, {
      id: "planted",
      caption: "Planted slowdowns that were found",
      rows,
      empty,
    }).node;
  }

  function spread(effects) {
    const sizes = effects.map(Math.abs);
    return sizes.length ? Math.max(...sizes) : null;
  }

  function cases(list) {
    const rows = list.map((row) => ({ ...row, largest: spread(row.effects) }));
    const reach = Math.max(0.005, ...rows.map((row) => Math.max(row.largest ?? 0, row.smallest_visible ?? 0)));
    const columns = [
      harness.column("case", "Case", (name) => harness.name(name)),
      {
        key: "effects",
        label: `Effects against itself, ${format.change(-reach)} to ${format.change(reach)}`,
        hint: "Sort by the largest",
        sort: (row) => row.largest,
        down: true,
        cell: (row) =>
          row.effects.length
            ? el(
                "div",
                { class: "with-dots" },
                harness.dotPlot(row.effects, row.smallest_visible, reach),
                el(
                  "span",
                  { class: "hidden" },
                  `${format.count(row.effects.length, "effect")}, the largest ${format.share(row.largest)}`,
                ),
              )
            : format.NONE,
      },
      harness.figure("largest", "Largest", format.share),
      harness.figure("smallest_visible", "Smallest visible", format.share),
      harness.figure(
        "clock_exponent",
        "Clock exponent",
        (value) => (format.known(value) ? value.toFixed(2).replace("-", "−") : format.NONE),
        { hint: "1: the time follows the SM clock; 0: it does not" },
      ),
      harness.figure("sm_clock_mhz", "SM clock, MHz"),
      {
        key: "capped",
        label: "Power cap",
        sort: (row) => Number(row.power_capped),
        cell: (row) =>
          row.power_capped === null ? format.NONE : row.power_capped ? "reached" : "not reached",
      },
    ];
    const empty = harness.empty("No case was compared with itself. “harness calibrate” does it.");
    return harness.table(columns, {
      id: "order",
      caption: "Cases compared with themselves",
      rows,
      stack: true,
      empty,
    }).node;
  }

  harness.start("calibration", async (site, view) => {
    if (!site.cards.length) {
      harness.title("Calibration");
      harness.replace(view, el("h1", null, "Calibration"), harness.noCards());
      return;
    }
    const first = site.cards.find((card) => card.calibration) ?? site.cards[0];
    const card = site.cards[harness.wantedCard(site, state.get("card") ?? first.file)];
    const { calibration } = await harness.load(`cards/${card.file}`);
    harness.title("Calibration", card.title);
    harness.replace(
      view,
      harness.crumbs(harness.cardLink(card)),
      el("h1", null, "Calibration"),
      harness.form({ class: "filters", "aria-label": "What is shown" }, harness.cardSelect(site, card)),
      calibration
        ? [
            alarms(calibration),
            harness.section("Planted slowdowns", planted(calibration.planted)),
            harness.section(
              "Cases against themselves",
              el(
                "p",
                null,
                "A dot is one process; the band holds what is too small to be seen in that case.",
              ),
              cases(calibration.cases),
            ),
          ]
        : harness.empty(
            "This card is not calibrated, so nothing is known of its false alarms. Run “harness calibrate” on it, then “harness publish” again.",
          ),
    );
  });
})(window.harness);
