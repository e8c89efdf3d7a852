"""Run records and stage folders as the graph and the trainers write them, made up for tests."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

START = 1_780_000_000_000
MODEL = {"vocab_size": 4096, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
MAJORITY = {"squad_v1": 3.2, "cola": 0.0, "mrpc": 66.5, "rte": 51.0}
PRIMARY = {"squad_v1": "f1", "cola": "matthews", "mrpc": "f1", "rte": "accuracy"}
SCORES = {
    "squad_v1": ("exact_match", "f1"),
    "cola": ("accuracy", "matthews"),
    "mrpc": ("accuracy", "f1"),
    "rte": ("accuracy",),
}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def journal_line(step: int, *, timestamp: int | None = None, offset: float = 0.0) -> dict[str, Any]:
    loss = 2.2 + 6 * math.exp(-step / 150) + offset
    metrics = {
        "train/loss": loss + 0.4,
        "train/mlm_loss": loss,
        "train/pair_loss": 0.7 * math.exp(-step / 500),
        "train/learning_rate": 0.006 * math.sqrt(max(0, 1 - step / 1001)),
        "train/gradient_norm": 1.0,
        "train/samples_per_second": 120.0 + step % 7,
        "train/samples": 256.0 * step,
        "train/tokens": 25_000.0 * step,
        "train/tokens_per_second": 14_000.0 + 300 * math.sin(step),
        "system/memory_megabytes": 900.0,
    }
    if step % 100 == 0:
        metrics |= {"held_out/mlm_loss": loss + 0.1, "held_out/mlm_accuracy": 0.5, "held_out/pair_accuracy": 0.9}
    return {"step": step, "timestamp": timestamp or START + step * 500, "metrics": metrics}


def write_journal(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def dataset_card() -> dict[str, Any]:
    edges = list(range(0, 129, 16))
    return {
        "layout_version": 1,
        "fingerprint": "d" * 16,
        "settings": {"held_out": 0.01, "pair_objective": "next_sentence"},
        "tokenizer": {"file": "tokenizer.json", "sha256": "0" * 64, "vocab_size": 4096, "special_tokens": {"[PAD]": 0}},
        "corpora": [
            {
                "name": "wikipedia",
                "documents": 1900,
                "dropped": {"redirect": 210, "too short": 90, "other namespace": 45},
                "removed": {"near_duplicate": 7, "evaluation_overlap": 3},
                "cleaning": {"headings": {"lines": 1671, "characters": 28925, "documents": 95}},
                "sentences": 41_000,
                "sequence_lengths": {
                    "512": {"samples": 2900, "tokens": 1_300_000},
                    "128": {"samples": 9, "tokens": 88},
                },
                "licence": "CC BY-SA 4.0 and GFDL",
                "length_histogram": {"edges": [0, 64, 128, 256, 4611686018427387904], "counts": [0, 400, 1000, 500]},
            },
            {"name": "books", "documents": 40, "dropped": {}},
        ],
        "evaluation_overlap": {
            "squad_v1": {
                "documents": 3,
                "corpora": {"wikipedia": 3, "books": 0},
                "examples": [{"corpus": "wikipedia", "id": "<12>", "shared": 5}],
            }
        },
        "sequence_lengths": {
            length: {
                "train": [{"file": f"seq{length}/00000.h5", "samples": samples, "tokens": tokens, "sha256": "0" * 64}],
                "held_out": [{"file": f"seq{length}/held_out.h5", "samples": 99, "tokens": 9_900, "sha256": "0" * 64}],
                "length_histogram": {
                    "edges": [edge * int(length) // 128 for edge in edges],
                    "counts": [40, 60, 75, 80, 90, 110, 300, samples - 755],
                },
                "samples": samples,
                "tokens": tokens,
            }
            for length, samples, tokens in (("128", 12_000, 1_400_000), ("512", 3_000, 1_380_000))
        },
        "documents": 1940,
        "sentences": 60_000,
        "held_out_documents": 20,
    }


def phase_recipe(name: str, steps: int, length: int, initial: dict[str, str] | None) -> dict[str, Any]:
    return {
        "fingerprint": name,
        "dataset": "d" * 16,
        "model": MODEL,
        "seed": 42,
        "phase": name,
        "settings": {
            "sequence_length": length,
            "global_batch_size": 256,
            "micro_batch_size": 32,
            "steps": steps,
            "optimizer": "lamb",
            "learning_rate": 6e-3,
            "schedule": "polynomial",
            "power": 0.5,
            "warmup": 0.2843,
            "weight_decay": 0.01,
            "betas": [0.9, 0.999],
            "epsilon": 1e-6,
            "max_gradient_norm": 1.0,
            "masking": {"probability": 0.15, "max_predictions": 20},
            "precision": "bf16",
            "carry_over": "weights",
        },
        "initial_weights": initial,
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "git_dirty": False,
        "hardware": "2 CPU cores",
        "world_size": 1,
        "threads": 2,
        "dataset_digest": "e" * 64,
    }


def write_phase(root: Path, name: str, *, steps: int, length: int = 128, every: int = 10) -> dict[str, Any]:
    path = root / "results" / "phases" / name
    write_journal(path / "metrics.jsonl", [journal_line(step) for step in range(every, steps + 1, every)])
    initial = None if name == "phase1" else {"phase": "phase1"}
    write(path / "recipe.json", phase_recipe(name, steps, length, initial))
    (path / "model.safetensors").touch()
    write(path / "trigram.json", {"cross_entropy": 2.9, "tokens": 9_000})
    return {"name": name, "fingerprint": name, "path": f"results/phases/{name}"}


def write_finetuning(root: Path, task: str, seed: int, start: str, rate: float, score: float) -> dict[str, Any]:
    group = task if task.startswith("squad") else f"glue/{task}"
    written_rate = f"{rate:.0e}".replace("e-0", "e-")
    middle = "" if start == "pretrained" else f"random/lr{written_rate}/"
    name, fingerprint = f"{group}/{middle}seed{seed}", f"{task}-{start}-{rate}-{seed}"
    path = root / "results" / "finetunings" / fingerprint
    scores = {
        key: score - 4 * index for index, key in enumerate(sorted(SCORES[task], key=lambda k: k != PRIMARY[task]))
    }
    lines = [
        {"step": step, "timestamp": START + step * 50, "metrics": {"train/loss": 3 / step, "train/learning_rate": rate}}
        for step in range(10, 201, 10)
    ]
    lines[-1]["metrics"] |= {f"dev/{key}": value for key, value in scores.items()}
    write_journal(path / "metrics.jsonl", lines)
    baselines = {"majority": MAJORITY[task]} | ({"copy_position": 11.5} if task == "squad_v1" else {})
    write(
        path / "metrics.json",
        {
            "task": task,
            "seed": seed,
            "start": start,
            "learning_rate": rate,
            "scores": scores,
            "primary": PRIMARY[task],
            "baselines": baselines,
            "examples": {"train": 2000, "dev": 400},
            "digests": {"dev": "0" * 64},
            "seconds": 9.5,
        },
    )
    recipe = phase_recipe("", 1, 128, None)
    recipe |= {
        "fingerprint": fingerprint,
        "task": task,
        "seed": seed,
        "start": start,
        "initial_weights": {"phase": "phase2"} if start == "pretrained" else None,
        "data": {"train": "train.tsv", "dev": "dev.tsv"},
        "sha256": {"train.tsv": "1" * 64, "dev.tsv": "2" * 64},
        "settings": {
            "epochs": 3,
            "batch_size": 32,
            "learning_rate": rate,
            "warmup": 0.1,
            "weight_decay": 0.01,
            "max_sequence_length": 128,
            "precision": "fp32",
        },
    }
    del recipe["phase"], recipe["dataset"]
    write(path / "recipe.json", recipe)
    return {
        "name": name,
        "task": task,
        "seed": seed,
        "start": start,
        "learning_rate": rate,
        "fingerprint": fingerprint,
        "path": f"results/finetunings/{fingerprint}",
    }


def write_run(
    root: Path,
    *,
    tasks: tuple[str, ...] = ("squad_v1", "cola", "mrpc", "rte"),
    seeds: int = 3,
    steps: int = 200,
    every: int = 10,
) -> Path:
    """A complete run named demo below `root`, the working directory of what reads it; returns its record."""
    write(root / "results" / "datasets" / ("d" * 16) / "dataset.json", dataset_card())
    phases = [
        write_phase(root, "phase1", steps=steps, every=every),
        write_phase(root, "phase2", steps=steps // 2, length=512, every=every),
    ]
    finetunings = []
    for index, task in enumerate(tasks):
        for seed in range(1, seeds + 1):
            finetunings.append(write_finetuning(root, task, seed, "pretrained", 5e-4, 78.0 - 3 * index + 0.7 * seed))
            finetunings.append(write_finetuning(root, task, seed, "random", 5e-4, 55.0 - 2 * index + 1.1 * seed))
            finetunings.append(write_finetuning(root, task, seed, "random", 2e-3, 49.0 + index - 0.9 * seed))
    kept = {}
    for task in tasks:
        name = task if task.startswith("squad") else f"glue/{task}"
        best = f"{task}-pretrained-0.0005-{seeds}"
        kept[name] = f"kept-{task}"
        write(root / f"results/kept/kept-{task}/choice.json", {"best": best, "kept": [best], "scores": {}})
    record = root / "results" / "runs" / "demo" / "record-0123456789abcdef.json"
    write(
        record,
        {
            "run": "demo",
            "description": "A tiny BERT on the generated sample.",
            "model_card": {},
            "experiment": "bertline",
            "fingerprint": "0123456789abcdef",
            "config": {"dataset": "sample", "model": "tiny", "seed": 42, "phases": {"phase1": {"steps": steps}}},
            "dataset": {"fingerprint": "d" * 16, "path": f"results/datasets/{'d' * 16}"},
            "phases": phases,
            "finetunings": finetunings,
            "kept": kept,
        },
    )
    return record.relative_to(root)
