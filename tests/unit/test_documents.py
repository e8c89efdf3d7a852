"""Documents: links and their anchors, the citation, and the resources of a training."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import bertline
from bertline.finetuning.options import Options as FinetuningOptions
from bertline.training.options import MAX_SHARING, Options

ROOT = Path(__file__).parents[2]


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (bertline.__version__, project["license"])


def test_the_table_of_a_training_s_resources_is_complete_and_has_the_defaults() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    table = page[page.index("| resource of `pretrain_phase` |") :].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    for name in ("checkpoint_every_minutes", "evaluate_every", "log_every"):
        assert float(rows[name]) == getattr(Options, name)
    on = {device: Options().micro_batch_tokens_on(device) for device in ("cuda", "cpu")}
    assert rows["micro_batch_tokens"] == f"{on['cuda']} on a GPU, {on['cpu']} on a CPU"
    shared = f"`fine_tunings_per_gpu` ({FinetuningOptions.fine_tunings_per_gpu} by default, at most {MAX_SHARING})"
    assert shared in " ".join(page.split())

    # The names that the shell lines use, without those that the rules alone set.
    rules = [(ROOT / "workflow" / file).read_text() for file in ("rules/pretrain.smk", "inputs/placement.smk")]
    used = set(re.findall(r"\{resources\.(\w+)", "".join(rules)))
    assert used - {"launched_nodes", "additional_nodes", "attempt", "keep_steps"} == set(rows)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_name_files_and_headings_that_exist() -> None:
    pages = [path for folder in (".", "docs", "config", "envs") for path in (ROOT / folder).glob("*.md")]
    wrong = []
    for page in pages:
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append((page.name, link))
    assert wrong == []


def test_the_readme_lists_every_page_by_its_title() -> None:
    questions = (ROOT / "README.md").read_text().partition("## Questions")[2].partition("\n## ")[0]
    listed = {path: title for title, path in re.findall(r"^- \[(.*?)\]\((docs/[\w-]+\.md)\)", questions, re.MULTILINE)}
    assert listed == {f"docs/{page.name}": page.read_text().split("\n")[0][2:] for page in (ROOT / "docs").glob("*.md")}
