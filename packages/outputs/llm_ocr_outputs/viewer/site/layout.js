"use strict";
// The page's image with its boxes; a box and its text highlight each other.

const UNSUPPORTED = "nothing on the page supports this text"; // as in rendering.py

const Layout = (() => {
  function draw(n, reading) {
    if (!reading.image) return make("div", { class: "no-image" }, "no image");
    const [file, width, height] = reading.image;
    const image = make("img", { class: "scan", src: Site.image(n, file), alt: "the page", width, height, decoding: "async" });
    const sheet = make("div", { class: "sheet" }, image);
    sheet.style.aspectRatio = `${width} / ${height}`;
    const unsupported = new Set(reading.unsupported.map(([block]) => block));
    reading.blocks.forEach(([kind, label, boxes], block) => {
      boxes.forEach((box, part) => sheet.append(boxElement(kind, label, block, box, part, unsupported.has(block))));
    });
    fieldBoxes(reading.fields).forEach((element) => sheet.append(element));
    reading.unread.forEach((box, at) => sheet.append(unreadElement(box, `unread ink ${at + 1} of ${reading.unread.length}`)));
    sheet.addEventListener("mouseover", (event) => point(event.target.dataset.b, sheet));
    sheet.addEventListener("mouseleave", () => point(undefined, sheet));
    sheet.addEventListener("click", (event) => toText(event.target.dataset.b));
    return sheet;
  }

  function boxElement(kind, label, block, box, part, unsupported) {
    const name = label && label.toLowerCase() !== kind.replace("_", " ") && label !== kind ? `${kind.replace("_", " ")} · ${label}` : kind.replace("_", " ");
    const tag = part ? null : make("span", { class: "tag" }, `${block + 1} ${name}${unsupported ? " · unsupported text" : ""}`);
    const element = make("div", { class: `box k-${kind}`, dataset: { b: String(block) } }, tag);
    if (unsupported) {
      element.classList.add("unsupported");
      element.title = UNSUPPORTED;
    }
    return placed(element, box);
  }

  // The places of quotes, one outline for all fields of a block.
  function fieldBoxes(fields) {
    const places = new Map();
    fields.forEach(([path, , , , box], at) => {
      if (box) places.set(String(box), [...(places.get(String(box)) || [box]), [path, at]]);
    });
    return [...places.values()].map(([box, ...found]) => {
      const names = found.map(([path]) => path).join(", ");
      const tag = make("span", { class: "tag" }, names.length > 60 ? `${names.slice(0, 60)}…` : names);
      return placed(make("div", { class: "box k-field", role: "img", "aria-label": `quote of ${names}`, dataset: { fields: found.map(([, at]) => at).join(" ") } }, tag), box);
    });
  }

  // Outline the quote of a field more strongly; undefined for none.
  function pointField(at) {
    for (const element of document.querySelectorAll(".k-field.pointed")) element.classList.remove("pointed");
    const element = at === undefined ? null : document.querySelector(`.k-field[data-fields~="${at}"]`);
    element?.classList.add("pointed");
    element?.scrollIntoView({ block: "nearest" });
  }

  function unreadElement(box, name) {
    return placed(make("div", { class: "box k-unread", role: "img", "aria-label": name, tabIndex: 0, title: name }, make("span", { class: "tag" }, name)), box);
  }

  function placed(element, [x0, y0, x1, y1]) {
    const share = (value) => `${100 * value}%`;
    element.style.left = share(x0);
    element.style.top = share(y0);
    element.style.width = share(x1 - x0);
    element.style.height = share(y1 - y0);
    if (y0 < 0.03) element.classList.add("at-top");
    return element;
  }

  const texts = (block) => document.querySelectorAll(`.text [data-b="${block}"]`);
  const boxes = (block) => document.querySelectorAll(`.sheet [data-b="${block}"]`);

  // Highlight a block on both sides; undefined for none.
  function point(block) {
    for (const element of document.querySelectorAll(".pointed")) element.classList.remove("pointed");
    if (block === undefined) return;
    const place = Number(block);
    for (const element of [...texts(place), ...boxes(place)]) element.classList.add("pointed");
  }

  function toText(block) {
    if (block !== undefined) texts(Number(block))[0]?.scrollIntoView({ block: "center", behavior: "smooth" });
  }

  // Highlighting on the text's side.
  function follow(article) {
    const blockOf = (event) => event.target.closest?.("[data-b]")?.dataset.b;
    article.addEventListener("mouseover", (event) => point(blockOf(event)));
    article.addEventListener("mouseleave", () => point(undefined));
    article.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      const block = blockOf(event);
      if (block !== undefined) boxes(Number(block))[0]?.scrollIntoView({ block: "center", behavior: "smooth" });
    });
  }

  // The kinds of blocks on the page, each with a switch for its boxes.
  function legend(reading, sheet) {
    const kinds = [...new Set(reading.blocks.map(([kind]) => kind)), ...(reading.fields.some(([, , , , box]) => box) ? ["field"] : []), ...(reading.unread.length ? ["unread"] : [])];
    const names = { unread: "unread ink", field: "quotes of fields" };
    const flip = (kind, event) => {
      const off = sheet.classList.toggle(`no-${kind}`);
      for (const box of sheet.querySelectorAll(`.k-${kind}`)) box.hidden = off;
      event.currentTarget.setAttribute("aria-pressed", String(!off));
    };
    return make(
      "div", { class: "legend" },
      kinds.map((kind) =>
        make("button", { type: "button", class: `k-${kind}`, "aria-pressed": "true", onclick: (event) => flip(kind, event) }, make("i"), names[kind] || kind.replace("_", " ")),
      ),
      reading.unsupported.length ? make("u", { class: "unsupported", title: UNSUPPORTED }, "unsupported text") : null,
    );
  }

  return { draw, follow, legend, pointField };
})();

// Formulas: KaTeX is loaded when the first formula is visible.
const Formulas = (() => {
  let coming = null;

  function load() {
    coming ??= new Promise((resolve, reject) => {
      document.head.append(make("link", { rel: "stylesheet", href: `${SITE}/katex/katex.min.css` }));
      document.head.append(make("script", { src: `${SITE}/katex/katex.min.js`, onload: resolve, onerror: reject }));
    });
    return coming;
  }

  async function set(article) {
    const found = [...article.querySelectorAll(".math")];
    if (!found.length) return;
    await load();
    let pause = performance.now();
    for (const element of found) {
      const displayMode = element.tagName === "DIV" || element.classList.contains("display");
      const latex = element.textContent;
      element.title = element.classList.contains("unsupported") ? `${UNSUPPORTED}: ${latex}` : latex;
      katex.render(latex, element, { displayMode, throwOnError: false, trust: false, strict: "ignore", maxExpand: 500, maxSize: 20 });
      if (performance.now() - pause > 12) {
        await new Promise((resume) => setTimeout(resume));
        pause = performance.now();
      }
    }
  }

  return { set };
})();
