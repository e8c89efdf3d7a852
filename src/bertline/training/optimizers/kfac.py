"""K-FAC: gradients preconditioned by a Kronecker-factored approximation of the Fisher matrix.

Martens and Grosse (2015, arXiv 1503.05671), as computed by kfac-pytorch (Pauloski et al. 2021, arXiv 2107.01739) for a
network with separate query, key and value, one process, and a global batch as one micro-batch. For a linear layer with
inputs x and outputs y, its factors are averages over the tokens of a global batch,

    A = mean of [x, 1] [x, 1]^T        G = mean of g g^T, g the gradient of the global batch's loss for y

and running averages of them, which start from the identity, precondition the gradient V of [weight, bias]:

    eigen:    G = Qg dg Qg^T, A = Qa da Qa^T;  Qg (Qg^T V Qa / (dg da^T + damping)) Qa^T
    inverse:  (G + damping I)^-1 V (A + damping I)^-1

Last, all are multiplied by min(1, sqrt(kl_clip / |sum of preconditioned x gradient x learning rate^2|)).

With gradient_factor: sample, g is the gradient of each sample's own loss, and G the mean over samples of sums over
their tokens: the Fisher matrix of the papers, whose size does not depend on the batch.

Padding is left out of the averages, and the result depends neither on the micro-batches nor on the number of ranks, but
for rounding: sums over tokens are added, not averages over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, distributed, nn

from bertline.console import BertlineError
from bertline.encoding.masking import IGNORED
from bertline.modeling.encoder import Encoder
from bertline.training.data.collation import MicroBatch
from bertline.training.distributed.assignment import assign
from bertline.training.distributed.grid import Grid
from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.base import matrices_in
from bertline.training.optimizers.schedules import SCHEDULED, value_at
from bertline.training.options import Options


class Layer(NamedTuple):
    """A preconditioned layer."""

    module: nn.Linear
    matrices: int  # that its weight stacks: query, key and value have one A and three G
    rows: int  # what its inputs' rows are: 0 for tokens, 1 for sequences


def check_kfac(options: Options, settings: Mapping[str, Any]) -> None:
    """Raise BertlineError if K-FAC is chosen with a trainer option that is incompatible with it."""
    if settings["kfac"] is None:
        return
    if options.compiled:
        raise BertlineError(
            "--compile: kfac reads each layer's inputs and gradients, which a program of all layers does not return; "
            "leave --compile and --cuda-graphs out"
        )
    if options.micro_batch_tokens == "auto":
        raise BertlineError("micro_batch_tokens: auto does not count the memory of kfac; give a number")


class Kfac:
    """Preconditioner of the linear layers of a network's encoder; without settings it does nothing.

    Every rank has all factors. The ranks are a grid, with `share` of them in a column (Pauloski et al. 2021, section
    3.1): a column has the inverses of its layers, each computed by one of its ranks, and preconditions their gradients,
    which are broadcast in each row. With a share of 1 there is one column, with 1 / ranks one row.
    """

    def __init__(
        self, model: nn.Module, settings: Mapping[str, Any] | None, group: Group, *, share: float = 1.0
    ) -> None:
        """Hook into the layers of `model.encoder` that have gradients.

        Args:
            settings: `kfac` of a phase's settings.
            share: of the ranks that precondition a layer's gradient.

        Raises BertlineError if the ranks cannot be divided so.
        """
        self._given, self._group = settings or {}, group
        self._settings = self._given  # those of the step
        self._layers = dict(_layers_of(model, self._settings["skip"])) if settings else {}
        self._observing = False
        self._seen: set[str] = set()
        self._real: tuple[Tensor | None, Tensor | None] = (None, None)  # by `Layer.rows`; None for all rows
        self._scale = 1.0
        self._sizes: dict[str, tuple[int, int]] = {}  # of factors: matrices, and rows of each
        for name, (module, matrices, _) in self._layers.items():
            module.register_forward_hook(partial(self._see_input, name))
            columns = module.in_features + (module.bias is not None)
            self._sizes |= {_input(name): (1, columns), _gradient(name): (matrices, module.out_features // matrices)}
        self._grid = Grid(group, share) if self._layers else Grid(Group(0, 1, group.device), 1.0)
        self._columns, self._owners = self._divide()
        self._factors: dict[str, Tensor] = {}  # each [matrices, size, size]
        self._inverses: dict[str, dict[str, Tensor]] = {}
        self._has_inverses = False  # the same on every rank, also on one whose column has no layers
        if self._layers:
            cast(Encoder, model.encoder).computes_all_tokens = True  # the factors are means over all tokens
            self._allocate(next(iter(self._layers.values())).module.weight.device)

    @property
    def enabled(self) -> bool:
        """Whether there are layers to precondition."""
        return bool(self._layers)

    def factors(self) -> dict[str, Tensor]:
        """Return the factors, named {layer}.kfac.{tensor}.factor, of which every rank has all."""
        return {f"{key}.factor": factor for key, factor in self._factors.items()}

    def _divide(self) -> tuple[dict[str, int], dict[str, int]]:
        """Assign layers to columns of the grid, and factors to the ranks that compute their inverses."""
        costs = {key: count * size**3 for key, (count, size) in self._sizes.items()}
        columns = assign(
            {name: costs[_input(name)] + costs[_gradient(name)] for name in self._layers}, self._grid.columns
        )
        owners: dict[str, int] = {}
        for column in range(self._grid.columns):
            here = {key: costs[key] for name in columns if columns[name] == column for key in _factors_of(name)}
            rows = assign(here, self._grid.rows)
            owners |= {key: self._grid.rank_at(row, column) for key, row in rows.items()}
        return columns, owners

    def _is_here(self, name: str) -> bool:
        """Return whether this rank preconditions the layer's gradient."""
        return self._columns[name] == self._grid.column

    def _allocate(self, device: torch.device) -> None:
        """Make one buffer of all sums and of the counts of rows, for one all_reduce."""
        elements = [count * size**2 for count, size in self._sizes.values()]
        self._buffer = torch.zeros(sum(elements) + 2, device=device)
        *sums, self._counts = self._buffer.split([*elements, 2])
        self._sums = {
            key: flat.view(count, size, size)
            for flat, (key, (count, size)) in zip(sums, self._sizes.items(), strict=True)
        }

    def _set_step(self, step: int) -> dict[str, Any]:
        """Take the settings of update number `step`, and return them."""
        now = {name: value_at(step, self._given[name]) for name in SCHEDULED if name in self._given}
        self._settings = {**self._given, **now}
        return self._settings

    @contextmanager
    def observe(self, step: int, loss_scale: float) -> Iterator[None]:
        """Sum the factors of update number `step`, counted from 1, over the micro-batches computed in the context."""
        self._scale = loss_scale
        self._set_step(step)
        self._observing = self.enabled and (step - 1) % self._settings["factor_interval"] == 0
        if self._observing:
            self._buffer.zero_()
        try:
            yield
        finally:
            self._observing = False

    @torch.no_grad()
    def start(self, micro_batch: MicroBatch) -> None:
        """Note which rows of the next micro-batch are not padding."""
        if not self._observing:
            return
        self._seen.clear()
        sequences = micro_batch.pair_labels != IGNORED
        self._real = _real_tokens(micro_batch), sequences
        self._counts[0] += micro_batch.tokens
        self._counts[1] += sequences.sum()

    @torch.no_grad()
    def _see_input(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # Activation checkpointing computes layers a second time.
        if not self._observing or name in self._seen:
            return
        self._seen.add(name)
        with torch.autocast(output.device.type, enabled=False):
            x = inputs[0].flatten(0, -2).float()
            if module.bias is not None:
                x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
            real = self._real[self._layers[name].rows]
            _add_products(self._sums[_input(name)], x if real is None else x * real[:, None])
        output.register_hook(partial(self._see_gradient, name))

    @torch.no_grad()
    def _see_gradient(self, name: str, gradient: Tensor) -> None:
        # That of padding is 0.
        _add_products(self._sums[_gradient(name)], gradient.flatten(0, -2).float() / self._scale)

    @torch.no_grad()
    def precondition(self, step: int, learning_rate: float, *, samples: int) -> None:
        """Replace the layers' gradients for update number `step`. All ranks must call it.

        The gradients are those of the mean loss over the `samples` of the global batch, without a loss scale.
        """
        settings = self._set_step(step)
        if (step - 1) % settings["factor_interval"] == 0:
            self._update_factors(samples)
        if not self._has_inverses or (step - 1) % settings["inverse_interval"] == 0:
            self._update_inverses()
        gradients = {name: _gradient_of(layer) for name, layer in self._layers.items()}
        moved = {
            name: self._preconditioned(name, gradient) if self._is_here(name) else torch.empty_like(gradient)
            for name, gradient in gradients.items()
        }
        self._grid.broadcast_in_row((gradient, self._columns[name]) for name, gradient in moved.items())
        if settings["kl_clip"] is not None:
            products = torch.stack([(moved[name] * gradient).sum() for name, gradient in gradients.items()])
            change = abs(float(products.double().sum())) * learning_rate**2
            if change > settings["kl_clip"]:
                torch._foreach_mul_(list(moved.values()), (settings["kl_clip"] / change) ** 0.5)
        for name, layer in self._layers.items():
            _set_gradient(layer, moved[name])

    def _update_factors(self, samples: int) -> None:
        if self._group.world_size > 1:
            distributed.all_reduce(self._buffer)
        if not self._factors:
            self._factors = {key: _identities(one) for key, one in self._sums.items()}
        for name, layer in self._layers.items():
            count = self._counts[layer.rows].clamp(min=1)
            # A sample's own gradient is `samples` times its part of the mean's.
            of_gradient = count if self._settings["gradient_factor"] == "batch" else 1 / samples
            for key, divisor in ((_input(name), count), (_gradient(name), of_gradient)):
                new = self._sums[key] / divisor
                self._factors[key].lerp_((new + new.mT) / 2, 1 - self._settings["decay"])

    def _update_inverses(self) -> None:
        """Compute this rank's part of the inverses, or of the eigenvectors, and receive those of its column."""
        if not self._has_inverses:
            self._inverses, self._has_inverses = self._new_inverses(), True
        for key, inverses in self._inverses.items():
            if self._owners[key] == self._group.rank:
                for name, tensor in self._inverse_of(self._factors[key]).items():
                    inverses[name].copy_(tensor)
        self._grid.broadcast_in_column(
            (tensor, self._owners[key]) for key, inverses in self._inverses.items() for tensor in inverses.values()
        )

    def _new_inverses(self, of: Iterable[str] | None = None) -> dict[str, dict[str, Tensor]]:
        """Make uninitialised tensors for the inverses of some layers, by default those that this rank preconditions."""
        names = filter(self._is_here, self._layers) if of is None else of
        sums = {key: self._sums[key] for name in names for key in _factors_of(name)}
        if self._settings["method"] == "inverse":
            return {key: {"inverse": torch.empty_like(one)} for key, one in sums.items()}
        return {
            key: {"eigenvalues": one.new_empty(one.shape[:2]), "eigenvectors": torch.empty_like(one)}
            for key, one in sums.items()
        }

    def _inverse_of(self, factor: Tensor) -> dict[str, Tensor]:
        if self._settings["method"] == "inverse":
            return {"inverse": torch.linalg.inv(factor + self._settings["damping"] * _identities(factor))}
        values, vectors = torch.linalg.eigh(factor)
        return {"eigenvalues": values.clamp(min=0), "eigenvectors": vectors}

    def _preconditioned(self, name: str, gradient: Tensor) -> Tensor:
        """Precondition the gradient of [weight, bias], [matrices, rows, columns]."""
        a, g = self._inverses[_input(name)], self._inverses[_gradient(name)]
        if self._settings["method"] == "inverse":
            return g["inverse"] @ gradient @ a["inverse"]
        rotated = g["eigenvectors"].mT @ gradient @ a["eigenvectors"]
        rotated /= g["eigenvalues"][:, :, None] * a["eigenvalues"][:, None] + self._settings["damping"]
        return g["eigenvectors"] @ rotated @ a["eigenvectors"].mT

    def tensors(self) -> dict[str, Tensor]:
        """Return factors and inverses, if there are any yet, as tensors named {layer}.kfac.{tensor}.

        All ranks must call it.
        """
        found = self.factors()
        if not self._has_inverses:
            return found
        for name, column in self._columns.items():
            inverses = self._inverses if self._is_here(name) else self._new_inverses(of=[name])
            for key in _factors_of(name):
                self._grid.broadcast_in_row((tensor, column) for tensor in inverses[key].values())
                found |= {f"{key}.{kind}": tensor for kind, tensor in inverses[key].items()}
        return found

    def carry_over(self, tensors: Mapping[str, Tensor]) -> None:
        """Start a phase from the factors among `tensors`, which another phase saved, or from the identity without one.

        The first update computes the inverses.

        Raises BertlineError if a factor has another shape.
        """
        new = {key: _identities(one) for key, one in self._sums.items()} if self.enabled else {}
        self.load({f"{key}.factor": tensors.get(f"{key}.factor", one) for key, one in new.items()})

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned; start from the identity if there is nothing of K-FAC in `tensors`.

        The inverses are computed again in the next update if the tensors are of the other method.

        Raises BertlineError if a tensor is missing or has another shape.
        """
        self._factors, self._inverses, self._has_inverses = {}, {}, False
        if not self.enabled or not any(".kfac." in name for name in tensors):
            return
        self._factors = {key: torch.empty_like(one) for key, one in self._sums.items()}
        kind = ".inverse" if self._settings["method"] == "inverse" else ".eigenvectors"
        if any(name.endswith(kind) for name in tensors):
            self._inverses, self._has_inverses = self._new_inverses(), True
        mine = self.factors()
        mine |= {f"{key}.{kind}": one for key, kinds in self._inverses.items() for kind, one in kinds.items()}
        for name, tensor in mine.items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise BertlineError(f"the tensor {name} is missing or has another shape")
            tensor.copy_(tensors[name])


def _real_tokens(micro_batch: MicroBatch) -> Tensor | None:
    """Return which tokens are not padding, bool [B x S], or None for all."""
    if micro_batch.tokens == micro_batch.input_ids.numel():
        return None
    mask = micro_batch.attention_mask
    if isinstance(mask, Tensor):
        return mask.flatten()
    return torch.arange(micro_batch.input_ids.numel(), device=micro_batch.input_ids.device) < micro_batch.tokens


def _layers_of(model: nn.Module, skip: list[str]) -> Iterator[tuple[str, Layer]]:
    """Yield name and layer of the encoder's linear layers that are trained and whose name has no part in `skip`."""
    for name, module in model.named_modules():
        of_encoder = name.startswith("encoder.") and isinstance(module, nn.Linear)
        if of_encoder and module.weight.requires_grad and not any(part in name for part in skip):
            # The pooler sees the first token of each sequence.
            yield name, Layer(module, matrices_in(f"{name}.weight"), int(name.endswith("pooler")))


def _input(name: str) -> str:
    return f"{name}.kfac.input"


def _factors_of(name: str) -> tuple[str, str]:
    return _input(name), _gradient(name)


def _gradient(name: str) -> str:
    return f"{name}.kfac.gradient"


def _identities(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], device=like.device).expand_as(like).clone()


def _add_products(sums: Tensor, rows: Tensor) -> None:
    """Add z z^T of each row's parts z to `sums`: [N, matrices x size], [matrices, size, size]."""
    parts = rows.unflatten(1, (len(sums), -1)).transpose(0, 1)
    sums.baddbmm_(parts.mT, parts)


def _gradients_in(layer: Layer) -> list[Tensor]:
    """Return the gradients of weight and bias."""
    return [parameter.grad for parameter in layer.module.parameters() if parameter.grad is not None]


def _gradient_of(layer: Layer) -> Tensor:
    """Return the gradient of [weight, bias] as [matrices, rows, columns]."""
    columns = [gradient.view(len(gradient), -1) for gradient in _gradients_in(layer)]
    return torch.cat(columns, dim=1).unflatten(0, (layer.matrices, -1))


def _set_gradient(layer: Layer, gradient: Tensor) -> None:
    first = 0
    for own in _gradients_in(layer):
        columns = own.numel() // len(own)
        own.copy_(gradient.flatten(0, 1)[:, first : first + columns].reshape(own.shape))
        first += columns
