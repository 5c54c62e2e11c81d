"use strict";
// Full-text search over the index of index.py; `terms` is the same function as `terms` in index.py.

const Search = (() => {
  const UNSPACED =
    "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3005-\\u3007\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff" +
    "\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
  const PIECES = new RegExp(`[${UNSPACED}]+|[^${UNSPACED}]+`, "gu");
  const IS_UNSPACED = new RegExp(`^[${UNSPACED}]`, "u");
  const LONGEST = 40;
  const MOST_FILES = 60; // upper limit of files per word: a short prefix matches many
  const LAST = "\u{10ffff}";
  let firsts = null;

  function terms(text) {
    const plain = text.normalize("NFKD").toLowerCase().replace(/\p{M}/gu, "");
    const found = [];
    for (const [word] of plain.matchAll(/[\p{L}\p{N}]+/gu)) {
      for (const [piece] of word.matchAll(PIECES)) {
        const letters = [...piece];
        if (!IS_UNSPACED.test(piece)) found.push(letters.slice(0, LONGEST).join(""));
        else for (let at = 0; at < Math.max(1, letters.length - 1); at++) found.push(letters.slice(at, at + 2).join(""));
      }
    }
    return found;
  }

  // Compare by code points, the order of the files; `<` compares UTF-16 code units.
  function compare(one, other) {
    const left = [...one], right = [...other];
    for (let at = 0; at < Math.min(left.length, right.length); at++) {
      if (left[at] !== right[at]) return left[at].codePointAt(0) - right[at].codePointAt(0);
    }
    return left.length - right.length;
  }

  function fileOf(term) {
    let low = 0, high = firsts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(firsts[middle], term) <= 0) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  // Return the numbers of the pages with a word, or with a word that has this prefix.
  async function pagesWith(term, isBeginning) {
    const from = fileOf(term);
    const to = Math.min(isBeginning ? fileOf(term + LAST) : from, from + MOST_FILES - 1);
    const files = await Promise.all(Array.from({ length: to - from + 1 }, (_, at) => Data.load(`terms/${from + at}`)));
    const found = new Set();
    for (const file of files) {
      for (const [word, steps] of file) {
        if (isBeginning ? !word.startsWith(term) : word !== term) continue;
        let page = 0;
        for (const step of steps) found.add((page += step));
      }
    }
    return found;
  }

  // Return the numbers of the pages with all words of the query; null for a query without words.
  async function find(query) {
    const words = [...new Set(terms(query))];
    if (!words.length) return null;
    if (!Site.facts.search.terms) return new Set();
    firsts ??= await Data.load("directory");
    const sets = await Promise.all(
      words.map((word) => pagesWith(word, IS_UNSPACED.test(word) ? [...word].length === 1 : word.length > 2)),
    );
    sets.sort((one, other) => one.size - other.size);
    return new Set([...sets[0]].filter((page) => sets.every((set) => set.has(page))));
  }

  // Return a matcher that marks the words of a query in a displayed text; null for none.
  function pattern(query) {
    const words = query.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
    if (!words.length) return null;
    return new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "giu");
  }

  return { find, pattern, terms };
})();
