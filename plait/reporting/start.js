/* Puts the page together. */
"use strict";

const THEMES = ["system", "light", "dark"];

function setUpTheme() {
  let theme = "system";
  try { theme = THEMES.find(t => t === localStorage.getItem("theme")) ?? theme; } catch { /* a browser may keep nothing of a file */ }
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("#theme").textContent = `colours: ${theme}`;
    $("#theme").setAttribute("aria-label", `colours: ${theme}; choose the next of ${THEMES.join(", ")}`);
  };
  $("#theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("theme", theme); } catch { /* as above */ }
    show();
  });
  show();
}

setUpTheme();
setUpSizes();
setUpTable();
setUpGraphs();
setUpCrossings();
setUpTraining();
setUpBench();
const sections = [...document.querySelectorAll("main > section:not([hidden])")];
$("header nav").append(...sections.map(s => make("a", {href: `#${s.id}`}, $("h2", s).textContent)));
changed();
