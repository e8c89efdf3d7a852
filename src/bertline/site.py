"""What a cluster must be told: one small file with account, partitions and the size of each phase's jobs.

Nothing in it alters a result, so it enters no fingerprint and changing it runs nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.settings.configuration import fill_defaults, load_schema, read_yaml, validate


@dataclass(frozen=True)
class Nodes:
    """Nodes of one kind in a phase's job."""

    nodes: int
    gpus_per_node: int
    cpus_per_gpu: int
    partition: str
    constraint: str | None

    @property
    def processes_per_node(self) -> int:
        """One for each GPU, or one on a node without."""
        return max(1, self.gpus_per_node)

    @property
    def processes(self) -> int:
        return self.nodes * self.processes_per_node

    @property
    def cpus_per_node(self) -> int:
        return self.cpus_per_gpu * self.processes_per_node


@dataclass(frozen=True)
class Size(Nodes):
    """The size of a phase's jobs: nodes of one kind, and perhaps others beside them."""

    memory_mb: int  # of each node
    walltime: int  # minutes
    micro_batch_tokens: int
    beside: tuple[Nodes, ...]

    @property
    def kinds(self) -> tuple[Nodes, ...]:
        return (self, *self.beside)

    @property
    def mean_processes_per_node(self) -> float:
        """Over the nodes of all kinds."""
        return sum(kind.processes for kind in self.kinds) / sum(kind.nodes for kind in self.kinds)

    @property
    def on_several_nodes(self) -> bool:
        return self.nodes > 1 or bool(self.beside)


@dataclass(frozen=True)
class Gpu:
    """What one computes: the peak of its data sheet, and the share of it that training is expected to reach."""

    peak_tflops: float
    share: float


@dataclass(frozen=True)
class Site:
    """What a site file says, defaults filled in."""

    path: str
    account: str | None
    qos: str | None
    partitions: dict[str, str]  # for cpu and gpu
    constraint: str | None
    phases: dict[str, Size]
    gpu: Gpu | None = None

    def size(self, phase: str) -> Size:
        """The size of a phase's jobs, by the phase's name."""
        return self.phases.get(phase, self.phases["default"])


def read_site(path: Path | str, schema_path: Path | str) -> Site:
    """Read a site file. Raises BertlineError with one line for the first thing wrong.

    Parameters
    ----------
    path: what the user copied from profiles/slurm/site.example.yaml.
    schema_path: config/site.schema.yaml.
    """
    if not Path(path).exists():
        raise BertlineError(
            f"{path} does not exist; copy profiles/slurm/site.example.yaml there and say in it what your cluster needs"
        )
    given = read_yaml(path)
    schema = load_schema(schema_path)
    validate(given, schema, what=str(path))
    filled = fill_defaults(given, schema, schema)
    constraint = filled.get("constraint")
    elsewhere = {"partition": filled["partitions"]["gpu"], "constraint": constraint}
    return Site(
        path=str(path),
        account=filled.get("account"),
        qos=filled.get("qos"),
        partitions=filled["partitions"],
        constraint=constraint,
        phases={name: _size({**elsewhere, **size}) for name, size in filled["phases"].items()},
        gpu=Gpu(**filled["gpu"]) if "gpu" in filled else None,
    )


def _size(given: dict[str, Any]) -> Size:
    """What other kinds of nodes leave out is as of the first, but not what tells that one from others."""
    first = {field.name: given[field.name] for field in fields(Nodes)} | {"constraint": None}
    beside = tuple(Nodes(**{**first, **others}) for others in given["beside"])
    return Size(**{**given, "beside": beside})
