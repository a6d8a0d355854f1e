// Replayed traces: one at a time, its figures, curves and address maps.
const view = { trace: 0, axis: "time", hidden: new Set() };

function axisOf(trace) {
  const points = trace.runs[0].curve.time_ns;
  if (view.axis === "time" && points[points.length - 1] > 0) return [points, nanos];
  return [points.map((_, i) => i * trace.runs[0].curve.events_per_point), v => `event ${count(Math.round(v))}`];
}

// The table of figures.
function figures(trace) {
  const heads = ["allocator", "peak reserved", "reserved / requested", "peak allocated", "driver calls", "steady calls", "driver time", "steady time", "a malloc: p99", "worst", "makespan", "over ideal", "stream waits", "host waited", "CPU ns / op", "out of memory"];
  // A run that refused requests did less: it is not the best at anything.
  const best = pick => Math.min(...trace.runs.map(r => r.out_of_memory_events ? Infinity : pick(r)));
  const least = best(r => r.peak_reserved_bytes), steady = best(r => r.steady_driver_calls), fastest = best(r => r.cpu_ns_per_operation ?? Infinity);
  const cell = (text, mark = "") => make("td", mark ? { class: mark } : {}, text);
  const rows = trace.runs.map((r, i) => {
    const name = make("td", {}, dot(i), r.allocator, r.configuration ? make("small", {}, ` ${r.configuration}`) : "");
    return [name,
      cell(bytes(r.peak_reserved_bytes), !r.out_of_memory_events && r.peak_reserved_bytes === least ? "best" : ""),
      cell(r.reserved_per_requested === null ? "" : r.reserved_per_requested.toFixed(4)),
      cell(bytes(r.peak_allocated_bytes)), cell(count(r.driver_calls)),
      cell(count(r.steady_driver_calls), !r.out_of_memory_events && r.steady_driver_calls === steady ? "best" : ""),
      cell(micros(r.driver_time_us)), cell(micros(r.steady_driver_time_us)),
      cell(micros(r.per_malloc.driver_time_us.p99)), cell(micros(r.per_malloc.driver_time_us.max)),
      cell(r.device_time ? micros(r.device_time.makespan_us) : ""), cell(r.makespan_over_ideal ? r.makespan_over_ideal.toFixed(4) : ""),
      cell(r.device_time ? count(r.device_time.stream_waits) : ""), cell(r.device_time ? micros(r.device_time.host_waited_us) : ""),
      cell(r.cpu_ns_per_operation === null ? "" : r.cpu_ns_per_operation.toFixed(1), !r.out_of_memory_events && r.cpu_ns_per_operation === fastest ? "best" : ""),
      cell(count(r.out_of_memory_events), r.out_of_memory_events ? "bad" : "")];
  });
  return table(heads, rows);
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

function map(run, index) {
  const card = make("section", {}, make("h2", {}, dot(index), run.label));
  if (!run.layout) {
    card.append(make("p", { class: "note" }, "This allocator has no address map to show."));
    return [card, () => {}];
  }
  const { nodes, paint } = addressMap(run.layout, index, run.label, `, at event ${count(run.peak_event)}`);
  card.append(...nodes);
  return [card, paint];
}

function facts(trace) {
  const parts = [[count(trace.events), "events"], [count(trace.iterations), "iterations"], [count(trace.streams), trace.streams === 1 ? "stream" : "streams"],
    [bytes(trace.peak_requested_bytes), "peak requested"], [bytes(trace.capacity_bytes), "device memory"]];
  return make("p", { class: "facts" }, ...parts.flatMap(([value, name], i) => [i ? " · " : "", make("b", {}, value), ` ${name}`]));
}

// What is shown of the trace in view, and what to paint once it is in the page.
function traces() {
  if (!DATA.traces.length) return { nodes: [], paints: [] };
  const trace = DATA.traces[view.trace], maps = trace.runs.map(map);
  const nodes = [
    make("section", {}, make("h2", {}, trace.name), facts(trace), figures(trace)),
    ...overTime(trace),
    ...convergence(trace),
    make("section", {}, make("h2", {}, "Address maps"), make("p", { class: "note" },
      "Each allocator's segments end to end, wrapped like text, at the event where its reserved memory first reached its peak. A bar marks the end of a segment.")),
    make("div", { class: "maps" }, ...maps.map(([card]) => card))];
  return { nodes, paints: maps.map(([, paint]) => paint) };
}
