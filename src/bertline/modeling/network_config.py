"""Configuration of a network's shape, shared by all architectures."""

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
                raise BertlineError(f"model: {field.name}: given {value}, allowed are {smallest} to {largest}")
        if self.hidden_size % self.num_attention_heads:
            raise BertlineError(
                f"model: hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; change one of them"
            )

    def check_choice(self, key: str, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
        """Raise BertlineError if the value of `key` is not allowed."""
        if getattr(self, key) not in allowed:
            raise BertlineError(f"model: {key} given '{getattr(self, key)}', allowed are {', '.join(allowed)}")

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
                    f"model: unknown key '{key}'; of the architecture {cls.architecture} allowed are {', '.join(known)}"
                )
            wanted = str(known[key].type)
            if not isinstance(value, TYPES[wanted]) or isinstance(value, bool):
                raise BertlineError(f"model: {key}: given {reprlib.repr(value)}, allowed is of type {wanted}")
            values[key] = value
        if "vocab_size" not in values:
            raise BertlineError("model: the key 'vocab_size' is missing; it is the tokenizer's number of entries")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the architecture, the keys and the values, as `from_dict` takes them."""
        return {"architecture": self.architecture, **dataclasses.asdict(self)}
