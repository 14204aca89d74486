// Progressive enhancement: all pages and actions work without this file. Its texts are the data-text attributes of the body, in the
// language of the page.
(() => {
  "use strict";

  const textOf = (name, values = {}) => document.body.dataset[`text${name}`].replace(/\{(\w+)\}/g, (_, key) => values[key]);

  // htmx swap style "patch": updates a region node by node, so that focus, selection and open details are kept.
  const KEPT = new Set(["open", "aria-busy"]);
  const sameKind = (a, b) => a && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

  function patchNode(old, fresh) {
    if (old.isEqualNode(fresh) || old.dataset?.kept !== undefined) return;
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

  // No polling while the browser tab is hidden.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden) event.preventDefault();
  });

  // A poll requests the address of the page. With its fragment, htmx would scroll to that element after each update.
  document.addEventListener("htmx:configRequest", ({ detail }) => (detail.path = detail.path.split("#")[0]));

  // Toasts disappear automatically. Messages that must stay are notes in the page.
  const TOAST_MS = 8000;
  let toastTimer = 0;
  function showToast(text) {
    document.getElementById("status").textContent = text;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => showToast(""), TOAST_MS);
  }

  // When polling fails, the page shows how old its data is, until a poll succeeds. Times are those of the server, because
  // clocks differ.
  const STALE_AFTER_MS = 4000; // without a response; much longer than any page takes
  const pending = new Map(); // polling element: time of the request without a response
  const updatedAt = new Map(); // id of a region: server time of its last update
  const stale = new Map(); // id of a region: why it is not updated
  let failedFilter = null; // a filter form whose list was not loaded
  const isPolling = (elt) => elt.matches("[hx-trigger*='every']");
  const drawnAt = () => new Date(document.body.dataset.drawn);

  function exact(at) {
    const { zone } = document.body.dataset;
    const format = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }); // as ISO 8601
    return `${format.format(at)} ${zone}`;
  }

  function showAge() {
    const note = document.getElementById("old-page");
    note.hidden = stale.size === 0;
    if (note.hidden) return;
    const oldest = Math.min(...[...stale.keys()].map((id) => updatedAt.get(id) ?? drawnAt()));
    const text = textOf("Age", { at: exact(oldest), why: [...stale.values()][0] });
    const paragraph = note.querySelector("p");
    if (paragraph.textContent !== text) paragraph.textContent = text;
  }

  function markStale(region, why) {
    stale.set(region.id, why);
    showAge();
  }

  function markUpdated(region, xhr) {
    updatedAt.set(region.id, new Date(xhr.getResponseHeader("Date") ?? Date.now()));
    stale.delete(region.id);
    showAge();
    const filter = failedFilter;
    failedFilter = null;
    if (filter?.isConnected) htmx.trigger(filter, "change"); // the list does not match the filter yet
  }

  // A request without a response may have succeeded or not, and the form must say so.
  function showInForm(form, why, advice) {
    form.querySelector("[data-no-response]")?.remove();
    const note = document.getElementById("no-response").content.firstElementChild.cloneNode(true);
    note.querySelector("strong").textContent = why;
    note.querySelector("span").textContent = advice;
    form.querySelector(".panel-body").prepend(note);
  }

  function failed({ detail }, why, advice = textOf("Unknown")) {
    const sentence = textOf("Sentence", { why: `${why[0].toUpperCase()}${why.slice(1)}` });
    if (detail.requestConfig.verb !== "get" && detail.target?.id !== "preview") showInForm(detail.elt, sentence, advice);
    else if (document.getElementById("live") === detail.target || isPolling(detail.elt)) markStale(detail.target, why);
    else showToast(textOf(detail.target?.id === "dialog" ? "Dialog" : "Part", { why }));
    if (detail.elt.matches("form.filters")) failedFilter = detail.elt;
  }

  document.addEventListener("htmx:timeout", (event) => failed(event, textOf("Silent")));
  document.addEventListener("htmx:sendError", (event) => failed(event, textOf("Silent")));
  document.addEventListener("htmx:responseError", (event) => {
    const { status } = event.detail.xhr;
    if (status < 500) failed(event, textOf("Rejected", { status }), textOf("Refused"));
    else failed(event, textOf("Error", { status }));
  });
  document.addEventListener("htmx:beforeSend", ({ detail }) => isPolling(detail.elt) && pending.set(detail.elt, Date.now()));
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    pending.delete(detail.elt);
    if (detail.successful && detail.target.id && detail.requestConfig.verb === "get") markUpdated(detail.target, detail.xhr);
  });
  setInterval(() => {
    for (const [elt, at] of pending) if (Date.now() - at > STALE_AFTER_MS) markStale(elt, textOf("Silent"));
  }, 1000);

  // Confirmations open in a dialog. Without JavaScript they are pages.
  document.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "dialog" && !target.open) target.showModal();
  });

  // The result of a form that stays open gets the focus, which also scrolls to it.
  document.addEventListener("htmx:afterSwap", ({ target }) => {
    const result = target.id === "form" && target.querySelector(".note, [aria-invalid=true], #checklist");
    if (!result) return;
    if (result.tabIndex < 0) result.tabIndex = -1; // focusable, but not with Tab
    result.focus();
  });

  document.addEventListener("click", async ({ target }) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    const button = target.closest("[data-copy]");
    if (button) await copy(button.parentElement.querySelector("pre"));
  });

  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-pick-page]")) for (const pick of target.form.querySelectorAll("[data-pick]")) pick.checked = target.checked;
    showPicked();
  });

  // The bar above a list shows the size of the selection.
  function showPicked() {
    const text = document.querySelector("[data-picked]");
    if (!text) return;
    const form = text.closest("form"), all = form.querySelector("[data-pick-all]:checked");
    const words = textOf("Picked", { count: all ? all.dataset.pickAll : form.querySelectorAll("[data-pick]:checked").length });
    if (text.textContent !== words) text.textContent = words;
  }
  for (const [source, event] of [[window, "pageshow"], [document, "htmx:afterSwap"]]) source.addEventListener(event, showPicked);

  // Without TLS, or if the browser forbids it, the clipboard is not available. The text is selected instead.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text.textContent);
      showToast(textOf("Copied"));
    } catch {
      text.focus();
      getSelection().selectAllChildren(text);
      showToast(textOf("Uncopied"));
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
    if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    document.getElementById("search")?.focus();
  });

  for (const list of document.querySelectorAll("select[data-combobox]")) {
    const plugins = list.multiple ? ["remove_button"] : [];
    // Without a throttle: a delayed refresh would open the list again after a quick choice, above the button that adds the topic.
    const options = { maxOptions: 200, closeAfterSelect: true, refreshThrottle: 0, searchField: ["text"] };
    new TomSelect(list, { ...options, placeholder: list.dataset.combobox, plugins });
    list.setAttribute("aria-hidden", "true"); // the combobox replaces it for assistive technology
  }

  // Show the mirror topic names: prefix and chosen topics, also when the browser restores the form.
  for (const name of document.querySelectorAll("output[data-prefix]")) {
    const topic = document.getElementById(name.htmlFor.value);
    const chosen = () => (topic.selectedOptions ? [...topic.selectedOptions].map((option) => option.value) : topic.value.split(/\s+/));
    const show = () => (name.value = (chosen().filter(Boolean).join(" ") || "…").split(" ").map((each) => name.dataset.prefix + each).join(", "));
    for (const [source, event] of [[topic, "input"], [topic, "change"], [window, "pageshow"]]) source.addEventListener(event, show);
  }
})();
