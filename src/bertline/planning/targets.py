"""The files of the graph's targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bertline.planning.entries import RunEntry, last_phase
from bertline.planning.plan import Plan, report_fingerprint
from bertline.results import paths
from bertline.results.kept import missing_models
from bertline.tasks.glue import GLUE_TASKS

# The rules of workflow/Snakefile, for all runs together, in the order of the graph.
STAGES = (
    *("all", "list_parts", "download", "corpus", "encode", "nvidia", "gpauloski", "pretrain", "finetune"),
    *("predict", "features", "submission", "report"),
)


def everything(plan: Plan) -> list[str]:
    """List the results of all runs individually, so that deleted ones are made again."""
    return [
        *exports(plan),
        *finetuned(plan),
        *(output for output, entry in plan.predictions.items() if not entry["absent"]),
        report_page(plan),
        *of_runs(paths.TRACKED_RUN, plan.runs),
        *of_runs(paths.LOGGED_MODEL, plan.runs),
    ]


def encoded(plan: Plan) -> list[str]:
    """List every file of samples, and the card, of every dataset that the graph makes."""
    return [*samples(plan, plan.built_datasets), *dataset_cards(plan)]


def pretrained(plan: Plan) -> list[str]:
    """List the exported models, and the markers that their pretraining is in MLflow."""
    return [*exports(plan), *of_runs(paths.TRACKED_PRETRAINING, plan.trained_runs)]


def finetuned(plan: Plan) -> list[str]:
    """List all scores, the choices of models, models that were deleted but are needed for a choice, and runs' records.

    The terminal's table of scores is of the records. A task that is skipped because its data is absent has a file that
    never exists.
    """
    skipped = [paths.SKIPPED_TASK.format(run=run, task=task) for run, task in plan.skipped]
    records = of_runs(paths.RECORD, {name: run for name, run in plan.runs.items() if run["finetunings"]})
    return [*scores(plan.finetunings), *choices(plan.kept), *deleted_models(plan), *skipped, *records]


def deleted_models(plan: Plan) -> list[str]:
    """List the models that were deleted but are needed for a choice."""
    return sorted({str(model) for choice in plan.kept.values() for model in missing_models(choice)})


def dump_listings(plan: Plan) -> list[str]:
    """List the pinned listing of every Wikimedia dump of the plan."""
    dumps = {(corpus["wiki"], corpus["settings"]["dump"]) for corpus in plan.corpora.values() if "wiki" in corpus}
    return [paths.DUMP_LISTING.format(wiki=wiki, dump=dump) for wiki, dump in sorted(dumps)]


def samples(
    plan: Plan,
    datasets: Iterable[str],
    pattern: str = paths.DATASET_SAMPLES,
    *,
    lengths: Sequence[int] | None = None,
) -> list[str]:
    """List a file for every shard and sequence length of `datasets`, or some `lengths`; by default those of samples.

    A `pattern` with {split} has training and test files, one without has none for the held-out shard.
    """
    native = pattern == paths.DATASET_SAMPLES
    return [
        pattern.format(dataset=key, length=length, shard=shard, split="test" if shard == paths.HELD_OUT else "training")
        for key in datasets
        for length in lengths or plan.config["sequence_lengths"]
        for shard in plan.datasets[key]["shards"]
        if native or "{split}" in pattern or shard != paths.HELD_OUT
    ]


def dataset_cards(plan: Plan) -> list[str]:
    """List the dataset.json of every dataset that the graph makes."""
    return [plan.dataset_file(dataset, paths.CARD) for dataset in plan.built_datasets]


def exports(plan: Plan) -> list[str]:
    """List the model of every run that trains one, in Hugging Face's layout."""
    return sorted({paths.PHASE_EXPORT.format(phase=last_phase(run)) for run in plan.trained_runs.values()})


def scores(finetunings: Iterable[str]) -> list[str]:
    """List the scores of fine-tunings given by their fingerprints."""
    return [paths.FINETUNING_SCORES.format(finetuning=key) for key in finetunings]


def choices(kept: Iterable[str]) -> list[str]:
    """List the choices of the fine-tuned models that are kept, given by their fingerprints."""
    return [paths.KEPT_CHOICE.format(kept=key) for key in kept]


def predictions(plan: Plan, kind: str) -> list[str]:
    """List the files of predictions or features, also those whose inputs are absent; `kind` is their key."""
    return [output for output, entry in plan.predictions.items() if entry["kind"] == kind]


def of_runs(pattern: str, runs: Mapping[str, RunEntry]) -> list[str]:
    """List a file, such as `paths.RECORD`, of each of the `runs`."""
    return [pattern.format(run=name, fingerprint=run["fingerprint"]) for name, run in runs.items()]


def report_page(plan: Plan) -> str:
    """Return the path of the report over all runs."""
    return paths.REPORT_PAGE.format(fingerprint=report_fingerprint(plan))


def submissions(plan: Plan) -> list[str]:
    """List a zip for each run that predicts GLUE's test sets."""
    return of_runs(paths.SUBMISSION, {name: run for name, run in plan.runs.items() if submitted(plan, run)})


def scores_for_submission(plan: Plan, run: str) -> list[str]:
    """List the scores by which a run's fine-tunings for GLUE's server are chosen."""
    return scores(submitted(plan, plan.runs[run]))


def submitted(plan: Plan, run: RunEntry) -> list[str]:
    """List the fine-tunings on GLUE, from pretrained weights, that predict the test sets."""
    entries = [plan.finetunings[key] for key in run["finetunings"].values()]
    return [
        entry["fingerprint"]
        for entry in entries
        if entry["start"] == "pretrained" and entry["task"] in GLUE_TASKS and entry["settings"].get("predict_test")
    ]
