"""What a cluster must be told: one small file with account, partitions and the size of each phase's jobs.

Nothing in it alters a result, so it enters no fingerprint and changing it runs nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bertline.configuration import fill_defaults, load_schema, validate
from bertline.console import BertlineError


@dataclass(frozen=True)
class Size:
    """The size of a phase's jobs."""

    nodes: int
    gpus_per_node: int
    cpus_per_gpu: int
    memory_mb: int  # of each node
    walltime: int  # minutes
    micro_batch_tokens: int

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
    try:
        given: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BertlineError(
            f"{path} does not exist; copy profiles/slurm/site.example.yaml there and say in it what your cluster needs"
        ) from None
    except yaml.YAMLError as error:
        raise BertlineError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    schema = load_schema(schema_path)
    validate(given, schema, what=str(path))
    filled = fill_defaults(given, schema, schema)
    return Site(
        path=str(path),
        account=filled.get("account"),
        qos=filled.get("qos"),
        partitions=filled["partitions"],
        constraint=filled.get("constraint"),
        phases={name: Size(**size) for name, size in filled["phases"].items()},
        gpu=Gpu(**filled["gpu"]) if "gpu" in filled else None,
    )
