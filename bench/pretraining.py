"""How fast a training step is: ours against transformers' BertForPreTraining, same shapes, same process.

    python bench/pretraining.py --threads 2

fp32 on the CPU, eager, dropout 0.1 in both, full rows of random tokens, 15 percent masked, fused AdamW. Rounds
alternate. The last line is JSON.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import torch
import transformers
from torch.nn import functional as F

from bertline.modeling.bert import BertConfig, BertForPreTraining

BATCH, LENGTH, VOCABULARY = 8, 128, 30522
SHAPES = {
    "mini": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}


def step_of_ours(shape: dict) -> Callable[[], None]:
    model = BertForPreTraining(BertConfig(vocab_size=VOCABULARY, **shape)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH))
    types, labels = torch.zeros_like(ids), torch.zeros(BATCH, dtype=torch.long)
    positions = torch.arange(0, BATCH * LENGTH, 7)[: round(0.15 * BATCH * LENGTH)]

    def step() -> None:
        words, pairs = model(ids, types, None, positions)
        loss = F.cross_entropy(words, ids.flatten()[positions]) + F.cross_entropy(pairs, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def step_of_transformers(shape: dict) -> Callable[[], None]:
    model = transformers.BertForPreTraining(transformers.BertConfig(vocab_size=VOCABULARY, **shape)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH))
    positions = torch.arange(0, BATCH * LENGTH, 7)[: round(0.15 * BATCH * LENGTH)]
    labels = torch.full((BATCH * LENGTH,), -100)
    labels[positions] = ids.flatten()[positions]
    labels, pairs = labels.view(BATCH, LENGTH), torch.zeros(BATCH, dtype=torch.long)

    def step() -> None:
        model(input_ids=ids, labels=labels, next_sentence_label=pairs).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="mini")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    steps = {
        "transformers": step_of_transformers(SHAPES[arguments.shape]),
        "ours": step_of_ours(SHAPES[arguments.shape]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if number >= 2:  # the first two warm up
                seconds[name].append(time.perf_counter() - start)
    tokens = {name: BATCH * LENGTH / statistics.median(values) for name, values in seconds.items()}
    ratios = [theirs / ours for theirs, ours in zip(seconds["transformers"], seconds["ours"], strict=True)]
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {arguments.threads} threads")
    print(f"transformers {tokens['transformers']:,.0f} tokens/s, ours {tokens['ours']:,.0f} tokens/s")
    print(json.dumps({f"{arguments.shape}_vs_transformers": round(statistics.median(ratios), 2)}))


if __name__ == "__main__":
    main()
