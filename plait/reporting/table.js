/* The table of costs: a row for each model, statement or operation. */
"use strict";

const LEVELS = {model: "model", layer: "statement", op: "operation"};
const MODELS = Object.fromEntries(CONTENT.models.map(m => [m.name, m]));
const ROWS = Object.fromEntries(CONTENT.rows.map(r => [`${r.kind} ${r.at}`, r]));
const shown = {level: "model", columns: new Set(CONTENT.columns.filter(c => c.shown).map(c => c.name))};

/* The value of a cost of a row. Throws NoValue with the reason; undefined where the row has no such cost. */
function costOf(row, column, at = sizes, s = dimsOf(MODELS[row.model], at)) {
  const cell = row.cells[column];
  if (cell === undefined) return undefined;
  if (cell.e !== undefined) return evaluated(cell.e, s);
  if (cell.forms !== undefined) {
    const fits = cell.forms.every(f => f.needs.every(e => { try { return le(1n, evaluated(e, s)); } catch { return false; } }));
    if (fits) return most(...cell.forms.map(f => evaluated(f.e, s)));
  }
  if (!("value" in cell)) return undefined;
  if (!atStart(at)) throw new NoValue("known at the sizes of the spec alone: plait table --set");
  if (cell.value === null) return undefined;
  return /^-?\d+$/.test(cell.value) ? BigInt(cell.value) : Number(cell.value);
}

/* A cell: the value, and below it the expression; why there is no value stands in its title. */
function cellOf(row, column, wrong, s) {
  const cell = row.cells[column.name];
  const td = make("td", {"data-column": column.name});
  if (cell === undefined) return td;
  let said = "";
  if (wrong) said = "—";
  else {
    try {
      const value = costOf(row, column.name, sizes, s);
      said = value === undefined ? "" : text(value);
    } catch (why) {
      if (!(why instanceof NoValue)) throw why;
      said = "unknown";
      td.classList.add("unknown");
      td.title = why.message;
    }
  }
  td.append(make("span", {class: "v"}, said), cell.text ? make("span", {class: "e", title: cell.full ?? null}, cell.text) : "");
  return td;
}

function rowOf(row, columns) {
  const model = MODELS[row.model], s = dimsOf(model), wrong = broken(model, sizes, s);
  const note = wrong || (atStart(sizes) ? row.note ?? "" : "");
  return make("tr", {class: `${row.kind}${wrong ? " broken" : ""}`, "data-at": row.at, "data-kind": row.kind},
    make("th", {scope: "row"}, row.label, note ? make("small", {class: "note"}, note) : null),
    ...columns.map(c => cellOf(row, c, wrong, s)));
}

function drawTable() {
  const columns = CONTENT.columns.filter(c => shown.columns.has(c.name));
  const kinds = Object.keys(LEVELS).slice(0, Object.keys(LEVELS).indexOf(shown.level) + 1);
  const head = make("tr", {}, make("th", {scope: "col"}, LEVELS[shown.level]),
    ...columns.map(c => make("th", {scope: "col"}, c.title, make("small", {}, c.meaning))));
  $("#costs thead").replaceChildren(head);
  $("#costs tbody").replaceChildren(...CONTENT.rows.filter(r => kinds.includes(r.kind)).map(r => rowOf(r, columns)));
  $("#costs caption").textContent = CONTENT.sliders.map(s => `${s.name} = ${text(sizes[s.key])}`).join(", ");
}

function setUpTable() {
  $("#level").append(...Object.entries(LEVELS).map(([value, name]) => make("option", {value}, name)));
  $("#level").addEventListener("change", e => { shown.level = e.target.value; drawTable(); });
  $("#costs fieldset").append(...CONTENT.columns.map(c => {
    const box = make("input", {type: "checkbox", "data-column": c.name, checked: shown.columns.has(c.name)});
    box.addEventListener("change", () => { shown.columns[box.checked ? "add" : "delete"](c.name); drawTable(); });
    return make("label", {}, box, ` ${c.title}`);
  }));
  listeners.push(drawTable);
}
