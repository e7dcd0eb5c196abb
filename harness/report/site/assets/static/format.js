// Numbers, dates and the words for them. Numbers follow the rules of harness/numbers.py.
"use strict";
(function (harness) {
  const MINUS = "\u2212";
  const SPACE = "\u00a0";
  const NONE = "–";
  /** A share from here on tells more as a factor. */
  const FACTOR = 1e4;
  const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
  const format = (harness.format = { NONE, known });

  /** As Python rounds: by every digit of the binary value, and a tie to the even digit. */
  function rounded(size, decimals) {
    const digits = size.toFixed(decimals + 40);
    const cut = digits.slice(0, -40).replace(/[.]$/, "");
    return /^50*$/.test(digits.slice(-40)) && /[02468]$/.test(cut) ? cut : size.toFixed(decimals);
  }

  function fixed(value, decimals) {
    return Number(rounded(Math.abs(value), decimals)).toLocaleString("en-GB", {
      minimumFractionDigits: decimals,
      maximumFractionDigits: decimals,
    });
  }

  function powerOfTen(value) {
    return value.toExponential(2).replace(/^-/, MINUS);
  }

  /** So many significant digits; whole numbers stay whole. */
  format.number = function (value, digits = 4) {
    if (!known(value)) return NONE;
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e9 || size < 1e-4)) return powerOfTen(value);
    const exponent = Number(size.toExponential(digits - 1).split("e")[1]); // of the rounded value
    const decimals = Number.isInteger(value) ? 0 : Math.max(0, digits - 1 - exponent);
    return (value < 0 ? MINUS : "") + fixed(value, decimals);
  };

  /** Labels of an axis: as many decimals as its step has, at most two digits of it. */
  format.axis = function (ticks) {
    const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(ticks[0]) || 1;
    const [mantissa, power] = step.toExponential(1).split("e").map(Number);
    const decimals = Math.min(8, Math.max(0, (Number.isInteger(mantissa) ? 0 : 1) - power));
    return ticks.map((tick) => (tick < 0 ? MINUS : "") + fixed(tick, decimals));
  };

  format.whole = (value) =>
    known(value) ? Math.round(value).toLocaleString("en-GB").replace("-", MINUS) : NONE;

  format.value = (value, unit) =>
    known(value) ? `${format.number(value)}${SPACE}${harness.plain(unit, 20)}` : NONE;

  function decimalsOfPercent(percent) {
    if (percent >= 99.95) return 0;
    return percent >= 9.995 ? 1 : 2;
  }

  /** In percent, without the sign or the unit. */
  function percentFigure(value) {
    const percent = Math.abs(value) * 100;
    return percent >= 100 * FACTOR ? powerOfTen(percent) : fixed(percent, decimalsOfPercent(percent));
  }

  const isZero = (figure) => /^[0.]+$/.test(figure);

  function signed(value, plus) {
    if (!known(value)) return NONE;
    if (value >= FACTOR) return `×${format.number(1 + value, 3)}`;
    const figure = percentFigure(value);
    return `${value < 0 && !isZero(figure) ? MINUS : plus}${figure}${SPACE}%`;
  }

  /** A relative change, signed: 0.0123 is "+1.23 %". */
  format.change = (value) => signed(value, "+");

  /** A share, unsigned: 0.5 is "50.0 %". */
  format.share = (value) => signed(value, "");

  /** A bound, of which two digits are enough. */
  format.rough = (value) => (known(value) ? `${format.number(value * 100, 2)}${SPACE}%` : NONE);

  format.interval = (low, high) =>
    known(low) && known(high)
      ? `${format.change(low).replace(`${SPACE}%`, "")} to ${format.change(high)}`
      : "";

  format.probability = function (p) {
    if (!known(p)) return "";
    return p < 0.001 ? "p < 0.001" : `p = ${p.toPrecision(2)}`;
  };

  /** One rate over another: 1.8x, 123x, 0.036x. */
  format.speedUp = function (ratio) {
    if (!known(ratio)) return "";
    if (ratio > 0 && ratio < 0.95) return `${Number(ratio.toPrecision(2))}x`;
    return `${fixed(ratio, ratio >= 99.95 ? 0 : 1)}x`;
  };

  const pad = (number) => String(number).padStart(2, "0");

  function moment(value) {
    const date = typeof value === "number" ? new Date(value * 1000) : new Date(value ?? NaN);
    return Number.isNaN(date.getTime()) ? null : date;
  }

  /** From unix seconds or ISO 8601, in UTC. */
  format.date = function (value) {
    const date = moment(value);
    return date ? `${date.getUTCFullYear()}-${pad(date.getUTCMonth() + 1)}-${pad(date.getUTCDate())}` : NONE;
  };

  format.dateTime = function (value) {
    const date = moment(value);
    return date ? `${format.date(value)} ${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())} UTC` : NONE;
  };

  format.ago = function (value) {
    const date = moment(value);
    if (!date) return "";
    const days = Math.floor((Date.now() - date.getTime()) / 86400000);
    if (days < 0) return "";
    if (days === 0) return "today";
    if (days === 1) return "yesterday";
    if (days < 60) return `${days} days ago`;
    return days < 730 ? `${Math.round(days / 30.4)} months ago` : `${Math.round(days / 365)} years ago`;
  };

  format.time = (value) =>
    harness.el(
      "time",
      { datetime: moment(value)?.toISOString(), title: format.dateTime(value) },
      format.date(value),
    );

  format.short = (hash) => harness.plain(hash, 40).slice(0, 8);

  format.count = (number, one, many) => `${format.whole(number)} ${number === 1 ? one : (many ?? `${one}s`)}`;

  /** 0 is A, 25 is Z, 26 is AA. */
  format.letter = function (index) {
    const last = String.fromCharCode(65 + (index % 26));
    return index < 26 ? last : format.letter(Math.floor(index / 26) - 1) + last;
  };

  const TIME = /^(ns|us|µs|μs|ms|s|seconds)$/;
  const RATE = /\/s$/;

  /** A change of a figure, as a change of time where the figure is a rate: a plus is slower. */
  format.timed = (kase, effect) =>
    known(effect) && RATE.test(kase.unit) && kase.direction === "higher" ? 1 / (1 + effect) - 1 : effect;

  format.isSpeed = (kase) => TIME.test(kase.unit) || RATE.test(kase.unit);

  format.effect = (kase, effect) => format.change(format.timed(kase, effect));

  /** The ends of an interval of changes, the lower one first. */
  format.timedEnds = (kase, low, high) =>
    [low, high].map((end) => format.timed(kase, end)).sort((a, b) => a - b);

  /** A change of a level over time, as a word; what is too little to count has no colour. */
  format.moved = function (kase, effect, floor) {
    if (!known(effect)) return { text: NONE, tone: "none" };
    if (Math.abs(effect) < 0.0005) return { text: "steady", tone: "none" };
    const { word, tone } = format.meaning(kase, effect);
    return {
      text: `${format.effect(kase, effect)} ${word}`,
      tone: Math.abs(effect) < (floor ?? 0.01) ? "none" : tone,
    };
  };

  /** How a series stands, in a word and a tone: what is open or unjudged before where its level went. */
  format.standing = function (kase, one) {
    if (!one) return { text: NONE, tone: "none", kind: "missing" };
    const told = (effect) => `${format.effect(kase, effect)} ${format.meaning(kase, effect).word}`;
    if (one.open !== null) return { text: `${told(one.open)}, open`, tone: "bad", kind: "open", effect: one.open };
    if (one.unjudged !== null)
      return { text: `${told(one.unjudged)}, unjudged`, tone: "unjudged", kind: "unjudged", effect: one.unjudged };
    if (one.noise === null) return { text: "too few points", tone: "none", kind: "unknown" };
    return { ...format.moved(kase, one.effect_90, one.floor), kind: "judged", effect: one.effect_90 };
  };

  /** Whether it is known which way is better. */
  format.judged = (kase) => kase.direction === "higher" || kase.direction === "lower";

  /** An effect with the sign that means better where it is above zero: times count upside down. */
  format.gain = (kase, effect) => (known(effect) ? effect * (kase.direction === "lower" ? -1 : 1) : null);

  /** What an effect on a case means: a word, and whether it is good news. */
  format.meaning = function (kase, effect) {
    if (!known(effect) || effect === 0) return { word: "the same", tone: "none" };
    if (!format.judged(kase)) return { word: effect > 0 ? "higher" : "lower", tone: "none" };
    const good = effect > 0 === (kase.direction === "higher");
    const words = format.isSpeed(kase) ? ["faster", "slower"] : ["better", "worse"];
    return { word: words[good ? 0 : 1], tone: good ? "good" : "bad" };
  };

  /** What the figure is: rates and times say it themselves. */
  format.quantity = function (kase) {
    if (RATE.test(kase.unit)) return "throughput";
    return TIME.test(kase.unit) ? "time" : harness.plain(kase.metric.replace(/_/g, " "), 40);
  };

  const CAUSES = {
    code: ["Code", "the code did it"],
    clocks: ["Clocks", "the clocks did it, not the code"],
    thermal: ["Heat", "heat lowered the clocks"],
    power: ["Power limit", "the power limit lowered the clocks"],
    contention: ["Another process", "another process used the card"],
    environment: ["Environment", "the driver, the toolchain or the machine changed"],
    unknown: ["Not clear", "the measurements do not tell what did it"],
  };

  format.cause = (attribution) => CAUSES[attribution] ?? [harness.plain(attribution || "Not clear", 40), ""];
})(window.harness);
