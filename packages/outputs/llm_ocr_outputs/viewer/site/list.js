"use strict";
// Lists of pages and of documents: only visible rows are in the DOM.

const List = (() => {
  const ROW = 60; // pixels; --row in viewer.css
  const MOST = 300000; // upper limit of rows that a browser scrolls smoothly
  let ranks = null; // null: all pages, worst first
  let selected = 0;
  let turn = 0;
  let drawn = new Map();
  let documents = false;

  const frame = () => document.getElementById("rows");
  const count = () => (documents ? Site.facts.documents : ranks ? ranks.length : Site.total);
  const rankAt = (place) => (ranks ? ranks[place] : place);

  // Update the list after a change of the filters.
  async function update() {
    const mine = ++turn;
    documents = State.now.view === "documents";
    Filters.show();
    document.getElementById("list-view").classList.toggle("of-documents", documents);
    if (documents) await Site.loadAll("documents", Site.facts.documents);
    else {
      const slow = setTimeout(() => mine === turn && say("Looking ..."), 250);
      const left = await Filters.ranks((share) => mine === turn && share < 1 && say(`Searching ... ${Math.round(100 * share)} %`));
      clearTimeout(slow);
      if (mine !== turn) return;
      ranks = left;
    }
    if (mine !== turn) return;
    selected = 0;
    frame().scrollTop = 0;
    redraw();
    say(found());
  }

  const say = (text) => (document.getElementById("found").textContent = text);

  function found() {
    if (documents) return plural(Site.facts.documents, "document");
    const all = plural(Site.total, "page");
    if (!State.filtered()) return `${all} of ${plural(Site.facts.documents, "document")}`;
    const of = State.now.document === "" ? "" : documentName();
    return `${count().toLocaleString("en")} of ${all}${of ? `: ${of}` : ""}`;
  }

  function documentName() {
    const row = ranks && ranks.length ? Site.row(ranks[0]) : null;
    return row ? row[NAME] : "";
  }

  function redraw() {
    for (const row of drawn.values()) row.remove();
    drawn = new Map();
    const space = document.getElementById("space");
    space.style.height = `${Math.min(count(), MOST) * ROW}px`;
    space.dataset.empty = count() ? "" : State.filtered() ? "No page matches these filters." : "No pages.";
    draw();
  }

  function draw() {
    const box = frame();
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
    const last = Math.min(Math.min(count(), MOST) - 1, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 5);
    for (const [place, row] of drawn) {
      if (place < first || place > last) {
        row.remove();
        drawn.delete(place);
      }
    }
    for (let place = first; place <= last; place++) if (!drawn.has(place)) put(place);
  }

  function put(place) {
    const element = documents ? documentRow(place) : pageRow(place);
    element.style.transform = `translateY(${place * ROW}px)`;
    element.classList.toggle("selected", place === selected);
    drawn.set(place, element);
    document.getElementById("space").append(element);
  }

  function pageRow(place) {
    const row = Site.row(rankAt(place));
    if (!row) {
      Site.loadRow(rankAt(place)).then(() => {
        if (drawn.has(place) && !documents) {
          drawn.get(place).remove();
          put(place);
        }
      });
      return make("a", { class: "row waiting" });
    }
    const excerpt = make("span", { class: "excerpt" }, row[EXCERPT]);
    const element = make(
      "a", { class: "row", href: State.hash({ page: row[ID] }), onclick: () => (selected = place) },
      make("i", { class: `dot ${row[STATUS]}`, title: row[STATUS] }),
      make("span", { class: "what" }, title(row), excerpt),
      make("span", { class: "badges" }, badges(row)),
      Site.facts.compares ? meter(row[SHARE], "words equal") : Site.facts.scored ? meter(row[QUALITY], "quality") : null,
    );
    if (State.now.q) snippet(row, excerpt);
    return element;
  }

  function title(row) {
    const cut = row[NAME].lastIndexOf("/") + 1;
    return make(
      "span", { class: "title", title: row[NAME] },
      cut ? make("small", {}, row[NAME].slice(0, cut)) : null,
      make("bdi", {}, row[NAME].slice(cut)),
      row[NUMBER] === null ? null : [" ", make("em", {}, `p. ${row[NUMBER]}`)],
    );
  }

  function badges(row) {
    const has = Filters.HAS.filter(([flag]) => row[FLAGS].includes(flag)).map(([, word]) => make("span", { class: "badge" }, word));
    const reason = row[REASON] ? make("span", { class: `badge ${row[STATUS]}` }, row[REASON]) : null;
    const side = row[SIDE] ? make("span", { class: `badge side ${row[SIDE]}` }, `only in ${Filters.names()[row[SIDE] === "first" ? 0 : 1]}`) : null;
    const other = row[OTHER] && row[OTHER] !== row[STATUS] ? make("span", { class: `badge ${row[OTHER]}` }, `there ${row[OTHER]}`) : null;
    return [reason, side, other, ...has];
  }

  function meter(value, what) {
    if (value === null || value === undefined) return make("span", { class: "meter none", title: `no ${what}` }, "–");
    const bar = make("i");
    bar.style.width = `${100 * value}%`;
    const level = value < 0.5 ? "low" : value < 0.85 ? "middle" : "high";
    return make("span", { class: `meter ${level}`, title: `${percent(value)} ${what}` }, make("span", {}, bar), make("b", {}, String(Math.round(100 * value))));
  }

  // Show the part of the page with the searched words as its excerpt.
  async function snippet(row, excerpt) {
    const pattern = Search.pattern(State.now.q);
    if (!pattern) return;
    const readings = await Site.readings(row[N]).catch(() => []);
    for (const reading of readings) {
      const text = reading ? reading.markdown.replace(/!\[[^\]]*\]\([^)]*\)|\*Figure [^:\s]+: |<[^>]{0,200}>|[#*$|]+/g, " ").replace(/\s+/g, " ") : "";
      const at = text.search(pattern);
      if (at < 0) continue;
      const start = Math.max(0, at - 50);
      excerpt.replaceChildren(start ? "... " : "", ...marked(text.slice(start, at + 160), pattern));
      return;
    }
  }

  function marked(text, pattern) {
    const parts = [];
    let at = 0;
    for (const match of text.matchAll(pattern)) {
      parts.push(text.slice(at, match.index), make("mark", {}, match[0]));
      at = match.index + match[0].length;
    }
    return [...parts, text.slice(at)];
  }

  function documentRow(place) {
    const size = Site.facts.sizes.documents;
    const [d, name, source, pages, ok, degraded, failed, quality, share] = Data.peek(`documents/${Math.floor(place / size)}`)[place % size];
    const row = { [NAME]: name, [NUMBER]: null };
    const worst = failed ? "failed" : degraded ? "degraded" : "ok";
    const counts = [["degraded", degraded], ["failed", failed]].filter(([, many]) => many);
    return make(
      "a", { class: "row", href: ofDocument(d), onclick: () => (selected = place) },
      make("i", { class: `dot ${worst}` }),
      make("span", { class: "what" }, title(row), make("span", { class: "excerpt" }, source)),
      make("span", { class: "badges" }, counts.map(([status, many]) => make("span", { class: `badge ${status}` }, `${many} ${status}`)), make("span", { class: "badge" }, plural(pages, "page"))),
      Site.facts.compares ? meter(share, "words equal") : Site.facts.scored ? meter(quality, "quality") : null,
    );
  }

  const ofDocument = (d) => State.hash({ ...State.DEFAULTS, document: String(d), sort: "order" });

  // Move the selection, keeping it visible.
  function move(by) {
    if (!count()) return;
    drawn.get(selected)?.classList.remove("selected");
    selected = Math.min(Math.max(selected + by, 0), Math.min(count(), MOST) - 1);
    const box = frame();
    if (selected * ROW < box.scrollTop) box.scrollTop = selected * ROW;
    const bottom = (selected + 1) * ROW;
    if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    draw();
    drawn.get(selected)?.classList.add("selected");
  }

  function open() {
    drawn.get(selected)?.click();
  }

  // Return the index of a page in the list, or -1; the page is selected when the list is shown again.
  function select(rank) {
    const place = ranks ? ranks.indexOf(rank) : rank;
    if (place >= 0) selected = place;
    return place;
  }

  function reveal() {
    move(0);
    redraw();
  }

  // Return the row at a distance of `by` from this one, or null at the end.
  async function neighbour(place, by) {
    const next = place + by;
    if (next < 0 || next >= (ranks ? ranks.length : Site.total)) return null;
    return Site.loadRow(rankAt(next));
  }

  const pages = () => (ranks ? ranks.length : Site.total);

  return { update, draw, move, open, select, reveal, neighbour, pages, meter, ofDocument };
})();
