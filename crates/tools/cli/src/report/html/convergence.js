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
  const remapping = shown.filter(([r]) => r.remaps.harvested_granules);
  if (remapping.length) section.append(make("p", { class: "note" }, `Granules remapped in each ${name}.`),
    chart(xs, remapping.map(line("harvested_granules")), label, 160, whole, decades));
  for (const [r] of remapping) {
    const h = r.remaps;
    section.append(make("p", { class: "note" }, `${r.label}: ${count(h.harvested_granules)} granules remapped in all, ${count(h.lent_granules)} away from home at the end; ${count(h.aliases)} more mappings than homes, over ${bytes(h.alias_bytes)} of addresses.`));
  }
  return [section];
}
