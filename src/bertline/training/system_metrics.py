"""Load of the machine, for the metrics journal."""

from __future__ import annotations

import logging

import psutil
import torch

logger = logging.getLogger(__name__)


class SystemMetrics:
    """Samples this machine and, where the device is a GPU, the GPU of this process."""

    def __init__(self, device: torch.device) -> None:
        self._process = psutil.Process()
        self._gpu = _open_gpu(device) if device.type == "cuda" else None
        psutil.cpu_percent()  # the first call only marks the beginning of the interval

    def sample(self) -> dict[str, float]:
        """Percent of all cores since the last call, resident memory of this process, and the GPU's load."""
        metrics = {
            "system/cpu_percent": psutil.cpu_percent(),
            "system/memory_megabytes": self._process.memory_info().rss / 1e6,
        }
        if self._gpu is not None:
            import pynvml

            utilization = pynvml.nvmlDeviceGetUtilizationRates(self._gpu)
            metrics["system/gpu_percent"] = float(utilization.gpu)
            metrics["system/gpu_memory_megabytes"] = pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used / 1e6
            metrics["system/gpu_power_watts"] = pynvml.nvmlDeviceGetPowerUsage(self._gpu) / 1000
        return metrics


def _open_gpu(device: torch.device) -> object | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        # By UUID: CUDA's numbering follows CUDA_VISIBLE_DEVICES, the driver's does not.
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode())
    except pynvml.NVMLError as error:
        logger.info("the GPU's load is not recorded: %s", error)
        return None
