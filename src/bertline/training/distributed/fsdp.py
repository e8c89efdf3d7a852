"""Weights, gradients and moments divided among the ranks: PyTorch's `fully_shard` (FSDP2).

ZeRO, stage 3 (Rajbhandari et al. 2019, arXiv 1910.02054, section 5). Of every tensor a rank holds some rows. The
weights of a layer are whole only while it computes, forward and once more backward; its gradient is summed over the
ranks as soon as it is there, and each keeps its rows. So the ranks go through the network together, and all compute as
many micro-batches as the one with the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeGuard, cast

import torch
from torch import Tensor, distributed, nn

from bertline.console import BertlineError
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.distributed.process_group import Group
from bertline.training.options import Options

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def check_fsdp(options: Options, *, optimizer: str, needs_whole_matrices: bool) -> None:
    """Raise BertlineError where an option or the optimizer does not go with it."""
    faults = (
        (needs_whole_matrices, f"{optimizer} needs whole matrices; leave it out, or choose another optimizer"),
        (options.sharded_optimizer, "it divides the moments, too; leave --shard-optimizer out"),
        (options.compiled, "a program of all layers cannot exchange them; leave --compile and --cuda-graphs out"),
        (options.compiled_optimizer, "the compiled step of LAMB needs whole tensors; leave --compile-optimizer out"),
        (
            options.micro_batch_tokens is None,
            "auto tries sizes in each process alone; give micro_batch_tokens a number",
        ),
        (
            options.load_balancing.startswith("measured"),
            "processes wait for each other in each layer; give --load-balancing weights",
        ),
    )
    for given, fault in faults:
        if given:
            raise BertlineError(f"--fsdp: {fault}")


def apply_fsdp(model: PreTrainingNetwork, group: Group) -> None:
    """Divide the parameters of `model` among the ranks and move each part to its device, layer by layer."""
    # Here, because importing it takes 0.6 s, which every other training and fine-tuning would wait for.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(group.device.type, (group.world_size,))
    for module in (*model.encoder.layers, model):
        # The outermost as well, though its weights are needed again soon: after an evaluation they would stay whole.
        sharded = cast(FSDPModule, fully_shard(module, mesh=mesh, reshard_after_forward=True))
        # LossStatistics, not means: losses are divided by counts of the global batch.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether this rank holds only some rows of `tensor`."""
    return hasattr(tensor, "full_tensor")


def uses_fsdp(model: nn.Module) -> bool:
    """Return whether `apply_fsdp` was called for `model`."""
    return is_sharded(next(model.parameters()))


def own_part(tensor: Tensor) -> Tensor:
    """Return this rank's rows of a sharded tensor, in the same memory; of another tensor all."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a whole `tensor`, which all ranks have, with the type, device and sharding of `like`."""
    if not is_sharded(like):
        return tensor.to(like)
    from torch.distributed.tensor import distribute_tensor

    tensor = tensor.to(like.device, like.dtype)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def whole(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield names and whole tensors, one at a time; all ranks must iterate together."""
    for name, tensor in tensors.items():
        yield name, tensor.full_tensor() if is_sharded(tensor) else tensor


def norms_of_whole(norms: Tensor) -> Tensor:
    """Compute the norms of sharded tensors from those of this rank's parts: float32, of any shape."""
    squares = norms.double().square()
    distributed.all_reduce(squares)
    return squares.sqrt().float()


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy whole `weights`, which all ranks have, into the parameters of `model`."""
    for name, tensor in model.state_dict().items():
        tensor.copy_(shard_as(weights[name], tensor))
