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
