# SPDX-License-Identifier: GPL-2.0-only
"""The report as a browser shows it: complete without a network, narrow and wide, light and dark, on paper, and to who has
no mouse or does not tell colours apart. What names try to do, they do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import sample_run
from durabenchlib import report, results
from sample_figures import HOSTILE, run_of

LONG = "a_label_" * 12

# Each text that is seen with its contrast to the ground that it stands on (WCAG 2.2, 1.4.3).
CONTRASTS = """
(() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), svg = element.closest('svg');
    let alpha = 1;
    for (let each = element; each; each = each.parentElement) alpha *= Number(getComputedStyle(each).opacity);
    const under = ground(element), over = channels(svg ? style.fill : style.color);
    const ink = over.slice(0, 3).map((c, i) => alpha * c + (1 - alpha) * under[i]);
    const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()
"""

# What sticks out of the page to the right, beside what is in a scroll area.
STICKS_OUT = """
[...document.body.querySelectorAll('*')].filter(each => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > innerWidth + 0.5 && !each.parentElement.closest('.wide, pre, svg');
}).map(each => each.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if not browser.program():
        pytest.skip("there is no Chromium here (setup/packages.list)")
    started = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A report of two runs on unlike machines, whose names try everything."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as monkeypatch:
        sample_run.only_measurement(folder / "library", monkeypatch)
        yield _page(folder)


def _page(folder: Path) -> Path:
    before = run_of(folder, "before", label=LONG)
    manifest = json.loads((before / "run.json").read_text())
    changed = {"environment": {**manifest["environment"], "kernel": "7.4.0", "fio": HOSTILE}, "notes": [HOSTILE, LONG]}
    after = run_of(folder, "after", label=HOSTILE, **changed)
    for fio in after.glob("*/fio.json"):
        fio.write_text(fio.read_text().replace('"jobname": "seq"', f'"jobname": {json.dumps(HOSTILE)}'))
        (fio.parent / "job.fio").write_text(f"[{HOSTILE}]\n")
    runs = [results.load_run(path) for path in (before, after)]
    report.write_html(folder / "report.html", runs, report.compare_all(runs))
    return folder / "report.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_complete(chromium: browser.Browser, page: Path, width: int, dark: bool) -> None:
    shown = chromium.show(page, width, dark)
    assert shown.requests == [page.as_uri()]
    assert shown.errors == []
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    assert shown.evaluate(STICKS_OUT) == []
    figures = shown.evaluate("""[...document.querySelectorAll('figure svg')].map(each => {
      const box = each.getBoundingClientRect();
      return [box.width, box.height, each.querySelectorAll('path').length, each.checkVisibility()];
    })""")
    assert len(figures) > 10
    assert all(w > 300 and h > 60 and paths > 3 and visible for w, h, paths, visible in figures), figures
    ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(22, 23, 26)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read(chromium: browser.Browser, page: Path, dark: bool) -> None:
    shown = chromium.show(page, 1000, dark)
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    contrasts = shown.evaluate(CONTRASTS)
    assert len(contrasts) > 500
    assert [each for each in contrasts if each[0] < 4.5] == []


def test_names_stay_text(chromium: browser.Browser, page: Path) -> None:
    shown = chromium.show(page)
    assert shown.evaluate("[document.scripts.length, document.scripts[0].type]") == [1, "application/json"]
    assert shown.evaluate("document.querySelectorAll('[onload], [onerror], [onclick], iframe, img, object').length") == 0
    assert "<script>alert(1)</script>" in shown.evaluate("document.body.innerText")
    data = shown.evaluate("JSON.parse(document.getElementById('comparison').text)")
    assert data["measurements"][-1]["environment"]["after"]["label"] == HOSTILE


def test_paper_is_white_and_wide_enough(chromium: browser.Browser, page: Path, tmp_path: Path) -> None:
    """Also for who reads in the dark. 700 px are A4 without its margins."""
    shown = chromium.show(page, 700, dark=True, media="print")
    assert shown.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert [each for each in shown.evaluate(CONTRASTS) if each[0] < 4.5] == []
    assert shown.evaluate("[...document.querySelectorAll('figure svg')].every(each => each.getBoundingClientRect().right <= 700)")
    assert shown.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    chromium.show(page).pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")


def test_a_screen_reader_and_a_keyboard_find_their_way(chromium: browser.Browser, page: Path) -> None:
    shown = chromium.show(page, 400)
    levels = shown.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(each => Number(each.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert shown.evaluate("['header', 'main', 'nav', 'footer'].map(each => document.querySelectorAll(each).length)") == [1] * 4
    assert shown.evaluate("document.documentElement.lang") == "en"
    assert shown.evaluate("[...document.querySelectorAll('th')].filter(each => !each.scope).length") == 0
    assert shown.evaluate("""[...document.querySelectorAll('[aria-labelledby]')].every(each =>
      document.getElementById(each.getAttribute('aria-labelledby')).innerText)""")
    alternatives = shown.evaluate(
        "[...document.querySelectorAll('svg')].map(each => [each.getAttribute('role'), each.ariaLabel])"
    )
    assert all(role == "img" and text for role, text in alternatives)
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    out_of_reach = shown.evaluate("""[...document.querySelectorAll('*')].filter(each =>
      each.scrollWidth > each.clientWidth && getComputedStyle(each).overflowX === 'auto' && each.tabIndex < 0).length""")
    assert out_of_reach == 0
    # A verdict is a word, whatever its colour.
    assert set(shown.evaluate("[...document.querySelectorAll('.badge')].map(each => each.innerText.slice(2))")) <= {
        "improved",
        "no change",
        "regressed",
        "inconclusive",
        "invalid",
    }
    assert shown.evaluate("document.querySelectorAll('.badge').length") > 10


def test_the_browser_tells_what_is_wrong(chromium: browser.Browser, tmp_path: Path) -> None:
    """A page with faults, so that a test that finds none means something."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='background:#fff'><p style='color:#aaa'>pale</p><div style='width:900px'>wide</div>"
        "<img src='http://192.0.2.1/x.png'><script>console.error('no')</script><script>undefined.x</script>"
    )
    shown = chromium.show(bad, 400)
    assert "http://192.0.2.1/x.png" in shown.requests
    assert len(shown.errors) >= 2
    assert shown.evaluate("document.documentElement.scrollWidth") > 400
    assert shown.evaluate(STICKS_OUT) == ['<div style="width:900px">wide</div>']
    assert shown.evaluate(CONTRASTS)[0][0] < 3
