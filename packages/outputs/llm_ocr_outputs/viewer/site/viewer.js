"use strict";
// Show the state of the address; keyboard shortcuts.

(() => {
  const listView = document.getElementById("list-view");
  const pageView = document.getElementById("page-view");
  const query = document.getElementById("query");
  const help = document.getElementById("help");
  let listed = null;

  async function show() {
    const now = State.read();
    const wanted = JSON.stringify({ ...now, page: "" });
    document.getElementById("tab-pages").setAttribute("aria-pressed", String(now.view !== "documents"));
    document.getElementById("tab-documents").setAttribute("aria-pressed", String(now.view === "documents"));
    const inPage = now.page !== "";
    const cameBack = !inPage && !pageView.hidden;
    listView.hidden = inPage;
    pageView.hidden = !inPage;
    document.body.classList.toggle("in-page", inPage);
    if (wanted !== listed) {
      listed = wanted;
      await List.update();
    } else if (cameBack) {
      List.reveal();
    }
    if (inPage) await Page.open(now.page);
    else document.title = Site.facts.title;
  }

  function safely(work) {
    return work().catch((error) => {
      document.getElementById("found").textContent = error.message;
      if (!pageView.hidden) pageView.replaceChildren(make("p", { class: "message" }, error.message));
    });
  }

  const inPageKeys = {
    j: () => Page.step(1), k: () => Page.step(-1), ArrowRight: () => Page.step(1), ArrowLeft: () => Page.step(-1),
    Escape: () => Page.close(), b: () => Page.flip("boxes"), m: () => Page.flip("markdown"), i: () => Page.flip("details"),
    n: () => Page.nextDifference(), u: () => Page.nextUnbalanced(),
  };
  const inListKeys = {
    j: () => List.move(1), k: () => List.move(-1), ArrowDown: () => List.move(1), ArrowUp: () => List.move(-1),
    PageDown: () => List.move(10), PageUp: () => List.move(-10), Home: () => List.move(-1e9), End: () => List.move(1e9),
    Enter: () => List.open(), Escape: () => State.go({ q: "" }, { replace: true }),
  };
  const everywhere = {
    "/": () => { query.focus(); query.select(); },
    "?": () => (help.open ? help.close() : help.showModal()),
    t: () => Theme.toggle(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const { target } = event;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape" || (event.key === "Enter" && target === query)) target.blur();
      return;
    }
    if (event.key === "Enter" && target.matches("button, a, summary")) return;
    const act = everywhere[event.key] || (State.now.page ? inPageKeys : inListKeys)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  query.addEventListener("input", Filters.later((event) => {
    State.go({ q: event.target.value.trim(), page: "", view: "pages" }, { replace: !State.now.page });
  }, 150));
  document.getElementById("rows").addEventListener("scroll", () => List.draw(), { passive: true });
  addEventListener("resize", () => List.draw());
  document.getElementById("theme").addEventListener("click", () => Theme.toggle());
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  document.getElementById("tab-pages").addEventListener("click", () => State.go({ view: "pages", page: "" }));
  document.getElementById("tab-documents").addEventListener("click", () => State.go({ view: "documents", page: "" }));
  addEventListener("hashchange", () => safely(show));

  Theme.start();
  Filters.draw();
  safely(show).then(() => (document.documentElement.dataset.ready = "yes"));
})();
