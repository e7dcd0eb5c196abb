// Light or dark, before anything is painted. Other scripts listen for the event "harness-theme".
"use strict";
(function () {
  const KEY = "harness-theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // A browser may refuse storage to pages opened from a file, or altogether.
  function chosen() {
    try {
      return window.localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function remember(theme) {
    try {
      // Who goes back to what the system wants follows the system again.
      if (theme === (dark.matches ? "dark" : "light")) window.localStorage.removeItem(KEY);
      else window.localStorage.setItem(KEY, theme);
    } catch {
      // Then the choice lasts as long as the page.
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("harness-theme", { detail: theme }));
  }

  const start = chosen();
  apply(start === "dark" || start === "light" ? start : dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => {
    if (!chosen()) apply(dark.matches ? "dark" : "light");
  });

  window.harness = {
    theme: () => document.documentElement.dataset.theme,
    toggleTheme() {
      const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      remember(theme);
      apply(theme);
    },
  };
})();
