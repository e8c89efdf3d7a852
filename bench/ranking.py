"""Compare the speed of ranking with transformers, alternating in one process.

    python bench/ranking.py msmarco/collection.tsv msmarco/queries.tsv vocab.txt --threads 1

Both train for an epoch on the same pairs of a query and a passage, of at most 512 tokens, and score the same ones: ours
from a collection tokenized on disk, transformers from tokens in memory. transformers takes pairs in random order, in
batches of 8 for training and of 32 for scoring, each padded to its longest pair; in each precision, the faster of its
sdpa and eager attention counts; bf16 is left out on a processor that is faster in fp32. Times are processor times (on a
GPU, wall times), rounds alternate after a warm-up, and a ratio is that of the medians over the rounds. The last line is
JSON.
"""

import functools
import itertools
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from speeds import Work, describe_machine, precisions_of, speeds_of

from bertline.command_line import run_command
from bertline.encoding.tokenizer import read_tokenizer
from bertline.files import read_json
from bertline.finetuning.batches import pad
from bertline.finetuning.loop import predict, train
from bertline.finetuning.options import Options
from bertline.finetuning.prepared import PreparedTask, prepare_task
from bertline.finetuning.ranking.collection import write_collection
from bertline.finetuning.step import Learner
from bertline.finetuning.train import make_model
from bertline.training.distributed.claims import claim_device
from bertline.training.distributed.process_group import Group

MODELS = Path(__file__).parents[1] / "config/models"
BATCH, SCORED_BATCH = 8, 32
# As docs/fine-tuning.md recommends them; see config.schema.yaml for the meaning.
SETTINGS = {
    **{"objective": "pointwise", "training_examples": None, "negatives": 1, "seed": 1, "patience": None},
    **{"max_sequence_length": 512, "max_query_length": 64, "batch_size": BATCH, "learning_rate": 1e-5, "warmup": 0},
    **{"weight_decay": 0.0, "layerwise_decay": 1.0, "learning_rate_scaling": "none"},
}


def prepare(collection: Path, queries: Path, vocabulary: Path, folder: Path, count: int) -> PreparedTask:
    """Prepare `count` candidates, drawn at random, and as many triples of one of them and a random negative."""
    tokenizer, random = read_tokenizer(vocabulary), np.random.default_rng(1)
    names = [[line.split("\t")[0] for line in path.read_text().splitlines()] for path in (queries, collection)]
    drawn = random.permutation(len(names[0]) * len(names[1]))[:count]
    pairs = [(names[0][number % len(names[0])], names[1][number // len(names[0])]) for number in drawn]
    (folder / "candidates.tsv").write_text("".join(f"{query}\t{passage}\n" for query, passage in pairs))
    (folder / "qrels.tsv").write_text("".join(f"{query}\t0\t{passage}\t1\n" for query, passage in dict(pairs).items()))
    negatives = random.choice(names[1], count)
    triples = [f"{query}\t{passage}\t{negative}\n" for (query, passage), negative in zip(pairs, negatives, strict=True)]
    (folder / "triples.tsv").write_text("".join(triples))
    (folder / "collection").mkdir()
    write_collection(collection, tokenizer, folder / "collection")
    data = {"collection": str(folder / "collection"), "train_triples": str(folder / "triples.tsv")}
    data |= {"train_queries": str(queries), "dev_queries": str(queries)}
    data |= {f"dev_{name}": str(folder / f"{name}.tsv") for name in ("candidates", "qrels")}
    table = {"kind": "ranking", "relevance_level": 1, "metric": "map"}
    return prepare_task("ranking/bench", data, SETTINGS, vocabulary, table)


def our_work(task: PreparedTask, model: Any, folder: Path) -> dict[str, Work]:
    """Return functions that train for an epoch and score the candidates; they return the number of pairs."""
    seeds = itertools.count(1)

    def training(precision: str) -> int:
        settings = SETTINGS | {"precision": precision, "epochs": 1}
        with tempfile.TemporaryDirectory(dir=folder) as output:
            learner = Learner(
                model, task, settings, next(seeds), Group(0, 1, next(model.parameters()).device), Options()
            )
            train(learner, Path(output), "bench")
        return len(task.train)

    def scoring(precision: str) -> int:
        return len(predict(model, task.dev.inputs, task.padding, precision))

    work: dict[str, Work] = {}
    for precision in precisions_of(next(model.parameters()).device):
        work[f"train ours {precision}"] = functools.partial(training, precision)
        work[f"score ours {precision}"] = functools.partial(scoring, precision)
    return work


def their_work(task: PreparedTask, model: Any, device: torch.device) -> dict[str, Work]:
    """Return the same functions with transformers' network, for each precision and attention."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
    inputs = {name: one.take(np.arange(len(one))) for name, one in (("train", task.train), ("score", task.dev.inputs))}
    random = np.random.default_rng(1)

    def forward(kind: str, rows: np.ndarray, dtype: torch.dtype | None, labels: Any = None) -> Any:
        input_ids, token_type_ids, mask = pad(inputs[kind], rows, task.padding, device)
        mask = torch.ones_like(input_ids) if mask is None else mask.long()
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            return model(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=mask, labels=labels)

    def training(attention: str, dtype: torch.dtype | None) -> int:
        model.set_attn_implementation(attention)
        model.train()
        order = random.permutation(len(task.train))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            labels = torch.from_numpy(task.train_targets[rows].astype(np.int64)).to(device)
            forward("train", rows, dtype, labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return len(task.train)

    @torch.inference_mode()
    def scoring(attention: str, dtype: torch.dtype | None) -> int:
        model.set_attn_implementation(attention)
        model.eval()
        count = len(task.dev.inputs)
        for start in range(0, count, SCORED_BATCH):
            rows = np.arange(start, min(start + SCORED_BATCH, count))
            forward("score", rows, dtype).logits.float().cpu().numpy()
        return count

    work: dict[str, Work] = {}
    for attention, (precision, dtype) in itertools.product(("sdpa", "eager"), precisions_of(device).items()):
        work[f"train transformers {precision} {attention}"] = functools.partial(training, attention, dtype)
        work[f"score transformers {precision} {attention}"] = functools.partial(scoring, attention, dtype)
    return work


def main(
    collection: Path,
    queries: Path,
    vocabulary: Path,
    *,
    shape: str = "mini",
    count: int = 512,
    threads: int = 1,
    rounds: int = 3,
) -> None:
    """Run the benchmark.

    Args:
        collection: passages, lines of an id, a tab and a text.
        queries: likewise.
        vocabulary: a vocab.txt, such as that of BERT-base uncased.
        shape: of config/models/bert-*.json.
        count: number of candidates, drawn at random; training has twice as many pairs, each with a random negative.
        threads: of the CPU.
        rounds: of each side; the median counts.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device, _claim = claim_device()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = prepare(collection, queries, vocabulary, folder, count)
        settings = {**read_json(MODELS / f"bert-{shape}.json"), "vocab_size": task.vocabulary}
        ours = make_model(settings, task, 512, None).to(device)
        described: dict[str, Any] = {**settings, "num_labels": 2, "attn_implementation": "sdpa"}
        config = transformers.BertConfig(**described)
        theirs: Any = transformers.BertForSequenceClassification(config)
        work = our_work(task, ours, folder) | their_work(task, theirs.to(device), device)
        speeds = speeds_of(work, rounds, device)
    median = {name: statistics.median(values) for name, values in speeds.items()}
    print(describe_machine(device, threads))
    print(
        f"BERT-{shape}, {count} candidates, mean length {task.dev.inputs.lengths.mean():.0f}, dropout 0.1 in training"
    )
    for name, speed in median.items():
        print(f"  {name:32} {speed:12,.1f} pairs/s")
    ratios = {}
    for kind, precision in itertools.product(("train", "score"), precisions_of(device)):
        best = max(median[f"{kind} transformers {precision} {attention}"] for attention in ("sdpa", "eager"))
        ratios[f"ranking_{kind}_{precision}"] = round(median[f"{kind} ours {precision}"] / best, 2)
    print(json.dumps({"device": str(device), "threads": threads, "rounds": rounds, **ratios}))


if __name__ == "__main__":
    run_command(main, __doc__)
