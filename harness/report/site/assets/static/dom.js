// Builds elements. Text of the data only ever becomes text: nothing here reads it as HTML.
"use strict";
(function (harness) {
  const SVG = "http://www.w3.org/2000/svg";
  const LONGEST = 240;

  function fill(node, properties, children) {
    for (const [name, value] of Object.entries(properties ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "style")
        for (const [key, setting] of Object.entries(value)) node.style.setProperty(key, setting);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false && child !== "") node.append(child);
    }
    return node;
  }

  /** An element with attributes, listeners (onclick: …) and children: nodes and strings, nested at will. */
  harness.el = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
  harness.svg = (tag, properties, ...children) =>
    fill(document.createElementNS(SVG, tag), properties, children);

  /** Text without what could reorder or hide its surroundings, and no longer than anyone reads. */
  harness.clean = function (text, longest = LONGEST) {
    // Escapes, so that this file itself holds none of them.
    const plain = String(text ?? "").replace(
      /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
      "\ufffd",
    );
    const letters = Array.from(plain.slice(0, longest * 2 + 2));
    return letters.length > longest ? `${letters.slice(0, longest).join("")}…` : letters.join("");
  };

  /** Text of the data, kept from turning its surroundings around. */
  harness.text = function (text, properties, longest) {
    return harness.el("bdi", properties, harness.clean(text, longest));
  };

  /** A name of the data; may be broken after its marks, not amid its words. */
  harness.name = function (name, longest = 120) {
    const parts = harness.clean(name, longest).split(/(?<=[,[@_./])/);
    return harness.el(
      "bdi",
      { class: "name" },
      parts.map((part, index) => [index ? harness.el("wbr") : null, part]),
    );
  };

  /** For drawings, where nothing isolates: marks of direction go as well. */
  harness.plain = (text, longest) => harness.clean(text, longest).replace(/[\u200e\u200f\u061c]/g, "");

  /** No longer than that, and cut in the middle: names that differ at an end stay apart. */
  harness.shortened = function (name, longest) {
    const plain = harness.plain(name, 400);
    if (plain.length <= longest) return plain;
    const end = Math.floor((longest - 1) / 2);
    return `${plain.slice(0, longest - 1 - end)}…${plain.slice(-end)}`;
  };

  harness.replace = function (node, ...children) {
    node.replaceChildren();
    return fill(node, null, children);
  };

  let count = 0;
  harness.id = (prefix) => `${prefix}-${++count}`;

  /** A choice among options: texts, or keys with the text that stands for each. */
  harness.select = function (label, options, value, onchange) {
    const id = harness.id("select");
    const control = harness.el(
      "select",
      { id, name: label, onchange: () => onchange(control.value) },
      options.map((option) => {
        const [key, text] = Array.isArray(option) ? option : [option, option];
        return harness.el("option", { value: key, selected: key === value }, harness.plain(text, 80));
      }),
    );
    return harness.el("label", { class: "field", for: id }, harness.el("span", null, label), control);
  };

  harness.input = function (label, value, oninput, properties) {
    const id = harness.id("input");
    const control = harness.el("input", {
      id,
      name: label,
      type: "search",
      value,
      spellcheck: "false",
      autocomplete: "off",
      ...properties,
    });
    control.addEventListener("input", () => oninput(control.value));
    return harness.el("label", { class: "field", for: id }, harness.el("span", null, label), control);
  };

  harness.link = (href, ...children) => harness.el("a", { href }, ...children);

  /** A form of fields that act at once: nothing is sent. */
  harness.form = (properties, ...fields) =>
    harness.el("form", { onsubmit: (event) => event.preventDefault(), ...properties }, ...fields);

  harness.section = (title, ...children) =>
    harness.el("section", { class: "section" }, harness.el("h2", null, title), ...children);

  /** One of a list of facts. */
  harness.fact = (name, ...value) =>
    harness.el("div", null, harness.el("dt", null, name), harness.el("dd", null, ...value));

  /** A file for the reader to keep. */
  harness.download = function (name, blob) {
    const href = URL.createObjectURL(blob);
    const anchor = harness.el("a", { href, download: name });
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  };
})(window.harness);
