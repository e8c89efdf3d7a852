"""Memory that runs out is one line that says what to lower, in pretraining and fine-tuning, on CPUs and GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from finetuning_helpers import recipe_for, write_cola, write_tokenizer
from synthetic_dataset import recipe as phase_recipe
from synthetic_dataset import write_dataset
from training_processes import free_port

from bertline.console import BertlineError
from bertline.files import read_json
from bertline.finetuning import train as fine_tuning
from bertline.finetuning.options import Options
from bertline.training import loop, trial
from bertline.training.distributed.process_group import Group
from bertline.training.memory import which_memory_ran_out
from bertline.training.options import Options as PhaseOptions
from bertline.training.recipe import parse_recipe

# Starts with all imports done, and then a limit on the address space, as Grid Engine's h_vmem sets it.
LIMITED = """
import json, resource, sys
from pathlib import Path
import psutil
import torch._dynamo  # which optimizers import: Python may end an import without memory in a SystemError
from bertline.console import exit_on_errors
from bertline.finetuning.options import Options
from bertline.finetuning.train import finetune
from bertline.training.loop import train
from bertline.training.options import Options as PhaseOptions
from bertline.training.stop import StopSignal
kind, recipe, data, output = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), *map(Path, sys.argv[3:])
limit = psutil.Process().memory_info().vms + 900 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with exit_on_errors():
    if kind == "finetune":
        finetune(recipe, data, output, options=Options(threads=1, micro_batch_tokens=65536))
    else:
        options = PhaseOptions(micro_batch_tokens=65536)
        train(recipe, data, output, initial_weights=None, options=options, stop_signal=StopSignal())
"""
WIDE = {"intermediate_size": 16384}
OF_MACHINE = (
    "error: the memory of this machine, or of the job, is too small: lower micro_batch_tokens (now 65536), give "
    "--activation-checkpointing, or raise mem_mb"
)


@pytest.mark.parametrize("kind", ["finetune", "pretrain"])
def test_a_limit_on_memory_is_one_line(tmp_path: Path, kind: str) -> None:
    if kind == "finetune":
        data = write_tokenizer(tmp_path / "tokenizer.json")
        recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv", 1024), model=WIDE, batch_size=1024)
    else:
        data = write_dataset(tmp_path / "dataset")
        recipe = phase_recipe(steps=2, global_batch_size=1024)
        recipe["model"] = recipe["model"] | WIDE
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    arguments = [kind, tmp_path / "recipe.json", data, tmp_path / "out"]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, arguments)],
        env={**os.environ, **alone, "MASTER_PORT": str(free_port())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == OF_MACHINE
    assert "Traceback" not in done.stderr


def run_out(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_a_gpu_too_small_for_a_fine_tuning_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "train", run_out)
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(BertlineError) as caught:
        fine_tuning.finetune(
            recipe_for("cola", write_cola(tmp_path / "train.tsv")),
            tokenizer,
            tmp_path / "out",
            options=Options(threads=1, micro_batch_tokens=4096),
        )
    assert str(caught.value) == (
        "the GPU's memory is too small: lower micro_batch_tokens (now 4096), give --activation-checkpointing, or let "
        "fewer fine-tunings share the GPU"
    )
    assert not (tmp_path / "out/checkpoints/lock.json").exists()


def test_a_gpu_too_small_for_a_phase_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Phase", run_out)
    monkeypatch.setattr(loop, "join_group", lambda threads: Group(0, 1, torch.device("cpu")))
    recipe = parse_recipe(json.dumps(phase_recipe(steps=1)))
    with pytest.raises(BertlineError) as caught:
        loop.train(
            recipe,
            tmp_path / "dataset.json",
            tmp_path / "out",
            initial_weights=None,
            options=PhaseOptions(micro_batch_tokens="auto"),
            stop_signal=None,  # type: ignore[arg-type]
        )
    assert str(caught.value) == (
        "the GPU's memory is too small: lower micro_batch_tokens (now auto), give --activation-checkpointing, or with "
        "several GPUs --shard-optimizer, or --fsdp if the optimizer allows it"
    )
    assert not (tmp_path / "out/checkpoints/lock.json").exists()


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (MemoryError(), "machine"),
        (OSError(12, "Cannot allocate memory"), "machine"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"), "machine"),
        (RuntimeError("CUDA error: out of memory"), "GPU"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "GPU"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    ],
)
def test_a_timing_that_runs_out_of_memory_says_whose(tmp_path: Path, error: Exception, whose: str | None) -> None:
    def measure() -> dict[str, object]:
        raise error

    assert which_memory_ran_out(error) == whose
    with pytest.raises(BertlineError if whose else RuntimeError, match=f"the {whose}'s memory" if whose else "shapes"):
        trial.write_speed(tmp_path / "speed.json", measure)
    assert not whose or read_json(tmp_path / "speed.json") == {"fits": False}
