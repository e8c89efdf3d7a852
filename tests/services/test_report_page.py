"""The report's page in a real browser, checked by axe-core against rules for accessibility."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bertline.finetuning.tasks.registry import TASKS
from bertline.reporting.page import write_report

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from fabricated_runs import write, write_run

AXE = "axe-core@4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROBE = """<script src="{axe}"></script><script>
axe.run(document, {{resultTypes: ["violations"]}}).then(found => {{
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found.violations);
  document.body.append(result);
}});
</script></body>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no browser is installed; on Debian: apt install chromium")
    return found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        (folder / "axe.js").write_bytes(script.read())
    return folder / "axe.js"


def violations(page: Path, browser: str, axe: Path, size: str) -> list[dict[str, Any]]:
    """The rules that a page breaks in a window of a size, with its elements that break them."""
    probed = page.with_name("probed.html")
    probed.write_text(page.read_text().replace("</body>", PROBE.format(axe=axe.as_uri())))
    options = [f"--user-data-dir={axe.parent / 'profile'}", f"--window-size={size}", "--virtual-time-budget=60000"]
    options += ["--headless", "--disable-gpu", "--no-sandbox"]  # the sandbox refuses root; the page is our own
    command = [browser, *options, "--dump-dom", probed.absolute().as_uri()]
    written = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    found = re.search(r'<pre id="found">(.*?)</pre>', written, re.DOTALL)
    assert found, "axe-core gave no answer"
    broken: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    return broken


@pytest.mark.parametrize(("runs", "size"), [(1, "1280,900"), (2, "390,800")])
def test_axe_core_finds_nothing_to_mend_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: str, axe: Path, runs: int, size: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path)
    # With the columns of published scores, and a paragraph on the other tasks.
    for path in Path("results/finetunings").glob("squad_v1-*/metrics.json"):
        write(path, {**json.loads(path.read_text()), "digests": TASKS["squad_v1"].digests})
    other = record.with_name("other.json")
    content = json.loads(record.read_text())
    write(other, {**content, "run": "other", "config": {**content["config"], "seed": 1}, "skipped": ["RTE"]})
    page = write_report([record, other][:runs], Path("report"))
    broken = violations(page, browser, axe, size)
    assert not [(rule["id"], rule["help"], [node["html"] for node in rule["nodes"]]) for rule in broken]
