/* The drawings: what a chosen part costs, and each box's share of the work. */
"use strict";

let chosen = null;                               // the part that stays until another one is chosen
let pointed = null;                              // the part that a pointer or the keyboard is at

/* Sums of what adds up, over all statements in a frame. */
function sumOf(rows, column, s) {
  const found = rows.filter(r => r.cells[column] !== undefined).map(r => costOf(r, column, sizes, s));
  return found.length ? add(...found) : undefined;
}

/* The lines of a part: name of a cost, its value. */
function costsOf(part, model) {
  const at = part.dataset.at, frame = part.classList.contains("frame"), s = dimsOf(model);
  const rows = frame ? CONTENT.rows.filter(r => r.kind === "layer" && (r.at === at || r.at.startsWith(`${at}/`))) : [ROWS[`layer ${at}`]];
  const lines = [];
  for (const c of CONTENT.columns) {
    if (frame && !c.added || !rows[0]) continue;
    if (!frame && rows[0].cells[c.name]?.text.startsWith("O(") && c.name === "order") continue;
    try {
      const value = frame ? sumOf(rows, c.name, s) : costOf(rows[0], c.name, sizes, s);
      if (value !== undefined) lines.push([c.title, text(value), frame ? "" : rows[0].cells[c.name].full ?? rows[0].cells[c.name].text]);
    } catch (why) { lines.push([c.title, "unknown", why.message]); }
  }
  return lines;
}

function lineOf([name, value, expression]) {
  return make("tr", {}, make("th", {scope: "row"}, name),
    make("td", {}, make("span", {class: "v"}, value),
      expression ? make("span", {class: "e"}, expression.length > 60 ? `${expression.slice(0, 57)}…` : expression) : null));
}

function showPart() {
  const part = pointed ?? chosen, panel = $("#part");
  for (const p of document.querySelectorAll("svg .part")) {
    p.classList.toggle("chosen", p === chosen);
    p.setAttribute("aria-pressed", String(p === chosen));
  }
  if (part === null) { panel.replaceChildren(make("p", {class: "hint"}, "No part is chosen.")); return; }
  const model = MODELS[part.closest("svg").dataset.model], at = part.dataset.at, frame = part.classList.contains("frame");
  const wrong = broken(model), lines = wrong ? [] : costsOf(part, model);
  const inside = r => r.kind === "op" && r.at.startsWith(`${at}/`) && !r.at.slice(at.length + 1).includes("/");
  const operations = wrong || frame ? [] : CONTENT.rows.filter(inside);
  const said = t => make("p", {class: "hint"}, t);
  const name = ROWS[`layer ${at}`]?.label.replace(/^\S+ /, "") ?? part.dataset.label;
  panel.replaceChildren(make("h3", {}, name), make("p", {class: "place"}, at));
  if (wrong) panel.append(make("p", {class: "status"}, wrong));
  else if (!lines.length) panel.append(said("It has no costs of its own."));
  else {
    if (frame) panel.append(said("all that is in it, together:"));
    panel.append(make("table", {}, make("tbody", {}, ...lines.map(lineOf))));
  }
  if (operations.length) panel.append(make("h3", {}, "multiply-adds by operation"),
    make("table", {}, make("tbody", {}, ...operations.map(r => lineOf([r.label, valueText(r, "work"), ""])))));
}

function valueText(row, column) {
  try { return text(costOf(row, column) ?? 0n); } catch { return "unknown"; }
}

/* The bar at the foot of a box: its work against the model's. */
function showShares() {
  for (const box of document.querySelectorAll("svg .box")) {
    const model = MODELS[box.closest("svg").dataset.model], bar = $(".share", box);
    let share = 0;
    try {
      const mine = costOf(ROWS[`layer ${box.dataset.at}`], "work"), all = costOf(ROWS[`model ${model.name}`], "work");
      share = broken(model) || !float(all) ? 0 : float(mine) / float(all);
    } catch { /* a statement without a row has none */ }
    bar.setAttribute("width", (share * Number(bar.dataset.width)).toFixed(1));
  }
}

function setUpGraphs() {
  const drawings = [...document.querySelectorAll(".drawing")], choice = $("#drawn");
  choice.append(...drawings.map(d => make("option", {value: d.dataset.model}, d.dataset.model)));
  const show = () => { for (const d of drawings) d.hidden = d.dataset.model !== choice.value; };
  choice.addEventListener("change", () => { show(); chosen = pointed = null; showPart(); });
  if (drawings.length < 2) choice.closest(".controls").hidden = true;
  show();
  for (const p of document.querySelectorAll("svg .part")) {
    const enter = () => { pointed = p; showPart(); }, leave = () => { pointed = null; showPart(); };
    p.addEventListener("pointerenter", enter);
    p.addEventListener("pointerleave", leave);
    p.addEventListener("focus", enter);
    p.addEventListener("blur", leave);
    p.addEventListener("click", () => { chosen = chosen === p ? null : p; showPart(); });
    p.addEventListener("keydown", e => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      chosen = chosen === p ? null : p;
      showPart();
    });
  }
  listeners.push(showShares, showPart);
}
