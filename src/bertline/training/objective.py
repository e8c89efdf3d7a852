"""The pretraining objective on one micro-batch: masked language modelling and sentence pairs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertline.console import BertlineError
from bertline.encoding.masking import IGNORED, Masking, Vocabulary
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.modeling.attention import AttentionMask
from bertline.training import processor
from bertline.training.compilation import compile_parts
from bertline.training.data.collation import MicroBatch, mask_batch

logger = logging.getLogger(__name__)

MAX_PROGRAMS = 64
AUTOCAST = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class LossStatistics(NamedTuple):
    """Sums over a micro-batch; scalars, float32."""

    mlm_loss: Tensor  # nats, over the masked positions
    mlm_correct: Tensor  # number of masked positions whose true token is the first with the highest score
    masked: Tensor  # number of masked positions
    pair_loss: Tensor  # nats, over the sequences; 0 for a network without pairs
    pair_correct: Tensor


LossFn = Callable[[Tensor, Tensor, AttentionMask, Tensor, Tensor, Tensor], LossStatistics]


def make_loss_fn(
    model: nn.Module, *, precision: str, compiled: bool, by_layer: bool = False, cuda_graphs: bool = False
) -> LossFn:
    """Make the function (input_ids, token_type_ids, attention_mask, positions, labels, pair_labels) -> LossStatistics.

    Labels of -100 are ignored. With bf16 and fp16 the network runs under autocast, the losses in fp32. `compiled`
    makes one program per set of shapes, forward and backward; with `cuda_graphs` it is recorded once and replayed.
    `by_layer` makes programs of the network's parts instead, which stay in place in `model`.
    """
    dtype = AUTOCAST[precision]
    loss_and_correct = _loss_and_correct
    if compiled:
        # One for each shape of micro-batches, with and without a mask, and for each network of this process.
        torch._dynamo.config.recompile_limit = MAX_PROGRAMS
        # Programs with operators of our own survive a restart, too; the cache's key has their code.
        torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True
        # A warning for every program of a GPU about the sum over the vocabulary; users can change nothing about it.
        warnings.filterwarnings("ignore", message=r"\s*Online softmax is disabled")
    if compiled and by_layer:
        compile_parts(cast(PreTrainingNetwork, model))
        loss_and_correct = torch.compile(_loss_and_correct, dynamic=False, fullgraph=True)

    def loss_fn(
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: AttentionMask,
        positions: Tensor,
        labels: Tensor,
        pair_labels: Tensor,
    ) -> LossStatistics:
        # No cache: every weight is used once, and cached copies would undo the sharding of weights.
        with torch.autocast(input_ids.device.type, dtype, enabled=dtype is not None, cache_enabled=False):
            word_logits, pair_logits = model(input_ids, token_type_ids, attention_mask, positions)
        mlm_loss, mlm_correct = loss_and_correct(word_logits, labels)
        masked = (labels != IGNORED).sum().float()
        if pair_logits is None:
            pairs = torch.zeros_like(mlm_loss), torch.zeros_like(mlm_correct)
        else:
            pairs = loss_and_correct(pair_logits, pair_labels)
        return LossStatistics(mlm_loss, mlm_correct, masked, *pairs)

    if by_layer or not compiled:
        return loss_fn
    return torch.compile(loss_fn, dynamic=False, fullgraph=True, mode="reduce-overhead" if cuda_graphs else None)


def _loss_and_correct(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    return loss, (_predicted(logits.detach()) == labels).sum().float()


def _predicted(scores: Tensor) -> Tensor:
    """Return the first index of each row's highest score."""
    if not torch.compiler.is_compiling():
        return scores.argmax(1)
    # In a compiled program on a CPU these two reductions take less time than argmax.
    numbers = torch.arange(scores.shape[1], device=scores.device)
    return torch.where(scores == scores.amax(1, keepdim=True), numbers, scores.shape[1]).amin(1)


def compute_loss(
    loss_fn: LossFn, batch: MicroBatch, *, seed: int, masking: Masking, vocabulary: Vocabulary
) -> LossStatistics:
    """Mask `batch`, unless it is already masked, and evaluate the objective on it."""
    arguments = batch.token_type_ids, batch.attention_mask
    if batch.masked is not None:
        return loss_fn(batch.input_ids, *arguments, *batch.masked, batch.pair_labels)
    input_ids, positions, labels = mask_batch(batch, seed=seed, masking=masking, vocabulary=vocabulary)
    return loss_fn(input_ids, *arguments, positions, labels, batch.pair_labels)


def prepare_network(model: PreTrainingNetwork, precision: str, device: torch.device) -> None:
    """Make a network compute in a precision on a device, which it need not be on yet. Weights do not change.

    With bf16 a GPU keeps the hidden states between layers in bfloat16, which reads and writes 76 of 251 h bytes per
    token and layer less (h hidden size; bench/traffic.py). A CPU gains little by it and keeps float32, and so does
    fp16, which would overflow.
    """
    if device.type == "cuda" and precision == "bf16":
        model.encoder.residual_type = torch.bfloat16


def prepare_precision(precision: str, device: torch.device) -> None:
    """Set PyTorch's switches for a precision. Raises BertlineError if the device does not support it."""
    if precision == "fp16" and device.type != "cuda":
        raise BertlineError("precision: fp16 needs a GPU; take bf16 or fp32")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        logger.warning("precision: this GPU only emulates bf16, slowly; fp16 is what it computes fast")
    if precision == "bf16" and device.type == "cpu" and not processor.has_fast_bf16():
        logger.warning("precision: this processor is faster in fp32 than in bf16, often many times; take fp32")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
