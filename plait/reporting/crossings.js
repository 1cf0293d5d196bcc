/* A cost of all models against one dim, and the first allowed value at which two of them have changed places. */
"use strict";

const POINTS = 65;                               // of a curve, evenly on a logarithmic axis
const MOST_PAIRS = 45;

/* The first allowed value from a wanted one up to below another; null where there is none. */
function nextAllowed(key, from, below, models, at = sizes) {
  const step = stepOf(key, at, models);
  let v = (from + step - 1n) / step * step;
  for (let k = 0; v < below && k < MOST_TRIED; k += 1, v += step) if (v >= 1n && allowed({...at, [key]: v}, models)) return v;
  return null;
}

function evenly(low, high) {
  const found = new Set();
  const ratio = Number(high) / Number(low);
  for (let k = 0; k < POINTS; k += 1) {
    const v = BigInt(Math.round(Number(low) * ratio ** (k / (POINTS - 1))));
    if (v >= low && v <= high) found.add(v);
  }
  found.add(low).add(high);
  return [...found].sort((a, b) => a < b ? -1 : 1);
}

const places = (key, low, high, models, at = sizes) => {
  const wanted = evenly(low, high);
  return wanted.map((v, k) => nextAllowed(key, v, wanted[k + 1] ?? high + 1n, models, at)).filter(v => v !== null);
};

/* A cost of a model at one value of a dim; null where it has none. */
function costAt(model, column, key, v) {
  const row = ROWS[`model ${model.name}`];
  try { return costOf(row, column, {...sizes, [key]: v}) ?? null; }
  catch (why) { if (why instanceof NoValue) return null; throw why; }
}

/* The first allowed value in (low, high] at which the order is another than at low. */
function turn(key, low, high, less, models) {
  const before = less(low);
  for (;;) {
    const middle = nextAllowed(key, (low + high) / 2n + 1n, high, models);
    if (middle === null) break;
    if (less(middle) === before) low = middle;
    else high = middle;
  }
  let v = low;
  while ((v = nextAllowed(key, v + 1n, high, models)) !== null) if (less(v) !== before) return v;
  return high;
}

function crossingsOf(key, column, curves, models) {
  const out = [];
  const pairs = curves.flatMap((a, i) => curves.slice(i + 1).map(b => [a, b])).slice(0, MOST_PAIRS);
  for (const [a, b] of pairs) {
    const less = v => {
      const [p, q] = [costAt(a.model, column, key, v), costAt(b.model, column, key, v)];
      return p !== null && q !== null && lt(p, q);
    };
    for (let k = 1; k < a.x.length; k += 1) {
      if ([a.y[k - 1], a.y[k], b.y[k - 1], b.y[k]].includes(null)) continue;
      if (lt(a.y[k - 1], b.y[k - 1]) === lt(a.y[k], b.y[k])) continue;
      const x = turn(key, a.x[k - 1], a.x[k], less, models);
      out.push({models: [a.model.name, b.model.name], x, y: costAt(a.model, column, key, x)});
    }
  }
  return out;
}

/* What is drawn: a curve for each model that has the cost and allows some value. */
function compared(column, key, low, high) {
  const having = CONTENT.models.filter(m => ROWS[`model ${m.name}`].cells[column] !== undefined);
  const able = having.filter(m => places(key, low, high, [m]).length);
  const x = places(key, low, high, able);
  const curves = able.map(model => ({model, x, y: x.map(v => costAt(model, column, key, v))})).filter(c => c.y.some(v => v !== null));
  return {curves, left: having.filter(m => !able.includes(m)), crossings: crossingsOf(key, column, curves, able)};
}

function drawCrossings() {
  const column = $("#cost").value, key = $("#along").value, host = $("#crossings .chart");
  const low = parsed($("#from").value), high = parsed($("#to").value);
  host.replaceChildren();
  const say = t => host.append(make("p", {class: "hint"}, t));
  if (low === null || high === null || low > high) return say("From and to are whole numbers of 1 or more, in this order.");
  const {curves, left, crossings} = compared(column, key, low, high);
  for (const m of left) say(`${m.name} is not drawn: ${broken(m) || "no value in this range meets what it requires"}`);
  if (!curves.length) return say(`No value of ${key} from ${text(low)} to ${text(high)} can be drawn, with the other sizes as they are.`);
  const series = curves.map(c => ({name: c.model.name, colour: CONTENT.models.indexOf(c.model),
    points: c.x.map((v, k) => [Number(v), c.y[k] === null ? null : float(c.y[k])])}));
  const positive = series.every(s => s.points.every(([, y]) => y === null || y > 0));
  const meaning = CONTENT.columns.find(c => c.name === column);
  const marks = crossings.map(c => ({x: Number(c.x), y: float(c.y), said: `${key} = ${text(c.x)}`}))
    .filter(m => Number.isFinite(m.y));
  plot(host, {series, xname: key, yname: meaning.meaning, xlog: true, ylog: positive, marks, label: `${meaning.title} against ${key}`});
  host.append(make("ul", {class: "found"}, ...crossings.map(c =>
    make("li", {}, `${c.models.join(" and ")} change places at ${key} = ${text(c.x)}`))));
  host.append(tableOf([key, ...curves.map(c => c.model.name)],
    curves[0].x.map((v, k) => [text(v), ...curves.map(c => c.y[k] === null ? "" : text(c.y[k]))])));
}

function setUpCrossings() {
  const computed = (m, c) => { const cell = ROWS[`model ${m.name}`].cells[c.name]; return cell && (cell.e ?? cell.forms) !== undefined; };
  const costs = CONTENT.columns.filter(c => CONTENT.models.some(m => computed(m, c)));
  $("#cost").append(...costs.map(c => make("option", {value: c.name}, c.title)));
  $("#along").append(...CONTENT.sliders.filter(s => !s.fixed).map(s => make("option", {value: s.key}, s.key)));
  const along = CONTENT.models.map(m => m.dims[m.along]).find(key => CONTENT.sliders.some(s => s.key === key && !s.fixed));
  if (along) $("#along").value = along;
  for (const id of ["cost", "along", "from", "to"]) $(`#${id}`).addEventListener("input", drawCrossings);
  let waiting = null;                            // a slider that moves draws once, when it rests
  listeners.push(() => { clearTimeout(waiting); waiting = setTimeout(drawCrossings, 60); });
}
