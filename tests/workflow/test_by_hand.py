"""A phase that torchrun trained by hand is finished for the graph."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake_runs import book_config, environment, run_snakemake

pytestmark = pytest.mark.slow


def test_a_phase_trained_with_torchrun_is_finished_for_the_graph(workflow_folder: Path) -> None:
    """As docs/cluster.md describes it: the dry run prints the options."""
    (workflow_folder / "text.txt").write_text("It rained. It rained all day.\n\nThen the sun shone on the hill.\n" * 20)
    content = book_config(sentences="unicode")
    content["datasets"]["small"]["tokenizer"] = {"train": "wordpiece", "vocab_size": 64}
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(content))
    given = ("--cores", "1", "--configfile", "small.yaml")
    run_snakemake(workflow_folder, "encode", *given)
    printed = run_snakemake(workflow_folder, "pretrain", "-n", "-p", *given).stdout
    (script,) = re.findall(r" -- (\S*workflow/scripts/pretrain\.py .*?) 2>&1", printed)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    size = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    agents = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *size, "--node-rank", node, *shlex.split(script)],
            cwd=workflow_folder,
            env=environment(),
        )
        for node in ("0", "1")
    ]
    assert [agent.wait(120) for agent in agents] == [0, 0]
    (output,) = re.findall(r"--output (\S+)", script)
    after = run_snakemake(workflow_folder, f"{output}/model.safetensors", f"{output}/metrics.jsonl", *given).stdout
    assert "Nothing to be done" in after
    # The recipe of another phase is there although nothing was to be done for the dataset.
    content["runs"]["first"]["phases"]["phase1"]["learning_rate"] = 2e-3
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(content))
    assert "Nothing to be done" in run_snakemake(workflow_folder, "encode", *given).stdout
    printed = run_snakemake(workflow_folder, "pretrain", "-n", "-p", *given).stdout
    (recipe,) = re.findall(r"pretrain\.py --recipe (\S+)", printed)
    assert json.loads((workflow_folder / recipe).read_text())["settings"]["learning_rate"] == 2e-3
