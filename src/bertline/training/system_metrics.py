"""Load of the machines, for the metrics journal."""

from __future__ import annotations

import logging
import math

import psutil
import torch

from bertline.training.group import Group

logger = logging.getLogger(__name__)

NAMES = ("cpu_percent", "memory_megabytes", "gpu_percent", "gpu_memory_megabytes", "gpu_power_watts")


class SystemMetrics:
    """Samples the machines of a group and, where its devices are GPUs, the GPU of each process."""

    def __init__(self, group: Group) -> None:
        self._group, self._process = group, psutil.Process()
        self._gpu = _open_gpu(group.device) if group.device.type == "cuda" else None
        psutil.cpu_percent()  # the first call only marks the beginning of the interval

    def sample(self) -> dict[str, float]:
        """Means over the processes, as `system/{name}`; on several nodes those of each, too: `system/node0/{name}`.

        Percent of all cores since the last call, resident memory of a process, and its GPU's load. All ranks call this
        at once: what each sees is gathered, as rank 0 alone writes the journal.
        """
        here = self._of_process()
        of_ranks = self._group.gather([here.get(name, math.nan) for name in NAMES])
        metrics = {f"system/{name}": value for name, value in _means(of_ranks).items()}
        nodes = of_ranks.split(self._group.local_world_size)
        for number, node in enumerate(nodes if len(nodes) > 1 else ()):
            metrics |= {f"system/node{number}/{name}": value for name, value in _means(node).items()}
        return metrics

    def _of_process(self) -> dict[str, float]:
        metrics = {"cpu_percent": psutil.cpu_percent(), "memory_megabytes": self._process.memory_info().rss / 1e6}
        if self._gpu is not None:
            import pynvml

            metrics["gpu_percent"] = float(pynvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu)
            metrics["gpu_memory_megabytes"] = pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used / 1e6
            metrics["gpu_power_watts"] = pynvml.nvmlDeviceGetPowerUsage(self._gpu) / 1000
        return metrics


def _means(of_ranks: torch.Tensor) -> dict[str, float]:
    """By name, of those that some rank has: [ranks, names]."""
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
