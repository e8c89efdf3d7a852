"""Compare the scores of fine-tuning with those of transformers in the usual loop, with equal weights and settings.

    python bench/quality.py results/runs/demo/export cola resources/sample/glue/CoLA/train.tsv .../dev.tsv \\
        --epochs 3 --batch-size 32 --learning-rate 5e-4

Bertline runs `finetune` as in the workflow. The other side is transformers' network with its own loss,
torch.optim.AdamW with the same betas and epsilon and without decay of biases and normalisations, transformers' linear
schedule, and batches drawn at random. Both use the same seeds and tokens, and the same code scores their predictions.
The last line is JSON: medians, their difference, and the wider of the two ranges over the seeds.
"""

import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bertline.command_line import run_command
from bertline.encoding.tokenizer import find_tokenizer, read_tokenizer, save_tokenizer
from bertline.finetuning.batches import pad
from bertline.finetuning.optimizer import BETAS, EPSILON
from bertline.finetuning.options import Options
from bertline.finetuning.prepared import PreparedTask, prepare_task
from bertline.finetuning.sequences import Inputs
from bertline.finetuning.train import finetune

Settings = dict[str, Any]


def inputs_of(task: PreparedTask, sequences: Inputs, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """Return a padded batch under transformers' names."""
    input_ids, token_type_ids, mask = pad(sequences, rows, task.padding, torch.device("cpu"))
    mask = torch.ones_like(input_ids) if mask is None else mask.long()
    return {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": mask}


def targets_of(task: PreparedTask, rows: np.ndarray) -> dict[str, torch.Tensor]:
    targets = torch.from_numpy(task.train_targets[rows])
    if task.head == "answer":
        first, last = targets.unbind(1)
        return {"start_positions": first, "end_positions": last}
    return {"labels": targets}


def theirs(task: PreparedTask, directory: Path, settings: Settings, seed: int) -> dict[str, float]:
    """Return the scores of transformers' network, trained in the usual loop."""
    transformers.set_seed(seed)
    if task.head == "answer":
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(directory)
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(directory, num_labels=task.outputs)
    decayed, others = ([one for one in model.parameters() if (one.ndim > 1) == matrix] for matrix in (True, False))
    groups = [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["learning_rate"], betas=BETAS, eps=EPSILON)
    an_epoch = math.ceil(len(task.train) / settings["batch_size"])
    steps = round(settings["epochs"] * an_epoch)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(settings["warmup"] * steps), steps)
    generator = np.random.default_rng(seed)
    model.train()
    for step in range(steps):
        if step % an_epoch == 0:
            order = generator.permutation(len(task.train))
        begin = step % an_epoch * settings["batch_size"]
        rows = order[begin : begin + settings["batch_size"]]
        model(**inputs_of(task, task.train, rows), **targets_of(task, rows)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    return task.dev.evaluate(their_outputs(task, model)).scores


@torch.inference_mode()
def their_outputs(task: PreparedTask, model: torch.nn.Module) -> np.ndarray:
    """Return outputs for `PredictedSet.evaluate`, computed one input at a time."""
    model.eval()
    found = []
    for row in range(len(task.dev.inputs)):
        outputs = model(**inputs_of(task, task.dev.inputs, np.array([row])))
        if task.head == "answer":
            found.append(torch.stack([outputs.start_logits[0], outputs.end_logits[0]], dim=-1))
        else:
            found.append(outputs.logits)
    return torch.cat(found).numpy()


def ours(directory: Path, task: str, data: dict[str, str], tokenizer: Path, settings: Settings, seed: int) -> Any:
    recipe = {
        **{"fingerprint": "quality", "task": task, "seed": seed, "start": "pretrained", "data": data},
        **{"model": {"directory": str(directory)}, "initial_weights": {"directory": str(directory)}},
        "settings": settings,
    }
    with tempfile.TemporaryDirectory() as folder:
        return finetune(
            recipe, tokenizer, Path(folder), initial_weights=directory, options=Options(threads=torch.get_num_threads())
        )["scores"]


def main(
    weights: Path,
    task: str,
    train: str,
    dev: str,
    *,
    epochs: float = 3,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    seeds: int = 3,
    threads: int = 1,
) -> None:
    """Run the benchmark.

    Args:
        weights: a BERT in Hugging Face's layout, such as the demo's export.
        task: squad_v1, or a task of GLUE except STS-B.
        train: the task's training file.
        dev: the file to score.
        epochs: of fine-tuning.
        batch_size: of fine-tuning.
        learning_rate: of fine-tuning.
        seeds: number of fine-tunings.
        threads: of the CPU.
    """
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    settings: Settings = {
        **{"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "warmup": 0.1},
        **{"weight_decay": 0.01, "layerwise_decay": 1.0, "precision": "fp32", "patience": None},
        "max_sequence_length": 128,
    }
    if task.startswith("squad"):
        settings |= {"doc_stride": 32, "max_query_length": 64, "max_answer_length": 30}
    data = {"train": train, "dev": dev}
    scores: dict[str, list[float]] = {"ours": [], "transformers": []}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder, "tokenizer.json")
        save_tokenizer(read_tokenizer(find_tokenizer(weights)), tokenizer)
        prepared = prepare_task(task, data, settings, tokenizer)
        for seed in range(1, seeds + 1):
            scores["ours"].append(ours(weights, task, data, tokenizer, settings, seed)[prepared.primary])
            scores["transformers"].append(theirs(prepared, weights, settings, seed)[prepared.primary])
            print(
                f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in scores.items()), flush=True
            )
    medians = {name: statistics.median(values) for name, values in scores.items()}
    print(
        json.dumps(
            {
                **{"task": task, "score": prepared.primary, "seeds": seeds},
                **{name: round(value, 2) for name, value in medians.items()},
                "difference": round(medians["ours"] - medians["transformers"], 2),
                "range_over_seeds": round(max(max(values) - min(values) for values in scores.values()), 2),
            }
        )
    )


if __name__ == "__main__":
    run_command(main, __doc__)
