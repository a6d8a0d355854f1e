"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const colour = i => `var(--c${i % 8})`;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const view = { trace: 0, axis: "time", hidden: new Set() };

// Figures in words.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function digits(v) { return v === 0 ? "0" : v < 10 ? v.toFixed(3) : v < 100 ? v.toFixed(2) : v.toFixed(1); }
function bytes(v) {
  let unit = 0;
  while (v >= 1024 && unit < UNITS.length - 1) { v /= 1024; unit++; }
  return unit === 0 ? `${v} B` : `${digits(v)} ${UNITS[unit]}`;
}
function count(v) { return v < 10000 ? String(v) : String(v).replace(/\B(?=(\d{3})+$)/g, "\u2009"); }
function micros(v) { return v < 1e3 ? `${digits(v)} µs` : v < 1e6 ? `${digits(v / 1e3)} ms` : `${digits(v / 1e6)} s`; }
function nanos(v) { return micros(v / 1e3); }

// Elements.
function make(name, attributes = {}, ...children) {
  const svg = /^(svg|g|path|line|rect|text)$/.test(name);
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const SVG = (t => { t.innerHTML = "<svg></svg>"; return t.content.firstChild.namespaceURI; })(document.createElement("template"));
const dot = i => make("i", { class: "dot", style: `--colour:${colour(i)}` });
const tip = document.getElementById("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 8)}px`;
}
const hideTip = () => { tip.hidden = true; };

// Axis steps that read well in binary units.
function steps(max, wanted) {
  if (max <= 0) return [0];
  const unit = 1024 ** Math.min(5, Math.floor(Math.log2(max) / 10));
  let step = 1;
  for (const s of [.05, .1, .2, .25, .5, 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 512]) {
    step = s;
    if (max / unit / s <= wanted) break;
  }
  const out = [];
  for (let v = 0; v <= max * 1.0001; v += step * unit) out.push(v);
  return out;
}

// One chart of curves: `series` is [{name, colour, values, fill}], sharing `xs`.
function chart(xs, series, label, height = 300, unit = bytes, marks = steps) {
  const W = 1120, H = height, left = 66, right = 8, top = 8, bottom = 24;
  const max = Math.max(1, ...series.flatMap(s => s.values.reduce((a, b) => Math.max(a, b), 0)));
  const last = Math.max(1, xs[xs.length - 1]);
  const X = v => left + (W - left - right) * v / last, Y = v => H - bottom - (H - top - bottom) * v / max;
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  for (const v of marks(max, 6)) {
    svg.append(make("line", { class: "grid", x1: left, x2: W - right, y1: Y(v), y2: Y(v) }),
      make("text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end" }, v === 0 ? "0" : unit(v)));
  }
  for (let i = 0; i <= 5; i++)
    svg.append(make("text", { x: X(last * i / 5), y: H - 6, "text-anchor": i === 0 ? "start" : i === 5 ? "end" : "middle" }, label(last * i / 5)));
  // Lines that lie on each other show as stripes: each later one is thinner.
  let width = 1.4 + 1.1 * series.filter(s => !s.fill).length;
  for (const s of series) {
    let d = `M${X(xs[0]).toFixed(1)},${Y(s.values[0]).toFixed(1)}`;
    for (let i = 1; i < xs.length; i++) {
      if (!s.fill) d += `H${X(xs[i]).toFixed(1)}V${Y(s.values[i]).toFixed(1)}`;
      else d += `L${X(xs[i]).toFixed(1)},${Y(s.values[i]).toFixed(1)}`;
    }
    if (s.fill) svg.append(make("path", { d: `${d}V${Y(0)}H${X(xs[0])}Z`, style: `fill:${s.colour};opacity:.55` }));
    else svg.append(make("path", { d, style: `fill:none;stroke:${s.colour};stroke-width:${width -= 1.1};stroke-linejoin:round` }));
  }
  const cursor = make("line", { class: "cursor", y1: top, y2: H - bottom, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * W / box.width;
    const want = (x - left) / (W - left - right) * last;
    if (want < 0 || want > last) return;
    let low = 0, high = xs.length - 1;
    while (low < high) { const mid = (low + high + 1) >> 1; if (xs[mid] <= want) low = mid; else high = mid - 1; }
    cursor.setAttribute("x1", X(xs[low])); cursor.setAttribute("x2", X(xs[low]));
    cursor.setAttribute("visibility", "visible");
    showTip(event, `${label(xs[low])}\n` + series.map(s => `${s.name}: ${unit(s.values[low])}`).join("\n"));
  });
  svg.addEventListener("mouseleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); });
  return svg;
}

// Whether each allocator settles down: what each part of the trace has cost.
function convergence(trace) {
  const of = trace.runs[0].convergence, parts = of.driver_calls.length;
  if (parts < 2) return [];
  const name = of.is_by_iteration ? "iteration" : "part", xs = [...Array(parts + 1).keys()];
  const shown = trace.runs.map((r, i) => [r, i]).filter(([r]) => !view.hidden.has(r.label));
  // Each part is a step; the last one is drawn to its end. Logarithms: start-up would hide the rest.
  const log = v => Math.log10(1 + v), whole = v => count(Math.round(10 ** v - 1));
  const line = key => ([r, i]) => ({ name: r.label, colour: colour(i), values: [...r.convergence[key], r.convergence[key][parts - 1]].map(log) });
  const decades = max => [0, ...Array(Math.ceil(max)).keys()].map((d, i) => i ? Math.log10(1 + 10 ** d) : 0).filter(v => v <= max);
  const label = v => `${name} ${Math.min(parts, Math.floor(v) + 1)}`;
  const section = make("section", {}, make("h2", {}, "Convergence"), make("p", { class: "note" },
    `Driver calls of each ${name}${of.is_by_iteration ? "" : ", a sixteenth of the events"}.`),
    chart(xs, shown.map(line("driver_calls")), label, 200, whole, decades));
  const lending = shown.filter(([r]) => r.harvest.harvested_granules);
  if (lending.length) section.append(make("p", { class: "note" }, `Granules lent in each ${name}.`),
    chart(xs, lending.map(line("harvested_granules")), label, 160, whole, decades));
  for (const [r] of lending) {
    const h = r.harvest;
    section.append(make("p", { class: "note" }, `${r.label}: ${count(h.harvested_granules)} granules lent in all, ${count(h.lent_granules)} at the end; ${count(h.aliases)} aliases, ${bytes(h.alias_bytes)} of addresses that lead elsewhere.`));
  }
  return [section];
}

function axisOf(trace) {
  const points = trace.runs[0].curve.time_ns;
  if (view.axis === "time" && points[points.length - 1] > 0) return [points, nanos];
  return [points.map((_, i) => i * trace.runs[0].curve.events_per_point), v => `event ${count(Math.round(v))}`];
}

// The table of figures.
function figures(trace) {
  const heads = ["allocator", "peak reserved", "reserved / requested", "peak allocated", "driver calls", "steady calls", "driver time", "steady time", "CPU ns / op", "out of memory"];
  // A run that refused requests did less: it is not the best at anything.
  const best = pick => Math.min(...trace.runs.map(r => r.out_of_memory_events ? Infinity : pick(r)));
  const least = best(r => r.peak_reserved_bytes), steady = best(r => r.steady_driver_calls), fastest = best(r => r.cpu_ns_per_operation ?? Infinity);
  const cell = (text, mark = "") => make("td", mark ? { class: mark } : {}, text);
  const rows = trace.runs.map((r, i) => {
    const name = make("td", {}, dot(i), r.allocator, r.configuration ? make("small", {}, ` ${r.configuration}`) : "");
    return make("tr", {}, name,
      cell(bytes(r.peak_reserved_bytes), !r.out_of_memory_events && r.peak_reserved_bytes === least ? "best" : ""),
      cell(r.reserved_per_requested === null ? "" : r.reserved_per_requested.toFixed(4)),
      cell(bytes(r.peak_allocated_bytes)), cell(count(r.driver_calls)),
      cell(count(r.steady_driver_calls), !r.out_of_memory_events && r.steady_driver_calls === steady ? "best" : ""),
      cell(micros(r.driver_time_us)), cell(micros(r.steady_driver_time_us)),
      cell(r.cpu_ns_per_operation === null ? "" : r.cpu_ns_per_operation.toFixed(1), !r.out_of_memory_events && r.cpu_ns_per_operation === fastest ? "best" : ""),
      cell(count(r.out_of_memory_events), r.out_of_memory_events ? "bad" : ""));
  });
  return make("div", { class: "scroll" }, make("table", {}, make("tr", {}, ...heads.map(h => make("th", {}, h))), ...rows));
}

function legend(trace) {
  return make("div", { class: "legend" }, ...trace.runs.map((r, i) => make("button", {
    "aria-pressed": !view.hidden.has(r.label),
    onclick: () => { view.hidden.has(r.label) ? view.hidden.delete(r.label) : view.hidden.add(r.label); draw(); },
  }, dot(i), r.label)), make("b", { style: "font-weight:400" }, make("i", { class: "dot", style: "--colour:var(--asked)" }), "requested"));
}

function overTime(trace) {
  const [xs, label] = axisOf(trace);
  const shown = trace.runs.map((r, i) => [r, i]).filter(([r]) => !view.hidden.has(r.label));
  const reserved = shown.map(([r, i]) => ({ name: `${r.label} reserved`, colour: colour(i), values: r.curve.reserved }));
  const asked = { name: "requested", colour: "var(--asked)", values: trace.runs[0].curve.requested, fill: true };
  const pick = make("div", { class: "pick" }, ...["time", "events"].map(axis => make("button", {
    "aria-pressed": view.axis === axis, onclick: () => { view.axis = axis; draw(); } }, axis)));
  const first = make("section", {}, make("div", { class: "head" }, make("div", {}, make("h2", {}, "Memory over time"),
    make("p", { class: "note" }, "Lines: reserved from the device. Area: requested by the program.")), pick),
    chart(xs, [asked, ...reserved], label, 330), legend(trace));
  const beyond = run => {
    let peak = 0;
    return run.curve.reserved.map((v, k) => { peak = Math.max(peak, run.curve.requested[k]); return Math.max(0, v - peak); });
  };
  const gaps = shown.map(([r, i]) => ({ name: r.label, colour: colour(i), values: beyond(r) }));
  const allocated = shown.map(([r, i]) => ({ name: `${r.label} allocated`, colour: colour(i), values: r.curve.allocated }));
  const second = make("section", {}, make("h2", {}, "Fragmentation over time"),
    make("p", { class: "note" }, "Reserved beyond the highest request so far: memory that a perfect packing would never have taken."), chart(xs, gaps, label, 220));
  const third = make("section", {}, make("h2", {}, "Allocated over time"),
    make("p", { class: "note" }, "What live blocks occupy after rounding. Area: requested."), chart(xs, [asked, ...allocated], label, 220));
  return [first, second, third];
}

// The address map: all segments end to end, wrapped into rows like text.
const STATES = ["live", "pending", "free", "hollow"];
function drawMap(canvas, run, index) {
  const layout = run.layout, rows = 26, rowHeight = 9, gap = 3;
  const width = canvas.clientWidth || 500, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = rows * (rowHeight + gap) * scale;
  canvas.style.height = `${rows * (rowHeight + gap)}px`;
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  const fills = [css(`--c${index % 8}`), css("--pending"), css("--free"), css("--hollow")];
  // Reserved addresses outnumber memory by far, so a hollow block is drawn no longer than this.
  const held = layout.state_bytes[0] + layout.state_bytes[1] + layout.state_bytes[2], most = held / 150;
  const drawn = (size, state) => state === 3 ? Math.min(size, most) : size;
  const total = layout.segments.reduce((sum, s) => sum + s[2].reduce((a, [size, state]) => a + drawn(size, state), 0), 0);
  const perRow = total / rows, where = [];
  let tape = 0;
  for (const [address, , blocks] of layout.segments) {
    let offset = 0;
    for (const [size, state, requested] of blocks) {
      where.push([tape, size, state, requested, address + offset]);
      const end = tape + drawn(size, state);
      for (let at = tape; at < end;) {
        const row = Math.min(rows - 1, Math.floor(at / perRow)), stop = row === rows - 1 ? end : Math.min(end, (row + 1) * perRow);
        if (stop <= at) break;
        const x = (at - row * perRow) / perRow * width, w = (stop - at) / perRow * width;
        g.fillStyle = fills[state];
        g.fillRect(x, row * (rowHeight + gap), Math.max(w - (w > 3 ? .6 : 0), .25), rowHeight);
        at = stop;
      }
      tape = end; offset += size;
    }
    const row = Math.min(rows - 1, Math.floor(tape / perRow));
    g.fillStyle = css("--ink");
    g.fillRect((tape - row * perRow) / perRow * width - .5, row * (rowHeight + gap) - 1, 1, rowHeight + 2);
  }
  canvas.onmousemove = event => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(rows - 1, Math.floor((event.clientY - box.top) / (rowHeight + gap)));
    const at = (row + (event.clientX - box.left) / box.width) * perRow;
    let low = 0, high = where.length - 1;
    while (low < high) { const mid = (low + high + 1) >> 1; if (where[mid][0] <= at) low = mid; else high = mid - 1; }
    const block = where[low];
    if (!block) return hideTip();
    const asked = block[3] ? `\n${bytes(block[3])} requested` : "";
    showTip(event, `${STATES[block[2]]}: ${bytes(block[1])}${asked}\nat 0x${block[4].toString(16)}`);
  };
  canvas.onmouseleave = hideTip;
}

function freeBars(run) {
  const bars = run.layout.free, W = 540, H = 130, left = 62, bottom = 20;
  const max = Math.max(1, ...bars.map(b => b[2])), step = (W - left) / Math.max(8, bars.length);
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  for (const v of steps(max, 3)) {
    const y = H - bottom - (H - bottom - 8) * v / max;
    svg.append(make("line", { class: "grid", x1: left, x2: W, y1: y, y2: y }), make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, v ? bytes(v) : "0"));
  }
  bars.forEach(([upper, blocks, total], i) => {
    const h = (H - bottom - 8) * total / max;
    const bar = make("rect", { x: left + i * step + 2, y: H - bottom - h, width: Math.max(2, step - 4), height: h, rx: 2, style: "fill:var(--free)" });
    bar.addEventListener("mousemove", e => showTip(e, `${count(blocks)} free block${blocks === 1 ? "" : "s"} up to ${bytes(upper)}\n${bytes(total)} together`));
    bar.addEventListener("mouseleave", hideTip);
    const tag = bytes(upper).replace(/\.0+ /, " ");
    svg.append(bar);
    if (bars.length <= 10 || (bars.length - i) % 2) svg.append(make("text", { x: left + i * step + step / 2, y: H - 5, "text-anchor": "middle", style: "font-size:9px" }, tag));
  });
  return svg;
}

function map(run, index) {
  const card = make("section", {}, make("h2", {}, dot(index), run.label));
  if (!run.layout) {
    card.append(make("p", { class: "note" }, "This allocator has no address map to show."));
    return [card, () => {}];
  }
  const l = run.layout, canvas = make("canvas", { role: "img", "aria-label": `Address map of ${run.label}` });
  const key = STATES.map((name, i) => make("b", { style: "font-weight:400" },
    make("i", { class: "dot", style: `--colour:${i === 0 ? colour(index) : `var(--${name})`}` }), `${name} ${bytes(l.state_bytes[i])}${i === 3 && l.state_bytes[3] ? ", not to scale" : ""}`));
  card.append(make("p", { class: "note" }, `${count(l.segments.length)} segments, ${count(l.block_count)} blocks, at event ${count(run.peak_event)}`),
    canvas, make("div", { class: "key" }, ...key));
  if (l.free.length) card.append(make("p", { class: "note" }, "Free blocks by size: bytes in blocks up to"), freeBars(run));
  return [card, () => drawMap(canvas, run, index)];
}

function facts(trace) {
  const parts = [[count(trace.events), "events"], [count(trace.iterations), "iterations"], [count(trace.streams), trace.streams === 1 ? "stream" : "streams"],
    [bytes(trace.peak_requested_bytes), "peak requested"], [bytes(trace.capacity_bytes), "device memory"]];
  return make("p", { class: "facts" }, ...parts.flatMap(([value, name], i) => [i ? " · " : "", make("b", {}, value), ` ${name}`]));
}

function draw() {
  hideTip();
  const nav = document.getElementById("traces"), main = document.getElementById("main"), trace = DATA.traces[view.trace];
  nav.replaceChildren(...(DATA.traces.length < 2 ? [] : DATA.traces.map((t, i) => make("button", {
    "aria-pressed": i === view.trace, onclick: () => { view.trace = i; draw(); } }, t.name))));
  const maps = trace.runs.map(map);
  main.replaceChildren(
    make("section", {}, make("h2", {}, trace.name), facts(trace), figures(trace)),
    ...overTime(trace),
    ...convergence(trace),
    make("section", {}, make("h2", {}, "Address maps"), make("p", { class: "note" },
      "Each allocator's segments end to end, wrapped like text, at the event where its reserved memory first reached its peak. A bar marks the end of a segment.")),
    make("div", { class: "maps" }, ...maps.map(([card]) => card)));
  for (const [, paint] of maps) paint();
}
draw();
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
