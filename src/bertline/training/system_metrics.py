"""Load of the machines, for the metrics journal."""

from __future__ import annotations

import logging
import math
from contextlib import suppress

import psutil
import torch

from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)

NAMES = ("cpu_percent", "memory_megabytes", "gpu_percent", "gpu_memory_megabytes", "gpu_power_watts")


class SystemMetrics:
    """Sampler of the load of a group's machines and, if its devices are GPUs, of the GPU of each process."""

    def __init__(self, group: Group) -> None:
        self._group, self._process = group, psutil.Process()
        self._gpu = _open_gpu(group.device) if group.device.type == "cuda" else None
        psutil.cpu_percent()  # the first call only marks the beginning of the interval

    def sample(self) -> dict[str, float]:
        """Return averages over the processes, `system/{name}`; on several nodes also per node, `system/node0/{name}`.

        Percent of all cores since the last call, resident memory of a process, and its GPU's load; `system/processes`
        is the number of processes. All ranks must call this together: the values are gathered, since only rank 0
        writes the journal.
        """
        here = {"cpu_percent": psutil.cpu_percent(), "memory_megabytes": self._process.memory_info().rss / 1e6}
        here |= _of_gpu(self._gpu) if self._gpu is not None else {}
        mine = [here.get(name, math.nan) for name in NAMES]
        processes, of_ranks = self._group.gather([self._group.local_world_size, *mine]).split([1, len(NAMES)], dim=1)
        metrics = {f"system/{name}": value for name, value in _means(of_ranks).items()}
        metrics["system/processes"] = float(len(of_ranks))
        nodes = of_ranks.split(_nodes(processes.flatten().int().tolist()))
        for number, node in enumerate(nodes if len(nodes) > 1 else ()):
            metrics |= {f"system/node{number}/{name}": value for name, value in _means(node).items()}
        return metrics


def _of_gpu(gpu: object) -> dict[str, float]:
    """Query the driver, which does not report all metrics for a slice of a GPU (MIG) or a virtual one."""
    import pynvml

    ask = {
        "gpu_percent": lambda: float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
        "gpu_memory_megabytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6,
        "gpu_power_watts": lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    }
    metrics = {}
    for name, value in ask.items():
        with suppress(pynvml.NVMLError):
            metrics[name] = value()
    return metrics


def _nodes(processes: list[int]) -> list[int]:
    """Return the number of processes of each node, given that of each rank's node: nodes may differ."""
    nodes: list[int] = []
    while (first := sum(nodes)) < len(processes):
        nodes.append(processes[first])
    return nodes


def _means(of_ranks: torch.Tensor) -> dict[str, float]:
    """Average [ranks, names] over the ranks that have a value, by name."""
    means = dict(zip(NAMES, of_ranks.nanmean(0).tolist(), strict=True))
    return {name: value for name, value in means.items() if math.isfinite(value)}


def _open_gpu(device: torch.device) -> object | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        # By UUID: CUDA's numbering follows CUDA_VISIBLE_DEVICES, the driver's does not.
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode())
    except pynvml.NVMLError as error:
        logger.info("the GPU's load is not recorded: %s", error)
        return None
