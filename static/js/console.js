// Comfort only: every page and every action works without this file.
(() => {
  "use strict";

  // Swap style "patch": brings a region up to date node by node, so that focus, selection and open parts stay as they are.
  const KEPT = new Set(["open", "aria-busy"]);
  const sameKind = (a, b) => a && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

  function patchNode(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    patchChildren(old, fresh);
  }

  function patchChildren(old, fresh) {
    const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const twin = next.id ? named.get(next.id) : at;
      if (!sameKind(twin, next)) {
        old.insertBefore(next, at);
        continue;
      }
      if (twin !== at) old.insertBefore(twin, at);
      at = twin.nextSibling;
      patchNode(twin, next);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  htmx.defineExtension("patch", {
    handleSwap(style, target, fragment) {
      if (style !== "patch") return false;
      const focused = document.activeElement;
      patchChildren(target, fragment);
      if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
      return [target];
    },
  });

  // Nobody looks at a hidden tab: polling rests until it is shown.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden) event.preventDefault();
  });

  // What is said at the edge of the screen goes by itself; what has to stay is a note in the page.
  const SAID_MS = 8000;
  let fading = 0;
  function say(text) {
    document.getElementById("status").textContent = text;
    clearTimeout(fading);
    fading = setTimeout(() => say(""), SAID_MS);
  }

  // A page that renews itself is only as good as its last answer: as soon as answers fail to come it says how old it is, until one
  // comes. Times are the server's own, since clocks differ.
  const PATIENCE_MS = 4000; // without an answer; much longer than any page takes
  const asked = new Map(); // element that renews itself: when it has asked, while there is no answer
  const heard = new Map(); // id of a region: when the server last said what is in it
  const silent = new Map(); // id of a region: why there is no news of it
  let unanswered = null; // a filter whose list never came
  const renewsItself = (elt) => elt.matches("[hx-trigger*='every']");
  const drawnAt = () => document.body.dataset.drawn;

  function showAge() {
    const note = document.getElementById("old-page");
    note.hidden = silent.size === 0;
    if (note.hidden) return;
    const oldest = [...silent.keys()].map((id) => heard.get(id) ?? drawnAt()).sort()[0];
    const text = `This page shows what was known at ${oldest}; ${[...silent.values()][0]}. Trying again.`;
    const words = note.querySelector("p");
    if (words.textContent !== text) words.textContent = text;
  }

  function isSilent(region, why) {
    silent.set(region.id, why);
    showAge();
  }

  function hasAnswered(region, xhr) {
    const at = new Date(xhr.getResponseHeader("Date") ?? Date.now());
    heard.set(region.id, `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`);
    silent.delete(region.id);
    showAge();
    const filter = unanswered;
    unanswered = null;
    if (filter?.isConnected) htmx.trigger(filter, "change"); // the words in it are still not those of the list
  }

  // What was sent without an answer may have been carried out or not; nobody may take silence for either.
  function tellForm(form, why, advice) {
    form.querySelector("[data-unanswered]")?.remove();
    const note = document.getElementById("unanswered").content.firstElementChild.cloneNode(true);
    note.querySelector("strong").textContent = why;
    note.querySelector("span").textContent = advice;
    form.querySelector(".panel-body").prepend(note);
  }

  const UNKNOWN = "It may have been carried out or not. Close this, look at the page, and try again only if nothing has changed there.";
  const REFUSED = "Nothing was changed. Close this and reload the page: it has changed, or you are signed out, or may not do this.";

  function failed({ detail }, why, advice = UNKNOWN) {
    if (detail.requestConfig.verb !== "get") tellForm(detail.elt, `${why[0].toUpperCase()}${why.slice(1)}.`, advice);
    else if (document.getElementById("live") === detail.target || renewsItself(detail.elt)) isSilent(detail.target, why);
    else say(`This could not be opened: ${why}. Try again.`);
    if (detail.elt.matches("form.filters")) unanswered = detail.elt;
  }

  document.addEventListener("htmx:timeout", (event) => failed(event, "the server does not answer"));
  document.addEventListener("htmx:sendError", (event) => failed(event, "the server does not answer"));
  document.addEventListener("htmx:responseError", (event) => {
    const { status } = event.detail.xhr;
    if (status < 500) failed(event, `the server refuses this (${status})`, REFUSED);
    else failed(event, `the server answers with an error (${status})`);
  });
  document.addEventListener("htmx:beforeSend", ({ detail }) => renewsItself(detail.elt) && asked.set(detail.elt, Date.now()));
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    asked.delete(detail.elt);
    if (detail.successful && detail.target.id && detail.requestConfig.verb === "get") hasAnswered(detail.target, detail.xhr);
  });
  setInterval(() => {
    for (const [elt, at] of asked) if (Date.now() - at > PATIENCE_MS) isSilent(elt, "the server does not answer");
  }, 1000);

  // Confirmations open in a dialog; without this they are pages of their own.
  document.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "dialog" && !target.open) target.showModal();
  });

  document.addEventListener("click", async ({ target }) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    const button = target.closest("[data-copy]");
    if (button) await copy(button.parentElement.querySelector("pre"));
  });

  document.addEventListener("change", ({ target }) => {
    if (!target.matches("[data-pick-page]")) return;
    for (const pick of target.form.querySelectorAll("input[name=mirror]")) pick.checked = target.checked;
  });

  // Without TLS, or where the browser forbids it, there is no clipboard: the text is selected instead.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text.textContent);
      say("Copied.");
    } catch {
      text.focus();
      getSelection().selectAllChildren(text);
      say("Not copied: the browser gives this page no clipboard. The text is selected, press Ctrl+C or ⌘C.");
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
    if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    document.getElementById("search")?.focus();
  });

  // On a narrow screen the tabs scroll sideways; the one that is shown must not be hidden.
  for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
    const strip = tab.closest(".tabs"), [at, whole] = [tab.getBoundingClientRect(), strip.getBoundingClientRect()];
    strip.scrollLeft += at.left - whole.left - (whole.width - at.width) / 2;
  }

  for (const list of document.querySelectorAll("select[data-combobox]")) {
    new TomSelect(list, { maxOptions: 200, closeAfterSelect: true, searchField: ["text"], placeholder: list.dataset.combobox });
    list.setAttribute("aria-hidden", "true"); // the combobox speaks for it
  }

  // The name that a link's prefix makes of the chosen topic; also of one that the browser has put back into the form.
  for (const name of document.querySelectorAll("output[data-prefix]")) {
    const topic = document.getElementById(name.htmlFor.value);
    const show = () => (name.value = `${name.dataset.prefix}${topic.value.trim() || "…"}`);
    for (const [source, event] of [[topic, "input"], [topic, "change"], [window, "pageshow"]]) source.addEventListener(event, show);
  }
})();
