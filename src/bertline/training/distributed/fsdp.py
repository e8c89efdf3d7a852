"""Weights, gradients and moments sharded among the ranks by PyTorch's `fully_shard` (FSDP2).

ZeRO, stage 3 (Rajbhandari et al. 2019, arXiv 1910.02054, section 5). A rank stores some rows of every tensor. A layer's
weights are gathered only for its computation, once forward and once backward; its gradient is reduced over the ranks as
soon as it is available, and each rank keeps its rows. The ranks therefore run in lockstep, and all compute as many
micro-batches as the one with the most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import Tensor, distributed, nn

from bertline.console import BertlineError
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.distributed.assignment import assign
from bertline.training.distributed.process_group import Group
from bertline.training.options import Options

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def check_fsdp(options: Options, settings: Mapping[str, Any], *, needs_whole_matrices: bool) -> None:
    """Raise BertlineError if FSDP is chosen with an option or an optimizer that is incompatible with it."""
    problems = (
        (
            needs_whole_matrices,
            f"{settings['optimizer']} needs whole matrices; leave it out, or choose another optimizer",
        ),
        (settings["kfac"] is not None, "kfac needs whole matrices; leave it out, or set kfac to null"),
        (options.sharded_optimizer, "it divides the moments, too; leave --shard-optimizer out"),
        (options.cuda_graphs, "a program of all layers cannot exchange them; leave --cuda-graphs out"),
        (options.compiled_optimizer, "the compiled step of LAMB needs whole tensors; leave --compile-optimizer out"),
        (
            options.micro_batch_tokens == "auto",
            "auto tries sizes in each process alone; give micro_batch_tokens a number",
        ),
        (
            options.load_balancing.startswith("measured"),
            "processes wait for each other in each layer; give --load-balancing weights",
        ),
    )
    for given, problem in problems:
        if options.fsdp and given:
            raise BertlineError(f"--fsdp: {problem}")


def apply_fsdp(model: PreTrainingNetwork, group: Group) -> None:
    """Divide the parameters of `model` among the ranks, and move each part to its device, layer by layer.

    The other functions of this module do nothing special to a model without FSDP, or to its tensors.
    """
    # Imported here, because it takes 0.6 s, which every other training and fine-tuning would wait for.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(group.device.type, (group.world_size,))
    for module in (*model.encoder.layers, model):
        # The root module as well, although backward soon needs its weights: after an evaluation they would stay whole.
        sharded = cast(FSDPModule, fully_shard(module, mesh=mesh, reshard_after_forward=True))
        # LossStatistics, not means: losses are divided by counts of the global batch.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether this rank stores only some rows of `tensor`."""
    return hasattr(tensor, "full_tensor")


def reduces_in_backward(model: nn.Module) -> bool:
    """Return whether the backward pass sums the gradients over the ranks."""
    return is_sharded(next(model.parameters()))


def passes_in_lockstep(model: nn.Module, passes: int, group: Group) -> int:
    """Return how many passes through `model` this rank makes: its own `passes`; with FSDP, the maximum of all ranks."""
    return group.all_reduce_max(passes) if is_sharded(next(model.parameters())) else passes


def own_part(tensor: Tensor) -> Tensor:
    """Return this rank's rows of a sharded tensor, in the same memory; return any other tensor unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a whole `tensor`, present on all ranks, with the type, device and sharding of `like`."""
    if not is_sharded(like):
        return tensor.to(like)
    from torch.distributed.tensor import distribute_tensor

    tensor = tensor.to(like.device, like.dtype)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def whole(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield names and whole tensors, one at a time; all ranks must iterate together."""
    for name, tensor in tensors.items():
        yield name, tensor.full_tensor() if is_sharded(tensor) else tensor


def norms_of_whole(norms: Tensor, *, like: Tensor) -> Tensor:
    """Return the norms of whole tensors given those of this rank's parts: float32, of any shape.

    Args:
        like: one of the tensors; if it is not sharded, no tensor is, and each part is the whole tensor.
    """
    if not is_sharded(like):
        return norms
    squares = norms.double().square()
    distributed.all_reduce(squares)
    return squares.sqrt().float()


def split_whole(part: Tensor, count: int, *, like: Tensor) -> list[Tensor]:
    """Return this rank's rows of each of the `count` equal parts of a whole tensor's rows, as views; some may be empty.

    Args:
        part: the rows that this rank stores of a tensor of the shape of `like`.
        like: if it is not sharded, `part` is the whole tensor.
    """
    if count == 1 or not is_sharded(like):
        return list(part.chunk(count))
    rows = _rows_of_ranks(len(like), distributed.get_world_size())
    first, size = sum(rows[: distributed.get_rank()]), len(like) // count
    ends = [min(max(0, number * size - first), len(part)) for number in range(count + 1)]
    return [part[start:end] for start, end in pairwise(ends)]


def map_whole(
    function: Callable[[Sequence[int], Sequence[Tensor]], list[Tensor]],
    matrices: Sequence[Tensor],
    *,
    like: Sequence[Tensor],
) -> list[Tensor]:
    """Apply `function` to whole matrices, given this rank's rows of each, and return its rows of the results.

    Each matrix is gathered by one rank, the larger ones first by the rank with the least work.

    Args:
        function: (numbers of the matrices, whole matrices) -> results of the same shapes and type.
        matrices: of the same type; the rows that this rank stores of each.
        like: sharded tensors of the matrices' shapes; if the first is not sharded, none is, and this rank does all.
    """
    if not is_sharded(like[0]):
        return function(range(len(matrices)), matrices)
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    rows = [_rows_of_ranks(len(tensor), ranks) for tensor in like]
    columns = [tensor.shape[1] for tensor in like]
    owners = assign({n: tensor.numel() * min(tensor.shape) for n, tensor in enumerate(like)}, ranks)
    owned = [[n for n in owners if owners[n] == owner] for owner in range(ranks)]

    there = [[matrices[n] for n in numbers] for numbers in owned]
    received = _all_to_all(
        there, [[(rows[n][source], columns[n]) for n in owned[rank]] for source in range(ranks)], matrices[0]
    )
    results = function(owned[rank], [torch.cat(parts) for parts in zip(*received, strict=True)])
    back = [[result.split(rows[n])[to] for n, result in zip(owned[rank], results, strict=True)] for to in range(ranks)]
    shapes = [[(rows[n][rank], columns[n]) for n in numbers] for numbers in owned]
    received = _all_to_all(back, shapes, matrices[0])
    by_number = dict(zip(chain(*owned), chain(*received), strict=True))
    return [by_number[n] for n in range(len(matrices))]


def _rows_of_ranks(rows: int, ranks: int) -> list[int]:
    """Return how many rows of a tensor each rank stores: those of `torch.chunk`."""
    most = -(-rows // ranks)
    return [max(0, min(most, rows - rank * most)) for rank in range(ranks)]


def _all_to_all(
    sent: Sequence[Sequence[Tensor]], shapes: Sequence[Sequence[tuple[int, int]]], like: Tensor
) -> list[list[Tensor]]:
    """Send the tensors `sent[r]` to each rank r; return those that it sends to this rank, which have `shapes[r]`.

    Args:
        like: a tensor of their type and device.
    """
    sizes = [[rows * columns for rows, columns in of_rank] for of_rank in shapes]
    flat = torch.cat([like.new_empty(0), *(tensor.flatten() for tensors in sent for tensor in tensors)])
    received = like.new_empty(sum(map(sum, sizes)))
    counts = [sum(tensor.numel() for tensor in tensors) for tensors in sent]
    distributed.all_to_all_single(received, flat, list(map(sum, sizes)), counts)
    parts = iter(received.split(list(chain(*sizes))))
    return [[next(parts).view(shape) for shape in of_rank] for of_rank in shapes]


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy whole `weights`, present on all ranks, into the parameters of `model`."""
    for name, tensor in model.state_dict().items():
        tensor.copy_(shard_as(weights[name], tensor))
