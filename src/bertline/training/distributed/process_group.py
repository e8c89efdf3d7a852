"""The process group, made only from torchrun's environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from bertline.console import BertlineError
from bertline.training.allocator import keep_freed_memory
from bertline.training.distributed.rendezvous import check_members, connect

# A rank may have to wait while rank 0 writes a large checkpoint to a slow disk.
TIMEOUT = timedelta(minutes=30)
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")  # exists where the driver is loaded
# Messages of gloo, NCCL and the store when another process is gone; the first two have no exception class for that.
PEER_IS_GONE = re.compile(
    "Connection (closed|reset) by peer|Connection was likely closed|Broken pipe|ncclRemoteError|remote process exited|"
    # A node that is lost closes no connection.
    "communicator was aborted|Connection timed out|No route to host|Timed out waiting \\d+ms for"
)


@dataclass(frozen=True)
class Group:
    """This process's rank and device, and the size of the group. A single process needs no connection."""

    rank: int
    world_size: int
    device: torch.device
    local_world_size: int = 1  # processes on this node
    store: distributed.Store | None = None  # of the group; None for a single process

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is rank 0, which writes all files."""
        return self.rank == 0

    @property
    def device_name(self) -> str:
        """Name of this process's GPU; cpu without one."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    def broadcast(self, value: Any, source: int = 0) -> Any:
        """Return the `value`, of JSON's types, of the rank `source` on every rank."""
        if self.world_size == 1:
            return value
        # Not broadcast_object_list, which unpickles.
        text = json.dumps(value).encode() if self.rank == source else b""
        size = self.all_reduce_max(len(text))
        sent = torch.frombuffer(bytearray(text.ljust(size)), dtype=torch.uint8).to(self.device)
        distributed.broadcast(sent, src=source)
        return json.loads(bytes(sent.cpu().numpy()))

    def gather(self, values: list[float]) -> Tensor:
        """Gather all ranks' `values`, equally many each: float32 [ranks, values], on the CPU of every rank."""
        here = torch.tensor(values, dtype=torch.float32, device=self.device)
        if self.world_size == 1:
            return here[None].cpu()
        of_ranks = [torch.empty_like(here) for _ in range(self.world_size)]
        distributed.all_gather(of_ranks, here)
        return torch.stack(of_ranks).cpu()

    def all_reduce_max(self, number: int) -> int:
        """Return the largest of all ranks' numbers."""
        return self._all_reduce(number, distributed.ReduceOp.MAX)

    def all_reduce_min(self, number: int) -> int:
        """Return the smallest of all ranks' numbers."""
        return self._all_reduce(number, distributed.ReduceOp.MIN)

    def last_of(self, message: str | None) -> str | None:
        """Return on every rank the message of the last rank that has one; None if no rank has."""
        source = self.all_reduce_max(-1 if message is None else self.rank)
        return None if source == -1 else self.broadcast(message, source)

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        if self.world_size > 1:
            distributed.barrier()

    def _all_reduce(self, number: int, operation: distributed.ReduceOp.RedOpType) -> int:
        if self.world_size == 1:
            return number
        agreed = torch.tensor(number, device=self.device)
        distributed.all_reduce(agreed, operation)
        return int(agreed)


def join_group(threads: int) -> Group:
    """Join the other processes, over nccl on GPUs and gloo on CPUs; on a CPU, keep freed memory from then on.

    Args:
        threads: of this node, divided among its processes.
    """
    rank, world_size, local_rank, local_world_size = _ranks_from_environment()
    torch.set_num_threads(max(1, threads // local_world_size))
    store = connect(rank, world_size, one_node=local_world_size == world_size, timeout=TIMEOUT)
    device, backend, device_id = torch.device("cpu"), "gloo", None
    if gpus := torch.cuda.device_count():
        device, backend = torch.device("cuda", local_rank % gpus), "nccl"
        torch.cuda.set_device(device)
        # With it, a rank connects and fails here, and a barrier, which has no tensor, need not guess the GPU.
        device_id = device
    else:
        keep_freed_memory()
    try:
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT, device_id=device_id
        )
    except distributed.DistBackendError as error:
        if "Duplicate GPU" not in str(error):
            raise
        raise BertlineError(
            f"{local_world_size} processes of a node share its GPUs, and each needs its own; start as many as it has"
        ) from None
    check_members(world_size, device)
    return Group(rank, world_size, device, local_world_size, store if world_size > 1 else None)


def _ranks_from_environment() -> tuple[int, int, int, int]:
    """Return this process's rank, the number of ranks, and both on this node. Raises BertlineError for invalid ones."""
    given = {"LOCAL_WORLD_SIZE": "1", **os.environ}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
        if not re.fullmatch("[0-9]{1,9}", given.get(name, "")):
            value = f"{given[name]!r}, not a number" if name in given else "not set"
            raise _environment_error(f"{name} is {value}")
    rank, world_size, local_rank, local_world_size, port = (
        int(given[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
    )
    if "MASTER_ADDR" not in given:
        raise _environment_error("MASTER_ADDR is not set")
    if rank >= world_size:
        raise _environment_error(f"RANK is {rank}, and WORLD_SIZE {world_size}")
    if local_world_size == 0 or local_rank >= local_world_size > 1:
        raise _environment_error(f"LOCAL_RANK is {local_rank}, and LOCAL_WORLD_SIZE {local_world_size}")
    if port >= 1 << 16:
        raise _environment_error(f"MASTER_PORT is {port}, which is none")
    return rank, world_size, local_rank, local_world_size


def _environment_error(problem: str) -> BertlineError:
    return BertlineError(
        f"the trainer reads torchrun's environment, where {problem}; start it through workflow/scripts/launch.py"
    )


def broadcast_each(sent: Iterable[tuple[Tensor, int]], group: distributed.ProcessGroup | None = None) -> None:
    """Broadcast tensors, each from a rank, all at once; `group` has some of the ranks, by default all."""
    for one in [distributed.broadcast(tensor, src=rank, group=group, async_op=True) for tensor, rank in sent]:
        one.wait()


def describe(group: Group) -> str:
    """Describe the devices for the log: a machine whose GPU is not found also trains, but a hundred times slower."""
    processes = f"{group.world_size} processes" if group.world_size > 1 else "one process"
    if group.device.type == "cpu":
        missing = ""
        if torch.version.cuda:
            missing = "; this PyTorch could use a GPU and finds none (see nvidia-smi)"
        elif NVIDIA_DRIVER.exists():
            build = f"PyTorch {torch.__version__} is a build for CPUs"
            missing = f"; this machine has a GPU, but {build}: remove .venv and run `make setup` without TORCH_OPTIONS"
        return f"{processes} on CPUs{missing}"
    found, name = torch.cuda.device_count(), torch.cuda.get_device_name(group.device)
    idle = f"; of {found} GPUs here {group.local_world_size} are used" if found > group.local_world_size else ""
    return f"{processes} on {name}{idle}"


def is_lost_connection(error: BaseException) -> bool:
    """Return whether `error` only reports that another process of the group is gone."""
    said_by_backend = distributed.is_initialized() and isinstance(error, RuntimeError)
    return said_by_backend and PEER_IS_GONE.search(str(error)) is not None
