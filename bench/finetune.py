"""Compare the speed of fine-tuning on SQuAD with transformers' BertForQuestionAnswering, alternating in one process.

    python bench/finetune.py dev-v1.1.json vocab.txt --threads 1

Both train on the windows (384 tokens, stride 128) of the whole file, a few batches of 32 per round, with dropout 0.1,
gradient clipping and AdamW, and predict the same sample of windows. Batches of transformers are drawn at random and
padded to their longest input; in each precision, the faster of its sdpa and eager attention counts; bf16 is left out on
a processor that is faster in fp32. Bertline runs its loop as in a fine-tuning, with its own batches. Speeds are in real
tokens per second, without padding. Rounds alternate after a warm-up, times are processor times (on a GPU, wall times),
and a ratio is that of the medians over the rounds. The last line is JSON.

With --processes 2 it only compares a fine-tuning on one process with one on two, of one thread each: launched as the
workflow does, in wall time between the fifth step and the last, alternating.

    python bench/finetune.py dev-v1.1.json vocab.txt --processes 2
"""

import functools
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from speeds import Work, describe_machine, precisions_of, speeds_of

from bertline.command_line import run_command
from bertline.encoding.tokenizer import save_tokenizer, take_tokenizer
from bertline.files import read_json, write_json
from bertline.finetuning.batches import evaluation_batches, pad, training_batches
from bertline.finetuning.loop import EVALUATION_TOKENS, predict, train
from bertline.finetuning.options import Options
from bertline.finetuning.prepared import PreparedTask, prepare_task
from bertline.finetuning.sequences import Inputs
from bertline.finetuning.step import Learner
from bertline.finetuning.train import make_model
from bertline.training.distributed.claims import claim_device
from bertline.training.distributed.process_group import Group

BATCH = 32
SETTINGS = {
    "epochs": 1,
    "batch_size": BATCH,
    "learning_rate": 3e-5,
    "learning_rate_scaling": "none",
    "warmup": 0.1,
    "weight_decay": 0.01,
    "layerwise_decay": 1.0,
    "patience": None,
    "max_sequence_length": 384,
    "doc_stride": 128,
    "max_query_length": 64,
    "max_answer_length": 30,
}
FIRST_STEPS, EPOCHS = 5, 0.1  # of several processes; the first steps are not measured
MODELS = Path(__file__).parents[1] / "config/models"
SCRIPTS = Path(__file__).parents[1] / "workflow/scripts"


def prepare(squad: Path, vocabulary: Path, windows: int) -> PreparedTask:
    """Prepare all windows of a SQuAD file for training, and `windows` of them, drawn at random, for prediction."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer.json"
        save_tokenizer(take_tokenizer(vocabulary, lowercase=True), tokenizer)
        task = prepare_task("squad_v1", dict.fromkeys(("train", "dev"), str(squad)), SETTINGS, tokenizer)
    rows = np.random.default_rng(1).permutation(len(task.dev.inputs))[:windows]
    return replace(task, predicted=(replace(task.dev, inputs=task.dev.inputs.take(np.sort(rows))),))


def our_work(task: PreparedTask, shape: str, batches: int, device: torch.device) -> dict[str, Work]:
    """Return functions that train on `batches` batches, and that predict the sample; they return the real tokens."""
    model = make_model(read_json(MODELS / f"bert-{shape}.json"), task, 384, None).to(device)

    epochs = batches / -(-len(task.train) // BATCH)

    def training(precision: str, seeds: itertools.count) -> int:
        seed = next(seeds)
        with tempfile.TemporaryDirectory() as folder:
            settings = SETTINGS | {"precision": precision, "epochs": epochs}
            learner = Learner(model, task, settings, seed, Group(0, 1, device), Options())
            train(learner, Path(folder), "bench")
        drawn = itertools.islice(training_batches(task.train.lengths, BATCH, seed), batches)
        return sum(int(task.train.lengths[rows].sum()) for rows in drawn)

    def predicting(precision: str) -> int:
        predict(model, task.dev.inputs, task.padding, precision)
        return int(task.dev.inputs.offsets[-1])

    work: dict[str, Work] = {}
    for precision in precisions_of(device):
        work[f"train ours {precision}"] = functools.partial(training, precision, itertools.count())
        work[f"predict ours {precision}"] = functools.partial(predicting, precision)
    return work


def their_work(task: PreparedTask, shape: str, batches: int, device: torch.device) -> dict[str, Work]:
    """Return the same functions with transformers, for each precision and attention."""
    described = read_json(MODELS / f"bert-{shape}.json")
    settings = {**described, "vocab_size": task.vocabulary, "attn_implementation": "sdpa"}
    model: Any = transformers.BertForQuestionAnswering(transformers.BertConfig(**settings))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.01, fused=True)

    def inputs(sequences: Inputs, rows: np.ndarray) -> dict[str, torch.Tensor]:
        input_ids, token_type_ids, mask = pad(sequences, rows, task.padding, device)
        mask = torch.ones_like(input_ids) if mask is None else mask.long()
        return {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": mask}

    def training(attention: str, dtype: torch.dtype | None, seeds: itertools.count) -> int:
        model.set_attn_implementation(attention)
        model.train()
        order = np.random.default_rng(next(seeds)).permutation(len(task.train))[: batches * BATCH]
        for rows in np.split(order, batches):
            first, last = torch.from_numpy(task.train_targets[rows]).to(device).unbind(1)
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                loss = model(**inputs(task.train, rows), start_positions=first, end_positions=last).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return int(task.train.lengths[order].sum())

    @torch.inference_mode()
    def predicting(attention: str, dtype: torch.dtype | None) -> int:
        model.set_attn_implementation(attention)
        model.eval()
        sample = task.dev.inputs
        for start in range(0, len(sample), BATCH):
            rows = np.arange(start, min(start + BATCH, len(sample)))
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                outputs = model(**inputs(sample, rows))
            for logits in (outputs.start_logits, outputs.end_logits):
                logits.float().cpu().numpy()
        return int(sample.offsets[-1])

    work: dict[str, Work] = {}
    for attention, (precision, dtype) in itertools.product(("sdpa", "eager"), precisions_of(device).items()):
        name = f"transformers {precision} {attention}"
        work[f"train {name}"] = functools.partial(training, attention, dtype, itertools.count())
        work[f"predict {name}"] = functools.partial(predicting, attention, dtype)
    return work


def paddings(task: PreparedTask) -> dict[str, float]:
    """Return the share of padding in the computed tokens, on the whole file."""
    lengths = task.train.lengths
    drawn = np.random.default_rng(0).permutation(len(lengths))
    batches = {
        "ours, training": list(itertools.islice(training_batches(lengths, BATCH, 0), -(-len(lengths) // BATCH))),
        "ours, predicting": list(evaluation_batches(lengths, EVALUATION_TOKENS)),
        "transformers": np.array_split(drawn, np.arange(BATCH, len(drawn), BATCH)),
    }
    return {
        name: 1 - lengths.sum() / sum(len(rows) * int(lengths[rows].max()) for rows in of_all)
        for name, of_all in batches.items()
    }


def measure_processes(squad: Path, tokenizer: Path, shape: str, processes: int, rounds: int) -> dict[str, float]:
    """Print and return the real tokens per second of fine-tunings on one process and on several."""
    with tempfile.TemporaryDirectory() as folder:
        articles = read_json(squad)
        few = Path(folder, "few.json")
        # An article for the dev set, because only the training is measured.
        write_json(few, {**articles, "data": articles["data"][:1]})
        settings = SETTINGS | {"precision": "fp32", "epochs": EPOCHS}
        data = {"train": str(squad), "dev": str(few)}
        recipe = {"fingerprint": "bench", "task": "squad_v1", "seed": 1, "start": "random", "initial_weights": None}
        described = read_json(MODELS / f"bert-{shape}.json")
        write_json(Path(folder, "recipe.json"), {**recipe, "model": described, "data": data, "settings": settings})
        prepared = prepare_task("squad_v1", data, settings, tokenizer)
        steps = round(EPOCHS * -(-len(prepared.train) // BATCH))
        drawn = itertools.islice(training_batches(prepared.train.lengths, BATCH, 1), FIRST_STEPS, steps)
        tokens = sum(int(prepared.train.lengths[rows].sum()) for rows in drawn)
        speeds: dict[int, list[float]] = {1: [], processes: []}
        for round_, (count, found) in itertools.product(range(rounds), speeds.items()):
            output = Path(folder, f"{count}-{round_}")
            launch = [sys.executable, SCRIPTS / "launch.py", "--processes-per-node", count, "--threads", count, "--"]
            script = [SCRIPTS / "finetune.py", "--threads", count, "--recipe", f"{folder}/recipe.json"]
            command = [*launch, *script, "--tokenizer", tokenizer, "--output", output]
            subprocess.run([*map(str, command)], check=True, capture_output=True)  # noqa: S603
            points = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
            times = {point["step"]: point["timestamp"] for point in points if "train/loss" in point["metrics"]}
            found.append(tokens / (times[steps] - times[FIRST_STEPS]) * 1000)
    median = {count: statistics.median(found) for count, found in speeds.items()}
    for count, found in speeds.items():
        print(f"  {count} processes {median[count]:12,.0f} real tokens/s ({min(found):,.0f} to {max(found):,.0f})")
    return {f"squad_train_{processes}_processes_vs_one": round(median[processes] / median[1], 2)}


def ratios(kind: str, speeds: dict[str, list[float]], precisions: Collection[str]) -> dict[str, float]:
    """Return the speed-ups: of our fastest precision over transformers' fp32, and the lower one in equal precision."""
    median = {name: statistics.median(values) for name, values in speeds.items()}
    ours = {precision: median[f"{kind} ours {precision}"] for precision in precisions}
    theirs = {
        precision: max(median[f"{kind} transformers {precision} {attention}"] for attention in ("sdpa", "eager"))
        for precision in precisions
    }
    return {
        f"squad_{kind}_vs_transformers": round(max(ours.values()) / theirs["fp32"], 2),
        f"squad_{kind}_equal_precision": round(min(ours[name] / theirs[name] for name in precisions), 2),
    }


def main(
    squad: Path,
    vocabulary: Path,
    *,
    shape: str = "mini",
    batches: int = 4,
    windows: int = 256,
    threads: int = 1,
    rounds: int = 5,
    processes: int = 1,
) -> None:
    """Run the benchmark.

    Args:
        squad: a file of SQuAD v1.1, such as dev-v1.1.json.
        vocabulary: a vocab.txt, such as that of BERT-base uncased.
        shape: of config/models/bert-*.json.
        batches: to train on per round.
        windows: to predict per round.
        threads: of the CPU.
        rounds: of each side; the median counts.
        processes: more than 1 compares that number with one.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device, _claim = claim_device()
    if processes > 1:
        print(f"{describe_machine(device, 1)} per process, BERT-{shape}, fp32")
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = Path(folder) / "tokenizer.json"
            save_tokenizer(take_tokenizer(vocabulary, lowercase=True), tokenizer)
            print(json.dumps(measure_processes(squad, tokenizer, shape, processes, rounds)))
        return
    task = prepare(squad, vocabulary, windows)
    print(describe_machine(device, threads))
    print(f"BERT-{shape}, {len(task.train)} windows, mean length {task.train.lengths.mean():.0f}, dropout 0.1")
    for kind, share in paddings(task).items():
        print(f"  padding, {kind:18} {100 * share:5.1f} percent")
    work = our_work(task, shape, batches, device) | their_work(task, shape, batches, device)
    speeds = speeds_of(work, rounds, device)
    for name, values in speeds.items():
        print(f"  {name:32} {statistics.median(values):12,.0f} real tokens/s")
    result: dict[str, object] = {"device": str(device), "threads": threads, "rounds": rounds}
    precisions = precisions_of(device)
    print(json.dumps(result | ratios("train", speeds, precisions) | ratios("predict", speeds, precisions)))


if __name__ == "__main__":
    run_command(main, __doc__)
