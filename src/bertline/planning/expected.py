"""Expected times of the graph's jobs, from the records of earlier ones.

A job is expected to take as long as those of its kind on record: another part of the same corpus, another seed of the
same fine-tuning, the same step of a dataset of the same text with another vocabulary. A phase is expected to train as
fast as finished ones of its network. Where nothing alike is on record, nothing is expected.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bertline.console import BertlineError
from bertline.files import read_json
from bertline.fingerprint import fingerprint
from bertline.planning.estimate import Estimate, recorded_seconds, settings_of_speed, training_seconds
from bertline.planning.plan import Plan
from bertline.planning.recipes import recipe_path
from bertline.planning.remaining import finetunings_left
from bertline.results import paths
from bertline.settings.site import Site
from bertline.tasks.registry import name_of_task

BENCHMARKS = Path("benchmarks")
# Rules whose jobs take about as long for any text, network or run.
ALIKE_EVERYWHERE = (
    *("describe_run", "initialise_mlflow", "track_pretraining", "track_run", "write_report", "keep_models"),
    *("export_phase", "export_checkpoint", "log_model", "glue_submission", "list_dump_parts", "take_tokenizer"),
)
# Wildcards that name what a job works on. A part or a shard of it takes as long as another.
SUBJECTS = ("phase", "finetuning", "dataset", "corpus", "collection", "evaluation")
# Settings of a fine-tuning that do not change how long it takes.
WITHOUT_TIME = ("learning_rate", "learning_rate_scaling", "warmup", "weight_decay", "layerwise_decay")
# What a damaged record may raise; it predicts nothing.
DAMAGE = (BertlineError, OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ExpectedTime(NamedTuple):
    """The kind of a job, and how many seconds one of its kind takes; None if that is unknown."""

    kind: str
    seconds: float | None


class ExpectedTimes:
    """The expected time of a job by its rule and wildcards. Every record is read once, when it is first needed."""

    def __init__(self, plan: Plan, site: Site | None = None) -> None:
        self.plan, self.site = plan, site
        self._seconds: dict[str, float | None] = {}
        self._likenesses: dict[str, str | None] = {}
        self._recorded: dict[str, list[str]] | None = None

    def __call__(self, rule: str, wildcards: Mapping[str, str]) -> ExpectedTime:
        """Return the expected time of a job."""
        key = self._key(wildcards)
        likeness = "" if rule in ALIKE_EVERYWHERE else self._likeness(key)
        if rule == "pretrain_phase":
            # The same phase with another learning rate is only a guide where nothing is known of this one.
            likeness = key if self._expected(rule, key, key) is not None else self._work_of(key)
        return ExpectedTime(f"{rule} {likeness}", self._expected(rule, key, likeness))

    def _expected(self, rule: str, key: str, likeness: str) -> float | None:
        kind = f"{rule} {likeness}"
        if kind not in self._seconds:
            self._seconds[kind] = None
            with suppress(*DAMAGE):
                self._seconds[kind] = self._expect(rule, key, likeness)
        return self._seconds[kind]

    def _work_of(self, phase: str) -> str:
        """Return a fingerprint of what decides how long a phase takes."""
        entry = self.plan.phases[phase]
        amount = [entry["settings"][name] for name in ("steps", "global_batch_size")]
        return fingerprint([entry["model"], settings_of_speed(entry["settings"]), amount])

    def _key(self, wildcards: Mapping[str, str]) -> str:
        """Return the name of a job's benchmark, or of the folder with those of all parts."""
        subject = next((wildcards[name] for name in SUBJECTS if name in wildcards), None)
        others = [value for name, value in wildcards.items() if name not in ("part", "shard")]
        return subject or "-".join(others)

    def _expect(self, rule: str, key: str, likeness: str) -> float | None:
        if rule == "pretrain_phase":
            return training_seconds(self.plan, key, self.site)
        folder = BENCHMARKS / rule
        if rule in ALIKE_EVERYWHERE:
            seconds = recorded_seconds(sorted(folder.rglob("*.tsv")), "s")
        else:
            seconds = _seconds_of(folder, key)
            if not seconds and likeness != key:
                seconds = [time for other in self._keys_like(likeness) for time in _seconds_of(folder, other)]
        return statistics.median(seconds) if seconds else None

    def _keys_like(self, likeness: str) -> list[str]:
        """Return the fingerprints and corpora of earlier configurations that are alike."""
        if self._recorded is None:
            self._recorded = {}
            for path in sorted(Path(paths.PLANNED_RECIPE).parent.glob("*.json")):
                if not path.name.startswith("plan-"):
                    self._recorded.setdefault(self._likeness(path.stem), []).append(path.stem)
        return self._recorded.get(likeness, [])

    def _likeness(self, key: str) -> str:
        """Return a fingerprint of what decides how long jobs for a key take; the key itself if that is unknown."""
        if key not in self._likenesses:
            self._likenesses[key] = None
            with suppress(*DAMAGE):
                self._likenesses[key] = self._describe(self._recipe(key))
        return self._likenesses[key] or key

    def _recipe(self, key: str) -> Mapping[str, Any]:
        plan = self.plan
        if key in plan.built_datasets:
            return {**plan.datasets[key], "sequence_lengths": plan.config["sequence_lengths"]}
        planned = plan.finetunings.get(key) or plan.phases.get(key) or plan.corpora.get(key)
        return planned or dict(read_json(Path(recipe_path(key))))

    def _describe(self, recipe: Mapping[str, Any]) -> str | None:
        if "task" in recipe:
            settings = {name: value for name, value in recipe["settings"].items() if name not in WITHOUT_TIME}
            return fingerprint([recipe["task"], recipe["model"], settings, recipe["data"]])
        if "phase" in recipe:
            return fingerprint([self._likeness(recipe["dataset"]), recipe["settings"]["sequence_length"]])
        if "corpora" in recipe:
            texts = [self._likeness(corpus) for corpus in recipe["corpora"]]
            return fingerprint([texts, recipe["sequence_lengths"], recipe["settings"]["shards"]])
        if "name" in recipe and "settings" in recipe:
            settings = recipe["settings"]
            where = [settings["source"], recipe.get("parts"), recipe.get("wiki"), settings.get("dump")]
            return fingerprint([recipe["name"], *where])
        return None


def finetuning_estimates(plan: Plan, site: Site | None = None) -> list[Estimate]:
    """Return one entry for every task of every run whose fine-tunings are not all finished."""
    expected, left = ExpectedTimes(plan, site), finetunings_left(plan)
    groups: dict[str, dict[str, None]] = {}
    for name, run in plan.runs.items():
        for key in run["finetunings"].values():
            if key in left:
                groups.setdefault(f"{name}/{name_of_task(plan.finetunings[key]['task'])}", {})[key] = None
    found = []
    for name, keys in groups.items():
        seconds = [expected("finetune_task", {"finetuning": key}).seconds for key in keys]
        known = [one for one in seconds if one is not None]
        is_known = len(known) == len(seconds)
        found.append(
            Estimate(
                f"fine-tunings {name}",
                len(keys),
                node_hours=sum(known) / 3600 if is_known else None,
                basis="finished ones of the same kind" if is_known else "unknown: none of the same kind is finished",
            )
        )
    return found


def _seconds_of(folder: Path, key: str) -> list[float]:
    """Return the recorded times of a rule's jobs for a key."""
    return recorded_seconds([*sorted((folder / key).rglob("*.tsv")), folder / f"{key}.tsv"], "s")
