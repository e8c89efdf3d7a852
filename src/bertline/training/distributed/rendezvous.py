"""The store through which the ranks of a job find one another, open on no more of a node's interfaces than needed.

PyTorch's `env://` listens on all interfaces, whatever MASTER_ADDR is, and gloo and NCCL on that of the host's name.
A store has no password: who reaches the interface can read its keys and disturb a training. So `check_members` lets
only ranks of one job begin, and no rank unpickles what another one sent.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from datetime import timedelta
from ipaddress import ip_address

import psutil
import torch
from torch import distributed

from bertline.console import BertlineError
from bertline.training.stop import TOKEN

logger = logging.getLogger(__name__)

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def connect(rank: int, world_size: int, *, one_node: bool, timeout: timedelta) -> distributed.Store:
    """Return the store of the job whose rank 0 is at MASTER_ADDR and MASTER_PORT.

    Rank 0 listens on that address only, and gloo and NCCL use its interface: the loopback one on one node. Their own
    variables, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, take precedence. A single process does not listen. torchrun
    listens there itself, on all interfaces, and every rank connects to its store.
    """
    address = "127.0.0.1" if one_node else os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    if (interface := _interface_towards(address, port)) is not None:
        for name in INTERFACES:
            os.environ.setdefault(name, interface)
    if world_size == 1:
        return distributed.HashStore()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = distributed.TCPStore(os.environ["MASTER_ADDR"], port, world_size, is_master=False, timeout=timeout)
        # torchrun's own keys are in it, and those of ranks that it restarted.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return distributed.PrefixStore(f"/ranks/attempt_{attempt}", store)
    listening = _listen(address, port) if rank == 0 else None
    return distributed.TCPStore(
        address, port, world_size, is_master=rank == 0, timeout=timeout, master_listen_fd=listening
    )


def check_members(world_size: int, device: torch.device) -> None:
    """Raise BertlineError unless all ranks of the group have the token of this job."""
    if world_size == 1:
        return
    digest = hashlib.sha256(os.environ.get(TOKEN, "").encode()).digest()
    here = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(device)
    of_ranks = [torch.empty_like(here) for _ in range(world_size)]
    distributed.all_gather(of_ranks, here)
    strangers = [str(rank) for rank, other in enumerate(of_ranks) if not torch.equal(here, other)]
    if strangers:
        raise BertlineError(
            f"rank {', '.join(strangers)} of the group belongs to another job (its {TOKEN} differs); start all of them "
            "with one command, or choose another port"
        )


def _listen(address: str, port: int) -> int:
    """Return the file descriptor of a socket that listens at `address` only."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        if not _is_number(address) and ip_address(place[0]).is_loopback:
            # Debian's /etc/hosts resolves a host's own name so; other nodes could not connect.
            logger.warning("%s is a loopback address here: the job listens on all interfaces of this node", address)
            place = ("", port)
        listening = socket.create_server(place[:2], family=family, backlog=2048)
    except OSError as error:
        raise BertlineError(f"{address}:{port}: rank 0 cannot listen there: {error.strerror}; start it again") from None
    return listening.detach()


def _interface_towards(address: str, port: int) -> str | None:
    """Return the name of the interface through which this node reaches `address`; None if it cannot be found."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # of UDP: sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return None
    of_interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in of_interfaces if any(one.address == own for one in addresses)), None)


def _is_number(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
