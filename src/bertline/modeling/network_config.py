"""Configurations of the networks, without PyTorch, because the graph checks them at every start."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertline.console import BertlineError

TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}
# Smallest and largest values; beyond them a network cannot be built, or only by a file that is not what it seems.
LIMITS: dict[str, tuple[float, float]] = {
    "vocab_size": (1, 2**22),
    "hidden_size": (1, 2**16),
    "num_hidden_layers": (1, 1000),
    "num_attention_heads": (1, 2**16),
    "intermediate_size": (1, 2**20),
    "max_position_embeddings": (1, 2**20),
    "type_vocab_size": (1, 2**16),
    "hidden_dropout_prob": (0, 1),
    "attention_probs_dropout_prob": (0, 1),
    "layer_norm_eps": (1e-30, 1),
    "norm_eps": (1e-30, 1),
    "initializer_range": (1e-30, 1e6),
    "initializer_cutoff_factor": (1e-30, 1e6),
    "global_rope_theta": (1e-30, 1e30),
}
# Matrix units need a vocabulary dimension that is a multiple of this.
VOCABULARY_MULTIPLE = 64
ACTIVATIONS = ("gelu", "gelu_new", "relu")
# What determines the shapes of a network's layers, and of the tables that only networks with learned positions have.
SHAPE = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
LEARNED = ("max_position_embeddings", "type_vocab_size")
# What else determines what a network computes from its weights.
COMPUTATION = ("hidden_act", "hidden_activation", "layer_norm_eps", "norm_eps")


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of a network; keys are those of a Hugging Face config.json, defaults those of BERT-base."""

    architecture: ClassVar[str]

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            smallest, largest = LIMITS.get(field.name, (value, value))
            if not smallest <= value <= largest:  # which NaN is not, either
                raise BertlineError(f"{field.name}: given {value}, allowed are {smallest} to {largest}")
        if self.hidden_size % self.num_attention_heads:
            raise BertlineError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; change one of them"
            )

    def check_choice(self, key: str, allowed: tuple[str, ...]) -> None:
        """Raise BertlineError if the value of `key` is not allowed."""
        if getattr(self, key) not in allowed:
            raise BertlineError(f"{key}: given '{getattr(self, key)}', allowed are {', '.join(allowed)}")

    @property
    def padded_vocab_size(self) -> int:
        """Number of rows of the embedding table: `vocab_size` rounded up to a multiple of 64."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Make a configuration from its keys. Raises BertlineError for an unknown key or a value of a wrong type."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in settings.items():
            if key == "architecture" and value == cls.architecture:
                continue
            if key not in known:
                raise BertlineError(
                    f"unknown key '{key}'; of the architecture {cls.architecture} allowed are {', '.join(known)}"
                )
            wanted = str(known[key].type)
            if not isinstance(value, TYPES[wanted]) or isinstance(value, bool):
                raise BertlineError(f"{key}: given {reprlib.repr(value)}, allowed is of type {wanted}")
            values[key] = value
        if "vocab_size" not in values:
            raise BertlineError("the key 'vocab_size' is missing; it is the tokenizer's number of entries")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the architecture, the keys and the values, as `from_dict` takes them."""
        return {"architecture": self.architecture, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class BertConfig(NetworkConfig):
    """The shape of a BERT; keys and defaults are those of a Hugging Face config.json (BERT-base)."""

    architecture: ClassVar[str] = "bert"
    has_token_types: ClassVar[bool] = True

    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    # Not in Hugging Face's: initial values of the learned positions, "normal" as published or "sinusoidal".
    position_initialization: str = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_choice("hidden_act", ACTIVATIONS)
        self.check_choice("position_initialization", ("normal", "sinusoidal"))


@dataclasses.dataclass(frozen=True)
class ModernConfig(NetworkConfig):
    """The shape of a modern network; keys and defaults are those of transformers' ModernBertConfig (ModernBERT-base).

    Rotary positions need no table: `max_position_embeddings` is only the maximum length of an input. ModernBERT was
    pretrained at 1,024 tokens with theta 10,000, and with 160,000 only beyond that.
    """

    architecture: ClassVar[str] = "modern"

    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    hidden_activation: str = "gelu"
    norm_eps: float = 1e-5
    global_rope_theta: float = 160_000.0
    initializer_cutoff_factor: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_choice("hidden_activation", ACTIVATIONS)
        if self.hidden_size // self.num_attention_heads % 2:
            raise BertlineError(
                f"hidden_size {self.hidden_size} divided by num_attention_heads {self.num_attention_heads} is "
                "odd, and rotary positions turn pairs; change one of them"
            )


@dataclasses.dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """The shape of a RoBERTa; keys are those of a Hugging Face config.json.

    Except that `max_position_embeddings` is the longest input, without the positions that transformers leaves unused.
    """

    architecture: ClassVar[str] = "roberta"
    has_token_types: ClassVar[bool] = False  # whatever `type_vocab_size` is, its tokenizers give no ids of types

    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5


DEFAULT = "bert"
CONFIGURATIONS: dict[str, type[NetworkConfig]] = {
    config.architecture: config for config in (BertConfig, ModernConfig, RobertaConfig)
}


def config_from_dict(settings: Mapping[str, Any], where: str = "model") -> NetworkConfig:
    """Make the configuration of a model's description; without `architecture` it is BERT's.

    Raises BertlineError, beginning with `where`, for an unknown architecture or key and for a value that is not
    allowed.
    """
    name = settings.get("architecture", DEFAULT)
    if name not in CONFIGURATIONS:
        raise BertlineError(f"{where}: architecture: given {name!r}, allowed are {', '.join(CONFIGURATIONS)}")
    try:
        return CONFIGURATIONS[name].from_dict(settings)
    except BertlineError as error:
        raise BertlineError(f"{where}: {error}") from None


def shape_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines the shapes of a network's layers: `architecture`, sizes and numbers."""
    architecture = model.get("architecture", DEFAULT)
    # The rotary positions of the modern network need no table.
    keys = SHAPE if architecture == "modern" else (*SHAPE, *LEARNED)
    return {"architecture": architecture, **{key: value_of(model, key) for key in keys}}


def value_of(model: Mapping[str, Any], key: str) -> Any:
    """Return a model's value of a key, by default its architecture's; None of a key that the architecture lacks."""
    return model.get(key, getattr(CONFIGURATIONS[model.get("architecture", DEFAULT)], key, None))


def check_same_network(theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, beginning with `where`, if the weights of one network compute something else in the other.

    Dropout, initial values, the vocabulary and the theta of rotary positions, which a later phase may raise for longer
    inputs, may differ.
    """
    differing = [
        f"{key} is {there} there and {here} here"
        for key in (*shape_of(ours), *COMPUTATION)
        if (there := value_of(theirs, key)) != (here := value_of(ours, key)) and None not in (there, here)
    ]
    if differing:
        raise BertlineError(
            f"{where}: another network ({', '.join(differing)}); start from weights of the same network, or correct "
            "the model"
        )
