"""Registry of the networks, by the `architecture` of a model's description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertline.modeling import bert, modern
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.modern import ModernForPreTraining
from bertline.modeling.network_config import NetworkConfig
from bertline.modeling.roberta import RobertaForPreTraining
from bertline.tasks.task import Head

PreTrainingNetwork = BertForPreTraining | ModernForPreTraining | RobertaForPreTraining


@dataclass(frozen=True)
class Architecture:
    """The classes of a network. Networks for the same purpose share a calling convention."""

    pretraining: Callable[[Any], PreTrainingNetwork]
    task_network: Callable[[Any, Head, int], TaskNetwork]


ARCHITECTURES = {
    "bert": Architecture(BertForPreTraining, bert.make_task_network),
    "modern": Architecture(ModernForPreTraining, modern.make_task_network),
    "roberta": Architecture(RobertaForPreTraining, bert.make_task_network),
}


def architecture_of(config: NetworkConfig) -> Architecture:
    """Return the architecture of a configuration."""
    return ARCHITECTURES[config.architecture]
