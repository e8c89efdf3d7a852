"""Runs the engine's code for GPUs without one: python fake_gpu.py library dataset.json

See fake_gpu_device.py for what that shows and what it does not. Prints a line of JSON for each case: its name, and
null or what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from fake_gpu_device import COMPILE, GPU, HOPPER, TURING, HostReads, moved, on_fake_gpu  # noqa: E402
from gradient_helpers import accumulate  # noqa: E402
from synthetic_dataset import MODEL, recipe  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from bertline.finetuning.batches import pad  # noqa: E402
from bertline.finetuning.losses import loss_of  # noqa: E402
from bertline.finetuning.optimizer import make_optimizer as make_finetuning_optimizer  # noqa: E402
from bertline.finetuning.sequences import Sequences  # noqa: E402
from bertline.modeling.activations import ACTIVATIONS  # noqa: E402
from bertline.modeling.architectures import architecture_of  # noqa: E402
from bertline.modeling.dropout import drop  # noqa: E402
from bertline.tasks.task import Head  # noqa: E402
from bertline.training.data.opening import TrainingData, open_training_data  # noqa: E402
from bertline.training.data.shapes import Batching  # noqa: E402
from bertline.training.distributed.process_group import Group  # noqa: E402
from bertline.training.gradient_accumulator import GradientAccumulator  # noqa: E402
from bertline.training.initial import make_model  # noqa: E402
from bertline.training.micro_batch import fix_shapes_of_phase  # noqa: E402
from bertline.training.objective import prepare_network  # noqa: E402
from bertline.training.optimizers.registry import load_optimizer_tensors, make_optimizer, optimizer_tensors  # noqa: E402

SIZES = ("hidden_size", "num_attention_heads", "intermediate_size")
NETWORKS = {
    "bert": {**MODEL, "attention_probs_dropout_prob": 0.1, "num_hidden_layers": 1},
    "modern": {"architecture": "modern", "num_hidden_layers": 1, **{key: MODEL[key] for key in SIZES}},
}


ATTENTION = F.scaled_dot_product_attention


def attention_for_every_shape(*arguments, **options):
    """PyTorch's attention; an error if it could be cuDNN's, which prepares every shape, outside compiled programs."""
    if not torch.compiler.is_compiling() and torch.backends.cuda.cudnn_sdp_enabled():
        raise RuntimeError("attention in rows of any shape may be cuDNN's")
    return ATTENTION(*arguments, **options)


def moved_data(data: TrainingData, mode: FakeTensorMode) -> TrainingData:
    there = {
        name: mode.from_tensor(getattr(data.vocabulary, name)).to(GPU) for name in ("is_special", "continues", "words")
    }
    return replace(data, vocabulary=replace(data.vocabulary, **there))


def train(
    data: TrainingData,
    *,
    network: str,
    precision: str = "bf16",
    packed: bool = False,
    optimizer: str = "adamw",
    world_size: int = 1,
    capability: int = HOPPER,
    compiled: bool = False,
    rows: int = 8,
    whole_word: bool = False,
) -> None:
    """Gradients of a global batch in several micro-batches, and steps with new and with restored moments."""
    given = recipe(precision=precision, optimizer=optimizer, packing=packed)
    given["settings"]["masking"]["whole_word"] = whole_word
    given["model"] = dict(NETWORKS[network])
    model = make_model(given, data)
    prepare_network(model, precision, GPU)
    batching = Batching(32, rows, packed=packed, mask_free=True)
    if compiled:
        batching = fix_shapes_of_phase(batching, data, given, world_size)
    with on_fake_gpu(capability) as mode:
        model, data = moved(model, mode), moved_data(data, mode)
        accumulator = GradientAccumulator(model, data, given, Group(0, world_size, GPU), batching, compiled=compiled)
        accumulator.seek(1)
        lengths = accumulate(accumulator, 1, loss_scale=2.0).lengths
        assert rows > 1 or {True, False} == set(lengths == 32), "there are micro-batches with and without a mask"
        accumulator.close()
        assert all(weight.grad.device == GPU for weight in model.parameters() if weight.grad is not None)
        assert accumulator.gradients.statistics.device == GPU
        made = make_optimizer(model, given["settings"])
        with HostReads():
            made.step()
        kept = {name: tensor.to("cpu") for name, tensor in optimizer_tensors(made, model).items()}
        # That of these is on the host, where it is read.
        if optimizer in ("lamb", "soap", "shampoo"):
            kept |= {name: torch.zeros(()) for name in kept if name.endswith(".step")}
        again = make_optimizer(model, given["settings"])
        load_optimizer_tensors(again, model, kept, kind=optimizer, reset_step=True)
        with HostReads():
            again.step()
        where = {
            name.rsplit(".", 1)[-1]: tensor.device.type for name, tensor in optimizer_tensors(again, model).items()
        }
        assert where.pop("step", "cuda") == ("cpu" if optimizer in ("lamb", "soap", "shampoo") else "cuda")
        assert set(where.values()) == {"cuda"}


def fine_tune(data: TrainingData, *, network: str, head: Head) -> None:
    """One step of a task's head."""
    config = make_model({**recipe(), "model": NETWORKS[network]}, data).config
    reader = data.train
    content = reader.gather(torch.arange(6).numpy())
    inputs = Sequences(content.tokens, content.offsets, content.second_segment_start)
    rows = torch.arange(6).numpy()
    model = architecture_of(config).task_network(config, head, 2)
    shape = {"answer": (6, 2), "tokens": (6, int(inputs.lengths.max())), "sequence": (6,)}[head]
    targets = torch.ones(shape, dtype=torch.int64)
    batch = pad(inputs, rows, 0, torch.device("cpu"))
    with on_fake_gpu() as mode:
        model = moved(model, mode)
        optimizer = make_finetuning_optimizer(model, weight_decay=0.01, layerwise_decay=1.0)
        placed = [tensor if tensor is None else mode.from_tensor(tensor).to(GPU) for tensor in batch]
        with torch.autocast("cuda", torch.bfloat16):
            outputs = model(*placed)
        loss_of(head, outputs, mode.from_tensor(targets).to(GPU), placed[2]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def trace_elementwise(data: TrainingData) -> None:
    """A compiled program has neither PyTorch's GELU nor its dropout, which take a GPU longer than to read and write."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with on_fake_gpu() as mode:
        hidden = mode.from_tensor(torch.ones(4, 8)).to(GPU, torch.bfloat16)
        COMPILE(lambda given: drop(ACTIVATIONS["gelu"](given), 0.1), backend=keep, fullgraph=True)(hidden)
    [graph] = graphs
    assert "gelu(" not in graph.code, graph.code
    assert "dropout(" not in graph.code, graph.code


def cases(data: TrainingData) -> dict[str, Callable[[], None]]:
    return {
        "rows": partial(train, data, network="bert", optimizer="lamb", world_size=2, whole_word=True),
        "rows in fp16": partial(train, data, network="modern", precision="fp16"),
        "packed": partial(train, data, network="modern", packed=True, optimizer="adamw"),
        "packed with dropout": partial(train, data, network="bert", packed=True, optimizer="adamw"),
        "rows with lion": partial(train, data, network="bert", optimizer="lion"),
        "rows with soap": partial(train, data, network="bert", optimizer="soap"),
        "rows with shampoo": partial(train, data, network="bert", optimizer="shampoo"),
        "packed in fp32": partial(train, data, network="modern", packed=True, precision="fp32", optimizer="muon"),
        "packed on an older GPU": partial(
            train, data, network="bert", packed=True, precision="fp16", capability=TURING
        ),
        "rows, traced": partial(train, data, network="bert", compiled=True),
        "full rows and others, traced": partial(train, data, network="bert", compiled=True, rows=1),
        "packed, traced": partial(train, data, network="modern", packed=True, compiled=True),
        "packed with dropout, traced": partial(train, data, network="bert", packed=True, compiled=True),
        "GELU and dropout, traced": partial(trace_elementwise, data),
        "a sequence's class": partial(fine_tune, data, network="modern", head="sequence"),
        "tokens' classes": partial(fine_tune, data, network="bert", head="tokens"),
        "answers": partial(fine_tune, data, network="bert", head="answer"),
    }


def main() -> None:
    F.scaled_dot_product_attention = attention_for_every_shape
    data = open_training_data(Path(sys.argv[2]), 32, torch.device("cpu"))
    for name, run in cases(data).items():
        try:
            run()
        except Exception as error:
            traceback.print_exc()
            print(json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
        else:
            print(json.dumps([name, None]), flush=True)


if __name__ == "__main__":
    main()
