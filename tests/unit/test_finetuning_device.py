"""Fine-tunings that share a machine share no GPU."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from bertline.finetuning.device import claim

CONTEXT = multiprocessing.get_context("spawn")
NAMES = ["first", "second"]


def hold(folder: Path, told: Connection) -> None:
    """Claim one, say which, and keep it until told."""
    told.send("here")
    index, _ = claim(NAMES, folder)
    told.send(index)
    told.recv()


def test_each_gets_one_of_its_own_and_the_next_waits_until_one_is_free(tmp_path: Path) -> None:
    connections, processes = [], []
    for _ in range(3):
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=hold, args=(tmp_path, there), daemon=True)
        process.start()
        assert here.recv() == "here"
        if len(connections) < 2:
            assert here.recv() == len(connections)
        connections.append(here)
        processes.append(process)
    waiting, wanted = connections[2], processes[2].pid % 2
    assert not waiting.poll(0.3)
    processes[wanted].kill()  # no word of its own: the lock goes with the process
    assert waiting.recv() == wanted
    for process in processes:
        process.kill()
