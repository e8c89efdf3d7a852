"""The ranks of a job: their number per node, and torchrun's environment for each."""

from __future__ import annotations

import re
import socket
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

from bertline.cluster.processes import start
from bertline.console import BertlineError


class NodeKind(NamedTuple):
    """Number of nodes of one kind, and processes on each."""

    nodes: int
    processes_per_node: int


def parse_node_kinds(text: str) -> list[NodeKind]:
    """Parse nodes and processes per node of several kinds, as in "1x2,4x8". Raises BertlineError for invalid text."""
    if not re.fullmatch(r"([1-9]\d*x[1-9]\d*(,|$))*", text):
        raise BertlineError(
            f"--additional-nodes: given '{text}', allowed are nodes and processes per node, as in 1x2,4x8"
        )
    return [NodeKind(int(nodes), int(processes)) for nodes, processes in re.findall(r"(\d+)x(\d+)", text)]


@dataclass(frozen=True)
class NodeRanks:
    """The ranks of one node of a job with uniform nodes."""

    nodes: int
    processes_per_node: int
    address: str  # of rank 0
    port: int
    node: int = 0

    def environment(self, local_rank: int) -> dict[str, str]:
        """Return torchrun's environment for a rank of this node."""
        return {
            "RANK": str(self.node * self.processes_per_node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.nodes * self.processes_per_node),
            "LOCAL_WORLD_SIZE": str(self.processes_per_node),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }

    def start(self, command: list[str]) -> dict[str, subprocess.Popen[bytes]]:
        """Start `command` once for each rank of this node. Returns the processes by name."""
        # Not torch.distributed.run: it changes every exit status to 1 (75 means "run again"), prints its own traceback
        # after the rank's one line, and puts each rank in a session of its own, which survives killing the group.
        environments = [self.environment(rank) for rank in range(self.processes_per_node)]
        return {f"rank {environment['RANK']}": start(command, environment) for environment in environments}


def free_port() -> int:
    """Return a TCP port that no process of this node listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
