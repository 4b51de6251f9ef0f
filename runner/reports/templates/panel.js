// The panel of one case, with all facts of its record. Text is inserted as text, never as markup.
const panel = (() => {
  const ordinals = (place) => (place === "-" ? "?" : `${parseInt(place, 36) + 1}.`);

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function factsTable(facts) {
    const body = make("tbody");
    for (const [name, text] of facts) body.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)));
    return make("table", { class: "facts-table" }, body);
  }

  const group = (title, facts) => make("div", {}, make("h3", {}, title), factsTable(facts));

  function command(text) {
    const button = make("button", { type: "button" }, "copy");
    const shown = make("pre", { tabindex: "0" }, text);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch { // a page without a secure origin has no clipboard: select the text, for the keyboard
        getSelection().selectAllChildren(shown);
        button.textContent = "selected";
      }
    });
    return make("div", { class: "command" }, shown, button);
  }

  function failure(found) {
    const known = new Set(["kind", "message", "phase", "log"]);
    const box = make("div", { class: "failure" }, make("h3", {}, `Why there is no number: ${found.kind ?? ""} in phase ${found.phase ?? "?"}`));
    if (found.message) box.append(make("pre", { tabindex: "0" }, found.message));
    for (const [name, text] of Object.entries(found)) {
      if (!known.has(name)) box.append(make("h3", {}, name.replaceAll("_", " ")), make("pre", { tabindex: "0" }, text));
    }
    if (found.log) {
      // a relative path inside the run's folder, which also contains this file
      const inside = /^[\w.-]+(\/[\w.-]+)*$/.test(found.log) && !found.log.includes("..");
      box.append(make("p", {}, "log: ", inside ? make("a", { href: found.log }, found.log) : found.log));
    }
    return box;
  }

  // the samples of a case in ms, with the text that the pointer shows for each sample
  function unpacked(stored, name) {
    const ms = (counts) => counts.map((count) => count * stored.unit_ms);
    const sides = [["eager", ms(stored.baseline), stored.baseline_place], [name, ms(stored.candidate), stored.candidate_place]];
    const hovers = sides.map(([who, values, places], side) => values.map((value, i) =>
      charts.safe(`round ${i + 1}: ${who} ${Number(value.toPrecision(5))} ms, ran ${ordinals(places[i] ?? "-")} in its round`)
        + (stored.faults ? `<br>${stored.faults[side][i]} minor page faults a step` : "")));
    return { eager: sides[0][1], candidate: sides[1][1], name: charts.safe(name), hovers, prefill: stored.prefill?.map(ms) };
  }

  function chart(parent, title, about, wide) {
    const element = make("div", { class: "chart", role: "img", "aria-label": `${title}: ${about}` });
    parent.append(make("div", wide ? { class: "across" } : {}, make("h3", {}, title), element));
    return element;
  }

  // the place of the step on the device's roofline, and the time of the phases of its compilation
  function work(box, found, name) {
    if (found.roofline) {
      const line = found.roofline, parts = [["eager", 0], [name, 1]].filter(([, side]) => line.shares[side]);
      const about = parts.map(([who, side]) => `${who} at ${line.shares[side]} of the roof`).join(", ");
      const holder = chart(box, "Place on the roofline", about);
      charts.roofline(holder, line, charts.safe(name));
      holder.after(make("p", { class: "legend" }, `${about}. Bytes are those of eager's operations, without fusion and caches. A compiler that fuses operations moves fewer bytes, so its point may be above the slope.`));
    }
    if (found.phases) {
      const holder = chart(box, "Phases of compilation", `${found.phases.length} of them`);
      charts.phases(holder, found.phases);
      holder.after(make("p", { class: "legend" }, "Each phase includes the phases below it; a backward that is compiled later is counted from Inductor on. Tables show the first phase."));
    }
  }

  // row: {kind, name, compiler, speedupText, verdictText, speedup}; found: the data of its panel
  function fill(body, row, found, drawable) {
    body.replaceChildren();
    const headline = make("p", { class: `headline ${charts.slug(row.kind)}` }, make("span", {}, row.speedupText));
    headline.append(make("span", { class: "verdict" }, make("span", { class: "mark", "aria-hidden": "true" }), row.verdictText));
    body.append(headline);
    if (found.failure) body.append(failure(found.failure));
    if (found.samples && drawable) {
      const samples = unpacked(found.samples, row.compiler);
      const box = make("div", { class: "charts" });
      body.append(box);
      const about = `${samples.eager.length} rounds`;
      charts.inOrder(chart(box, "Samples in the order they ran", about, true), samples);
      charts.distribution(chart(box, "Distribution", about), samples);
      charts.pairs(chart(box, "Pairs: a point a round", about), samples, row.speedup);
      body.append(make("p", { class: "legend" }, `A sample is ${found.samples.iterations === 1 ? "one step" : `the mean of ${found.samples.iterations} steps`}. A pair below the solid line is a round in which the candidate was faster.`));
      const more = make("div", { class: "charts" });
      body.append(more);
      work(more, found, row.compiler);
    }
    if (found.parity && drawable) {
      const box = make("div", { class: "charts" });
      body.append(box);
      const holder = chart(box, "Errors of the check of parity", `${found.parity.tensors.length} tensors`, true);
      charts.parity(holder, found.parity, charts.safe(row.compiler));
      holder.after(make("p", { class: "legend" }, `A dot is a tensor's error against ${found.parity.reference}, at the call at which it is nearest to its limit. A grey bar reaches from eager's error to noisy eager's. A fault of the compiler begins at one tensor; where the model itself magnifies roundings, the bars are high, too.`));
    }
    if (found.reproduce) body.append(make("h3", {}, "The command that measures this again"), command(found.reproduce));
    const groups = make("div", { class: "groups" });
    for (const [title, facts] of found.groups) groups.append(group(title, facts));
    if (found.notes.length) groups.append(make("div", {}, make("h3", {}, "Notes"), make("ul", {}, ...found.notes.map((note) => make("li", {}, note)))));
    body.append(groups);
  }

  return { fill, make };
})();
