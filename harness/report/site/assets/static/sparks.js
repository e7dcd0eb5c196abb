// A line of the newest figures of a series, in a cell.
"use strict";
(function (harness) {
  const { el, format } = harness;

  /** The newest figures of every series of a card, small; null where they are not there. */
  async function sparks(card) {
    const data = await harness.load(`sparks/${card.file}`).catch(() => null);
    return data && { points: data.points, values: harness.figures(data.values) };
  }

  /** A line of the newest figures of the series with that place on its card. */
  function line(spark, place) {
    const values = spark.values.slice(place * spark.points, (place + 1) * spark.points);
    const [width, height] = [84, 18];
    const x = (at) => (2 + (at / Math.max(1, spark.points - 1)) * (width - 6)).toFixed(1);
    const y = (value) => (height - 2 - (value / 254) * (height - 4)).toFixed(1);
    const stretches = [];
    let open = null;
    values.forEach((value, at) => {
      if (value === null) return (open = null);
      if (!open) stretches.push((open = []));
      open.push(`${x(at)},${y(value)}`);
    });
    const last = values.findLastIndex((value) => value !== null);
    return harness.svg(
      "svg",
      { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
      stretches.map((points) => harness.svg("polyline", { points: points.join(" ") })),
      last >= 0 ? harness.svg("circle", { cx: x(last), cy: y(values[last]), r: 2 }) : null,
    );
  }

  /** Cells of tables: `cell(one, noted)` gives a series' line, drawn once it is there, and its newest figure; below
   * that how it stands, where it is `noted`. */
  harness.sparks = function (site) {
    const places = new Map();
    const counts = site.cards.map(() => 0);
    for (const one of site.series) places.set(one, counts[one.card]++);
    const loaded = new Map();
    return (one, noted) => {
      if (!one) return el("span", { class: "none" }, format.NONE);
      const holder = el("span", { class: "spark-holder" });
      const [card, kase] = [site.cards[one.card], site.cases[one.case]];
      if (!loaded.has(card)) loaded.set(card, sparks(card));
      loaded.get(card).then((spark) => spark && harness.replace(holder, line(spark, places.get(one))));
      const stands = format.standing(kase, one);
      return el(
        "div",
        { class: `figure with-spark ${stands.kind}` },
        holder,
        el(
          "div",
          null,
          harness.caseLink(card, kase, format.value(one.last, kase.unit)),
          noted ? el("small", { class: stands.tone }, stands.text) : null,
        ),
      );
    };
  };
})(window.harness);
