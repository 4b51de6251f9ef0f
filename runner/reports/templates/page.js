// The page. Filters, order and the open case are stored in location.hash, and the page shows this state.
(() => {
  const FIRST_POINTS = 60, MORE_POINTS = 1500, MOST_CASES = 1500, FIRST_ROWS = 200, MANY_ROWS = 2000;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("rows").textContent);
  const column = Object.fromEntries(data.columns.map((c, place) => [c.key, place]));
  const facet = Object.fromEntries(data.facets.map((f, place) => [f.key, place]));
  const value = (row, key) => data.facets[facet[key]].values[row.facets[facet[key]]];
  const rows = data.rows.map((row, place) => ({ ...row, place, search: "" }));
  for (const row of rows) {
    row.kind = value(row, "verdict");
    row.search = [row.texts.join(" "), ...data.facets.map((f) => value(row, f.key))].join(" ").toLowerCase();
  }
  const byName = new Map(rows.map((row) => [row.id, row]));
  const state = { facets: {}, text: "", sort: "", order: "", open: "" };
  let points = FIRST_POINTS, shown = FIRST_ROWS, matching = rows, sorted = rows, drawable = false, opener = null;

  // -- the address ---------------------------------------------------------------

  function readAddress() {
    const found = new URLSearchParams(location.hash.slice(1));
    state.facets = {};
    for (const f of data.facets) if (f.values.includes(found.get(f.key))) state.facets[f.key] = found.get(f.key);
    for (const key of ["text", "sort", "order"]) state[key] = found.get(key) ?? "";
    state.open = byName.has(found.get("case")) ? found.get("case") : "";
  }

  function address(changes = {}) {
    const now = { ...state, ...changes };
    const found = new URLSearchParams(now.facets);
    for (const [key, word] of [["text", now.text], ["sort", now.sort], ["order", now.order], ["case", now.open]]) if (word) found.set(key, word);
    return `#${found}`;
  }

  function change(changes) {
    Object.assign(state, changes);
    history.replaceState(null, "", address());
    show();
  }

  // -- which rows, in which order ------------------------------------------------

  const words = () => state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => Object.entries(state.facets).every(([key, wanted]) => value(row, key) === wanted) && words().every((word) => row.search.includes(word));

  function inOrder(found) {
    const [key, direction] = state.sort.split(":");
    const place = column[key];
    if (place === undefined) return found;
    const sign = direction === "desc" ? -1 : 1, numbers = data.columns[place].sorted;
    const of = (row) => (numbers ? row.values[place] : row.texts[place]);
    return [...found].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place; // missing values come last
      return sign * (numbers ? x - y : x.localeCompare(y, "en", { numeric: true })) || a.place - b.place;
    });
  }

  // -- controls ------------------------------------------------------------------

  function buildControls() {
    for (const f of data.facets.filter((each) => each.values.length > 1)) {
      const select = panel.make("select", { "data-facet": f.key }, panel.make("option", { value: "" }, "all"));
      for (const each of f.values) select.append(panel.make("option", { value: each }, each));
      select.addEventListener("change", () => choose(f.key, select.value));
      byId("facets").append(panel.make("label", {}, f.key, select));
    }
    for (const tile of document.querySelectorAll("button.tile")) {
      tile.addEventListener("click", () => choose("verdict", state.facets.verdict === tile.dataset.verdict ? "" : tile.dataset.verdict));
      tile.disabled = !data.facets[facet.verdict].values.includes(tile.dataset.verdict);
    }
    let pause;
    byId("text").addEventListener("input", (event) => {
      const typed = () => change({ text: event.target.value.trim() });
      clearTimeout(pause);
      if (rows.length < MANY_ROWS) typed(); else pause = setTimeout(typed, 200); // wait until the typing pauses
    });
    byId("reset").addEventListener("click", () => change({ facets: {}, text: "", sort: "", order: "" }));
    byId("order").addEventListener("change", (event) => change({ order: event.target.value }));
    byId("forest-all").addEventListener("click", () => { points = MORE_POINTS; drawCharts(); });
    byId("more").addEventListener("click", () => { shown += 1000; fillTable(); });
    document.querySelector("[data-jump]").addEventListener("click", (event) => { event.preventDefault(); byId("table-part").focus(); });
    const head = byId("table").tHead.rows[0];
    for (const c of data.columns) {
      const button = panel.make("button", { type: "button" }, c.header);
      button.addEventListener("click", () => {
        const [key, direction] = state.sort.split(":");
        // numbers start with the largest; the third click restores the order of the run
        const turns = c.sorted ? ["desc", "asc", ""] : ["asc", "desc", ""];
        const next = key === c.key ? turns[turns.indexOf(direction) + 1] : turns[0];
        change({ sort: next ? `${c.key}:${next}` : "" });
      });
      head.append(panel.make("th", { scope: "col", "data-column": c.key, class: classes(c) }, button));
    }
  }

  const classes = (c) => [c.number ? "number" : "", c.wide ? "wide" : ""].join(" ").trim();
  const choose = (key, wanted) => { const { [key]: _, ...rest } = state.facets; change({ facets: wanted ? { ...rest, [key]: wanted } : rest }); };

  function showControls() {
    for (const select of document.querySelectorAll("[data-facet]")) {
      select.value = state.facets[select.dataset.facet] ?? "";
      select.classList.toggle("active", Boolean(select.value));
    }
    for (const tile of document.querySelectorAll("button.tile")) tile.setAttribute("aria-pressed", String(state.facets.verdict === tile.dataset.verdict));
    if (byId("text").value.trim() !== state.text) byId("text").value = state.text;
    byId("text").classList.toggle("active", Boolean(state.text));
    byId("order").value = state.order;
    byId("count").textContent = `${matching.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} comparisons`;
    for (const th of byId("table").tHead.rows[0].cells) {
      const [key, direction] = state.sort.split(":");
      th.setAttribute("aria-sort", key !== th.dataset.column ? "none" : direction === "desc" ? "descending" : "ascending");
    }
  }

  // -- table ---------------------------------------------------------------------

  function cell(row, c, place) {
    const text = row.texts[place];
    if (c.key === "model") {
      const link = panel.make("a", { href: address({ open: row.id }) }, text);
      return panel.make("td", { class: classes(c) }, link);
    }
    const found = panel.make("td", { class: classes(c) }, text);
    if (c.key === "verdict") {
      found.className = `verdict ${charts.slug(row.kind)}`;
      found.prepend(panel.make("span", { class: "mark", "aria-hidden": "true" }));
    }
    if (c.key === "status" && !/^(pass|skip|approximate|not checked)/.test(text)) found.classList.add("failed");
    return found;
  }

  function fillTable() {
    const body = panel.make("tbody");
    for (const row of sorted.slice(0, shown)) body.append(panel.make("tr", {}, ...data.columns.map((c, place) => cell(row, c, place))));
    if (!sorted.length) body.append(panel.make("tr", {}, panel.make("td", { colspan: String(data.columns.length) }, "No comparison matches these filters; reset shows all.")));
    byId("table").tBodies[0].replaceWith(body);
    byId("more").hidden = sorted.length <= shown;
    byId("more").textContent = `show more (${(sorted.length - shown).toLocaleString("en")} left)`;
  }

  // -- charts --------------------------------------------------------------------

  // the label of a row: the model, and the conditions that differ between rows of the page
  const differing = () => ["compiler", "suite", "precision", "mode", "device"].filter((key) => data.facets[facet[key]].values.length > 1 && !(key in state.facets));
  const name = (row) => [row.texts[column.model], ...differing().map((key) => value(row, key))].join(", ");
  const hover = (row) => [name(row), `speedup ${row.texts[column.speedup]}, ${row.texts[column.verdict]}, ${value(row, "status")}`,
    ...[["compilation_latency_s", "compiled in", "s"], ["break_even_steps", "break-even after", "steps"]].filter(([key]) => key in column && row.texts[column[key]] !== "-").map(([key, before, unit]) => (row.texts[column[key]] === "never" ? "never pays" : `${before} ${row.texts[column[key]]} ${unit}`))].map(charts.safe).join("<br>");

  const rank = (row) => data.kinds.indexOf(row.kind);

  function forestItems() {
    const found = matching.filter((row) => row.plot[0] !== null);
    if (state.order !== "plan") found.sort((a, b) => (state.order ? 0 : rank(a) - rank(b)) || b.plot[0] - a.plot[0]);
    return found.map((row) => ({ kind: row.kind, label: name(row), text: row.texts[column.speedup], hover: hover(row), plot: row.plot, id: row.id }));
  }

  function meanItems() {
    // an average covers all models that passed, so it is hidden if filters hide some of these models
    if (state.text || ["verdict", "status", "environment", "scale"].some((key) => key in state.facets)) return [];
    const found = data.means.filter((mean) => Object.entries(state.facets).every(([key, wanted]) => mean.facets[key] === wanted));
    return found.map((mean) => {
      const who = [mean.facets.compiler, ...differing().filter((key) => key !== "compiler").map((key) => mean.facets[key])].join(", ");
      return { kind: "mean", label: `mean, ${who}`, text: mean.text, hover: charts.safe(`geometric mean of ${mean.models} models, ${who}: ${mean.text}`), plot: mean.plot };
    });
  }

  function drawCharts() {
    if (!drawable) return;
    const items = forestItems();
    // too many points: draw both ends, so that the slowest models are never omitted
    const half = points / 2, all = items.length <= points;
    const drawn = all ? items : [...items.slice(0, half), ...items.slice(-half)];
    document.querySelectorAll(".chart-part").forEach((part) => { part.hidden = !items.length; });
    if (!items.length) return;
    charts.forest(byId("forest"), [...drawn, ...meanItems()], data.threshold, all ? 0 : half).then(clicks);
    const band = data.threshold ? `The grey band is the noise threshold, within ${Number((data.threshold * 100).toPrecision(3))} %. ` : "";
    const some = all ? "" : `The first ${half} and the last ${half} of ${items.length.toLocaleString("en")} are shown.`;
    byId("forest-note").textContent = `${band}Click a point to open it. ${some}`;
    byId("forest-all").hidden = all || points === MORE_POINTS;
    byId("forest-all").textContent = items.length <= MORE_POINTS ? "show all" : `show ${MORE_POINTS.toLocaleString("en")}`;
    const compiled = matching.filter((row) => row.plot[0] !== null && row.plot[3] !== null);
    const part = byId("even").closest("section");
    part.hidden = !compiled.length;
    byId("even-note").textContent = compiled.length > MOST_CASES ? ` The first ${MOST_CASES.toLocaleString("en")} of ${compiled.length} are drawn.` : "";
    if (compiled.length) {
      const cases = compiled.slice(0, MOST_CASES).sort((a, b) => rank(a) - rank(b)).map((row) => ({ kind: row.kind, hover: hover(row), steps: row.plot[3], speedup: row.plot[0], id: row.id }));
      charts.breakEven(byId("even"), cases).then(clicks);
    }
  }

  function clicks(element) {
    element.removeAllListeners?.("plotly_click");
    element.on("plotly_click", (event) => { const id = event.points[0]?.customdata; if (id) location.hash = address({ open: id }); });
  }

  // -- the panel -----------------------------------------------------------------

  async function showPanel() {
    const dialog = byId("panel"), row = byName.get(state.open);
    if (!row) { if (dialog.open) dialog.close(); return; }
    byId("panel-title").textContent = `${row.texts[column.model]}, ${value(row, "compiler")}`;
    byId("panel-where").textContent = ["suite", "mode", "precision", "device", "status"].map((key) => value(row, key)).join(", ");
    if (!dialog.open) { opener = document.activeElement; dialog.showModal(); byId("panel-title").focus(); }
    const place = sorted.indexOf(row);
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place < 0 || place === sorted.length - 1;
    const id = state.open;
    let panels, place_in;
    try { [panels, place_in] = await panelsOf(row); } catch { byId("panel-body").textContent = "This browser cannot decompress the details: it has no DecompressionStream."; return; }
    if (id !== state.open) return; // another case was opened meanwhile
    const about = { kind: row.kind, compiler: value(row, "compiler"), speedupText: row.plot[0] === null ? value(row, "status") : row.texts[column.speedup], verdictText: row.plot[0] === null ? "no number" : row.texts[column.verdict], speedup: row.plot[0] };
    panel.fill(byId("panel-body"), about, panels[place_in], drawable);
    dialog.scrollTop = 0;
    dialog.dataset.shown = id;
  }

  function step(by) {
    const place = sorted.indexOf(byName.get(state.open)) + by;
    if (sorted[place]) { change({ open: sorted[place].id }); }
  }

  function buildPanel() {
    const dialog = byId("panel");
    byId("close").addEventListener("click", () => dialog.close());
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => { delete dialog.dataset.shown; if (state.open) change({ open: "" }); opener?.isConnected && opener.focus(); });
    dialog.addEventListener("keydown", (event) => { if (event.key === "ArrowLeft") step(-1); if (event.key === "ArrowRight") step(1); });
  }

  // -- all together --------------------------------------------------------------

  async function inflated(element) {
    const letters = atob(element.textContent), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  }

  // Panels are compressed in chunks. Returns the chunk of this row, and the row's place in it. The last four
  // chunks stay decompressed.
  const parcels = document.querySelectorAll(".panels"), unpacked = new Map();
  async function panelsOf(row) {
    const size = Number(parcels[0].dataset.chunk), number = Math.floor(row.place / size);
    const found = unpacked.get(number) ?? inflated(parcels[number]).then(JSON.parse);
    unpacked.delete(number);
    unpacked.set(number, found);
    if (unpacked.size > 4) unpacked.delete(unpacked.keys().next().value);
    return [await found, row.place % size];
  }

  // an unchanged part is not built again, because a replaced link loses the focus
  let drawnFor = "", filledFor = "";
  function show() {
    matching = rows.filter(fits);
    sorted = inOrder(matching);
    showControls();
    const listed = JSON.stringify([state.facets, state.text, state.sort, state.order]);
    if (listed !== filledFor) { shown = FIRST_ROWS; fillTable(); filledFor = listed; }
    const wanted = JSON.stringify([state.facets, state.text, state.order]);
    if (wanted !== drawnFor) { points = FIRST_POINTS; drawCharts(); drawnFor = drawable ? wanted : ""; }
    showPanel();
  }

  function redraw() { drawCharts(); if (state.open) showPanel(); }

  async function start() {
    buildControls();
    buildPanel();
    readAddress();
    show();
    window.addEventListener("hashchange", () => { readAddress(); show(); });
    try {
      const library = document.createElement("script");
      library.textContent = await inflated(byId("library"));
      document.head.append(library);
      drawable = Boolean(window.Plotly);
    } catch { byId("count").after("Charts need a newer browser; the table works."); }
    drawnFor = "";
    show();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    matchMedia("(max-width: 720px)").addEventListener("change", redraw);
    window.addEventListener("beforeprint", () => { document.documentElement.classList.add("print"); redraw(); });
    window.addEventListener("afterprint", () => { document.documentElement.classList.remove("print"); redraw(); });
    document.documentElement.dataset.ready = "yes";
  }

  start();
})();
