// Keeps an open page up to date. The server says that the fleet changed; the page then loads its own address again
// and replaces its content. Without JavaScript, the page reloads every 15 seconds.
"use strict";

(() => {
  const RELOAD_WITHOUT_EVENTS = 15000;
  const PATIENCE = 20000;
  const live = document.getElementById("live");
  const main = document.getElementById("content");
  const news = document.getElementById("news");
  const old = document.getElementById("not-refreshed");
  let loading = false;
  let stale = false;
  let failed = false;
  let state = ["", ""];

  // After a failure the page keeps what it showed, and says its age until a load succeeds.
  function show() {
    const loaded = document.querySelector("footer time").dateTime.slice(11, 19);
    const [text, kind] = failed ? ["", "off"] : state;
    if (live.textContent !== text) live.textContent = text;
    live.className = `live ${kind}`;
    const age = failed ? `Not refreshed since ${loaded}Z; trying again.` : "";
    if (old.textContent !== age) old.textContent = age;
  }

  function say(text, kind) {
    state = [text, kind];
    show();
  }

  function verdict() {
    const heading = document.getElementById("verdict");
    return heading ? heading.textContent : "";
  }

  function isInUse() {
    // Replacing a form or a selection that the reader uses would lose it.
    const active = document.activeElement;
    if (active && main.contains(active) && active.matches("input, select, textarea")) return true;
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && main.contains(selection.anchorNode));
  }

  function replace(next) {
    const open = new Set([...main.querySelectorAll("details[open]")].map((one) => one.id));
    const focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const scrolled = [...main.querySelectorAll(".grid-wrap")].map((one) => one.scrollLeft);
    const before = verdict();
    main.replaceChildren(...next.getElementById("content").childNodes);
    // Screen readers announce a text that appears in a status of the page, and not one in a new element.
    if (verdict() !== before) news.textContent = verdict();
    for (const one of main.querySelectorAll("details")) one.open = open.has(one.id);
    main.querySelectorAll(".grid-wrap").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
    if (focused) {
      const again = [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
    document.title = next.title;
    const time = next.querySelector("footer time");
    document.querySelector("footer time").replaceWith(time);
  }

  async function update() {
    if (loading || document.hidden || isInUse()) {
      stale = true;
      return;
    }
    loading = true;
    stale = false;
    try {
      const signal = AbortSignal.timeout(PATIENCE);
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store", signal });
      const isPage = (answer.headers.get("content-type") || "").startsWith("text/html");
      // A page of something that is gone has another status, and is a page.
      if (answer.status >= 500 || answer.status === 429 || !isPage) throw new Error(`answered ${answer.status}`);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (next.getElementById("token")) {
        location.reload(); // the session is over: the page is the form for the token
        return;
      }
      if (!next.getElementById("live") || !next.getElementById("content")) throw new Error("no page");
      replace(next);
      failed = false;
    } catch {
      failed = true;
      stale = true;
    } finally {
      loading = false;
      show();
    }
  }

  function listen() {
    const events = new EventSource("/events");
    events.addEventListener("open", () => {
      say("Live.", "on");
      if (failed) update();
    });
    events.addEventListener("changed", update);
    events.addEventListener("error", () => {
      if (events.readyState === EventSource.CLOSED) {
        say("Reloads every 15 s.", "");
        setInterval(update, RELOAD_WITHOUT_EVENTS);
      } else {
        failed = true;
        stale = true;
        show();
      }
    });
    addEventListener("pagehide", () => events.close());
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) update(); });
  setInterval(() => { if (stale) update(); }, 2000);
  listen();
})();
