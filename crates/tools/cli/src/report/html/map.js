// The address map: all segments end to end, wrapped into rows like text.
const STATES = ["live", "pending", "free", "unmapped"];
function drawMap(canvas, layout, held, index) {
  const rows = 26, rowHeight = 9, gap = 3;
  const width = canvas.clientWidth || 500, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = rows * (rowHeight + gap) * scale;
  canvas.style.height = `${rows * (rowHeight + gap)}px`;
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  const fills = [css(`--c${index % 8}`), css("--pending"), css("--free"), css("--unmapped")];
  // Reserved addresses outnumber memory by far, so an unmapped block is drawn no longer than this.
  const most = held / 150;
  const drawn = (size, state) => state === 3 ? Math.min(size, most) : size;
  const total = layout.segments.reduce((sum, s) => sum + s[2].reduce((a, [size, state]) => a + drawn(size, state), 0), 0);
  const perRow = total / rows, where = [];
  let tape = 0;
  for (const [address, , blocks, place] of layout.segments) {
    let offset = 0;
    for (const [size, state, requested, together] of blocks) {
      where.push({ tape, size, state, requested, together, address: address + offset, place });
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
    while (low < high) { const mid = (low + high + 1) >> 1; if (where[mid].tape <= at) low = mid; else high = mid - 1; }
    const block = where[low];
    if (!block) return hideTip();
    const blocks = block.together > 1 ? `${count(block.together)} blocks, ` : "", asked = block.requested ? `\n${bytes(block.requested)} requested` : "";
    showTip(event, `${STATES[block.state]}: ${blocks}${bytes(block.size)}${asked}\nat 0x${block.address.toString(16)}${block.place ? `\n${block.place}` : ""}`);
  };
  canvas.onmouseleave = hideTip;
}

// The blocks of a layout: how many, bytes by state, and the free ones by size as [upper bound, blocks, bytes].
function sums(layout) {
  const state = STATES.map(() => 0), free = new Map();
  let blocks = 0;
  for (const [, , of] of layout.segments) for (const [size, kind, , together] of of) {
    blocks += together;
    state[kind] += size;
    if (STATES[kind] !== "free") continue;
    const upper = 2 ** Math.ceil(Math.log2(size)), [, number, held] = free.get(upper) ?? [upper, 0, 0];
    free.set(upper, [upper, number + together, held + size]);
  }
  return { blocks, state, free: [...free.values()].sort(([a], [b]) => a - b) };
}

function freeBars(bars) {
  const W = 540, H = 130, left = 62, bottom = 20;
  const max = Math.max(1, ...bars.map(b => b[2])), step = (W - left) / Math.max(8, bars.length);
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "bars" });
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

// A layout with its key and its free blocks; `paint` is for when the elements are in the page.
function addressMap(layout, index, name, when = "") {
  const { blocks, state, free } = sums(layout), canvas = make("canvas", { role: "img", "aria-label": `Address map of ${name}` });
  const key = STATES.map((kind, i) => make("b", { style: "font-weight:400" },
    make("i", { class: "dot", style: `--colour:${i === 0 ? colour(index) : `var(--${kind})`}` }), `${kind} ${bytes(state[i])}${i === 3 && state[3] ? ", not to scale" : ""}`));
  const nodes = [make("p", { class: "note" }, `${count(layout.segments.length)} segments, ${count(blocks)} blocks${when}`),
    canvas, make("div", { class: "key" }, ...key)];
  if (free.length) nodes.push(make("p", { class: "note" }, "Free blocks by size: bytes in blocks up to"), freeBars(free));
  return { nodes, paint: () => drawMap(canvas, layout, state[0] + state[1] + state[2], index) };
}
