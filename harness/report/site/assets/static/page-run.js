// One run: what the card did, second by second, while each case was measured.
"use strict";
(function (harness) {
  const { el, text, format, state } = harness;
  const LANE = { rows: 1.5, reasons: 0.5 };

  const HEIGHTS = { sm_clock_mhz: 130, memory_clock_mhz: 70, temperature_c: 90, power_w: 110 };

  const unpack = (telemetry) => ({
    x: Array.from(harness.decode(telemetry.at_s)),
    traces: harness.traces(telemetry),
    reasons: telemetry.reasons,
  });

  /** The traces that the card told anything of. */
  const tracesOf = (data) => harness.TRACES.filter(({ key }) => data.traces[key]?.some((value) => value !== null));

  /** Kernels and clock events as bars over the seconds they took. */
  function spans(data, rows) {
    const block = (surface, g, begin, end, lane, label, fill) => {
      const left = Math.max(g.left - 2, g.x(begin));
      const right = Math.min(g.left + g.width + 2, g.x(end));
      if (right < g.left || left > g.left + g.width) return;
      const top = g.y(lane + 0.4);
      const height = g.y(lane - 0.4) - top;
      surface.rect(left, top, Math.max(1.5, right - left - 1), height, { fill, alpha: 0.9 });
      const room = Math.floor((right - left - 8) / 6.2);
      if (room >= 3)
        surface.text(harness.plain(label, room), left + 4, top + height / 2 + 4, {
          fill: g.colours.onspan,
          size: 11,
        });
    };
    return (surface, g) => {
      rows.forEach((row) => {
        if (row.begin_s === null || row.end_s === null) return;
        block(
          surface,
          g,
          row.begin_s,
          row.end_s,
          LANE.rows,
          row.name,
          g.colours[row.status === "failed" ? "span-bad" : "span-a"],
        );
      });
      for (const [begin, end, words] of data.reasons)
        block(surface, g, begin, end, LANE.reasons, words, g.colours["span-b"]);
    };
  }

  function panels(data, rows) {
    const lanes = {
      title: "cases and clock events",
      unit: "",
      height: 74,
      series: [],
      range: () => [0, 2],
      yTicks: [
        { at: LANE.rows, label: "case" },
        { at: LANE.reasons, label: "event" },
      ],
      over: spans(data, rows),
    };
    const panel = (trace) => {
      const { key, label, unit, colour } = trace;
      const values = data.traces[key];
      const range = harness.stripRange(trace, values);
      return {
        title: label,
        unit,
        height: HEIGHTS[key],
        series: [{ label, values, colour }],
        range: () => range,
        under: shade(data),
      };
    };
    return [lanes, ...tracesOf(data).map(panel)];
  }

  /** What held the clock down, behind every curve. */
  function shade(data) {
    return (surface, g) => {
      for (const [begin, end] of data.reasons)
        surface.rect(g.x(begin), g.top, Math.max(1, g.x(end) - g.x(begin)), g.height, {
          fill: g.colours.focus,
          alpha: 0.1,
        });
    };
  }

  const seconds = (min, max, width) => {
    const ticks = harness.ticks(min, max, width / 80);
    const labels = format.axis(ticks);
    return ticks.map((at, index) => ({ at, label: `${labels[index]} s` }));
  };

  function readout(data, rows) {
    const node = el("dl", { class: "readout of-run" });
    const item = harness.fact;
    return {
      node,
      show(index) {
        if (index === null) return;
        const at = data.x[index];
        const during = rows
          .filter((row) => row.begin_s !== null && row.begin_s <= at && at <= row.end_s)
          .map((row) => row.name);
        const events = data.reasons
          .filter(([begin, end]) => begin <= at && at <= end)
          .map((reason) => reason[2]);
        const figure = ({ key, label, unit }) => {
          const value = data.traces[key][index];
          return item(label, format.value(value === null ? null : Math.round(value * 10) / 10, unit));
        };
        harness.replace(
          node,
          item("second", at.toFixed(1)),
          item("case", during.length ? text(during.join(", "), null, 120) : "none"),
          item("clock event", events.length ? text(events.join(", "), null, 120) : "none"),
          tracesOf(data).map(figure),
        );
      },
    };
  }

  function telemetry(site, run, view) {
    const data = unpack(run.telemetry);
    if (!(data.x.at(-1) > data.x[0]))
      return harness.empty("The run was too short for its telemetry to hold two moments.");
    const read = readout(data, run.rows);
    const words = `${format.number(data.x.at(-1) - data.x[0])} seconds, ${format.count(data.x.length, "moment")}, ${format.count(data.reasons.length, "clock event")}.`;
    const moves = "← → moment by moment, Home End, shift ← → move";
    const { node, bar, holder, keys } = harness.chartFigure(read.node, words, moves);
    const name = `${run.suite} at ${format.short(run.hash)}`;
    view.addEventListener("shown", () => {
      const noteRange = harness.noteRange(holder, (min, max) => ({
        from: min.toFixed(2),
        to: max.toFixed(2),
      }));
      const stack = new harness.Stack(holder, {
        x: data.x,
        limits: [data.x[0], data.x.at(-1)],
        span: 0.5,
        panels: panels(data, run.rows),
        xTicks: seconds,
        label: `Telemetry of ${harness.plain(name, 100)}`,
        describedBy: keys,
        describe(index) {
          const told = harness.TRACES.filter(({ key }) => key === "sm_clock_mhz" || key === "power_w")
            .filter(({ key }) => data.traces[key]?.[index])
            .map(({ key, unit }) => `${Math.round(data.traces[key][index])} ${unit}`);
          return [`${data.x[index].toFixed(1)} s`, ...told].join(", ");
        },
        onCursor: read.show,
        onRange: (min, max) => noteRange(stack.isWhole(), min, max),
      });
      harness.stack = stack;
      const [from, to] = ["from", "to"].map((key) => Number.parseFloat(state.get(key)));
      if (from < to) stack.setRange(from, to);
      read.show(0);
      const picture = () =>
        stack.picture({
          title: `Telemetry of ${harness.plain(name, 100)}`,
          lines: [`${harness.plain(run.device, 60)}, ${format.dateTime(run.started_at)}`],
        });
      const table = () => csv(data, stack.visible());
      harness.replace(
        bar,
        harness.chartButtons(stack, harness.chartDownloads(`run-${state.get("run")}`, picture, table)),
      );
    });
    return node;
  }

  function csv(data, [from, to]) {
    const keys = harness.TRACES.map(({ key }) => key);
    const rows = [["at_s", ...keys]];
    for (let index = from; index < to; index++)
      rows.push([data.x[index], ...keys.map((key) => data.traces[key]?.[index])]);
    return harness.csv(rows);
  }

  function facts(site, run) {
    const item = harness.fact;
    const plain = (name, value, longest) => (value ? item(name, text(value, null, longest ?? 120)) : null);
    const settings = Object.entries(run.settings ?? {});
    const basics = el(
      "dl",
      { class: "facts" },
      item("started", format.dateTime(run.started_at)),
      item("commit", harness.commitLink(site, run.hash, run.commit)),
      plain("device", run.device),
      plain("driver", run.driver),
      plain("toolchain", run.toolchain),
      plain("host", run.host, 200),
      plain("harness", run.harness_version),
    );
    if (!settings.length) return basics;
    const list = el(
      "dl",
      { class: "facts" },
      settings.map(([key, value]) => plain(harness.plain(key, 40), value)),
    );
    return [basics, el("details", { class: "note" }, el("summary", null, "Settings"), list)];
  }

  function rows(site, run) {
    const card = site.cards[run.card];
    const measured = site.series.filter((one) => one.card === run.card).map((one) => site.cases[one.case]);
    const caseOf = new Map(measured.map((kase) => [kase.name, kase]));
    const tenths = (value) => (format.known(value) ? value.toFixed(1) : format.NONE);
    const name = (row) => {
      const kase = caseOf.get(row.name);
      return kase && card ? harness.caseLink(card, kase, harness.name(row.name)) : harness.name(row.name);
    };
    const columns = [
      { key: "name", label: "Case", sort: (row) => row.name, cell: name },
      harness.column("status", "Status", (status, { reason }) =>
        el(
          "span",
          { class: { failed: "bad", skipped: "none" }[status] },
          text(status, null, 40),
          reason ? [": ", text(reason, null, 60)] : null,
        ),
      ),
      harness.figure("time_ms", "Time, ms", format.number),
      harness.figure("begin_s", "From, s", tenths),
      harness.figure("end_s", "To, s", tenths),
      { key: "message", label: "Message", cell: (row) => (row.message ? text(row.message, null, 300) : "") },
    ];
    return harness.table(columns, {
      id: "order",
      caption: "Cases of this run",
      rows: run.rows,
      stack: true,
      empty: harness.empty("The record holds no case: the run ended before its first."),
    }).node;
  }

  harness.start("run", async (site, view) => {
    const file = state.get("run");
    if (!file)
      throw new harness.Problem("The address names no run.", "Choose a run at the end of a card's page.");
    const run = await harness.load(`runs/${file}`).catch(() => {
      throw new harness.Problem(
        `There is no run “${harness.plain(file, 100)}” here.`,
        "Choose a run at the end of a card's page. Only the newest runs are published.",
      );
    });
    const card = site.cards[run.card];
    harness.title(`${run.suite} at ${format.short(run.hash)}`, card?.name ?? run.device);
    harness.replace(
      view,
      harness.crumbs(card ? harness.cardLink(card) : text(run.device, null, 60), "Run"),
      el("h1", null, text(run.suite, null, 80), " ", el("small", null, format.dateTime(run.started_at))),
      facts(site, run),
      harness.section(
        "Telemetry",
        run.telemetry
          ? telemetry(site, run, view)
          : harness.empty("This run has no telemetry: its device tells no clocks, or it was switched off."),
      ),
      harness.section("Cases", rows(site, run)),
    );
  });
})(window.harness);
