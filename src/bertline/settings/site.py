"""The settings of a cluster: a small file with account, partitions and the size of each phase's jobs.

No setting changes a result, so fingerprints do not depend on them, and changing one reruns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.settings.configuration import load, read_yaml


@dataclass(frozen=True)
class Nodes:
    """Nodes of one kind in a training's job."""

    nodes: int
    gpus_per_node: int
    cpus_per_gpu: int
    partition: str
    constraint: str | None

    @property
    def processes_per_node(self) -> int:
        """Number of processes: one for each GPU, or one on a node without GPUs."""
        return max(1, self.gpus_per_node)

    @property
    def processes(self) -> int:
        """Number of processes on all nodes of this kind."""
        return self.nodes * self.processes_per_node

    @property
    def cpus_per_node(self) -> int:
        """Number of CPUs that a job requests of each node."""
        return self.cpus_per_gpu * self.processes_per_node


@dataclass(frozen=True)
class Size(Nodes):
    """The size of a training's jobs: nodes of one kind, and perhaps additional ones of other kinds."""

    memory_mb: int  # of each node
    walltime: int  # minutes
    additional_nodes: tuple[Nodes, ...]
    micro_batch_tokens: int | None = None  # None for the trainer's default
    bind: str = "none"  # or socket, numa

    @property
    def kinds(self) -> tuple[Nodes, ...]:
        """All nodes, by kind."""
        return (self, *self.additional_nodes)

    @property
    def mean_processes_per_node(self) -> float:
        """Mean number of processes over the nodes of all kinds."""
        return sum(kind.processes for kind in self.kinds) / sum(kind.nodes for kind in self.kinds)

    @property
    def on_several_nodes(self) -> bool:
        """Whether a job has more than one node."""
        return self.nodes > 1 or bool(self.additional_nodes)


@dataclass(frozen=True)
class Gpu:
    """The speed of a GPU: the peak of its data sheet, and the share of it that training is expected to reach."""

    peak_tflops: float
    share: float


@dataclass(frozen=True)
class Site:
    """The contents of a site file, completed with defaults."""

    path: str
    account: str | None
    qos: str | None
    partitions: dict[str, str]  # for cpu and gpu
    constraint: str | None
    phases: dict[str, Size]
    finetunings: dict[str, Size]
    gpu: Gpu | None = None
    grid_engine: dict[str, str] = field(default_factory=dict)  # names that the site chose itself

    def size(self, phase: str) -> Size:
        """Return the size of a phase's jobs, by the phase's name."""
        return self.phases.get(phase, self.phases["default"])

    def only_used(self, phases: Iterable[str], tasks: Iterable[str], *, predicts: bool) -> Site:
        """Return the site with only the sizes of these phases and tasks.

        Args:
            phases, tasks: by their names.
            predicts: whether there are predictions. They have a GPU if the default size of a fine-tuning has one.
        """
        used_phases = {name if name in self.phases else "default" for name in phases}
        used_tasks = {name if name in self.finetunings else "default" for name in tasks}
        used_tasks |= {"default"} if predicts else set()
        return replace(
            self,
            phases={name: size for name, size in self.phases.items() if name in used_phases},
            finetunings={name: size for name, size in self.finetunings.items() if name in used_tasks},
        )

    def finetuning_size(self, task: str) -> Size:
        """Return the size of a fine-tuning's jobs, by its task."""
        return self.finetunings.get(task, self.finetunings["default"])


def read_site(path: Path | str, schema_path: Path | str) -> Site:
    """Read a site file. Raises BertlineError with one line for the first problem.

    Args:
        path: of a file such as profiles/slurm/site.example.yaml.
        schema_path: config/site.schema.yaml.
    """
    if not Path(path).exists():
        raise BertlineError(
            f"{path} does not exist; copy profiles/slurm/site.example.yaml there and fill in what your cluster needs"
        )
    given = read_yaml(path)
    filled, _ = load(given, schema_path, what=str(path))
    constraint = filled.get("constraint")
    elsewhere = {"partition": filled["partitions"]["gpu"], "constraint": constraint}

    def sizes(kind: str) -> dict[str, Size]:
        default = elsewhere | filled[kind]["default"]
        return {name: _size(default | given.get(kind, {}).get(name, {})) for name in filled[kind]}

    return Site(
        path=str(path),
        account=filled.get("account"),
        qos=filled.get("qos"),
        partitions=filled["partitions"],
        constraint=constraint,
        phases=sizes("phases"),
        finetunings=sizes("finetunings"),
        gpu=Gpu(**filled["gpu"]) if "gpu" in filled else None,
        grid_engine=filled.get("grid_engine", {}),
    )


def _size(given: dict[str, Any]) -> Size:
    """Complete a size. Additional nodes take omitted settings from the first ones, except for the constraint."""
    first = {field.name: given[field.name] for field in fields(Nodes)} | {"constraint": None}
    additional = tuple(Nodes(**{**first, **others}) for others in given["additional_nodes"])
    return Size(**{**given, "additional_nodes": additional})
