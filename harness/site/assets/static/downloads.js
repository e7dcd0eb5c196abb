// What is in view of a case's history, as files.
"use strict";
(function (harness) {
  const { el, format, history } = harness;

  const fileName = (card, kase, kind) =>
    `${card.file}-${kase.name}`.replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 120) + `.${kind}`;

  async function csv(site, data, kase, [from, to]) {
    const lines = [
      [
        "position",
        "hash",
        "time_utc",
        `value_${kase.unit.replace(/[^A-Za-z0-9]+/g, "_")}`,
        "level",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "temperature_c",
        "power_w",
        "flag",
      ].join(","),
    ];
    for (let index = from; index < to; index++) {
      const commit = await harness.commit(site, data.x[index]);
      const cell = (values) => values?.[index] ?? "";
      const time = commit ? new Date(commit.time * 1000).toISOString() : "";
      const hash = commit ? commit.hash.replace(/[^0-9a-zA-Z]/g, "") : "";
      lines.push(
        [
          data.x[index],
          hash,
          time,
          cell(data.y),
          data.levelAt(index) ?? "",
          cell(data.clock),
          cell(data.memory),
          cell(data.temperature),
          cell(data.power),
          data.flags.get(index) ?? "",
        ].join(","),
      );
    }
    return `${lines.join("\r\n")}\r\n`;
  }

  function downloads(site, data, card, kase, stack) {
    const picture = () => {
      const [first, end] = stack.visible();
      return stack.picture({
        title: `${harness.plain(kase.name, 100)} on ${harness.plain(card.name, 60)}`,
        lines: [
          `${format.quantity(kase)} in ${harness.plain(kase.unit, 20)}, commits #${data.x[first] ?? ""} to #${data.x[end - 1] ?? ""}. Published ${format.dateTime(site.generated_at)}.`,
        ],
        legend: history.pictureLegend(data),
      });
    };
    const actions = {
      SVG: () =>
        harness.download(fileName(card, kase, "svg"), new Blob([picture().svg], { type: "image/svg+xml" })),
      PNG: async () => {
        const { svg, width, height } = picture();
        harness.download(fileName(card, kase, "png"), await harness.rasterise(svg, width, height));
      },
      CSV: async () =>
        harness.download(
          fileName(card, kase, "csv"),
          new Blob([await csv(site, data, kase, stack.visible())], { type: "text/csv" }),
        ),
    };
    return Object.entries(actions).map(([kind, action]) =>
      el("button", { type: "button", title: `Download what is in view as ${kind}`, onclick: action }, kind),
    );
  }

  harness.historyDownloads = downloads;
})(window.harness);
