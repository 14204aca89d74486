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

  const say = (text) => {
    const status = document.getElementById("status");
    if (status.textContent !== text) status.textContent = text;
  };
  document.addEventListener("htmx:sendError", () => say("The console does not answer. Trying again…"));
  document.addEventListener("htmx:responseError", (event) => say(`The console answered with an error (${event.detail.xhr.status}).`));
  document.addEventListener("htmx:afterRequest", (event) => event.detail.successful && say(""));

  // Confirmations open in a dialog; without this they are pages of their own.
  document.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "dialog" && !target.open) target.showModal();
  });

  document.addEventListener("click", async ({ target }) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    const copy = target.closest("[data-copy]");
    if (!copy) return;
    await navigator.clipboard?.writeText(copy.parentElement.querySelector("pre").textContent);
    say("Copied.");
  });

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
})();
