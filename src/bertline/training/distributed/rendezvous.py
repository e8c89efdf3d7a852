"""The store through which the ranks of a job find one another, open on no more of a node's interfaces than needed.

PyTorch's `env://` listens on all interfaces, whatever MASTER_ADDR is, and gloo and NCCL on that of the host's name.
A store has no password: who reaches the interface can read its keys and disturb a training. So `check_members` lets
only ranks of one job begin, and no rank unpickles what another one sent.
"""

from __future__ import annotations

import hmac
import logging
import os
import socket
from datetime import timedelta
from ipaddress import ip_address

import psutil
import torch
from torch import distributed

from bertline.console import BertlineError
from bertline.training.contract import TOKEN

logger = logging.getLogger(__name__)

ELSEWHERE = "192.0.2.1"  # an address that no host has (RFC 5737): the way to it is the default route
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def connect(rank: int, world_size: int, *, one_node: bool, timeout: timedelta) -> distributed.Store:
    """Return the store of the job whose rank 0 is at MASTER_ADDR and MASTER_PORT.

    Rank 0 listens on that address only, and gloo and NCCL use its interface: the loopback one on one node. Their own
    variables, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, take precedence. A single process does not listen. torchrun
    listens there itself, on all interfaces, and every rank connects to its store.
    """
    port = int(os.environ["MASTER_PORT"])
    address = "127.0.0.1" if one_node else _address_for_all(os.environ["MASTER_ADDR"], port)
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
    token = os.environ.get(TOKEN, "").encode()
    # A separate proof per rank: a proof overheard from another rank is of no use.
    proofs = [hmac.digest(token, str(rank).encode(), "sha256") for rank in range(world_size)]
    wanted = torch.frombuffer(bytearray(b"".join(proofs)), dtype=torch.uint8).view(world_size, -1).to(device)
    of_ranks = [torch.empty_like(proof) for proof in wanted]
    distributed.all_gather(of_ranks, wanted[distributed.get_rank()])
    strangers = [str(rank) for rank in range(world_size) if not torch.equal(of_ranks[rank], wanted[rank])]
    if strangers:
        raise BertlineError(
            f"rank {', '.join(strangers)} of the group belongs to another job (its {TOKEN} differs); start all of them "
            "with one command, or choose another port"
        )


def _listen(address: str, port: int) -> int:
    """Return the file descriptor of a socket that listens at `address` only."""
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(socket_address[:2], family=family, backlog=2048)
    except OSError as error:
        raise BertlineError(
            f"{address}:{port}: rank 0 cannot listen there: {error.strerror}; start it again, with another port if you "
            "chose this one"
        ) from None
    return listening.detach()


def _address_for_all(address: str, port: int) -> str:
    """Return MASTER_ADDR; on its own node, where Debian's /etc/hosts makes it a loopback address, one for other nodes.

    `localhost` and numbers are not changed. It is that of the interface whose exact name is in GLOO_SOCKET_IFNAME or
    NCCL_SOCKET_IFNAME, or of the default route, or the only one. Raises BertlineError if there are several to
    choose from.
    """
    try:
        socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][4]
    except OSError:
        return address  # the connection says so
    if address == "localhost" or _is_number(address) or not ip_address(socket_address[0]).is_loopback:
        return address
    of_interfaces = psutil.net_if_addrs()
    named = next((of_interfaces[os.environ[name]] for name in INTERFACES if os.environ.get(name) in of_interfaces), ())
    own = next((one.address for one in named if one.family == socket.AF_INET), None) or _own_address(ELSEWHERE, port)
    if own is None:  # no default route, as on nodes of a closed network
        addresses = [one.address for found in of_interfaces.values() for one in found if one.family == socket.AF_INET]
        others = [one for one in addresses if not ip_address(one).is_loopback]
        if not others:
            return address  # there is no other node
        own = others[0] if len(others) == 1 else None
    if own is None:
        raise BertlineError(
            f"MASTER_ADDR={address} is a loopback address on this node, and other nodes cannot connect to it; set "
            f"{INTERFACES[0]} to the interface that they reach, or give the node's address"
        )
    logger.warning("%s is a loopback address here: the job listens on %s (%s chooses)", address, own, INTERFACES[0])
    return own


def _interface_towards(address: str, port: int) -> str | None:
    """Return the name of the interface through which this node reaches `address`; None if it cannot be found."""
    own = _own_address(address, port)
    of_interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in of_interfaces if any(one.address == own for one in addresses)), None)


def _own_address(address: str, port: int) -> str | None:
    """Return this node's address on the way to `address`; None if there is no way."""
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(socket_address)  # of UDP: sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _is_number(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
