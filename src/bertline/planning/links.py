"""Readable names, results/runs/{run}/... and results/report/latest, as links to fingerprinted folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.files import Json, write_link
from bertline.planning.plan import Plan, report_fingerprint
from bertline.results import paths

REPORTS = paths.REPORT.format(fingerprint="")


def write_links(plan: Plan, *, existing_only: bool) -> None:
    """Link readable names, results/runs/{run}/... and results/report/latest, to the fingerprinted folders.

    What leads into a report stays as it is until the new report exists: often only a part of the plan is asked for.
    """
    for link, target in links_of(plan).items():
        if Path(target).exists() or not (existing_only or target.startswith(REPORTS)):
            write_link(Path(link), Path(target))


def links_of(plan: Plan) -> dict[str, str]:
    """Return the folder or file to which each readable name leads, whether it exists or not."""
    report = paths.REPORT.format(fingerprint=report_fingerprint(plan))
    links = {paths.REPORT.format(fingerprint="latest"): report}
    for name, run in plan.runs.items():
        folder = paths.RUN.format(run=name)
        links |= {f"{folder}/{link}": target for link, target in _links_of_run(plan, run, report)}
    return links


def _links_of_run(plan: Plan, run: Json, report: str) -> Iterator[tuple[str, str]]:
    for name, key in run["finetunings"].items():
        yield name, paths.FINETUNING.format(finetuning=key)
    for name, key in run["kept"].items():
        if plan.kept[key]["keep"] != "none":
            yield f"{name}/model", paths.KEPT_MODEL.format(kept=key)
    if run["phases"]:
        yield "dataset", plan.dataset_folder(run["dataset"])
        for corpus in plan.datasets[run["dataset"]].get("corpora", ()):
            yield f"corpora/{plan.corpora[corpus]['name']}", paths.CORPUS.format(corpus=corpus)
        for phase, key in run["phases"].items():
            yield phase, paths.PHASE.format(phase=key)
        yield paths.RUN_EXPORT, f"{paths.PHASE.format(phase=key)}/{paths.EXPORT}"
        yield "model-card.md", f"{report}/model-cards/{run['name']}.md"
    yield paths.RUN_RECORD, paths.RECORD.format(run=run["name"], fingerprint=run["fingerprint"])
