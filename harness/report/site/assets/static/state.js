// What a page shows stands behind the # of its address, so that every view can be shared and gone back to.
"use strict";
(function (harness) {
  const state = (harness.state = {});
  let listener = () => {};

  state.get = (key) => new URLSearchParams(window.location.hash.slice(1)).get(key);

  function changed(patch) {
    const parameters = new URLSearchParams(window.location.hash.slice(1));
    for (const [key, value] of Object.entries(patch)) {
      if (value === null || value === undefined || value === "") parameters.delete(key);
      else parameters.set(key, value);
    }
    return `#${parameters}`;
  }

  /** Another view of this page, one step back from the present one; null or "" takes a key out. */
  state.go = function (patch) {
    const hash = changed(patch);
    if (hash !== window.location.hash) window.history.pushState(null, "", hash);
    listener();
  };

  /** The same view, described anew: a zoom, a filter, an order. Draws nothing. */
  state.note = function (patch) {
    const hash = changed(patch);
    if (hash !== window.location.hash) window.history.replaceState(null, "", hash);
  };

  state.address = (page, parameters) => {
    const kept = Object.entries(parameters ?? {}).filter(
      ([, value]) => value !== null && value !== undefined && value !== "",
    );
    const query = new URLSearchParams(kept.map(([key, value]) => [key, String(value)]));
    return kept.length ? `${page}.html#${query}` : `${page}.html`;
  };

  state.listen = function (listen) {
    listener = listen;
    // Going back to a view of this page, and an address typed by hand, both end here.
    window.addEventListener("popstate", listen);
  };

  state.onceQuiet = function (action, wait_ms = 200) {
    let timer = 0;
    return (...values) => {
      clearTimeout(timer);
      timer = setTimeout(() => action(...values), wait_ms);
    };
  };
})(window.harness);
