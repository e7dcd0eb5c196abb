// Loads the data files. Each is a script with one call of harness.data, because file:// forbids fetch.
"use strict";
(function (harness) {
  /** Something the reader can be told, with what to do about it. */
  class Problem extends Error {
    constructor(message, advice) {
      super(message);
      this.advice = advice;
    }
  }

  const REPUBLISH = "Run “harness publish” again, and copy the whole folder when the site is copied.";
  let version = "";
  const requested = new Map();
  const arrived = new Map();

  harness.data = function (name, contents) {
    arrived.set(name, contents);
  };

  function addressOf(name) {
    const parts = name.split("/");
    if (parts.some((part) => part === "" || part === "." || part === "..")) return null;
    return `data/${parts.map(encodeURIComponent).join("/")}.js${version}`;
  }

  /** Runs a script of this site; a Problem where it is missing. */
  function run(address) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      const end = (settle) => () => (script.remove(), settle());
      script.onload = end(resolve);
      script.onerror = end(() => reject(new Problem(`${address.replace(/[?].*/, "")} is missing.`, REPUBLISH)));
      script.src = address;
      document.head.append(script);
    });
  }

  async function request(name) {
    const address = addressOf(name);
    if (!address) throw new Problem("The address names no data file.", "Start from the overview.");
    try {
      await run(address);
      if (arrived.has(name)) return arrived.get(name);
      throw new Problem(`${address.replace(/[?].*/, "")} is damaged: it holds no data of that name.`, REPUBLISH);
    } catch (problem) {
      requested.delete(name); // to be asked for again
      throw problem;
    }
  }

  /** A script of these pages that is not always needed; asked for once. */
  const scripts = new Map();
  harness.loadScript = function (address) {
    if (!scripts.has(address)) scripts.set(address, run(address));
    return scripts.get(address);
  };

  /** From now on files of this publication, not what a cache may have kept of one before. */
  harness.ofPublication = function (moment) {
    version = `?${encodeURIComponent(String(moment ?? "").replace(/[^0-9T]/g, ""))}`;
  };

  /** The contents of data/<name>.js; asked for once. */
  harness.load = function (name) {
    if (!requested.has(name)) requested.set(name, request(name));
    return requested.get(name);
  };

  const TYPES = { f32: Float32Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array };

  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  /** A typed array of a data file as one of JavaScript's: whole, or as first value and steps to the next. */
  harness.decode = function (packed) {
    const Type = TYPES[packed.t];
    if ("d" in packed) return new Type(bytesOf(packed.d).buffer);
    if ("step" in packed) return Type.from({ length: packed.n }, (_, k) => packed.first + k * packed.step);
    const steps = new Int8Array(bytesOf(packed.steps).buffer);
    const values = new Type(steps.length + 1);
    values[0] = packed.first;
    steps.forEach((step, k) => (values[k + 1] = values[k] + step));
    return values;
  };

  /** Objects of columns: of each key its values, or a few of them and which of these stands where. */
  harness.objects = function ({ count, keys, columns }) {
    const told = columns.map((column) =>
      Array.isArray(column) ? column : Array.from(bytesOf(column.at), (which) => column.of[which]),
    );
    return Array.from({ length: count }, (_, row) => Object.fromEntries(keys.map((key, k) => [key, told[k][row]])));
  };

  /** As decode, but an array with null where there is no figure; null for null. */
  harness.figures = function (packed) {
    if (!packed) return null;
    const none = { u16: 0xffff, u8: 0xff }[packed.t];
    return Array.from(harness.decode(packed), (value) =>
      Number.isNaN(value) || value === none ? null : value,
    );
  };

  /** First index of ascending numbers that is not below the value. */
  harness.lowerBound = function (sorted, value) {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  /** The document of a series, one of several in a file that share their commits and a list of changes. */
  harness.series = async function (site, { card, case: number }) {
    const file = `${site.cards[card].file}/${Math.floor(number / site.series_a_file)}`;
    const { commits, series, changes } = await harness.load(`series/${file}`);
    const own = series[number];
    return {
      ...own,
      commits: commits[own.commits],
      changes: harness.objects(changes).filter((change) => change.case === number),
    };
  };

  /** Hash, time, author and subject of a commit, by position; null where the file has none. */
  harness.commit = async function (site, position) {
    const { chunk, count } = site.commits;
    if (!(position >= 0 && position < count)) return null;
    const rows = await harness.load(`commits/${Math.floor(position / chunk)}`);
    const row = rows[position % chunk];
    return row ? { position, hash: row[0], time: row[1], author: row[2], subject: row[3] } : null;
  };

  /** The position that "newest", a number or the first letters of a hash name; null where none does. */
  harness.findCommit = async function (site, text) {
    const { chunk, count } = site.commits;
    const wanted = text.trim().toLowerCase();
    if (wanted === "newest") return count - 1;
    // Seven digits may be a hash too, but no history is that long.
    if (/^\d{1,6}$/.test(wanted)) return Number(wanted) < count ? Number(wanted) : null;
    if (!/^[0-9a-f]{4,64}$/.test(wanted)) return null;
    for (let k = Math.ceil(count / chunk) - 1; k >= 0; k--) {
      const rows = await harness.load(`commits/${k}`);
      const at = rows.findIndex((row) => row[0].startsWith(wanted));
      if (at >= 0) return k * chunk + at;
    }
    return null;
  };

  harness.Problem = Problem;
})(window.harness);
