"use strict";
// Filters above the list, and the pages that match them.

const Filters = (() => {
  const STATUSES = ["ok", "degraded", "failed"];
  const HAS = [
    ["t", "table"], ["f", "figure"], ["m", "formula"], ["u", "unread ink"], ["x", "unsupported text"], ["r", "fallback"],
    ["b", "blank"],
  ];

  // ranks of the matching pages, in order; null for all of them, worst first
  async function ranks(progress) {
    const { now } = State;
    if (!State.filtered() && !now.sort) return null;
    const [found] = await Promise.all([now.q ? Search.find(now.q) : null, Site.loadAll("rows", Site.total, progress)]);
    const keeps = test(now, found);
    const left = [];
    for (let rank = 0; rank < Site.total; rank++) if (keeps(Site.row(rank))) left.push(rank);
    return sorted(left, now.sort);
  }

  function test(now, found) {
    const statuses = now.status ? now.status.split(",") : null;
    const name = now.name.toLowerCase();
    const below = now.below === "" ? null : Number(now.below) / 100;
    const score = Site.facts.compares ? SHARE : QUALITY;
    return (row) =>
      (!found || found.has(row[N])) &&
      (!statuses || statuses.includes(row[STATUS])) &&
      (!now.reason || row[REASON] === now.reason) &&
      (!now.engine || row[ENGINE] === now.engine) &&
      (!now.side || (now.side === "both" ? row[SIDE] === "" : row[SIDE] === now.side)) &&
      (now.document === "" || row[DOCUMENT] === Number(now.document)) &&
      (!name || row[NAME].toLowerCase().includes(name)) &&
      [...now.has].every((flag) => row[FLAGS].includes(flag)) &&
      (below === null || (row[score] !== null && row[score] < below));
  }

  function sorted(left, sort) {
    if (sort === "best") return left.reverse();
    if (sort === "order") {
      const byPlan = (one, other) => Site.row(one)[N] - Site.row(other)[N];
      return left.sort(byPlan);
    }
    return left;
  }

  function draw() {
    const { facts } = Site;
    const tools = document.getElementById("tools");
    const [all, ...counts] = facts.counts;
    const first = [
      statusBar(all, counts),
      make("div", { class: "chips" }, STATUSES.map((status, at) => statusChip(status, counts[at]))),
    ];
    const rest = [
      facts.reasons.length ? select("reason", "Any reason", facts.reasons.map(([value, count]) => [value, `${value} (${count})`])) : null,
      facts.engines.length > 1 ? select("engine", "Any engine", facts.engines.map(([value, count]) => [value, `${value} (${count})`])) : null,
      facts.compares ? select("side", "All pages", sides(facts)) : null,
      nameField(),
      make("div", { class: "chips" }, HAS.slice(0, 3).map(([flag, word]) => hasChip(flag, word))),
      facts.unbalanced.some(Boolean) ? make("div", { class: "chips" }, HAS.slice(3, 5).map(([flag, word], at) => hasChip(flag, word, facts.unbalanced[at]))) : null,
      facts.scored || facts.compares ? belowField(facts.compares) : null,
      select("sort", facts.compares ? "Lowest similarity first" : "Worst first", [
        ["best", facts.compares ? "Highest similarity first" : "Best first"],
        ["order", "Document order"],
      ]),
      make("button", { type: "button", class: "clear", id: "clear", onclick: clear }, "Clear"),
    ];
    tools.replaceChildren(...first, ...rest.filter(Boolean));
    show();
  }

  function sides(facts) {
    const [first, second] = names();
    const counts = new Map(facts.sides);
    return [
      ["both", "in both"],
      ["first", `only in ${first} (${counts.get("first") || 0})`],
      ["second", `only in ${second} (${counts.get("second") || 0})`],
    ];
  }

  // Return short names of the workspaces, with more of the path where they end alike.
  function names() {
    const urls = Site.facts.workspaces;
    const ends = urls.map((url) => url.replace(/\/+$/, "").split("/").pop());
    return ends[0] === ends[1] ? urls : ends;
  }

  function statusBar(all, counts) {
    const bar = make("div", { class: "status-bar", title: `${all.toLocaleString("en")} pages` });
    counts.forEach((count, at) => {
      const part = make("span", { class: STATUSES[at] });
      part.style.flexGrow = String(count);
      if (count) bar.append(part);
    });
    return bar;
  }

  function statusChip(status, count) {
    return make(
      "button",
      { type: "button", class: `chip ${status}`, dataset: { status }, disabled: !count, onclick: () => flip(status) },
      make("i", { class: `dot ${status}` }), status, make("b", {}, count.toLocaleString("en")),
    );
  }

  function flip(status) {
    const chosen = new Set(State.now.status ? State.now.status.split(",") : []);
    if (!chosen.delete(status)) chosen.add(status);
    State.go({ status: STATUSES.filter((one) => chosen.has(one)).join(",") }, { replace: true });
  }

  function hasChip(flag, word, count) {
    const change = () => {
      const { has } = State.now;
      State.go({ has: has.includes(flag) ? has.replace(flag, "") : has + flag }, { replace: true });
    };
    const number = count === undefined ? null : make("b", {}, count.toLocaleString("en"));
    const title = count === undefined ? `with a ${word}` : `with ${word}`;
    return make("button", { type: "button", class: "chip", dataset: { has: flag }, disabled: count === 0, onclick: change, title }, word, number);
  }

  function select(name, none, options) {
    const change = (event) => State.go({ [name]: event.target.value }, { replace: true });
    return make(
      "select", { dataset: { field: name }, onchange: change, "aria-label": name },
      make("option", { value: "" }, none), options.map(([value, text]) => make("option", { value }, text)),
    );
  }

  function nameField() {
    const change = (event) => State.go({ name: event.target.value }, { replace: true });
    return make("input", { type: "search", placeholder: "Document", dataset: { field: "name" }, oninput: later(change), "aria-label": "Document" });
  }

  function belowField(compares) {
    const change = (event) => State.go({ below: event.target.value }, { replace: true });
    const field = make("input", { type: "number", min: 0, max: 100, step: 5, dataset: { field: "below" }, oninput: later(change) });
    return make("label", { class: "below" }, compares ? "equal below" : "quality below", field, "%");
  }

  function later(change, wait = 200) {
    let timer = 0;
    return (event) => {
      clearTimeout(timer);
      timer = setTimeout(change, wait, event);
    };
  }

  function clear() {
    State.go({ ...State.DEFAULTS, view: State.now.view, page: State.now.page });
  }

  // Set the filters to the state.
  function show() {
    const { now } = State;
    for (const field of document.querySelectorAll("[data-field]")) {
      if (document.activeElement !== field) field.value = now[field.dataset.field];
      field.classList.toggle("set", now[field.dataset.field] !== "");
    }
    for (const chip of document.querySelectorAll("[data-status]")) {
      chip.setAttribute("aria-pressed", String(now.status.split(",").includes(chip.dataset.status)));
    }
    for (const chip of document.querySelectorAll("[data-has]")) {
      chip.setAttribute("aria-pressed", String(now.has.includes(chip.dataset.has)));
    }
    const query = document.getElementById("query");
    if (document.activeElement !== query) query.value = now.q;
    document.getElementById("clear").hidden = !State.filtered();
  }

  return { ranks, draw, show, later, names, HAS };
})();
