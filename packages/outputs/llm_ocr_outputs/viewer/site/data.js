"use strict";
// Data files are scripts that call llmOcr(name, value): a page opened from disk cannot fetch other files.

const SITE = document.currentScript.dataset.site;

const Data = (() => {
  const values = new Map(); // loaded files, least recently used first
  const waiting = new Map();
  const KEPT = 200; // files of pages and terms; lists are kept

  window.llmOcr = (name, value) => {
    values.set(name, value);
    const wait = waiting.get(name);
    if (wait) wait.resolve(value);
  };

  function forgetOld() {
    const loose = [...values.keys()].filter((name) => /^(pages|terms|ids)\//.test(name));
    for (const name of loose.slice(0, Math.max(0, loose.length - KEPT))) values.delete(name);
  }

  function load(name) {
    if (values.has(name)) {
      const value = values.get(name);
      values.delete(name);
      values.set(name, value);
      return Promise.resolve(value);
    }
    if (waiting.has(name)) return waiting.get(name).promise;
    const wait = {};
    wait.promise = new Promise((resolve, reject) => {
      wait.resolve = resolve;
      wait.reject = reject;
    });
    waiting.set(name, wait);
    const script = document.createElement("script");
    script.src = `${SITE}/data/${name}.js`;
    script.onload = () => {
      waiting.delete(name);
      script.remove();
      if (!values.has(name)) wait.reject(new Error(`${script.src} is damaged`));
      forgetOld();
    };
    script.onerror = () => {
      waiting.delete(name);
      script.remove();
      wait.reject(new Error(`${script.src} cannot be read; was the folder moved without index.html?`));
    };
    document.head.append(script);
    return wait.promise;
  }

  // Return a loaded value without waiting.
  const peek = (name) => values.get(name);

  return { load, peek };
})();

// Same function as `fnv1a` in site.py: the bucket of a page id.
function fnv1a(text) {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193);
  return value >>> 0;
}

// Fields of a row of the list, in the order of site.py.
const N = 0, ID = 1, DOCUMENT = 2, NAME = 3, NUMBER = 4, STATUS = 5, REASON = 6, ENGINE = 7, FLAGS = 8;
const QUALITY = 9, EXCERPT = 10, SHARE = 11, SIDE = 12, OTHER = 13;

const Site = {
  get facts() {
    return Data.peek("site");
  },

  get total() {
    return this.facts.counts[0];
  },

  // Return the row of this rank, 0 for the worst page; undefined until its file is loaded.
  row(rank) {
    const size = this.facts.sizes.rows;
    const file = Data.peek(`rows/${Math.floor(rank / size)}`);
    return file && file[rank % size];
  },

  loadRow(rank) {
    return Data.load(`rows/${Math.floor(rank / this.facts.sizes.rows)}`).then(() => this.row(rank));
  },

  // Load all files of a list, a few at a time; `progress` receives the number of loaded files.
  async loadAll(kind, count, progress) {
    const files = Math.ceil(count / this.facts.sizes[kind]);
    let next = 0, done = 0;
    const worker = async () => {
      while (next < files) {
        await Data.load(`${kind}/${next++}`);
        done += 1;
        if (progress) progress(done / files);
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
  },

  // Return the readings of a page: one, or in a comparison two, of which one may be null.
  async readings(n) {
    const size = this.facts.sizes.pages;
    return (await Data.load(`pages/${Math.floor(n / size)}`))[n % size];
  },

  // Return {n, rank} of a page id, or null.
  async place(id) {
    if (!this.total) return null;
    const places = await Data.load(`ids/${fnv1a(id) % this.facts.sizes.buckets}`).catch(() => []);
    const found = places.find(([other]) => other === id);
    return found ? { n: found[1], rank: found[2] } : null;
  },

  image(n, name) {
    return `${SITE}/images/${Math.floor(n / this.facts.sizes.images)}/${name}`;
  },
};

// Create an element with properties and children; texts are never HTML.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const percent = (share) => `${(100 * share).toFixed(share > 0.999 && share < 1 ? 2 : share < 1 ? 1 : 0)} %`;
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
