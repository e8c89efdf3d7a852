"""A shared disk on which the login node and the compute nodes see each other's files late, as on NFS."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from graphs import ONE_NODE, config, submitted, trained_here, trained_weights, weights, write_site, write_yaml
from slurm_cluster import running_cluster, why_not

SECONDS = 4  # that a client remembers which files exist; NFS's default is 3 to 60 (acregmin, acdirmax)
STEPS = 10

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.fault(row="slurm")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that a running cluster's nodes see through one cache of names, and this process through another."""
    reason = why_not(accounting=True) or (shutil.which("bindfs") is None and "bindfs is not installed")
    if reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("late")
    here, nodes = folder / "here", folder / "nodes"
    cached = [f"{what}_timeout={SECONDS}" for what in ("entry", "negative", "attr")]
    with ExitStack() as undo:
        for view in (here, nodes):
            view.mkdir()
            (folder / "disk").mkdir(exist_ok=True)
            mount = ["bindfs", "-o", ",".join(cached), folder / "disk", view]
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
            undo.callback(subprocess.run, ["umount", "--lazy", view], check=True)
        as_node = ("unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh")
        undo.enter_context(running_cluster(accounting=True, as_node=(*as_node, str(nodes), str(here))))
        yield here


def test_files_are_late(shared: Path) -> None:
    """The next test is worth something."""
    assert not (shared / "new").exists()
    (shared.parent / "nodes/new").touch()
    assert not (shared / "new").exists()
    time.sleep(SECONDS + 1)
    assert (shared / "new").exists()


def test_encoding_and_training_have_the_same_bytes_where_files_are_seen_late(
    shared: Path, prepared: Path, tmp_path: Path
) -> None:
    graph = shutil.copytree(prepared, shared / "graph", symlinks=True)
    (dataset,) = (graph / "results/datasets").iterdir()
    for length in (128, 512):
        shutil.rmtree(dataset / f"seq{length}")
    (dataset / "dataset.json").unlink()
    straight = trained_here(prepared, tmp_path / "straight", steps=STEPS)
    write_yaml(graph / "small.yaml", config(STEPS))
    write_site(graph, ONE_NODE)
    log_every = ("--set-resources", "pretrain_phase:log_every=1", "--latency-wait", "60")
    with submitted(graph, trained_weights(graph), *log_every) as submission:
        submission.finish(seconds=1500)
    assert weights(graph) == weights(straight)
    samples = sorted(os.fspath(path.relative_to(graph)) for path in graph.glob("results/datasets/*/seq128/*.h5"))
    assert samples
    for name in samples:
        assert (graph / name).read_bytes() == (straight / name).read_bytes()
