/* Curves as SVG: axes, lines, marks, a legend, and what stands under the pointer. */
"use strict";

const WIDTH = 720, HEIGHT = 400, LEFT = 74, RIGHT = 18, TOP = 14, BOTTOM = 48;
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const COLOURS = 8;

const colour = k => `var(--c${k % COLOURS})`;
const dash = k => DASHES[Math.floor(k / COLOURS) % DASHES.length];

/* A scale from values to places, and its ticks. */
function scale(low, high, from, to, logarithmic) {
  if (low === high) [low, high] = logarithmic ? [low / 2, high * 2] : [low - 1, high + 1];
  const f = logarithmic ? Math.log10 : x => x;
  const [a, b] = [f(low), f(high)];
  return {at: x => from + (f(x) - a) / (b - a) * (to - from), ticks: logarithmic ? decades(low, high) : round(low, high)};
}

function decades(low, high) {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high) + 1e-9; e += 1)
    for (const m of [1, 2, 5]) { const v = m * 10 ** e; if (v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) all.push(v); }
  const tens = all.filter(v => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9);
  const chosen = all.length <= 8 ? all : tens;
  const every = Math.ceil(chosen.length / 8);
  return chosen.filter((_, k) => k % every === 0);
}

function round(low, high) {
  const raw = (high - low) / 6, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= raw);
  const out = [];
  for (let k = Math.ceil(low / step); k <= high / step + 1e-9; k += 1) out.push(Number((k * step).toPrecision(12)));
  return out;
}

/* Draws into an element. series: {name, points: [[x, y]], colour, faint, marked, whiskers: [[x, low, high]]}; marks: {x, y, said}. */
function plot(host, {series, xname, yname, xlog = false, ylog = false, marks = [], label, xunit = "", yunit = ""}) {
  const good = series.map(s => ({...s, points: s.points.filter(([x, y]) => fits(x, xlog) && fits(y, ylog))}));
  const points = good.flatMap(s => [...s.points, ...(s.whiskers ?? []).flatMap(([x, a, b]) => [[x, a], [x, b]])]);
  const box = make("div", {class: "plot"});
  host.append(box);
  if (!points.length) { box.append(make("p", {class: "hint"}, "There is nothing to draw.")); return box; }
  const range = k => [Math.min(...points.map(p => p[k])), Math.max(...points.map(p => p[k]))];
  const x = scale(...range(0), LEFT, WIDTH - RIGHT, xlog), y = scale(...range(1), HEIGHT - BOTTOM, TOP, ylog);
  const svg = make("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label});
  for (const t of x.ticks) {
    svg.append(make("line", {class: "grid", x1: x.at(t), x2: x.at(t), y1: TOP, y2: HEIGHT - BOTTOM}),
      make("text", {class: "tick", x: x.at(t), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle"}, sized(t, xunit)));
  }
  for (const t of y.ticks) {
    svg.append(make("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(t), y2: y.at(t)}),
      make("text", {class: "tick", x: LEFT - 6, y: y.at(t) + 4, "text-anchor": "end"}, sized(t, yunit)));
  }
  svg.append(make("path", {class: "axis", fill: "none", d: `M${LEFT},${TOP} V${HEIGHT - BOTTOM} H${WIDTH - RIGHT}`}),
    make("text", {class: "name", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 10, "text-anchor": "middle"}, xname),
    make("text", {class: "name", transform: `translate(14 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle"}, yname));
  for (const s of good) svg.append(...lineParts(s, x, y));
  marks.forEach((m, k) => svg.append(make("circle", {class: "mark", cx: x.at(m.x), cy: y.at(m.y), r: 4}),
    make("text", {class: "said", x: Math.min(x.at(m.x) + 8, WIDTH - 90), y: y.at(m.y) + (k % 2 ? -8 : 16)}, m.said)));
  box.append(svg, legend(good));
  pointing(box, svg, good, x, y, xname);
  return box;
}

const fits = (v, logarithmic) => v !== null && Number.isFinite(v) && (!logarithmic || v > 0);

function lineParts(s, x, y) {
  const look = {stroke: colour(s.colour), "stroke-dasharray": s.dash ?? dash(s.colour)};
  const d = s.points.map(([a, b], k) => `${k ? "L" : "M"}${x.at(a).toFixed(2)},${y.at(b).toFixed(2)}`).join(" ");
  const out = [make("path", {class: `curve${s.faint ? " faint" : ""}`, d, "data-name": s.name, ...look})];
  for (const [a, low, high] of s.whiskers ?? [])
    out.push(make("line", {class: "whisker", x1: x.at(a), x2: x.at(a), y1: y.at(low), y2: y.at(high), stroke: colour(s.colour)}));
  if (s.marked && s.points.length <= 200)
    for (const [a, b] of s.points) out.push(make("circle", {cx: x.at(a), cy: y.at(b), r: 2.6, fill: colour(s.colour)}));
  return out;
}

function legend(series) {
  const look = s => ({class: `curve${s.faint ? " faint" : ""}`, stroke: colour(s.colour), "stroke-dasharray": s.dash ?? dash(s.colour)});
  const line = s => make("svg", {viewBox: "0 0 30 10", "aria-hidden": "true"}, make("path", {d: "M0,5 H30", ...look(s)}));
  return make("ul", {class: "legend"}, ...series.filter(s => !s.unnamed).map(s => make("li", {}, line(s), s.name)));
}

/* What is drawn, for whoever cannot see it. The first column names the lines. */
function tableOf(heads, lines) {
  const row = ([first, ...rest]) => make("tr", {}, make("th", {scope: "row"}, first), ...rest.map(t => make("td", {}, t)));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(t => make("th", {scope: "col"}, t)))),
    make("tbody", {}, ...lines.map(row)));
  return make("details", {}, make("summary", {}, "as a table"), make("div", {class: "scroll"}, table));
}

/* The values of all curves at the pointer. */
function pointing(box, svg, series, x, y, xname) {
  const tip = make("div", {class: "tip-box", hidden: true});
  const line = make("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
  svg.append(line);
  box.append(tip);
  svg.addEventListener("pointermove", e => {
    const size = svg.getBoundingClientRect(), at = (e.clientX - size.left) / size.width * WIDTH;
    const nearer = (a, b) => Math.abs(x.at(b[0]) - at) < Math.abs(x.at(a[0]) - at) ? b : a;
    const near = series.filter(s => s.points.length).map(s => ({s, p: s.points.reduce(nearer)}));
    if (!near.length) return;
    const closest = near.map(n => n.p).reduce(nearer)[0];
    line.setAttribute("x1", x.at(closest));
    line.setAttribute("x2", x.at(closest));
    line.setAttribute("visibility", "visible");
    tip.replaceChildren(make("div", {}, `${xname} ${text(Number.isInteger(closest) ? BigInt(closest) : closest)}`),
      ...near.filter(n => Math.abs(x.at(n.p[0]) - x.at(closest)) < 6).map(n => make("div", {}, `${n.s.name}: ${reading(n.p[1])}`)));
    tip.hidden = false;
    const left = x.at(closest) / WIDTH * size.width;
    tip.style.left = left > size.width / 2 ? "" : `${left + 12}px`;
    tip.style.right = left > size.width / 2 ? `${size.width - left + 12}px` : "";
    tip.style.top = "1rem";
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; line.setAttribute("visibility", "hidden"); });
}

function reading(v) {
  if (Number.isInteger(v) && Math.abs(v) < 1e15) return text(BigInt(v));
  return Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3 ? short(v) : String(Number(v.toPrecision(5)));
}
