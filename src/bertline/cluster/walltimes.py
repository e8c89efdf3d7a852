"""The walltimes that the jobs of a graph will request from a cluster's scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

# Targets whose jobs all run where Snakemake runs.
DOWNLOADS = frozenset({"list_parts", "download"})


@dataclass(frozen=True)
class LongestJob:
    """The longest job of a rule, or of a group, whose rules' jobs run one after the other in one job of the cluster."""

    partition: str  # or several, with commas between
    minutes: dict[str, int]  # of one job, by rule
    group: str | None = None
    components: int = 1  # jobs of each rule in it

    @property
    def walltime(self) -> int:
        """Of the whole job, in minutes."""
        return self.components * sum(self.minutes.values())


class _Request(NamedTuple):
    """What `number` jobs of a rule request."""

    rule: str
    group: str | None
    partition: str
    minutes: int
    number: int = 1


def longest_jobs(workflow: Any) -> list[LongestJob]:
    """Return the longest job of each rule and group on each partition that Snakemake is about to submit."""
    found: dict[tuple[str, str | None, str], dict[str, list[_Request]]] = defaultdict(lambda: defaultdict(list))
    for request in (*_of_known_jobs(workflow), *_of_unlisted_parts(workflow)):
        found[request.partition, request.group, request.group or request.rule][request.rule].append(request)
    longest = []
    for (partition, group, _), rules in found.items():
        most = max(sum(request.number for request in of_rule) for of_rule in rules.values())
        minutes = {rule: max(request.minutes for request in of_rule) for rule, of_rule in rules.items()}
        longest.append(LongestJob(partition, minutes, group, min(_components(workflow, group), most)))
    return longest


def _of_known_jobs(workflow: Any) -> Iterator[_Request]:
    for job in workflow.dag.needrun_jobs():
        if not job.is_local:
            partition, minutes = (
                _value(job.rule, name, job.wildcards, job.input) for name in ("slurm_partition", "runtime")
            )
            if partition and isinstance(minutes, int):
                yield _Request(job.rule.name, job.group, partition, minutes)


def _of_unlisted_parts(workflow: Any) -> Iterator[_Request]:
    """Yield what jobs for parts of a dump request, as many as fit into a group, until a checkpoint has listed them."""
    targets = {job.rule.name for job in workflow.dag.targetjobs}
    if targets <= DOWNLOADS or not any(job.is_checkpoint for job in workflow.dag.needrun_jobs()):
        return
    for rule in workflow.rules:
        if rule.group and "part" in rule.wildcard_names:
            partition, minutes = (_value(rule, name) for name in ("slurm_partition", "runtime"))
            if partition and isinstance(minutes, int):
                yield _Request(rule.name, rule.group, partition, minutes, _components(workflow, rule.group))


def _components(workflow: Any, group: str | None) -> int:
    return workflow.group_settings.group_components.get(group, 1)


def _value(rule: Any, name: str, wildcards: Any = None, files: Any = ()) -> Any:
    """Return a resource of a rule's first attempt; None if there is none, or none without wildcards."""
    resource = rule.resources.get(name)
    if resource is None or (resource.is_evaluable() and wildcards is None):
        return None
    return resource.evaluate(wildcards, input=files, attempt=1, threads=1, rulename=rule.name).value
