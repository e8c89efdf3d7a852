"""The plan behind the rules: what the configuration asks for, and functions from wildcards to files."""

import json
import re
import shlex
import sys

from bertline import plan as planning
from bertline.console import BertlineError

try:
    plan = planning.make_plan(
        config,
        workflow.source_path("../../config/config.schema.yaml"),
        Path(workflow.basedir) / "config/models",
    )
except BertlineError as error:
    sys.exit(f"error: {error}")

# Names of runs follow the configuration even when nothing has to run, as after a setting was changed back.
if workflow.is_main_process:
    plan.write_links(existing_only=True)

SEQUENCE_LENGTHS = plan.config["sequence_lengths"]
# Resources of the download rules and not params: where a file comes from, and who fetches it, runs nothing again.
CONTACT = shlex.quote(plan.config.get("contact", ""))
MIRRORS = shlex.join(plan.config["mirrors"])


wildcard_constraints:
    wiki="[a-z][a-z0-9_]*",
    dump=r"\d{8}",
    corpus="[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{8}",
    part="[A-Za-z0-9][A-Za-z0-9_.-]*",
    dataset="[0-9a-f]{16}",
    shard=r"\d{5}|held_out",
    phase="[0-9a-f]{16}",
    finetuning="[0-9a-f]{16}",
    run="[A-Za-z0-9][A-Za-z0-9_.-]*",
    fingerprint="[0-9a-f]{16}",


def only(entries, holds):
    """A wildcard's constraint to the keys of those entries for which `holds`."""
    return (
        "|".join(re.escape(key) for key, entry in entries.items() if holds(entry))
        or "(?!)"
    )


def from_dump(corpus):
    return "wiki" in corpus


def from_files(corpus):
    return "parts" in corpus


def trains_tokenizer(dataset):
    return "train" in dataset.get("settings", {}).get("tokenizer", {})


def takes_tokenizer(dataset):
    return "file" in dataset.get("settings", {}).get("tokenizer", {})


def refuse_missing_inputs():
    """Stop a real run, not a dry one, while files that the configuration names are absent."""
    if plan.problems:
        sys.exit(f"error: {plan.problems[0]}")


def built_datasets():
    """The datasets that this graph makes itself."""
    return {
        key: dataset for key, dataset in plan.datasets.items() if "path" not in dataset
    }


def dump_listings():
    """The pinned listing of every Wikimedia dump asked for."""
    return sorted(
        f"resources/wikimedia/{corpus['wiki']}/{corpus['settings']['dump']}/parts.json"
        for corpus in plan.corpora.values()
        if from_dump(corpus)
    )


def parts_of(corpus):
    """The names of a corpus's parts; for a dump they are known once it was listed."""
    entry = plan.corpora[corpus]
    if from_files(entry):
        return list(entry["parts"])
    listing = checkpoints.list_dump_parts.get(
        wiki=entry["wiki"], dump=entry["settings"]["dump"]
    ).output[0]
    return list(json.loads(Path(listing).read_text())["parts"])


def downloaded_files(wildcards):
    """Every part of every dump, and the evaluation data that comes from the network."""
    parts = [
        f"resources/wikimedia/{entry['wiki']}/{entry['settings']['dump']}/{part}.xml.bz2"
        for corpus, entry in plan.corpora.items()
        if from_dump(entry)
        for part in parts_of(corpus)
    ]
    return parts + list(plan.downloads)


def sentence_files(wildcards):
    """The sentences of every part of every corpus that a dataset of this configuration is made from."""
    used = {
        corpus for dataset in built_datasets().values() for corpus in dataset["corpora"]
    }
    return [
        f"results/corpora/{corpus}/sentences/{part}.txt.zst"
        for corpus in sorted(used)
        for part in parts_of(corpus)
    ]


def dataset_cards():
    return [f"{plan.dataset_folder(dataset)}/dataset.json" for dataset in plan.datasets]


def exports():
    last_phases = {list(run["phases"].values())[-1] for run in plan.runs.values()}
    return [f"results/phases/{phase}/huggingface" for phase in sorted(last_phases)]


def scores():
    return [
        f"results/finetunings/{finetuning}/metrics.json"
        for finetuning in plan.finetunings
    ]


def records():
    return [
        f"results/runs/{name}/record-{run['fingerprint']}.json"
        for name, run in plan.runs.items()
    ]


def markers(stage):
    """The tracker's marks that a stage of every run is in MLflow."""
    return [
        f"results/runs/{name}/tracked-{stage}-{run['fingerprint']}.json"
        for name, run in plan.runs.items()
    ]


def report_page():
    return f"results/report/{planning.report_fingerprint(plan)}/index.html"
