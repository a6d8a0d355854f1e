function draw() {
  hideTip();
  const shown = [traces(), sections()];
  document.getElementById("traces").replaceChildren(...(DATA.traces.length < 2 ? [] : DATA.traces.map((t, i) => make("button", {
    "aria-pressed": i === view.trace, onclick: () => { view.trace = i; draw(); } }, t.name))));
  document.getElementById("main").replaceChildren(...shown.flatMap(one => one.nodes));
  for (const paint of shown.flatMap(one => one.paints)) paint();
}
document.title = `Drystone: ${DATA.subtitle}`;
document.getElementById("subtitle").textContent = DATA.subtitle;
document.getElementById("note").textContent = DATA.note;
document.querySelector("footer").hidden = !DATA.traces.length;
draw();
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
