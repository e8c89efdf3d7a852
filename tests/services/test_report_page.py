"""The report's page in a real browser, checked by axe-core against rules for accessibility."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, find_browser, opened

from bertline.reporting.page import write_report
from bertline.tasks.registry import TASKS

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from synthetic_runs import write, write_run

AXE = "axe-core@4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
# The contrasts of the figures' letters and lines with the page: see WCAG 2, "relative luminance".
CONTRASTS = """(() => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = colour => {
    const own = luminance(colour);
    return (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
  };
  const letters = [...document.querySelectorAll("svg text")].map(one => contrast(getComputedStyle(one).fill));
  const lines = [...document.querySelectorAll("svg path")]
    .filter(one => one.style.stroke.startsWith("var(") && !one.style.stroke.includes("--grid"))
    .filter(one => !one.style.stroke.includes("--paper"))
    .map(one => contrast(getComputedStyle(one).stroke));
  return [letters, lines];
})()"""
# The number of the focused element among those that the keyboard should reach.
FOCUSED = "[...document.querySelectorAll('a[href], [tabindex=\"0\"]')].indexOf(document.activeElement)"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A tab of a real browser."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no browser is installed; on Debian: apt install chromium")
    with opened(browser) as tab:
        yield tab


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's script, from the npm registry."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches axe-core, is not installed; on Debian: apt install npm")
    fetched = subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"npm cannot fetch {AXE}: {fetched.stderr.strip()[:200]}")
    (archive,) = folder.glob("*.tgz")
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == AXE_SHA512
    with tarfile.open(archive) as content:
        script = content.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two runs, with the columns of published scores, and a paragraph on the other tasks."""
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path)
    for path in Path("results/finetunings").glob("squad_v1-*/metrics.json"):
        write(path, {**json.loads(path.read_text()), "digests": TASKS["squad_v1"].digests})
    other = record.with_name("other.json")
    content = json.loads(record.read_text())
    different = {"run": "other", "fingerprint": "f" * 16, "skipped": ["RTE"]}
    write(other, {**content, **different, "config": {**content["config"], "seed": 1}})
    return [record, other]


def show(page: Page, records: list[Path], width: int, *, scheme: str = "light", medium: str = "") -> None:
    page.resize(width, 900)
    page.emulate(scheme=scheme, medium=medium)
    page.open("about:blank")
    page.wait_until("location.href === 'about:blank'")
    page.open(write_report(records, Path("report")).absolute().as_uri())
    page.wait_until("document.readyState === 'complete' && document.querySelector('main') !== null")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("runs", "width"), [(1, 1280), (2, 390)])
def test_axe_core_finds_nothing_to_mend_on_the_page(
    page: Page, axe: str, records: list[Path], runs: int, width: int, scheme: str
) -> None:
    show(page, records[:runs], width, scheme=scheme)
    page.evaluate(f"{axe}; void 0")
    broken = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)")
    assert not [(rule["id"], rule["help"], [node["html"] for node in rule["nodes"]]) for rule in broken]


def test_figures_have_the_colours_of_the_scheme_and_their_letters_stand_out(page: Page, records: list[Path]) -> None:
    """axe-core does not look into figures. WCAG asks for a contrast of 4.5 for letters, and of 3 for lines."""
    contrasts = {}
    for scheme in ("light", "dark"):
        show(page, records, 1280, scheme=scheme)
        contrasts[scheme] = page.evaluate(CONTRASTS)
    for letters, lines in contrasts.values():
        assert min(letters) >= 4.5
        assert min(lines) >= 3
    assert contrasts["light"] != contrasts["dark"]


def test_the_keyboard_reaches_the_results_every_link_and_every_wide_table(page: Page, records: list[Path]) -> None:
    show(page, records, 1280)
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert page.evaluate("document.activeElement.getBoundingClientRect().width") > 10
    page.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
    show(page, records, 1280)
    wanted = page.evaluate("document.querySelectorAll('a[href], [tabindex=\"0\"]').length")
    reached = []
    for _ in range(wanted):
        page.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert reached == list(range(wanted))  # in the order of the page
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("runs", [1, 2])
def test_a_print_is_light_and_nothing_is_outside_the_paper(page: Page, records: list[Path], runs: int) -> None:
    width = 687  # A4 without its margins, in CSS pixels
    show(page, records[:runs], width, scheme="dark", medium="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.print_to_pdf().startswith(b"%PDF")
