// One card: its ladder at one size, where each kernel stands under the roofs, and its runs.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const ALL = "all";

  const distinct = (rows, key) => [...new Set(rows.map((row) => row.kase[key]))];

  /** What the address asks of, where it is one of these. */
  const asked = (key, options, otherwise) => (options.includes(state.get(key)) ? state.get(key) : otherwise);

  function choices(rows) {
    const suites = distinct(rows, "suite");
    const count = (suite) => rows.filter((row) => row.kase.suite === suite).length;
    const largest = suites.reduce((most, one) => (count(one) > count(most) ? one : most));
    const suite = asked("suite", suites, largest);
    const inSuite = rows.filter((row) => row.kase.suite === suite);
    const metrics = distinct(inSuite, "metric");
    const metric = asked("metric", metrics, metrics[0]);
    const ofMetric = inSuite.filter((row) => row.kase.metric === metric);
    const sizes = distinct(ofMetric, "size");
    const size = asked("size", [...sizes, ALL], sizes.at(-1));
    const chosen = size === ALL ? ofMetric : ofMetric.filter((row) => row.kase.size === size);
    return { suites, suite, metrics, metric, sizes, size, rows: chosen };
  }

  function pickers(site, card, chosen) {
    const pick = (key, more) => (value) => state.go({ [key]: value, ...more });
    return harness.form(
      { class: "filters", "aria-label": "What is shown" },
      harness.cardSelect(site, card),
      chosen &&
        harness.select("Suite", chosen.suites, chosen.suite, pick("suite", { size: null, metric: null })),
      chosen &&
        chosen.metrics.length > 1 &&
        harness.select(
          "Figure",
          chosen.metrics.map((metric) => [metric, harness.plain(metric.replace(/_/g, " "), 40)]),
          chosen.metric,
          pick("metric"),
        ),
      chosen &&
        chosen.sizes.length > 1 &&
        harness.select("Size", [...chosen.sizes, [ALL, "All sizes"]], chosen.size, pick("size")),
    );
  }

  const nameOf = (row, chosen) =>
    chosen.size === ALL ? `${row.kase.kernel} ${row.kase.size}` : row.kase.kernel;

  const kernelColumn = (card, chosen) => ({
    key: "kernel",
    label: "Kernel",
    sort: (row) => row.order,
    cell: (row) => harness.caseLink(card, row.kase, harness.name(nameOf(row, chosen), 100)),
  });

  function ladder(card, chosen) {
    const longest = Math.max(...chosen.rows.map((row) => row.value ?? 0), 0);
    const cell = (value, { failed }) =>
      failed
        ? el("span", { class: "bad" }, "failed: ", text(failed, null, 160))
        : el(
            "div",
            { class: "with-bar" },
            harness.bar(longest ? value / longest : 0),
            el("strong", null, format.number(value)),
          );
    const columns = [
      kernelColumn(card, chosen),
      harness.column("value", `Figure, ${harness.plain(chosen.rows[0]?.kase.unit ?? "", 20)}`, cell, {
        down: true,
        axis: longest ? harness.barAxis(format.number(longest)) : null,
      }),
      harness.figure("peak_share", "of peak", format.share),
    ];
    if (chosen.rows.some((row) => format.known(row.library_share)))
      columns.push(
        harness.figure("library_share", "of library", format.share, {
          hint: "Of the vendor's library at the same size",
        }),
      );
    return harness.table(harness.told(columns, chosen.rows), {
      id: "ladder",
      caption: `Ladder of ${harness.plain(chosen.suite, 60)}`,
      rows: chosen.rows,
    }).node;
  }

  function details(card, chosen) {
    const columns = [
      kernelColumn(card, chosen),
      harness.figure("time_ms", "Time, ms", format.number),
      harness.figure("clock_mhz", "SM clock, MHz"),
      harness.figure("temperature_c", "Temperature, °C"),
      harness.figure("power_w", "Power, W"),
      harness.figure("registers", "Registers", format.whole, { hint: "Registers per thread" }),
      {
        key: "moved",
        label: "90 days",
        numeric: true,
        hint: "Change of the level over 90 days",
        sort: (row) => row.series?.effect_90,
        cell: (row) => {
          const stands = format.standing(row.kase, row.series);
          return el("span", { class: stands.tone }, stands.text);
        },
      },
      harness.figure("changes", "Changes"),
      harness.column("failed", "State", (failed) =>
        failed ? el("span", { class: "bad" }, text(failed, null, 160)) : "ok",
      ),
    ];
    return harness.table(harness.told(columns, chosen.rows), {
      id: "details",
      caption: "Figures, clocks and registers of the newest run",
      rows: chosen.rows,
      stack: true,
    }).node;
  }

  /** Of the accesses to one memory, the one that a warp pays most for. */
  function worst(followed, space, cost) {
    const found = (followed?.found ?? []).filter((one) => one.space === space);
    return found.length ? found.reduce((a, b) => (cost(b) > cost(a) ? b : a)) : null;
  }

  /** What each kernel asks of the card: of the newest record, and of the newest source. */
  function demands(card, suite, chosen) {
    const rows = chosen.rows
      .map((row) => {
        const followed = harness.suites.accessesOf(suite, row.kase.kernel);
        const device = worst(followed, "global", (one) => one.sectors / one.fewest_sectors);
        const shared = worst(followed, "shared", (one) => one.conflicts);
        const counts = { device, sectors: device?.sectors, conflicts: shared?.conflicts };
        return { ...row, ...row.demand, ...counts, asked: Boolean(row.demand || device) };
      })
      .filter((row) => row.asked);
    if (!rows.length) return null;
    const columns = [
      kernelColumn(card, chosen),
      harness.figure("registers", "Registers", format.whole, { hint: "Of a thread" }),
      harness.figure("shared_bytes", "Shared memory, B", format.whole, { hint: "Of a block" }),
      harness.figure("blocks", "Blocks an SM", format.whole, { hint: "Resident at once" }),
      harness.figure("occupancy", "Occupancy", format.share),
      harness.column("limit", "Limited by", (limit) => harness.plain(limit ?? format.NONE, 20)),
      harness.figure("waves", "Waves", (value) => format.number(value, 3)),
      harness.figure("last_wave", "Last wave", format.share, { hint: "How much of the last wave is full" }),
      harness.column(
        "sectors",
        "Sectors a request",
        (sectors, { device }) => (device ? `${format.number(sectors, 3)} / ${device.fewest_sectors}` : format.NONE),
        { numeric: true, hint: "Of the access that costs most, over the fewest" },
      ),
      harness.figure("conflicts", "Bank conflicts", (value) => format.number(value, 3), {
        hint: "How many times a request to shared memory is served, at worst",
      }),
    ];
    const caption = `What the kernels of ${harness.plain(chosen.suite, 60)} ask of the card`;
    return harness.section(
      "What the kernels ask of the card",
      harness.table(columns, { id: "demands", caption, rows, stack: true }).node,
    );
  }

  function roofData(chosen, peaks) {
    const points = chosen.rows
      .filter((row) => row.flop && row.moved_bytes && row.time_ms && !row.failed)
      .map((row) => ({
        name: harness.plain(nameOf(row, chosen), 24),
        intensity: row.flop / row.moved_bytes,
        gflops: row.flop / row.time_ms / 1e6,
        dtype: row.dtype,
      }));
    const used = new Set(points.map((point) => point.dtype));
    const roofs = Object.entries(peaks)
      .filter(([name, gflops]) => name !== "memory" && gflops > 0)
      .map(([name, gflops]) => ({ name: harness.plain(name, 20), gflops, used: used.has(name) }))
      .filter((roof) => roof.used || roof.gflops < 40 * Math.max(...points.map((point) => point.gflops)));
    return { points, roofs, memory: peaks.memory > 0 ? peaks.memory : null };
  }

  /** Kernels that compute nothing have one roof: what the memory can move. Null where they tell no bytes, or nobody knows the memory's peak. */
  function bandwidthData(chosen, peaks) {
    const points = chosen.rows
      .filter((row) => row.moved_bytes && row.time_ms && !row.failed)
      .map((row) => ({ name: harness.plain(nameOf(row, chosen), 30), gbytes: row.moved_bytes / row.time_ms / 1e6 }));
    return points.length && peaks.memory > 0 ? { points, memory: peaks.memory } : null;
  }

  function bandwidthFigure(view, data) {
    const best = data.points.reduce((a, b) => (b.gbytes > a.gbytes ? b : a));
    const words =
      `${format.count(data.points.length, "kernel")} of no operations; the fastest, ${best.name}, moves ${format.value(best.gbytes, "GB/s")}, ${format.share(best.gbytes / data.memory)} of what the memory can.`;
    return drawn(view, "Memory roof", words, (width) => harness.bandwidth(width, data));
  }

  const drawn = (view, title, words, picture) =>
    el(
      "figure",
      null,
      el("h2", null, title),
      harness.fitted(view, `${title}: ${words}`, picture),
      el("figcaption", null, words),
    );

  function roofline(view, chosen, peaks) {
    const data = roofData(chosen, peaks);
    const bandwidth = data.points.length ? null : bandwidthData(chosen, peaks);
    if (bandwidth) return bandwidthFigure(view, bandwidth);
    if (!data.points.length || !(data.roofs.length || data.memory)) return null;
    const best = data.points.reduce((a, b) => (b.gflops > a.gflops ? b : a));
    const words =
      `${format.count(data.points.length, "kernel")}; the fastest, ${best.name}, does ${format.value(best.gflops, "GFLOP/s")} at ${format.number(best.intensity)} FLOP per byte.`;
    return drawn(view, "Roofline", words, (width) => harness.roofline(width, data));
  }

  function runs(site, list) {
    const columns = [
      {
        key: "started",
        label: "Started",
        sort: (run) => run.started_at,
        down: true,
        cell: (run) =>
          el("a", { href: state.address("run", { run: run.file }) }, format.dateTime(run.started_at)),
      },
      harness.column("suite", "Suite", (suite) => text(suite, null, 60)),
      harness.column("commit", "Commit", (commit, run) => harness.commitLink(site, run.hash, commit), { down: true }),
      harness.figure("rows", "Cases"),
      harness.figure("failed", "Failed", (failed) =>
        el("span", { class: failed ? "bad" : null }, format.whole(failed)),
      ),
    ];
    const empty = harness.empty(
      "No record of a run is here. “asv run” with the plugin leaves one for each commit.",
    );
    return harness.table(columns, { id: "runs", caption: "Runs", rows: list, limit: 20, stack: true, empty })
      .node;
  }

  function about(site, card, data) {
    const waiting = card.unjudged ? `${format.count(card.unjudged, "case")} became worse too lately to judge` : "";
    const few = card.unknown ? `${format.whole(card.unknown)} of ${format.whole(card.series)} series have too few points` : "";
    const open = card.open
      ? el(
          "a",
          { class: "bad", href: state.address("index", { card: card.file, show: "open" }) },
          format.count(card.open, "open regression"),
        )
      : [waiting || few ? "None is known" : "No regression is open", el("small", null, waiting || few)];
    const newest = card.newest
      ? [harness.commitLink(site, card.newest.hash, card.newest.commit), " ", format.dateTime(card.newest.measured_at)]
      : "No run yet";
    const item = harness.fact;
    return el(
      "div",
      null,
      el(
        "dl",
        { class: "facts" },
        card.name === card.title ? null : item("name", text(card.name, null, 100)),
        card.driver ? item("driver", text(card.driver, null, 40)) : null,
        item("newest run", newest),
        item("regressions", open),
        item("points", format.whole(card.points)),
        item(
          "calibration",
          card.calibration
            ? el(
                "a",
                { href: state.address("calibration", { card: card.file }) },
                `${format.count(card.calibration.verdicts, "verdict")} on itself`,
              )
            : "not calibrated",
        ),
      ),
      card.health.length ? harness.health(card) : null,
      Object.keys(data.annotations).length
        ? el(
            "details",
            { class: "note" },
            el("summary", null, "About the machine"),
            el(
              "dl",
              { class: "facts" },
              Object.entries(data.annotations).map(([key, value]) =>
                item(harness.plain(key, 40), text(value, null, 200)),
              ),
            ),
          )
        : null,
    );
  }

  function chooser(site, view) {
    harness.title("Cards");
    const list = site.cards.map((card) =>
      el(
        "li",
        null,
        harness.cardLink(card, 100),
        el(
          "small",
          null,
          text([card.name !== card.title && card.name, card.open && format.count(card.open, "open regression")].filter(Boolean).join(", "), null, 140),
        ),
      ),
    );
    harness.replace(
      view,
      el("h1", null, "Cards"),
      list.length ? el("ul", { class: "chooser" }, list) : harness.noCards(),
    );
  }

  harness.start("card", async (site, view) => {
    if (!state.get("card") && site.cards.length !== 1) return chooser(site, view);
    const number = harness.wantedCard(site, state.get("card") ?? site.cards[0].file);
    const card = site.cards[number];
    const data = await harness.load(`cards/${card.file}`);
    const series = new Map(site.series.filter((one) => one.card === number).map((one) => [one.case, one]));
    const rows = harness
      .objects(data.ladder)
      .map((row) => ({
        ...row,
        kase: site.cases[row.case],
        order: site.cases[row.case].order,
        series: series.get(row.case),
        changes: series.get(row.case)?.changes,
      }))
      .sort((a, b) => a.order - b.order);
    const chosen = rows.length ? choices(rows) : null;
    const suite = chosen && (await harness.suites.load(site, chosen.suite));
    harness.title(card.title);
    harness.replace(
      view,
      harness.crumbs(harness.link("card.html", "Cards")),
      el("h1", null, text(card.title, null, 100)),
      about(site, card, data),
      pickers(site, card, chosen),
      chosen
        ? [
            el(
              "div",
              { class: "columns" },
              el("section", null, el("h2", null, "Ladder"), ladder(card, chosen)),
              roofline(view, chosen, data.peaks),
            ),
            demands(card, suite, chosen),
            harness.section("Figures", details(card, chosen)),
          ]
        : harness.empty(
            "This card has no figure yet. Measure with “asv run”, then run “harness publish” again.",
          ),
      harness.section("Runs", runs(site, data.runs)),
    );
  });
})(window.harness);
