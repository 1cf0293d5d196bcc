/* The sizes: where the sliders stand, what follows from them, and whether a model allows them. */
"use strict";

const CONTENT = JSON.parse(document.getElementById("content").textContent);
const MOST_TRIED = 500;                          // values beside a wanted one that are tried for an allowed one
const listeners = [];                            // called when a size has changed
const start = Object.fromEntries(CONTENT.sliders.map(s => [s.key, BigInt(s.value)]));
const sizes = {...start};

const $ = (selector, within = document) => within.querySelector(selector);

/* An element: its attributes, then what is in it. */
function make(name, attributes = {}, ...inside) {
  const svg = ["svg", "g", "path", "line", "circle", "text", "rect"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) if (v !== null && v !== false) e.setAttribute(k, v === true ? "" : v);
  e.append(...inside.filter(x => x !== null && x !== undefined));
  return e;
}

/* ---- models --------------------------------------------------------------------------------------------------------------------- */
/* A function of the page at some values: a value, or NoValue. */
function evaluated(number, s) {
  try { return EXPRESSIONS[number](s); }
  catch (why) {
    if (why instanceof NoValue) throw why;
    throw new NoValue(why.message);             // a BigInt beyond the engine's size
  }
}

/* The dims of a model where the sliders stand, those that follow from others, and the batch. */
function dimsOf(model, at = sizes) {
  const s = Object.create(null);
  for (const [name, key] of Object.entries(model.dims)) s[name] = at[key];
  s.b = at.b;
  for (const d of model.derived) {
    try { s[d.name] = evaluated(d.e, s); }
    catch { s[d.name] = 0n; }                    // no size: a rule says so
  }
  return s;
}

/* Why a model does not allow these sizes; empty where it does. */
function broken(model, at = sizes, s = dimsOf(model, at)) {
  for (const slider of CONTENT.sliders) {
    if (slider.most !== null && at[slider.key] > BigInt(slider.most) && Object.values(model.dims).includes(slider.key))
      return `the spec has ${slider.name} ≤ ${text(BigInt(slider.most))}`;
  }
  for (const rule of model.rules) {
    let holds = false;
    try { holds = evaluated(rule.e, s); } catch { /* without a value it does not hold */ }
    if (!holds) return rule.words;
  }
  return "";
}

const atStart = at => CONTENT.sliders.every(s => at[s.key] === start[s.key]);
const allowed = (at, models = CONTENT.models) => models.every(m => !broken(m, at));

/* Allowed values of a dim are multiples of this, the others as they stand. */
function stepOf(key, at, models = CONTENT.models) {
  let step = 1n;
  for (const m of models) {
    const s = dimsOf(m, at);
    for (const [name, moduli] of Object.entries(m.steps)) {
      if (m.dims[name] !== key) continue;
      for (const e of moduli) {
        let by;
        try { by = evaluated(e, s); } catch { continue; }
        if (typeof by === "bigint" && by > 0n) step = step / divisor(step, by) * by;
      }
    }
  }
  return step;
}

/* The allowed value nearest to a wanted one, between two others; null where there is none. */
function nearest(key, wanted, low, high, at = sizes) {
  const fits = v => v >= 1n && v > low && v < high && allowed({...at, [key]: v});
  if (fits(wanted)) return wanted;
  const step = stepOf(key, at);
  const below = wanted / step * step;
  for (let k = 0n; k < BigInt(MOST_TRIED); k += 1n) {
    const [down, up] = [below - k * step, below + (k + 1n) * step];
    if (down <= low && up >= high) return null;
    for (const v of wanted - down <= up - wanted ? [down, up] : [up, down]) if (fits(v)) return v;
  }
  return null;
}

/* ---- sliders ------------------------------------------------------------------------------------------------------------------- */
/* The places of a slider: small values one by one, then eight for each doubling. */
function ladder(slider) {
  const value = BigInt(slider.value);
  const end = slider.most !== null ? BigInt(slider.most) : [value * 64n, 1024n].reduce((a, b) => a > b ? a : b);
  const found = new Set([value, end]);
  for (let v = 1n; v <= end && v <= 16n; v += 1n) found.add(v);
  for (let octave = 16n; octave < end; octave *= 2n)
    for (let k = 0n; k < 8n; k += 1n) if (octave + octave * k / 8n <= end) found.add(octave + octave * k / 8n);
  return [...found].sort((a, b) => a < b ? -1 : 1);
}

/* A whole number of 1 or more, as a person may write it; null for anything else. */
function parsed(written) {
  const digits = written.replace(/[\s,_’'.]/g, "");
  return /^[0-9]{1,40}$/.test(digits) && BigInt(digits) >= 1n ? BigInt(digits) : null;
}

function changed() { for (const f of listeners) f(); }

function sliderOf(slider) {
  const places = ladder(slider), id = `size-${slider.key}`;
  const own = slider.key !== slider.name ? `of ${slider.key.split(".")[0]}` : "";
  const meaning = slider.key === "b" ? "sequences in a batch" : slider.free ? "free" : own;
  const range = make("input", {type: "range", min: 0, max: places.length - 1, step: 1, id: `${id}-range`, "data-key": slider.key,
    "aria-label": `${slider.name}${meaning ? `, ${meaning}` : ""}`, disabled: slider.fixed !== ""});
  const box = make("input", {type: "text", inputmode: "numeric", id, "data-key": slider.key, disabled: slider.fixed !== "",
    autocomplete: "off"});
  range.addEventListener("input", () => {
    const k = Number(range.value), wanted = places[k];
    const found = nearest(slider.key, wanted, k ? places[k - 1] : 0n, places[k + 1] ?? wanted + 1n);
    sizes[slider.key] = found ?? wanted;
    changed();
  });
  box.addEventListener("input", () => {
    const value = parsed(box.value);
    box.classList.toggle("wrong", value === null);
    box.setAttribute("aria-invalid", String(value === null));
    if (value !== null) { sizes[slider.key] = value; changed(); }
  });
  box.addEventListener("blur", () => { box.classList.remove("wrong"); box.removeAttribute("aria-invalid"); show(); });
  function show() {
    const now = sizes[slider.key];
    const above = places.findIndex(v => v >= now);
    range.value = String(above < 0 ? places.length - 1 : above);
    range.setAttribute("aria-valuetext", text(now));
    if (document.activeElement !== box) box.value = text(now);
  }
  listeners.push(show);
  return make("div", {class: "slider"}, make("label", {for: id}, slider.name, " ", meaning ? make("small", {}, meaning) : null), box, range,
    slider.fixed ? make("span", {class: "why"}, `cannot be moved alone: ${slider.fixed}`) : null);
}

/* Sizes that follow from others: `f = 4·d`, once for all models that agree. */
function derivedLines() {
  const found = new Map();
  for (const m of CONTENT.models) for (const d of m.derived) {
    const name = `${d.name} = ${d.text}`;
    if (!found.has(name)) found.set(name, {model: m, name: d.name, out: make("output", {"data-derived": d.name})});
  }
  listeners.push(() => { for (const f of found.values()) f.out.textContent = text(dimsOf(f.model)[f.name]); });
  return [...found].map(([name, f]) => make("p", {class: "derived"}, `${name} = `, f.out));
}

function setUpSizes() {
  $("#sizes .sliders").append(...CONTENT.sliders.filter(s => s.key !== "b").map(sliderOf), ...derivedLines(),
    ...CONTENT.sliders.filter(s => s.key === "b").map(sliderOf));
  $("#reset").addEventListener("click", () => { Object.assign(sizes, start); changed(); });
  listeners.push(() => {
    const wrong = CONTENT.models.map(m => [m.name, broken(m)]).filter(([, why]) => why);
    const reasons = [...new Set(wrong.map(([, why]) => why))];
    $("#sizes .status").textContent = reasons.map(why => {
      const names = wrong.filter(([, w]) => w === why).map(([name]) => name);
      return names.length === CONTENT.models.length ? why : `${names.join(", ")}: ${why}`;
    }).join("; ");
  });
}
