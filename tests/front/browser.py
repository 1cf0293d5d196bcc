"""A page in a headless browser: a script is put at its end, and what the script gives is read from the page."""
from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no browser: apt-get install chromium, or CHROMIUM=/path/to/one"
LOOK = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
        "--enable-logging=stderr", "--virtual-time-budget=5000"]


@cache
def browser() -> str | None:
    """The browser, by $CHROMIUM or on the path. (A name on the path may be a stub that says where to get one.)"""
    for name in filter(None, (os.environ.get("CHROMIUM"), *NAMES)):
        if shutil.which(name) and not subprocess.run([name, "--version"], capture_output=True).returncode: return name
    return None


needed = pytest.mark.skipif(browser() is None, reason=MISSING)

ASKED = """
<script>
const wait = () => new Promise(done => setTimeout(done, 200));
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const put = (id, value, ...names) => {
  const e = document.getElementById(id);
  e.value = value;
  for (const name of names) e.dispatchEvent(new Event(name, {bubbles: true}));
};
const type = (id, value) => put(id, value, "input");
const choose = (id, value) => put(id, value, "input", "change");
const values = () => Object.fromEntries($$("#costs tbody tr").map(tr => [tr.dataset.at,
  Object.fromEntries($$("td", tr).map(td => [td.dataset.column, $(".v", td)?.textContent ?? null]))]));
const all = () => { for (const box of $$("#costs fieldset input")) if (!box.checked) box.click(); };
const status = () => $(".status").textContent;
(async () => {
  let answer;
  try { answer = await (async () => {SCRIPT})(); } catch (why) { answer = {failed: String(why.stack ?? why)}; }
  const out = document.createElement("pre");
  out.id = "answer";
  out.textContent = JSON.stringify(answer);
  document.body.append(out);
})();
</script>
"""


def asked(page: str, script: str, folder: Path, *options: str) -> Any:
    """What a script, the body of an async function, gives at the end of a page. Fails where the page writes to its console."""
    file = folder / "asked.html"
    file.write_text(page.replace("</body>", ASKED.replace("SCRIPT", script) + "</body>"), encoding="utf-8")
    chosen = browser()
    assert chosen is not None
    found = subprocess.run([chosen, *LOOK, f"--user-data-dir={folder / 'profile'}", *options, "--dump-dom", file.as_uri()],
                           capture_output=True, text=True, timeout=120)
    said = [line for line in found.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    answer = re.search(r'<pre id="answer">(.*?)</pre>', found.stdout, re.S)
    assert answer is not None, found.stderr[-2000:]
    got = json.loads(html.unescape(answer[1]))
    assert not isinstance(got, dict) or "failed" not in got, got
    return got
