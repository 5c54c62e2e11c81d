"use strict";
// The displayed state, as in the address: links to a page, and to a list with its filters, can be saved.

const State = (() => {
  const DEFAULTS = {
    view: "pages", q: "", status: "", reason: "", engine: "", has: "", document: "", name: "", below: "", side: "",
    sort: "", page: "",
  };
  let now = { ...DEFAULTS };

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    now = { ...DEFAULTS };
    for (const name of Object.keys(DEFAULTS)) if (given.has(name)) now[name] = given.get(name);
    return now;
  }

  function hash(changes) {
    const next = { ...now, ...changes };
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries(next)) if (value !== DEFAULTS[name]) given.set(name, value);
    return `#${given}`;
  }

  // Change the state; `replace` adds no entry to the browser's history.
  function go(changes, { replace = false } = {}) {
    const target = hash(changes);
    if (target === (location.hash || "#")) return;
    if (replace) history.replaceState(null, "", target);
    else history.pushState(null, "", target);
    window.dispatchEvent(new Event("hashchange"));
  }

  const filtered = () =>
    Object.entries(now).some(([name, value]) => !["view", "page", "sort"].includes(name) && value !== DEFAULTS[name]);

  return { read, hash, go, filtered, DEFAULTS, get now() { return now; } };
})();

const Theme = {
  // Stored if the browser permits storage for a page from disk.
  start() {
    try {
      this.set(localStorage.getItem("llm-ocr-theme") || "");
    } catch {
      this.set("");
    }
  },

  set(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  },

  toggle() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const shown = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    const next = shown === "dark" ? "light" : "dark";
    this.set(next);
    try {
      localStorage.setItem("llm-ocr-theme", next);
    } catch {
      // the value is valid until the page is closed
    }
  },
};
