// Commits are equally far apart on the x axis; its labels are dates.
"use strict";
(function (harness) {
  const DAY = 86400;
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

  /** Turns positions of commits into times and back, from the few times that site.js has. */
  function clock(site) {
    const { times, every, count, newest } = site.commits;
    const at = times.map((_, index) => index * every);
    const when = [...times];
    if (newest && count - 1 > (at.at(-1) ?? -1)) {
      at.push(count - 1);
      when.push(newest.time);
    }
    // Authors' clocks go astray; a time axis cannot.
    for (let index = 1; index < when.length; index++) when[index] = Math.max(when[index], when[index - 1]);
    function between(from, to, value) {
      if (!from.length) return 0;
      const index = Math.min(Math.max(1, harness.lowerBound(from, value)), from.length - 1);
      if (from.length === 1) return to[0];
      const width = from[index] - from[index - 1];
      return to[index - 1] + (width ? ((value - from[index - 1]) / width) * (to[index] - to[index - 1]) : 0);
    }
    return { time: (position) => between(at, when, position), position: (time) => between(when, at, time) };
  }

  /** Dates at the start of days, months or years, as many as there is room for. */
  function dateTicks(clocks, min, max, width) {
    const room = Math.max(2, Math.floor(width / 82));
    const [from, to] = [clocks.time(min), clocks.time(max)];
    const days = (to - from) / DAY;
    const ticks = [];
    const add = (time, label) => {
      const at = clocks.position(time);
      const gap = ((max - min) / width) * 62;
      if (at >= min && at <= max && (!ticks.length || at - ticks.at(-1).at > gap)) ticks.push({ at, label });
    };
    if (!(days > 0)) return [];
    const months = days / 30.4;
    if (months > room / 2) {
      const step = [1, 2, 3, 6, 12, 24, 60].find((count) => months / count <= room) ?? 120;
      const first = new Date(from * 1000);
      let month = first.getUTCFullYear() * 12 + first.getUTCMonth();
      for (month -= month % step; ; month += step) {
        const time = Date.UTC(Math.floor(month / 12), month % 12) / 1000;
        if (time > to) break;
        add(
          time,
          step >= 12 ? String(Math.floor(month / 12)) : `${MONTHS[month % 12]}\n${Math.floor(month / 12)}`,
        );
      }
      return ticks;
    }
    const step = [1, 2, 7, 14].find((count) => days / count <= room) ?? 30;
    for (let time = Math.ceil(from / DAY) * DAY; time <= to; time += DAY * step) {
      const date = new Date(time * 1000);
      add(time, `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}\n${date.getUTCFullYear()}`);
    }
    return ticks;
  }

  function commitTicks(min, max, width) {
    return harness
      .ticks(min, max, width / 90)
      .filter((at) => Number.isInteger(at))
      .map((at) => ({ at, label: `#${at}` }));
  }

  function xTicks(clocks) {
    return (min, max, width) => {
      const dates = dateTicks(clocks, min, max, width);
      return dates.length >= 2 ? dates : commitTicks(min, max, width);
    };
  }

  /** For a Stack: dates of commits by position, or positions where there is no room for two dates. */
  harness.dateTicks = (site) => xTicks(clock(site));
})(window.harness);
