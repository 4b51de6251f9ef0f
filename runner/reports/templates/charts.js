"use strict";
// Figures for plotly.js. Each function takes plain values and an element, and does not read the page's state.
const charts = (() => {
  const SHAPES = {
    faster: "triangle-up", slower: "triangle-down", same: "circle",
    inconclusive: "diamond-open", unsteady: "square-open", mean: "diamond-tall",
  };
  const NO_NUMBER = "x-thin-open"; // of the other kinds: the speedup does not count
  const BEYOND = 1.3; // intervals extend the axis beyond the outermost points at most by this factor
  const LINES = [10, 100, 1000, 10000, 100000, 1000000]; // steps of the break-even lines

  const slug = (name) => name.replaceAll(" ", "-");
  const color = (name) => {
    const style = getComputedStyle(document.documentElement);
    return (style.getPropertyValue(`--${slug(name)}`) || style.getPropertyValue("--no-number")).trim();
  };
  const kindsOf = (items) => [...new Set(items.map((item) => item.kind))];

  // plotly interprets some HTML in its texts, and TeX between dollar signs; names must be shown unchanged
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");

  const shorten = (text, room) => {
    const letters = Array.from(text);
    if (letters.length <= room) return text;
    const tail = Math.floor((room - 2) / 2);
    return `${letters.slice(0, room - 2 - tail).join("")}..${letters.slice(letters.length - tail).join("")}`;
  };

  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

  function widest(texts) {
    const context = document.createElement("canvas").getContext("2d");
    context.font = `12px ${FONT}`;
    return Math.ceil(Math.max(0, ...texts.map((text) => context.measureText(text).width)));
  }

  const printing = () => document.documentElement.classList.contains("print");
  const narrow = () => window.innerWidth < 720 && !printing();

  function layout(more) {
    const axis = {
      gridcolor: color("line"), linecolor: color("line"), zeroline: false, automargin: true,
      tickfont: { color: color("ink") }, title: { standoff: 10, font: { color: color("muted"), size: 12 } },
    };
    const merged = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: FONT, size: 12, color: color("ink") },
      margin: { l: 8, r: 8, t: 8, b: 40 }, hovermode: "closest", dragmode: narrow() ? false : "zoom",
      hoverlabel: { align: "left", bgcolor: color("card"), bordercolor: color("line"), font: { color: color("ink") } },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom" },
      ...more,
    };
    for (const key of Object.keys(merged).filter((k) => /^[xy]axis/.test(k))) {
      const own = merged[key];
      merged[key] = { ...axis, ...own, title: { ...axis.title, ...own.title } };
    }
    return merged;
  }

  const config = () => ({
    responsive: true, displaylogo: false, displayModeBar: narrow() ? false : "hover",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
  });

  // on paper, a chart gets the width of a page of A4 or Letter, because its box does not resize it
  function paperWidth(element) {
    if (!printing()) return {};
    return { width: element.closest(".charts > :not(.across)") ? 330 : 680 };
  }

  function draw(element, traces, figure) {
    return window.Plotly.react(element, traces, layout({ ...figure, ...paperWidth(element) }), config());
  }

  const ratioAxis = (title) => ({
    type: "log", ticksuffix: "x", tickformat: ".4~g", nticks: narrow() || printing() ? 5 : 10, tickangle: 0, title: { text: title },
  });

  const marker = (name) => {
    const tint = color(name === "mean" ? "ink" : name), symbol = SHAPES[name] ?? NO_NUMBER;
    return { color: tint, symbol, size: name === "mean" ? 13 : 9, line: { width: /open/.test(symbol) ? 2 : 0, color: tint } };
  };

  const vertical = (x, style) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", layer: "below", line: style });
  const oblique = (x0, y0, x1, y1, style) => ({ type: "line", x0, y0, x1, y1, layer: "below", line: style });

  // items: {kind, label, text, hover, plot: [value, low, high], id}, top to bottom; kind "mean" for averages;
  // gap: the number of items before the omitted items, or 0
  function forest(element, items, threshold, gap) {
    const room = narrow() ? 26 : printing() ? 40 : 58;
    const values = items.map((item) => item.plot[0]);
    const bounds = [Math.min(...values, 1) / BEYOND, Math.max(...values, 1) * BEYOND];
    const lows = items.map((item) => item.plot[1] ?? item.plot[0]);
    const highs = items.map((item) => item.plot[2] ?? item.plot[0]);
    const ends = [Math.max(bounds[0], Math.min(...lows, 1)) / 1.02, Math.min(bounds[1], Math.max(...highs, 1)) * 1.02];
    const traces = kindsOf(items).map((name) => {
      const places = items.map((item, place) => place).filter((place) => items[place].kind === name);
      const of = places.map((place) => items[place]);
      return {
        type: "scatter", mode: "markers", name: name === "mean" ? "geometric mean" : name, marker: marker(name),
        x: of.map((item) => item.plot[0]), y: places, customdata: of.map((item) => item.id ?? ""),
        text: of.map((item) => item.hover), hoverinfo: "text",
        error_x: {
          type: "data", symmetric: false, thickness: name === "mean" ? 2.2 : 1.6, width: 3, color: color(name === "mean" ? "ink" : name),
          array: of.map((item) => (item.plot[2] ?? item.plot[0]) - item.plot[0]),
          arrayminus: of.map((item) => item.plot[0] - (item.plot[1] ?? item.plot[0])),
        },
      };
    });
    const ticks = items.map((item, place) => place);
    const rows = { tickmode: "array", tickvals: ticks, range: [items.length - 0.4, -0.6], showgrid: false, fixedrange: true, ticks: "", ticklabeloverflow: "allow" };
    const shapes = [vertical(1, { color: color("muted"), width: 1.2 })];
    if (threshold) {
      shapes.unshift({
        type: "rect", x0: 1 / (1 + threshold), x1: 1 + threshold, y0: 0, y1: 1, yref: "paper", layer: "below",
        fillcolor: color("band"), line: { width: 0 },
      });
    }
    const across = (y, style) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y - 0.5, y1: y - 0.5, line: style });
    const means = items.findIndex((item) => item.kind === "mean");
    if (means > 0) shapes.push(across(means, { color: color("line"), width: 1 }));
    if (gap) shapes.push(across(gap, { color: color("muted"), width: 1.5, dash: "dot" }));
    const labels = items.map((item) => shorten(item.label, room));
    const figure = {
      height: 110 + items.length * 22, shapes,
      // the measured width of these texts as margins; plotly would draw everything several times to find them
      margin: { l: 12 + widest(labels), r: narrow() ? 8 : 12 + widest(items.map((item) => item.text)), t: 8, b: 44 }, showlegend: !narrow() && !printing(), // the tiles have the same marks
      xaxis: { ...ratioAxis(narrow() ? "speedup over eager" : "speedup over eager (right of 1 is faster)"), range: ends.map(Math.log10) },
      yaxis: { ...rows, automargin: false, ticktext: labels.map(safe) },
    };
    if (!narrow()) {
      // an empty trace, because plotly draws no axis without a trace
      traces.push({ type: "scatter", x: [null], y: [null], yaxis: "y2", mode: "markers", hoverinfo: "skip", showlegend: false });
      figure.yaxis2 = { ...rows, automargin: false, overlaying: "y", side: "right", ticktext: items.map((item) => safe(item.text)), tickfont: { color: color("muted") } };
    }
    return draw(element, traces, figure);
  }

  // items: {kind, hover, steps, speedup, id}
  function breakEven(element, items) {
    const steps = items.map((item) => item.steps);
    const speedups = items.map((item) => item.speedup);
    const middle = Math.sqrt(Math.min(...steps) * Math.max(...steps));
    // at least a decade and a half, so that the axis has several ticks
    const left = Math.min(Math.min(...steps) / 1.6, middle / 5.6), right = Math.max(Math.max(...steps) * 1.6, middle * 5.6);
    const bottom = Math.min(...speedups, 1) / 1.08, top = Math.max(...speedups, 1.1) * 1.12;
    const traces = LINES.filter((count) => count > left).map((count) => {
      // break-even after `count` steps: count * (1 - 1 / speedup) = compilation in steps
      const end = Math.min(count * (1 - 1 / top), right);
      const at = Array.from({ length: 80 }, (_, i) => left * (end / left) ** (i / 79)).filter((x) => x < count && end > left);
      return {
        type: "scatter", mode: "lines+text", x: at, y: at.map((x) => 1 / (1 - x / count)), showlegend: false, hoverinfo: "skip",
        line: { color: color("muted"), width: 1, dash: "dot" }, textposition: end === right ? "top left" : end > right / 2 ? "bottom left" : "bottom right", textfont: { color: color("muted"), size: 11 },
        text: at.map((_, i) => (i === at.length - 1 ? `${count.toLocaleString("en")} steps` : "")),
      };
    }).filter((trace) => trace.x.length > 1 && trace.y[trace.y.length - 1] - 1 > 0.03 * (top - bottom)); // other lines are too close to the line of 1
    for (const name of kindsOf(items)) {
      const of = items.filter((item) => item.kind === name);
      traces.push({
        type: "scatter", mode: "markers", name, marker: marker(name), x: of.map((item) => item.steps), y: of.map((item) => item.speedup),
        customdata: of.map((item) => item.id), text: of.map((item) => item.hover), hoverinfo: "text",
      });
    }
    return draw(element, traces, {
      height: narrow() ? 340 : 420,
      shapes: [oblique(left, 1, right, 1, { color: color("muted"), width: 1.2 })],
      xaxis: { type: "log", range: [Math.log10(left), Math.log10(right)], title: { text: "compile time, in eager steps" }, tickformat: ",~r", dtick: right / left > 1e4 ? 1 : "D2" },
      yaxis: { ...ratioAxis("speedup"), range: [Math.log10(bottom), Math.log10(top)] },
    });
  }

  const pair = [["eager", "eager", "circle"], ["candidate", "candidate", "triangle-up"]];

  // samples: {eager, candidate: ms; hovers: [texts of eager, of candidate]; prefill: [ms, ms] or undefined}
  function inOrder(element, samples) {
    const traces = pair.map(([key, tint, symbol], side) => ({
      type: "scatter", mode: "lines+markers", name: key === "eager" ? "eager" : samples.name, y: samples[key], x: samples[key].map((_, i) => i + 1),
      line: { color: color(tint), width: 1 }, marker: { color: color(tint), symbol, size: 6 },
      text: samples.hovers[side], hoverinfo: "text",
    }));
    (samples.prefill ?? []).forEach((values, side) => traces.push({
      type: "scatter", mode: "lines", name: `${traces[side].name}, prefill`, y: values, x: values.map((_, i) => i + 1), visible: "legendonly",
      line: { color: color(pair[side][1]), width: 1, dash: "dot" },
    }));
    return draw(element, traces, { height: 280, xaxis: { title: { text: "round, as measured" }, range: [0.3, samples.eager.length + 0.7] }, yaxis: { title: { text: "ms a step" } } });
  }

  function distribution(element, samples) {
    const traces = pair.map(([key, tint, symbol]) => ({
      type: "box", name: key === "eager" ? "eager" : samples.name, x: samples[key], boxpoints: "all", jitter: 0.7, pointpos: 0,
      line: { color: color(tint), width: 1.4 }, fillcolor: "rgba(0,0,0,0)", marker: { color: color(tint), symbol, size: 5, opacity: 0.55 },
      hoverinfo: "x", showlegend: false, orientation: "h",
    }));
    return draw(element, traces, {
      height: 300, xaxis: { title: { text: "ms a step" } }, yaxis: { autorange: "reversed", ticks: "" },
    });
  }

  function pairs(element, samples, speedup) {
    const both = [...samples.eager, ...samples.candidate];
    const ends = [Math.min(...samples.eager) * 0.97, Math.max(...samples.eager) * 1.03];
    const line = (ratio, name, style) => ({
      type: "scatter", mode: "lines", name, x: ends, y: ends.map((x) => x / ratio), hoverinfo: "skip", line: style,
    });
    const points = {
      type: "scatter", mode: "markers", name: "a round", x: samples.eager, y: samples.candidate, hoverinfo: "text",
      text: samples.eager.map((value, i) => `round ${i + 1}: ${(value / samples.candidate[i]).toFixed(3)}x`),
      marker: { color: color("candidate"), symbol: "triangle-up", size: 7, opacity: 0.75 },
    };
    return draw(element, [
      line(1, "as fast as eager", { color: color("muted"), width: 1.2 }),
      line(speedup, "the speedup", { color: color("candidate"), width: 1.2, dash: "dash" }), points,
    ], {
      height: 300, xaxis: { title: { text: "eager, ms" } },
      yaxis: { title: { text: "candidate, ms" }, range: [Math.min(...both) * 0.95, Math.max(...both) * 1.05] },
    });
  }

  // line: {flop_per_byte, eager, candidate, roof, peak: TFLOP/s, bandwidth: GB/s, shares: of the roof, or null}
  function roofline(element, line, name) {
    const peak = line.peak, slope = line.bandwidth / 1e3;
    const ridge = peak / slope, place = line.flop_per_byte;
    const ends = [Math.min(place, ridge) / 8, Math.max(place, ridge) * 8];
    const sides = [["eager", "eager", "circle"], ["candidate", name, "triangle-up"]].filter((_, side) => line.shares[side] !== null);
    const heights = [...sides.map(([key]) => line[key]), line.roof];
    const traces = [{
      type: "scatter", mode: "lines", name: "measured roof", x: [ends[0], ridge, ends[1]], y: [ends[0] * slope, peak, peak],
      line: { color: color("muted"), width: 1.6 }, hoverinfo: "skip",
    }, {
      type: "scatter", mode: "lines", x: [place, place], y: [Math.min(...heights), Math.max(...heights)], showlegend: false, hoverinfo: "skip",
      line: { color: color("muted"), width: 1, dash: "dot" },
    }, ...sides.map(([key, who, symbol]) => ({
      type: "scatter", mode: "markers", name: who, x: [place], y: [line[key]], marker: { color: color(key), symbol, size: 11 }, hoverinfo: "text",
      text: [`${who}: ${Number(line[key].toPrecision(3))} TFLOP/s, ${line.shares[key === "eager" ? 0 : 1]} of the roof<br>${Number(place.toPrecision(3))} FLOP a byte`],
    }))];
    const low = Math.min(...heights, ends[0] * slope) / 1.5, high = Math.max(...heights, peak) * 2;
    return draw(element, traces, {
      height: 300, xaxis: { type: "log", range: ends.map(Math.log10), title: { text: "FLOP a byte" }, tickformat: ",~r", nticks: 6 },
      yaxis: { type: "log", range: [Math.log10(low), Math.log10(high)], title: { text: "TFLOP/s" }, tickformat: "~r", nticks: 6 },
    });
  }

  // found: [[phase, seconds]]
  function phases(element, found) {
    const names = found.map(([name]) => safe(name)), seconds = found.map(([, value]) => value);
    return draw(element, [{
      type: "bar", orientation: "h", y: names, x: seconds, marker: { color: color("candidate") }, hoverinfo: "skip", width: 0.7,
      text: seconds.map((value) => `${Number(value.toPrecision(3))} s`), textposition: "auto", textfont: { size: 11 }, cliponaxis: false,
    }], { height: 110 + 26 * found.length, showlegend: false, xaxis: { title: { text: "seconds" }, rangemode: "tozero" }, yaxis: { autorange: "reversed", ticks: "" } });
  }

  // parity: {tensors, call, eager, noisy, candidate: shares of each tensor's size or null, outcome}
  function parity(element, found, name) {
    const values = [...found.eager, ...found.noisy, ...found.candidate].filter((value) => value > 0);
    const floor = Math.min(1e-6, ...values) / 2; // the place of an error of zero
    const at = (value) => 100 * Math.max(value ?? floor, floor), percent = (value) => (value === null ? "?" : `${Number((value * 100).toPrecision(2))} %`);
    const places = found.tensors.map((_, i) => i + 1);
    const bars = {
      type: "scatter", mode: "lines", name: "eager to noisy eager", hoverinfo: "skip", line: { color: color("no-number"), width: places.length > 150 ? 2 : 4 },
      x: places.flatMap((x) => [x, x, null]), y: places.flatMap((_, i) => [at(found.eager[i]), 1.1 * at(found.noisy[i]), null]),
    };
    const dots = [["pass", "candidate", "circle"], ["sensitive", "unsteady", "diamond"], ["fail", "wrong-results", "x"], ["not judged", "muted", "circle-open"]].map(([outcome, tint, symbol]) => {
      const of = places.filter((x) => found.outcome[x - 1] === outcome);
      return {
        type: "scatter", mode: "markers", name: `${name}: ${outcome}`, x: of, y: of.map((x) => at(found.candidate[x - 1])), hoverinfo: "text",
        marker: { color: color(tint), symbol, size: outcome === "pass" ? 4 : 7 },
        text: of.map((x) => `${safe(found.tensors[x - 1])}, call ${found.call[x - 1]}: ${outcome}<br>off by ${percent(found.candidate[x - 1])}; eager ${percent(found.eager[x - 1])}, noisy eager ${percent(found.noisy[x - 1])}`),
      };
    }).filter((trace) => trace.x.length);
    return draw(element, [bars, ...dots], {
      height: 300, xaxis: { title: { text: "tensors, from input to output" }, range: [0.3, places.length + 0.7] },
      yaxis: { type: "log", title: { text: "error, % of the tensor's size" }, tickformat: "~r", nticks: 6 },
    });
  }

  return { forest, breakEven, inOrder, distribution, pairs, roofline, phases, parity, safe, slug };
})();
