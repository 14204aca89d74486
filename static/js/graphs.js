// Interactive charts of a link or a mirror, drawn by uPlot from the JSON that the page names. Without this file, or if the data
// cannot be loaded, the page keeps the pictures that the server has drawn. Texts, ticks and times come from the server, in the
// language and the time zone of the page: those of the script itself are the data-text attributes of #graphs.
(() => {
  "use strict";

  const root = document.getElementById("graphs");
  if (!root || !window.uPlot) return;

  const REFRESH_MS = 30_000; // samples are not stored more often
  const POLLED_S = 90_000; // a longer range does not change visibly
  const SHORTEST_S = 600;
  const HEIGHT = 200;
  const DRAGGED_PX = 5; // a shorter drag is a click
  const STRIP_PX = 8;
  const COLOURS = 7;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 4], [1, 4]];
  const MARKER_COLOURS = { error: "--bad-ink", failover: "--warn-ink", edit: "--busy-ink", pause: "--idle-ink", verification: "--ok-ink" };

  const textOf = (name, values = {}) => root.dataset[`text${name}`].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const part = (name) => root.querySelector(`[data-graph-${name}]`);
  const entries = new Map(); // key of a chart: its plot and the data that it shows
  let shown = null; // the time span that is shown, as the server returned it
  let markers = [];
  let latest = 0; // number of the last request; an older response is ignored
  let zoom = zoomOf(new URL(root.dataset.series, location.href));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const line = (position) => (position % COLOURS) + 1;
  const local = (seconds) => uPlot.tzDate(new Date(seconds * 1000), document.body.dataset.zone);

  function element(tag, className, text = "") {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = text;
    return made;
  }

  // --- the time range: in the URL of the page and of the data ---------------------------------------------------
  function zoomOf(url) {
    const [from, to] = ["from", "to"].map((name) => Number(url.searchParams.get(name)));
    return from && to ? { from, to } : null;
  }

  function address(base) {
    const url = new URL(base, location.href);
    for (const name of ["from", "to"]) url.searchParams.delete(name);
    if (zoom) for (const name of ["from", "to"]) url.searchParams.set(name, zoom[name]); // they precede the span, which stays
    return url;
  }

  function zoomTo(wanted) {
    zoom = wanted;
    history.replaceState(history.state, "", address(location.href));
    for (const link of document.querySelectorAll("[data-graph-link]")) link.href = address(link.href);
    load();
  }

  function zoomBy(factor) {
    if (!shown) return;
    const middle = cursorTime() ?? (shown.start + shown.end) / 2;
    const half = Math.max(SHORTEST_S, (shown.end - shown.start) * factor) / 2;
    const to = Math.min(Math.round(middle + half), Math.floor(Date.now() / 1000));
    zoomTo({ from: Math.round(to - 2 * half), to });
  }

  function cursorTime() {
    for (const { plot, data } of entries.values()) if (plot.cursor.idx != null && plot.cursor.left >= 0) return data.at[plot.cursor.idx];
    return null;
  }

  // --- data -----------------------------------------------------------------------------------------------------
  async function read(base) {
    const response = await fetch(address(base));
    if (!response.ok) throw new Error(textOf("Status", { status: response.status }));
    if (response.redirected) throw new Error(textOf("Session"));
    return response.json();
  }

  async function load() {
    const number = ++latest;
    const note = part("note");
    try {
      const [series, events] = await Promise.all([read(root.dataset.series), read(root.dataset.events)]);
      if (number !== latest) return;
      show(series, events);
      note.hidden = true;
    } catch (error) {
      if (number !== latest) return;
      const reason = error.message;
      note.textContent = shown ? textOf("Stale", { reason, end: shown.end_text }) : textOf("Failed", { reason });
      note.hidden = false;
    }
  }

  function show(series, events) {
    shown = series;
    markers = events.markers.map((marker) => ({ ...marker, at: events.at[marker.step] }));
    keepPlace(() => {
      root.hidden = false; // before the charts are created, which need a width
      document.querySelector("[data-graph-fallback]")?.remove(); // it stops polling, too
      const { start_text: start, end_text: end, resolution } = series;
      part("range").textContent = textOf("Range", { start, end, resolution });
      for (const chart of series.charts) showChart(chart, series, false);
      showChart(events.chart, events, true);
      showEvents(events);
    });
  }

  // The charts are higher than the pictures that they replace. What is read below them stays where it is in the window: the
  // target of the address if it is visible, or everything if the charts are above the window.
  function keepPlace(change) {
    const target = document.getElementById(location.hash.slice(1));
    const { top } = target?.getBoundingClientRect() ?? {};
    const isBelow = target && root.compareDocumentPosition(target) === Node.DOCUMENT_POSITION_FOLLOWING;
    const isRead = isBelow && top >= 0 && top < innerHeight;
    const place = () => (isRead ? target.getBoundingClientRect().top : root.parentElement.getBoundingClientRect().bottom);
    const before = place();
    change();
    if (isRead || before <= 0) scrollBy({ top: place() - before, behavior: "instant" });
  }

  function showChart(chart, span, stepped) {
    const data = { ...chart, at: span.at, times: span.times, start: span.start, end: span.end };
    const names = JSON.stringify(chart.series.map(({ name }) => name));
    const entry = entries.get(chart.key) ?? frame(chart);
    entry.data = data;
    if (entry.names === names) entry.plot.setData(values(data));
    else build(entry, names, stepped);
    entry.figure.dataset.unknown = data.series.map((series) => gaps(data, series).length).join(" ");
    entry.figure.dataset.points = data.at.length;
    showValues(entry);
  }

  const values = (data) => [data.at, ...data.series.map((series) => series.values)];

  function showEvents({ newest, more }) {
    const items = newest.map((event) => {
      const item = element("li", "");
      const link = element("a", "", event.at);
      link.href = event.url;
      link.addEventListener("click", (click) => {
        click.preventDefault();
        openMinute(event.url);
      });
      item.append(link, ` ${event.sign} ${event.kind}: ${event.text}`);
      return item;
    });
    if (!items.length) items.push(element("li", "", textOf("None")));
    if (more) items.push(element("li", "soft", textOf("Older", { more })));
    part("events").replaceChildren(...items);
  }

  // --- one chart ------------------------------------------------------------------------------------------------
  function frame({ key, title: text }) {
    const id = `graph-${key}-title`;
    const [figure, head, body] = [element("figure", "graph panel"), element("figcaption", "panel-head"), element("div", "panel-body")];
    const [title, time] = [element("h3", "", text), element("span", "page-actions number")];
    const [place, list] = [element("div", "graph-plot"), element("ul", "graph-legend")];
    title.id = id;
    figure.setAttribute("aria-labelledby", id);
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-labelledby", id);
    place.setAttribute("aria-roledescription", textOf("Chart"));
    head.append(title, time);
    body.append(place, list);
    figure.append(head, body);
    part("charts").append(figure);
    const entry = { figure, time, place, list };
    place.addEventListener("keydown", (event) => onKey(entry, event));
    entries.set(key, entry);
    return entry;
  }

  // Create the plot, again if the chart has other lines than before. The place stays, and with it the focus.
  function build(entry, names, stepped) {
    entry.plot?.destroy();
    entry.plot = null;
    entry.list.replaceChildren();
    entry.names = names;
    entry.cells = entry.data.series.map(({ name }, position) => legendItem(entry.list, name, position));
    entry.notes = entry.list.appendChild(element("li", "soft"));
    const plot = new uPlot(options(entry, stepped), values(entry.data), entry.place);
    entry.plot = plot;
    let pressedAt = 0;
    plot.over.addEventListener("mousedown", (event) => (pressedAt = event.clientX));
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressedAt) < DRAGGED_PX) openMinute(minuteUrl(plot.posToVal(event.offsetX, "x")));
    });
  }

  function legendItem(list, name, position) {
    const item = element("li", "");
    const space = "http://www.w3.org/2000/svg";
    const [drawing, stroke] = ["svg", "line"].map((tag) => document.createElementNS(space, tag));
    drawing.setAttribute("aria-hidden", "true");
    stroke.setAttribute("class", `graph-line-${line(position)}`);
    stroke.setAttribute("stroke-dasharray", DASHES[position % DASHES.length].join(" "));
    for (const [attribute, value] of [["x1", 0], ["x2", 28], ["y1", 4], ["y2", 4]]) stroke.setAttribute(attribute, value);
    drawing.append(stroke);
    const value = element("strong", "number");
    item.append(drawing, `${name}: `, value);
    list.append(item);
    return value;
  }

  function options(entry, stepped) {
    const top = () => entry.data.ticks.at(-1)[0];
    const axis = { stroke: () => colour("--ink-soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
    return {
      width: entry.place.clientWidth,
      height: HEIGHT,
      padding: [8, 24, 0, 0], // right: half of the last time
      tzDate: local,
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      scales: {
        x: { time: true, range: () => [entry.data.start, Math.max(entry.data.end, entry.data.at.at(-1))] },
        y: { range: () => [0, top()] },
      },
      axes: [
        { ...axis, size: 32, space: 90, values: (_, splits) => splits.map((at) => timeText(entry.data, at)) },
        { ...axis, size: 72, splits: () => entry.data.ticks.map(([value]) => value), values: () => entry.data.ticks.map(([, text]) => text) },
      ],
      series: [
        {},
        ...entry.data.series.map((_, position) => ({
          stroke: () => colour(`--graph-${line(position)}`),
          width: 2,
          dash: DASHES[position % DASHES.length],
          ...(stepped
            ? { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }
            : { points: { size: 4, fill: () => colour("--surface") } }),
        })),
      ],
      hooks: {
        drawAxes: [(plot) => hatch(plot, entry)],
        draw: [(plot) => overlay(plot, entry)],
        setCursor: [() => followCursor(entry)],
        setSelect: [(plot) => select(plot)],
      },
    };
  }

  function timeText({ start, end }, at) {
    return uPlot.fmtDate(end - start > 2 * 86_400 ? "{MM}-{DD} {HH}:{mm}" : "{HH}:{mm}")(local(at));
  }

  function select(plot) {
    const { left, width } = plot.select;
    if (width < DRAGGED_PX) return;
    const [from, to] = [left, left + width].map((place) => Math.round(plot.posToVal(place, "x")));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoomTo({ from, to });
  }

  // Runs of unknown steps of a line, between the known points beside them.
  function gaps({ at, start, end }, { unknown = [] }) {
    const runs = [];
    for (const step of unknown) {
      const run = runs.at(-1);
      if (run && run.last === step - 1) run.last = step;
      else runs.push({ first: step, last: step });
    }
    return runs.map(({ first, last }) => [first ? at[first - 1] : start, at[last + 1] ?? Math.max(end, at.at(-1))]);
  }

  // Where the first line is unknown, which is that of the link or mirror, the whole height is hatched. Each other line has a strip
  // of its colour above the axis.
  function hatch(plot, entry) {
    const { ctx, bbox } = plot;
    const strip = STRIP_PX * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    entry.data.series.forEach((series, position) => {
      const [top, height] = position ? [bbox.top + bbox.height - position * strip, strip - devicePixelRatio] : [bbox.top, bbox.height];
      ctx.fillStyle = ctx.createPattern(hatching(position ? `--graph-${line(position)}` : "--graph-unknown"), "repeat");
      for (const [from, to] of gaps(entry.data, series)) {
        const [left, right] = [from, to].map((at) => plot.valToPos(at, "x", true));
        ctx.fillRect(left, top, Math.max(right - left, 2), height);
      }
    });
    ctx.restore();
  }

  function hatching(name) {
    const tile = document.createElement("canvas");
    const size = (tile.width = tile.height = Math.round(8 * devicePixelRatio));
    const ctx = tile.getContext("2d");
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    for (const shift of [-size, 0, size]) {
      ctx.moveTo(shift, size);
      ctx.lineTo(shift + size, 0);
    }
    ctx.stroke();
    return tile;
  }

  function overlay(plot, entry) {
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.lineWidth = scale;
    if (entry.data.objective) objective(plot, entry.data.objective);
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (const marker of markers) {
      const x = plot.valToPos(marker.at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(MARKER_COLOURS[marker.kind] ?? "--ink");
      ctx.setLineDash([3 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillRect(x - 7 * scale, bbox.top, 14 * scale, 14 * scale);
      ctx.fillStyle = colour("--surface");
      ctx.fillText(marker.sign, x, bbox.top + 7.5 * scale);
    }
    ctx.restore();
  }

  function objective(plot, { value, text }) {
    const { ctx, bbox } = plot;
    const y = plot.valToPos(value, "y", true);
    ctx.strokeStyle = ctx.fillStyle = colour("--danger");
    ctx.setLineDash([8 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    const [width, height] = [ctx.measureText(text).width + 8 * devicePixelRatio, 14 * devicePixelRatio];
    ctx.fillStyle = colour("--surface");
    ctx.fillRect(bbox.left + 1, y - height / 2, width, height); // the line and a hatched band would cross the text
    ctx.fillStyle = colour("--danger");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(text, bbox.left + 1 + 4 * devicePixelRatio, y);
  }

  // --- values under the cursor, and keys ------------------------------------------------------------------------
  // All charts have the same width, so the cursor of one is moved to the same place in the others.
  let following = false;
  function followCursor(entry) {
    if (following || !entry.plot) return;
    following = true;
    for (const { plot } of entries.values()) if (plot && plot !== entry.plot) plot.setCursor({ left: entry.plot.cursor.left, top: 0 });
    following = false;
    for (const other of entries.values()) showValues(other);
  }

  function showValues(entry) {
    if (!entry.plot) return;
    const { data, plot } = entry;
    const under = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const step = Math.min(under ?? data.at.length - 1, data.at.length - 1);
    entry.time.textContent = data.times[step];
    entry.cells.forEach((cell, position) => (cell.textContent = data.series[position].texts[step]));
    entry.notes.textContent = notesAt(data, step).join(" · ");
  }

  const notesAt = (data, step) => markers.filter(({ at }) => at === data.at[step]).map(({ text }) => text);

  function onKey(entry, event) {
    const { plot, data } = entry;
    const last = data.at.length - 1;
    const at = plot.cursor.left >= 0 ? (plot.cursor.idx ?? last) : last;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) moveTo(entry, Math.max(0, Math.min(last, moves[event.key])));
    else if (event.key === "Enter") openMinute(minuteUrl(data.at[at]));
    else if (event.key === "+") zoomBy(0.5);
    else if (event.key === "-") zoomBy(2);
    else if (event.key === "Escape" && zoom) zoomTo(null);
    else return;
    event.preventDefault();
  }

  function moveTo(entry, step) {
    const { data, plot } = entry;
    const time = data.at[step];
    plot.setCursor({ left: plot.valToPos(time, "x"), top: 0 });
    followCursor(entry);
    const texts = data.series.map(({ name, texts: words }) => `${name} ${words[step]}`);
    part("spoken").textContent = [data.times[step], ...texts, ...notesAt(data, step)].join(", ");
  }

  const minuteUrl = (at) => `${root.dataset.minute}?at=${Math.floor(at / 60) * 60}`;

  async function openMinute(url) {
    await htmx.ajax("GET", url, { target: "#minute", swap: "innerHTML" });
    document.getElementById("minute-title")?.focus();
  }

  // --- the page -------------------------------------------------------------------------------------------------
  root.addEventListener("click", ({ target }) => {
    const zoomed = target.closest("[data-graph-zoom]")?.dataset.graphZoom;
    if (zoomed === "in") zoomBy(0.5);
    if (zoomed === "out") zoomBy(2);
    if (zoomed === "reset") zoomTo(null);
  });
  new ResizeObserver(() => {
    for (const { plot, place } of entries.values()) if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: HEIGHT });
  }).observe(root);
  new MutationObserver(() => {
    for (const { plot } of entries.values()) plot.redraw();
  }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });
  setInterval(() => {
    if (!document.hidden && !zoom && shown && shown.end - shown.start < POLLED_S) load();
  }, REFRESH_MS);
  load();
})();
