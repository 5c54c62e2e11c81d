"use strict";
// A page: its image with boxes and its text, or two readings side by side.

const Page = (() => {
  const shown = { boxes: true, markdown: false, details: false };
  let here = null; // {row, place, readings}
  let turn = 0;

  const root = () => document.getElementById("page-view");

  async function open(id) {
    const mine = ++turn;
    const found = await Site.place(id);
    if (mine !== turn) return;
    if (!found) {
      here = null;
      return root().replaceChildren(head([back()]), make("p", { class: "message" }, `The page ${id} does not exist.`));
    }
    const [row, readings] = await Promise.all([Site.loadRow(found.rank), Site.readings(found.n)]);
    if (mine !== turn) return;
    here = { row, readings, place: List.select(found.rank) };
    draw();
    fetchAhead(mine);
  }

  function draw() {
    const { row, readings } = here;
    const first = readings.find(Boolean);
    const panes = readings.map((reading, at) => textPane(row, reading, at, readings.length > 1));
    const sheet = first ? Layout.draw(row[N], first) : null;
    const scan = make("section", { class: "pane scan-pane", "aria-label": "Page image" }, sheet, first && (first.blocks.length || first.unread.length) && first.image ? Layout.legend(first, sheet) : null);
    root().replaceChildren(bar(row, first), make("div", { class: `panes of-${panes.length}` }, scan, ...panes));
    root().scrollTop = 0;
    if (panes.length > 1) scrollTogether(panes);
    apply();
    for (const article of root().querySelectorAll("article")) {
      Formulas.set(article).then(() => highlight(root()), () => article.classList.add("without-formulas"));
    }
    highlight(root());
    document.title = `${row[NAME]}${row[NUMBER] === null ? "" : `, page ${row[NUMBER]}`} · ${Site.facts.title}`;
  }

  function bar(row, reading) {
    const cut = row[NAME].lastIndexOf("/") + 1;
    const of = reading && reading.total ? ` of ${reading.total}` : "";
    const position = here.place < 0 ? "" : `${(here.place + 1).toLocaleString("en")} / ${List.pages().toLocaleString("en")}`;
    const score = Site.facts.compares ? [row[SHARE], "words equal"] : Site.facts.scored ? [row[QUALITY], "quality"] : null;
    return head([
      back(),
      make("h1", { title: row[NAME] }, make("a", { href: List.ofDocument(row[DOCUMENT]) }, make("bdi", {}, row[NAME].slice(cut))), row[NUMBER] === null ? null : make("small", {}, `page ${row[NUMBER]}${of}`)),
      make("span", { class: `badge ${row[STATUS]}` }, row[REASON] || row[STATUS]),
      score && !Site.facts.compares && score[0] !== null ? List.meter(...score) : null,
      score && Site.facts.compares && row[SHARE] !== null ? make("span", { class: "muted" }, `${percent(row[SHARE])} of words equal`) : null,
      make("span", { class: "gap" }),
      toggle("boxes", "Boxes", "b"), toggle("markdown", "Markdown", "m"), toggle("details", "Details", "i"),
      make("span", { class: "muted position" }, position),
      make("button", { type: "button", class: "icon", title: "Previous (k)", "aria-label": "Previous page", disabled: here.place <= 0, onclick: () => step(-1) }, "‹"),
      make("button", { type: "button", class: "icon", title: "Next (j)", "aria-label": "Next page", disabled: here.place < 0 || here.place >= List.pages() - 1, onclick: () => step(1) }, "›"),
    ]);
  }

  const head = (parts) => make("div", { class: "page-bar" }, parts);
  const back = () => make("button", { type: "button", class: "icon", title: "Back (esc)", "aria-label": "Back to the list", onclick: close }, "←");

  function toggle(name, text, key) {
    return make("button", { type: "button", class: "chip", dataset: { toggle: name }, title: `${text} (${key})`, onclick: () => flip(name) }, text);
  }

  function flip(name) {
    shown[name] = !shown[name];
    apply();
  }

  function apply() {
    for (const [name, on] of Object.entries(shown)) {
      root().classList.toggle(`with-${name}`, on);
      root().querySelector(`[data-toggle="${name}"]`)?.setAttribute("aria-pressed", String(on));
    }
  }

  function textPane(row, reading, at, compares) {
    const title = compares ? make("h2", { class: at ? "second" : "first", title: Site.facts.workspaces[at] }, Filters.names()[at]) : null;
    if (!reading) return make("section", { class: "pane text" }, title, make("p", { class: "message" }, "This workspace does not have the page."));
    const article = make("article");
    article.innerHTML = reading.html; // sanitized when the site was made; see rendering.py
    fill(article, row[N], reading);
    Layout.follow(article);
    const status = at && row[SIDE] === "" ? row[OTHER] : row[STATUS];
    return make(
      "section", { class: "pane text", "aria-label": "Text" }, title,
      status === "ok" ? null : failure(row, reading, status, at),
      details(row, reading),
      fieldList(reading),
      article,
      make("pre", { class: "raw" }, underlined(reading)),
    );
  }

  // The values of the page's document that are quoted from this page; without a quote, on the first page.
  function fieldList({ fields }) {
    if (!fields.length) return null;
    const rows = fields.map(([path, value, quote, quoted], at) => make(
      "tr", { tabIndex: 0, class: quoted ? "" : "unquoted", onmouseenter: () => Layout.pointField(at), onfocus: () => Layout.pointField(at), onmouseleave: () => Layout.pointField(undefined) },
      make("th", {}, path), make("td", {}, value), make("td", {}, quote ? make("q", {}, quote) : null, quoted ? null : make("span", { class: "badge degraded" }, "not quoted")),
    ));
    return make("table", { class: "fields", "aria-label": "Fields" }, make("tbody", {}, rows));
  }

  // The Markdown with its unsupported text underlined.
  function underlined({ markdown, unsupported }) {
    const parts = [];
    let last = 0;
    for (const [, start, end] of unsupported.filter(([, start]) => start !== null).sort((one, other) => one[1] - other[1])) {
      if (end <= last) continue;
      const begin = Math.max(start, last);
      parts.push(markdown.slice(last, begin), make("u", { class: "unsupported", title: UNSUPPORTED }, markdown.slice(begin, end)));
      last = end;
    }
    return [...parts, markdown.slice(last)];
  }

  function ledger(values) {
    if (!values) return [];
    const [ink, unread, unsupported, furniture, invisible, evidence] = values;
    return [
      ["ink", `${percent(ink)} of the page`], ["unread ink", percent(unread)], ["unsupported text", percent(unsupported)],
      ["ink in heads and feet", percent(furniture)], ...(invisible ? [["invisible text", `${invisible} characters`]] : []),
      ["compared with", { ink: "the ink", layer: "the ink and the text layer", ocr: "the ink and OCR" }[evidence]],
    ];
  }

  function fill(article, n, reading) {
    for (const place of article.querySelectorAll(".figure")) {
      const figure = reading.figures[Number(place.dataset.f)];
      if (!figure || !figure.image) continue;
      const [file, width, height] = figure.image;
      place.append(make("img", { src: Site.image(n, file), alt: figure.description || figure.caption, width, height, loading: "lazy" }));
      if (figure.label) place.append(make("span", { class: "figure-label" }, figure.label));
      // A short description is only the alt text of the Markdown.
      if (!article.textContent.includes(figure.description)) place.append(make("span", { class: "description" }, figure.description));
    }
  }

  function failure(row, reading, status, at) {
    const words = status === "failed" ? "This page failed" : "This page is degraded";
    const reason = at && row[SIDE] === "" ? "" : row[REASON];
    const retry = status === "failed" ? make("p", {}, "To read the failed pages again: ", make("code", {}, `llm-ocr retry-failed -w ${Site.facts.workspaces[at]}`)) : null;
    return make("div", { class: `callout ${status}` }, make("strong", {}, reason ? `${words}: ${reason}` : words), reading.detail ? make("p", {}, reading.detail) : null, attempts(reading), retry);
  }

  function attempts(reading) {
    if (!reading.attempts.length) return null;
    return listed(plural(reading.attempts.length, "try").replace("trys", "tries"), reading.attempts);
  }

  function listed(title, entries) {
    const items = entries.map((pairs) => make("li", {}, pairs.map(([name, value]) => make("span", {}, make("b", {}, name), ` ${value}`))));
    return make("details", {}, make("summary", {}, title), make("ol", { class: "attempts" }, items));
  }

  function details(row, reading) {
    const values = [
      ["document", reading.source], ["page id", row[ID]], ["engine", row[ENGINE]], ["text from", reading.textSource],
      ["tokens", reading.tokens.some(Boolean) ? `${reading.tokens[0]} in, ${reading.tokens[1]} out` : ""],
      ["seconds", reading.seconds || ""], ["turned", reading.rotation ? `${reading.rotation}°` : ""],
      ["text layer differs from OCR", reading.probe === null ? "" : percent(reading.probe)],
      ["blocks", reading.blocks.length || ""], ...reading.notes,
      ...ledger(reading.ledger),
      ...reading.quality.map(([name, share]) => [`quality: ${name.replaceAll("_", " ")}`, percent(share)]),
    ].filter(([, value]) => value !== "");
    return make("dl", { class: "details" }, values.map(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]), reading.attempts.length ? [make("dt", {}, "tries"), make("dd", {}, attempts(reading))] : [],
      reading.readings.length ? [make("dt", {}, "readings"), make("dd", {}, listed(`${reading.readings.length}, the better one counts`, reading.readings))] : []);
  }

  // Mark the searched words in the text.
  function highlight(element) {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("found");
    const pattern = State.now.q && Search.pattern(State.now.q);
    if (!pattern) return;
    const ranges = [];
    for (const article of element.querySelectorAll("article, .raw")) {
      const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < 2000) {
        for (const match of walker.currentNode.data.matchAll(pattern)) {
          const range = new Range();
          range.setStart(walker.currentNode, match.index);
          range.setEnd(walker.currentNode, match.index + match[0].length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
    ranges[0]?.startContainer.parentElement.scrollIntoView({ block: "nearest" });
  }

  // Scroll both readings together, as they have about the same length.
  function scrollTogether(panes) {
    let leads = null;
    for (const pane of panes) {
      for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) pane.addEventListener(kind, () => (leads = pane), { passive: true });
      pane.addEventListener("scroll", () => {
        if (leads !== pane) return;
        const share = pane.scrollTop / Math.max(1, pane.scrollHeight - pane.clientHeight);
        for (const other of panes) if (other !== pane) other.scrollTop = share * (other.scrollHeight - other.clientHeight);
      }, { passive: true });
    }
  }

  // Move to the next word that differs from the other reading.
  const nextDifference = () => next("article mark");

  // Move to the next unread ink or unsupported text.
  const nextUnbalanced = () => next(shown.markdown ? ".box.k-unread, .raw .unsupported" : ".box.k-unread, article .unsupported");

  function next(selector) {
    const marks = [...root().querySelectorAll(selector)];
    const at = marks.findIndex((mark) => mark.classList.contains("here"));
    marks[at]?.classList.remove("here");
    const mark = marks[(at + 1) % marks.length];
    mark?.classList.add("here");
    mark?.scrollIntoView({ block: "center" });
  }

  async function step(by) {
    if (!here || here.place < 0) return;
    const row = await List.neighbour(here.place, by);
    if (row) State.go({ page: row[ID] }, { replace: true });
  }

  // Preload the next page.
  async function fetchAhead(mine) {
    const row = here.place < 0 ? null : await List.neighbour(here.place, 1);
    if (!row || mine !== turn) return;
    const reading = (await Site.readings(row[N])).find(Boolean);
    if (reading && reading.image) new Image().src = Site.image(row[N], reading.image[0]);
  }

  const close = () => State.go({ page: "" });

  return { open, step, flip, close, nextDifference, nextUnbalanced };
})();
