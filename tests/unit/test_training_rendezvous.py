"""Where the ranks of a job listen, and whom they let in: real processes, and the system's list of their sockets."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from synthetic_dataset import recipe, write_dataset
from training_processes import CONTEXT, free_port, run_rank, set_environment

from bertline.console import BertlineError
from bertline.training.distributed import rendezvous

LOOPBACK = {"127.0.0.1", "::1"}
OWN_ADDRESS = next(
    (
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET" and not ip_address(address.address).is_loopback
    ),
    None,
)
try:
    OWN_NAME_IS_LOOPBACK = socket.gethostbyname(socket.gethostname()).startswith("127.")
except OSError:
    OWN_NAME_IS_LOOPBACK = False


def rank_of_group(rank: int, ranks: int, port: int, output: Path, environment: dict[str, str]) -> None:
    """Join a group and write the addresses at which this process listens then, or the error."""
    from bertline.console import BertlineError
    from bertline.training.distributed.process_group import join_group

    set_environment(rank, ranks, port)
    os.environ.update(environment)
    with (output / f"log{rank}").open("a") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(message)s")
    result: dict[str, Any] = {}
    try:
        group = join_group(1)
        result["received"] = group.broadcast({"é": [rank, None, 0.1]}, source=ranks - 1)
        connections = psutil.Process().net_connections("tcp")
        result["listens"] = sorted({one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN})
        group.barrier()
    except BertlineError as error:
        result["error"] = str(error)
    (output / f"{rank}.json").write_text(json.dumps(result))
    os._exit(0)


def join(output: Path, ranks: int, environment: Callable[[int], dict[str, str]] = lambda _: {}) -> list[dict[str, Any]]:
    port = free_port()
    processes = [
        CONTEXT.Process(target=rank_of_group, args=(rank, ranks, port, output, environment(rank)))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    return [json.loads((output / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_processes_of_one_node_listen_on_loopback_only(tmp_path: Path, ranks: int) -> None:
    # The address of another interface, as a scheduler gives it.
    found = join(tmp_path, ranks, lambda _: {"MASTER_ADDR": OWN_ADDRESS or "127.0.0.1"})
    for one in found:
        assert set(one["listens"]) <= LOOPBACK
        assert one["received"] == {"é": [ranks - 1, None, 0.1]}


@pytest.mark.skipif(OWN_ADDRESS is None, reason="this machine has no interface besides the loopback one")
def test_processes_of_several_nodes_listen_on_the_interface_of_the_node_s_address(tmp_path: Path) -> None:
    found = join(tmp_path, 2, lambda _: {"MASTER_ADDR": OWN_ADDRESS or "", "LOCAL_WORLD_SIZE": "1"})
    assert [one["listens"] for one in found] == [[OWN_ADDRESS], [OWN_ADDRESS]]


@pytest.mark.skipif(OWN_ADDRESS is None, reason="this machine has no interface besides the loopback one")
@pytest.mark.skipif(not OWN_NAME_IS_LOOPBACK, reason="this machine's own name is not a loopback address")
def test_a_node_whose_own_name_is_a_loopback_address_listens_where_other_nodes_reach_it(tmp_path: Path) -> None:
    interface = next(
        name for name, found in psutil.net_if_addrs().items() if any(one.address == OWN_ADDRESS for one in found)
    )
    given = {"MASTER_ADDR": socket.gethostname(), "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": interface}
    found = join(tmp_path, 2, lambda _: given)
    assert [one["listens"] for one in found] == [[OWN_ADDRESS], [OWN_ADDRESS]]
    said = f"{given['MASTER_ADDR']} is a loopback address here: the job listens on {OWN_ADDRESS} (GLOO_SOCKET_IFNAME"
    assert said in (tmp_path / "log0").read_text()


def test_which_address_other_nodes_reach_is_asked_for_if_it_cannot_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(number: str) -> Any:
        return [SimpleNamespace(address=number, family=socket.AF_INET)]

    interfaces = {"lo": address("127.0.0.1"), "a": address("10.0.0.1"), "b": address("10.1.0.1")}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    monkeypatch.setattr(rendezvous, "_own_address", lambda *_: None)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 29500))])
    for name in rendezvous.INTERFACES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BertlineError, match=r"MASTER_ADDR=gpu1 is a loopback .*; set GLOO_SOCKET_IFNAME to the"):
        rendezvous._address_for_all("gpu1", 29500)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "b")
    assert rendezvous._address_for_all("gpu1", 29500) == "10.1.0.1"
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    del interfaces["b"]
    assert rendezvous._address_for_all("gpu1", 29500) == "10.0.0.1"
    del interfaces["a"]
    assert rendezvous._address_for_all("gpu1", 29500) == "gpu1"
    assert rendezvous._address_for_all("127.0.0.1", 29500) == "127.0.0.1"


def test_a_process_without_the_job_s_token_is_not_let_in(tmp_path: Path) -> None:
    found = join(tmp_path, 2, lambda rank: {"BERTLINE_JOB_TOKEN": f"secret{rank}"})
    assert "rank 1 of the group belongs to another job" in found[0]["error"]
    assert "rank 0 of the group belongs to another job" in found[1]["error"]
    assert "secret" not in json.dumps(found)


def forbid_pickles() -> None:
    """End this process when it loads a pickle that names a class or a function."""

    def hook(event: str, _: object) -> None:
        if event == "pickle.find_class":
            os.write(2, b"unpickled\n")
            os._exit(3)

    sys.addaudithook(hook)


def unpickle() -> None:
    forbid_pickles()
    pickle.loads(pickle.dumps(Path()))  # noqa: S301


def train(*arguments: Any) -> None:
    forbid_pickles()
    run_rank("training", *arguments)


def exit_codes(target: Callable[..., None], arguments: list[tuple[Any, ...]]) -> list[int | None]:
    processes = [CONTEXT.Process(target=target, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    return [process.exitcode for process in processes]


def test_training_resuming_and_sharded_optimizers_unpickle_nothing(tmp_path: Path) -> None:
    assert exit_codes(unpickle, [()]) == [3]
    card = write_dataset(tmp_path / "dataset")
    for stop_after in (0.0, None):  # the first start stops at once and saves
        options = {"threads": 2, "stop_after_minutes": stop_after, "sharded_optimizer": True}
        port, log, output = free_port(), tmp_path / "log", tmp_path / "phase"
        log.touch()
        given = (2, port, log, recipe(steps=4), card, output, None, options)
        assert exit_codes(train, [(rank, *given) for rank in range(2)]) == [75 * (stop_after is not None)] * 2
    assert "resuming" in log.read_text()
    assert rendezvous._address_for_all("localhost", 29500) == "localhost"


def hang_or_wait(rank: int, port: int, output: Path) -> None:
    """As rank 1, stay in the group without an answer, like a node that is lost; as rank 0, write how the wait ends."""
    from torch.distributed import distributed_c10d

    from bertline.training.distributed import process_group

    set_environment(rank, 2, port)
    group = process_group.join_group(1)
    distributed_c10d._set_pg_timeout(timedelta(seconds=1), distributed_c10d._get_default_group())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        group.barrier()
    except RuntimeError as error:
        (output / "error").write_text(f"{process_group.is_lost_connection(error)} {error}")


def test_a_rank_that_does_not_answer_in_time_counts_as_lost(tmp_path):
    port = free_port()
    processes = [CONTEXT.Process(target=hang_or_wait, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    try:
        processes[0].join(240)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert (tmp_path / "error").read_text().startswith("True ")


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BertlineError, match=rf"^127\.0\.0\.1:{port}: rank 0 cannot .*, with another port if you"):
            rendezvous._listen("127.0.0.1", port)
