/* What was measured: the curves of runs, and the times of benchmarks. */
"use strict";

const NAMES = {loss: "loss", bits_per_token: "bits a token", accuracy: "accuracy", bleu: "BLEU"};

function drawTraining() {
  const measure = $("#measure").value, at = CONTENT.columns_of_runs.indexOf(measure), host = $("#training .charts");
  host.replaceChildren();
  for (const [k, against] of [[0, "steps"], [1, "seconds"]]) {
    const series = CONTENT.runs.flatMap((r, i) => [["train", true], ["validation", false]].map(([split, faint]) => ({
      name: `${r.name}, ${split === "train" ? "training" : split}`, colour: i, faint, marked: !faint, dash: faint ? "" : dash(i),
      points: r[split].map(row => [row[k], row[at]]).filter(([x, y]) => x !== null && y !== null)})).filter(s => s.points.length));
    const place = make("div", {}, make("h3", {}, `${NAMES[measure]} against ${against}`));
    host.append(place);
    plot(place, {series, xname: against, yname: NAMES[measure], label: `${NAMES[measure]} against ${against}`});
  }
}

function runLine(r) {
  const number = (v, digits) => v === null || v === undefined ? "" : v.toFixed(digits);
  const best = Object.entries(r.best).map(([k, v]) => `${NAMES[k] ?? k} ${v.value.toFixed(4)} at ${text(BigInt(v.step))}`).join("; ");
  const steps = text(BigInt(r.step)) + (r.planned ? ` / ${text(BigInt(r.planned))}` : "");
  return make("tr", {}, make("th", {scope: "row"}, r.name),
    ...[r.model, r.state, steps, number(r.loss, 4), best, r.rate ? text(BigInt(Math.round(r.rate))) : "", number(r.seconds, 1), r.device, r.begun, r.reason]
      .map(t => make("td", {}, t)));
}

function setUpTraining() {
  if (!CONTENT.runs.length) return;
  $("#training").hidden = false;
  const there = Object.keys(NAMES).filter(m => CONTENT.runs.some(r => [...r.train, ...r.validation].some(row => row[CONTENT.columns_of_runs.indexOf(m)] !== null)));
  $("#measure").append(...there.map(m => make("option", {value: m}, NAMES[m])));
  $("#measure").addEventListener("change", drawTraining);
  $("#training .runs").append(make("thead", {}, make("tr", {},
    ...["run", "model", "state", "steps", "loss", "best of validation", "tokens/s", "seconds", "device", "begun", ""].map(t => make("th", {scope: "col"}, t)))),
    make("tbody", {}, ...CONTENT.runs.map(runLine)));
  if (there.length) drawTraining();
  else $("#training .charts").append(make("p", {class: "hint"}, "No run has a row yet."));
}

function setUpBench() {
  if (!CONTENT.bench.length) return;
  $("#bench").hidden = false;
  for (const found of CONTENT.bench) {
    const names = [...new Set(found.rows.map(r => r.model))];
    const place = make("div", {}, make("h3", {}, found.name),
      make("p", {class: "hint"}, Object.entries(found.machine).map(([k, v]) => `${k}: ${v}`).join(", ")));
    $("#bench .files").append(place);
    const colourOf = name => { const k = CONTENT.models.findIndex(m => m.name === name); return k >= 0 ? k : CONTENT.models.length + names.indexOf(name); };
    const series = names.map(name => {
      const rows = found.rows.filter(r => r.model === name).sort((a, b) => a.length - b.length);
      return {name, colour: colourOf(name), marked: true, points: rows.map(r => [r.length, r.median]),
        whiskers: rows.filter(r => r.low && r.high).map(r => [r.length, r.low, r.high])};
    });
    plot(place, {series, xname: "length", yname: "seconds", xlog: true, ylog: true, label: `times of ${found.name}`});
    place.append(make("details", {}, make("summary", {}, "as a table"), make("div", {class: "scroll"}, make("table", {},
      make("thead", {}, make("tr", {}, ...["model", "length", "median", "low", "high"].map(t => make("th", {scope: "col"}, t)))),
      make("tbody", {}, ...found.rows.map(r => make("tr", {}, make("th", {scope: "row"}, r.model),
        ...[text(BigInt(r.length)), ...["median", "low", "high"].map(k => r[k] === undefined ? "" : `${short(r[k])}s`)].map(t => make("td", {}, t)))))))));
  }
}
