/* What was measured: the curves of runs, and the times of benchmarks. */
"use strict";

const NAMES = {loss: "loss", bits_per_token: "bits a token", accuracy: "accuracy", bleu: "BLEU"};

/* A model of the spec has its colour wherever it is drawn; others have the colours behind. */
function colourOf(name, others) {
  const k = CONTENT.models.findIndex(m => m.name === name);
  return k >= 0 ? k : CONTENT.models.length + others.indexOf(name);
}

/* The two curves of a run: training thin, validation with points. Runs of one model differ by their dashes. */
function curvesOfRun(r, column, along) {
  const models = CONTENT.runs.map(other => other.model), among = CONTENT.runs.filter(other => other.model === r.model).indexOf(r);
  const look = {colour: colourOf(r.model, [...new Set(models)]), dash: DASHES[among % DASHES.length]};
  const curve = rows => rows.map(row => [row[along], row[column]]).filter(([x, y]) => x !== null && y !== null);
  const [training, validation] = [curve(r.train), curve(r.validation)];
  return [{...look, name: `${r.name}, training`, points: training, faint: true, unnamed: validation.length > 0},
    {...look, name: `${r.name}, validation`, points: validation, marked: true}].filter(s => s.points.length);
}

function drawTraining() {
  const measure = $("#measure").value, column = CONTENT.columns_of_runs.indexOf(measure), host = $("#training .charts");
  host.replaceChildren();
  for (const [along, against] of [[0, "steps"], [1, "seconds"]]) {
    const label = `${NAMES[measure]} against ${against}`, place = make("div", {}, make("h3", {}, label));
    host.append(place);
    plot(place, {series: CONTENT.runs.flatMap(r => curvesOfRun(r, column, along)), xname: against, yname: NAMES[measure], label,
      xunit: along ? "s" : ""});
  }
  const clocks = [[true, "of an experiment's runs: steps times the median of a step, measured in turn"],
    [false, "of other runs: their own clock"]];
  const told = clocks.filter(([k]) => CONTENT.runs.some(r => r.in_turn === k)).map(([, said]) => said);
  host.lastChild.append(make("p", {class: "hint clock"}, `Seconds ${told.join("; ")}.`));
}

function runLine(r) {
  const number = (v, digits) => v === null || v === undefined ? "" : v.toFixed(digits);
  const best = Object.entries(r.best).map(([k, v]) => `${NAMES[k] ?? k} ${v.value.toFixed(4)} at ${text(BigInt(v.step))}`).join("; ");
  const steps = text(BigInt(r.step)) + (r.planned ? ` / ${text(BigInt(r.planned))}` : "");
  return make("tr", {}, make("th", {scope: "row"}, r.name),
    ...[r.model, r.state, steps, number(r.loss, 4), best, r.rate ? text(BigInt(Math.round(r.rate))) : "", number(r.seconds, 1), r.device,
      r.begun, r.reason].map(t => make("td", {}, t)));
}

function setUpTraining() {
  if (!CONTENT.runs.length) return;
  $("#training").hidden = false;
  const rows = CONTENT.runs.flatMap(r => [...r.train, ...r.validation]);
  const there = Object.keys(NAMES).filter(m => rows.some(row => row[CONTENT.columns_of_runs.indexOf(m)] !== null));
  $("#measure").append(...there.map(m => make("option", {value: m}, NAMES[m])));
  $("#measure").addEventListener("change", drawTraining);
  const heads = ["run", "model", "state", "steps", "loss", "best of validation", "tokens/s", "seconds", "device", "begun", "note"];
  $("#training .runs").append(make("thead", {}, make("tr", {}, ...heads.map(t => make("th", {scope: "col"}, t)))),
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
      make("p", {class: "hint"}, Object.entries(found.machine).map(([k, v]) => `${k}: ${v}`).join(", ")),
      ...(found.noisy ? [make("p", {class: "hint"}, "The machine was too noisy for the second digit of a ratio.")] : []));
    $("#bench .files").append(place);
    const series = names.map(name => {
      const rows = found.rows.filter(r => r.model === name).sort((a, b) => a.length - b.length);
      return {name, colour: colourOf(name, names), marked: true, points: rows.map(r => [r.length, r.median]),
        whiskers: rows.filter(r => r.low && r.high).map(r => [r.length, r.low, r.high])};
    });
    plot(place, {series, xname: "length", yname: "time", yunit: "s", xlog: true, ylog: true, label: `times of ${found.name}`});
    place.append(tableOf(["model", "length", "median", "low", "high"], found.rows.map(r =>
      [r.model, text(BigInt(r.length)), ...["median", "low", "high"].map(k => r[k] === undefined ? "" : sized(r[k], "s"))])));
  }
}
