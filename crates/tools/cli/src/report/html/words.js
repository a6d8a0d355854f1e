"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const colour = i => `var(--c${i % 8})`;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

// A table: the columns of `words` stand to the left, figures to the right.
function table(heads, rows, words = [0]) {
  const line = (cells, tag) => make("tr", {}, ...cells.map((cell, i) => {
    const node = cell instanceof Node ? cell : make(tag, {}, cell);
    if (words.includes(i)) node.classList.add("word");
    return node;
  }));
  return make("div", { class: "scroll" }, make("table", {}, line(heads, "th"), ...rows.map(cells => line(cells, "td"))));
}
