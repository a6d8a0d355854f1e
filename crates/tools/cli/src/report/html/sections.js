// Sections: whatever else is told, as parts of a few kinds.
const PARTS = {
  text: text => [make("p", { class: "note" }, text)],
  table: ({ heads, rows, words }) => [table(heads, rows, words)],
  bar: parts => {
    const total = parts.reduce((sum, part) => sum + part.bytes, 0) || 1;
    const fill = part => `var(--${part.kind})`;
    return [
      make("div", { class: "bar" }, ...parts.map(part => make("span", { style: `width:${100 * part.bytes / total}%;background:${fill(part)}` }))),
      make("div", { class: "key" }, ...parts.map(part => make("b", { style: "font-weight:400" },
        make("i", { class: "dot", style: `--colour:${fill(part)}` }), `${part.name} ${bytes(part.bytes)}`)))];
  },
};

// All sections, and what to paint once they are in the page.
function sections() {
  const paints = [];
  const map = layout => {
    const { nodes, paint } = addressMap(layout, 0, "all segments");
    paints.push(paint);
    return nodes;
  };
  const part = ({ title, ...content }) => {
    const [[kind, value]] = Object.entries(content);
    return [...(title ? [make("h3", {}, title)] : []), ...{ ...PARTS, map }[kind](value)];
  };
  const nodes = DATA.sections.map(({ title, parts }) => make("section", {}, make("h2", {}, title), ...parts.flatMap(part)));
  return { nodes, paints };
}
