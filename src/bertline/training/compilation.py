"""Compilation of a network in parts.

One program serves all layers but the last, which computes fewer tokens. Compiling takes as long for 24 layers as for 2.
A layer's gradients are complete while backward computes the layers before it; a program of the whole network would
return all gradients at its end. The work of FSDP before and after a layer stays outside the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from bertline.modeling.architectures import PreTrainingNetwork
from bertline.modeling.heads import MaskedLanguageHead


def compile_parts(model: PreTrainingNetwork) -> None:
    """Compile the forward and backward pass of the embeddings, each layer and the head, for training only.

    Parts of a class share their programs, of which there is one for each set of shapes.
    """
    heads = [module for module in model.children() if isinstance(module, MaskedLanguageHead)]
    programs: dict[Callable[..., Any], Callable[..., Any]] = {}
    for part in (model.encoder.embeddings, *model.encoder.layers, *heads):
        plain = type(part).forward
        if plain not in programs:
            programs[plain] = torch.compile(plain, dynamic=False, fullgraph=True)
        part.forward = partial(_forward, part, plain, programs[plain])


def _forward(part: nn.Module, plain: Callable[..., Any], program: Callable[..., Any], *arguments: Any) -> Any:
    # Evaluation has other shapes, and is too short to compile for.
    return (program if part.training else plain)(part, *arguments)
