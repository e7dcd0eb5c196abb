// Commits are equally far apart on the x axis; its labels are dates.
"use strict";
(function (harness) {
  const DAY = 86400;
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

  /** The day of a commit, and the first commit of a day or later, from the days on which there are commits. */
  function calendar(site) {
    const days = Array.from(harness.decode(site.commits.days));
    const firsts = Array.from(harness.decode(site.commits.firsts));
    return {
      day: (position) => days[Math.max(0, harness.lowerBound(firsts, Math.floor(position) + 1) - 1)],
      position: (day) => firsts[harness.lowerBound(days, day)],
    };
  }

  /** Dates at the start of days, months or years, as many as there is room for: left of a tick are commits of before it. */
  function dateTicks(known, min, max, width) {
    const room = Math.max(2, Math.floor(width / 82));
    const [from, to] = [known.day(Math.max(0, min)), known.day(max)];
    const days = to - from;
    const ticks = [];
    const add = (day, label) => {
      const at = known.position(day) - 0.5;
      const gap = ((max - min) / width) * 62;
      const inside = day > from && at >= min && at <= max;
      if (inside && (!ticks.length || at - ticks.at(-1).at > gap)) ticks.push({ at, label });
    };
    if (!(days > 0)) return [];
    const months = days / 30.4;
    if (months > room / 2) {
      const step = [1, 2, 3, 6, 12, 24, 60].find((count) => months / count <= room) ?? 120;
      const first = new Date(from * DAY * 1000);
      let month = first.getUTCFullYear() * 12 + first.getUTCMonth();
      for (month -= month % step; ; month += step) {
        const day = Date.UTC(Math.floor(month / 12), month % 12) / 1000 / DAY;
        if (day > to) break;
        add(
          day,
          step >= 12 ? String(Math.floor(month / 12)) : `${MONTHS[month % 12]}\n${Math.floor(month / 12)}`,
        );
      }
      return ticks;
    }
    const step = [1, 2, 7, 14].find((count) => days / count <= room) ?? 30;
    for (let day = from - (from % step) + step; day <= to; day += step) {
      const date = new Date(day * DAY * 1000);
      add(day, `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}\n${date.getUTCFullYear()}`);
    }
    return ticks;
  }

  function commitTicks(min, max, width) {
    return harness
      .ticks(min, max, width / 90)
      .filter((at) => Number.isInteger(at))
      .map((at) => ({ at, label: `#${at}` }));
  }

  /** For a Stack: dates of commits by position, or positions where there is no room for two dates. */
  harness.dateTicks = function (site) {
    const known = calendar(site);
    return (min, max, width) => {
      const dates = dateTicks(known, min, max, width);
      return dates.length >= 2 ? dates : commitTicks(min, max, width);
    };
  };
})(window.harness);
