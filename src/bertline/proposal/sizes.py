"""Sizes of a first configuration: the vocabulary, the network and its phases, for a text, a machine and a time.

They interpolate between two recipes: config/mini.yaml, for some megabytes on two cores, and config/one-gpu-day.yaml,
for a Wikipedia on a GPU. The network is the largest one that sees TOKENS_PER_PARAMETER tokens for each weight of its
layers (Hoffmann et al. 2022, arXiv 2203.15556) in the available time, reading the text at most EPOCHS times, as often
as BERT read its own (Devlin et al. 2019, arXiv 1810.04805).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bertline.console import BertlineError
from bertline.proposal.machine import Machine

TOKENS_PER_PARAMETER = 20
EPOCHS = 40
# The default time for up to DEFAULT_BYTES of text, with the proposal itself a quarter of an hour; proportionally more
# for more text, and at most a day.
DEFAULT_SECONDS, DEFAULT_BYTES, MAX_SECONDS = 840.0, 10e6, 86400.0
# config/mini.yaml: 4,096 tokens for 5 MB of text; BERT's 30,522 are reached at 15 GB.
VOCABULARY, VOCABULARY_CHARACTERS, VOCABULARY_EXPONENT = 4096, 5e6, 0.25
MIN_VOCABULARY, MAX_VOCABULARY = 1024, 30522
# Tokens of a global batch: 2,048 for the 7.3 million of config/mini.yaml, 524,288 for the 36.7 billion of
# config/one-gpu-day.yaml, and powers of two between.
BATCH, BATCH_OF_TOKENS, BATCH_EXPONENT = 2048, 7.3e6, 0.65
MAX_BATCH = 1 << 19
MIN_STEPS = 20
MASKED = 0.3
SECONDS_TO_COMPILE = 1200.0  # of training, from which compiling, a minute, pays
COMPILED_GAIN = 1.25  # on a CPU; 1.38 measured of BERT-mini on a quiet machine
# What a network takes besides its activations: weights, gradients and two moments; a process of PyTorch.
BYTES_PER_WEIGHT, BYTES_PER_PROCESS = 16, 700_000_000
MEMORY_SHARE = 0.7
MAX_PROCESSES = 16
CPU_MICRO_BATCH = 1024  # tokens: few fit a CPU's caches
# Measured on one core of an AMD EPYC: jobs of the graph before and after training, and the stages from text to samples.
JOBS_OF_PART = 3  # reading, splitting into sentences, signatures
SECONDS_PER_JOB, SECONDS_PER_MEGABYTE, SECONDS_OF_VOCABULARY = 7.0, 0.5, 0.8
SECONDS_OF_FINE_TUNINGS = 60.0  # of the six that a table gets, besides their steps
VOCABULARY_MEGABYTES = 300  # that a vocabulary is trained on
HELD_OUT_SHARE, HELD_OUT_BYTES, HELD_OUT_DOCUMENTS = 0.05, 5e6, 2
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class Network(NamedTuple):
    """A network's shape, and the settings known to train one of its size."""

    name: str
    layers: int
    hidden: int
    learning_rate: float
    optimizer: str
    fine_tuning_rate: float

    @property
    def shape(self) -> dict[str, int]:
        """Its keys in a configuration."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.hidden // 64,
            "intermediate_size": 4 * self.hidden,
        }

    @property
    def weights(self) -> int:
        """Number of weights of the layers' matrices."""
        return 12 * self.layers * self.hidden**2

    def all_weights(self, vocab_size: int) -> int:
        """Return the number of weights, embeddings included."""
        return self.weights + (vocab_size + 512) * self.hidden

    def flops_per_token(self, vocab_size: int, length: int) -> float:
        """Return the operations of a training step per token, see `bertline.training.flops`."""
        from bertline.training.flops import flops_of_a_sample  # PyTorch takes seconds, and other commands need none

        description = {**self.shape, "vocab_size": vocab_size}
        return flops_of_a_sample(description, length=length, masked=MASKED * length) / length


# The shapes of Google's BERTs (Turc et al. 2019, arXiv 1908.08962). Muon as in config/mini.yaml, AdamW from base on.
NETWORKS = (
    Network("bert-tiny", 2, 128, 3.0e-3, "muon", 5.0e-4),
    Network("4 layers of 128", 4, 128, 3.0e-3, "muon", 5.0e-4),
    Network("bert-mini", 4, 256, 2.0e-3, "muon", 3.0e-4),
    Network("bert-small", 4, 512, 1.0e-3, "muon", 1.0e-4),
    Network("bert-medium", 8, 512, 1.0e-3, "muon", 1.0e-4),
    Network("bert-base", 12, 768, 5.0e-4, "adamw", 5.0e-5),
    Network("bert-large", 24, 1024, 4.0e-4, "adamw", 2.0e-5),
)
REFERENCE = NETWORKS[2]  # whose measured speed predicts the others'


class Amount(NamedTuple):
    """An amount of text, and the number of parts in which jobs read it."""

    bytes: int  # UTF-8
    characters: int
    tokens: int
    documents: int
    parts: int


class Phase(NamedTuple):
    """A phase of training. `seconds` are those of its steps."""

    sequence_length: int
    sequences: int  # of a global batch
    steps: int
    learning_rate: float
    warmup: int
    seconds: float


@dataclass(frozen=True)
class Proposal:
    """Sizes that fit. Times in seconds.

    Attributes:
        processes, micro_batch_tokens: on this machine; None is auto.
        wanted_seconds: the time that was given for everything.
        other_seconds: of everything but the training's steps.
        limit: why training is not longer: the time, or the text.
        epochs: how often the text is read.
        batch: tokens of a global batch.
    """

    network: Network
    vocab_size: int
    phases: tuple[Phase, ...]
    shards: int
    held_out: float
    precision: str
    processes: int
    micro_batch_tokens: int | None
    compiled: bool
    wanted_seconds: float
    other_seconds: float
    limit: str
    epochs: float
    batch: int

    @property
    def seconds(self) -> float:
        """From the text to the report."""
        return self.other_seconds + sum(phase.seconds for phase in self.phases)

    @property
    def tokens(self) -> int:
        """Tokens that are trained on, repetitions included."""
        return sum(phase.steps * phase.sequences * phase.sequence_length for phase in self.phases)


def seconds_of(time: str) -> float:
    """Parse a time such as 15m, 2h or 1d. Raises BertlineError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h|d)", time.replace(" ", ""))
    if not match or not float(match[1]):
        raise BertlineError(f"TIME={time}: give a number and s, m, h or d, such as 15m, 2h or 1d")
    return float(match[1]) * UNITS[match[2]]


def default_seconds(size: int) -> float:
    """Return the time for so many bytes of text."""
    return min(MAX_SECONDS, DEFAULT_SECONDS * max(1.0, size / DEFAULT_BYTES))


def vocabulary_size(characters: int, alphabet: int) -> int:
    """Return the size of a vocabulary for a text, at least twice its alphabet: half is left for words."""
    grown = VOCABULARY * (characters / VOCABULARY_CHARACTERS) ** VOCABULARY_EXPONENT
    size = min(max(grown, MIN_VOCABULARY, 2 * alphabet), MAX_VOCABULARY)
    return MAX_VOCABULARY if size == MAX_VOCABULARY else 64 * round(size / 64)


def processes_for(network: Network, vocab_size: int, machine: Machine, batch: int = MAX_BATCH) -> int:
    """Return how many processes train: one a GPU, or one a core, as memory allows; 0 if not even one fits.

    Args:
        batch: tokens of a global batch. On CPUs a process without a micro-batch of its own would only wait.
    """
    needed = BYTES_PER_WEIGHT * network.all_weights(vocab_size)
    if machine.gpus:
        return len(machine.gpus) if 2 * needed < MEMORY_SHARE * machine.gpu_memory else 0
    fitting = MEMORY_SHARE * machine.memory // (BYTES_PER_PROCESS + 2 * needed)
    return int(min(machine.cores, MAX_PROCESSES, fitting, max(1, batch // CPU_MICRO_BATCH)))


def micro_batch_for(machine: Machine) -> int | None:
    """Return the tokens that a process computes at once: few fit a CPU's caches, on a GPU the trainer finds them."""
    return None if machine.gpus else CPU_MICRO_BATCH


def precision_for(machine: Machine) -> str:
    """Return the precision that is fast on a machine."""
    return "bf16" if machine.has_fast_bf16 else "fp16" if machine.gpus else "fp32"


def batch_for(tokens: float) -> int:
    """Return the tokens of a global batch for a training of so many tokens."""
    wanted = BATCH * (tokens / BATCH_OF_TOKENS) ** BATCH_EXPONENT
    return int(min(MAX_BATCH, max(BATCH, 2 ** round(math.log2(max(1.0, wanted))))))


def propose(
    text: Amount,
    vocab_size: int,
    machine: Machine,
    *,
    seconds: float,
    speed: Callable[[Network, int, int], float],
    fine_tuned_tokens: float = 0.0,
) -> Proposal:
    """Choose the sizes.

    Args:
        vocab_size: as `vocabulary_size` returns it; `text.tokens` are of this vocabulary.
        seconds: the time for everything.
        speed: tokens per second on this machine in training a network, not compiled, by the sequence length and the
            tokens of a global batch.
        fine_tuned_tokens: tokens of all steps of all fine-tunings, 0 without any.

    Raises BertlineError if memory or disk are too small for any network.
    """
    shards = _shards(text, machine)
    fitting = _fitting(vocab_size, machine)
    _check_disk(text, machine)
    other = _seconds_of_data(text, shards, machine)
    reference_batch = (
        131072 * len(machine.gpus) if machine.gpus else CPU_MICRO_BATCH * min(machine.cores, MAX_PROCESSES)
    )
    rate = speed(REFERENCE, 128, max(BATCH, reference_batch)) * REFERENCE.flops_per_token(vocab_size, 128)

    def expected_speed(network: Network) -> float:
        return rate / network.flops_per_token(vocab_size, 128)

    def sees_enough(network: Network) -> bool:
        fine_tunings = _seconds_of_fine_tunings(fine_tuned_tokens, expected_speed(network))
        left = _for_training(seconds, other + fine_tunings)
        seen = min(left * _gain(left, machine) * expected_speed(network), EPOCHS * text.tokens)
        return seen >= TOKENS_PER_PARAMETER * network.weights

    # Only the chosen one is timed: trials of large networks take minutes.
    chosen = next(filter(sees_enough, reversed(fitting)), fitting[0])
    if fine_tuned_tokens:
        other += _seconds_of_fine_tunings(fine_tuned_tokens, speed(chosen, 128, BATCH))
    left = _for_training(seconds, other)
    compiled, gain = _is_compiled(left, machine), _gain(left, machine)
    # Attention over 128 positions learns nothing for long in a small network, over 32 it soon does.
    lengths = ((32, 0.7), (128, 0.3)) if chosen.hidden <= REFERENCE.hidden else ((128, 0.9), (512, 0.1))
    batch = batch_for(min(left * gain * expected_speed(chosen), EPOCHS * text.tokens))
    speeds = {length: gain * speed(chosen, length, batch) for length, _ in lengths}
    per_token = sum(share / speeds[length] for length, share in lengths)
    tokens = min(left / per_token, EPOCHS * text.tokens)
    rates = (chosen.learning_rate, 0.75 * chosen.learning_rate)
    phases = tuple(
        _phase(length, batch, share * tokens, learning_rate, speeds[length])
        for (length, share), learning_rate in zip(lengths, rates, strict=True)
    )
    return Proposal(
        network=chosen,
        vocab_size=vocab_size,
        phases=phases,
        shards=shards,
        held_out=_held_out(text),
        precision=precision_for(machine),
        processes=processes_for(chosen, vocab_size, machine, batch),
        micro_batch_tokens=micro_batch_for(machine),
        compiled=compiled,
        wanted_seconds=seconds,
        other_seconds=other + (60.0 * len(phases) if compiled else 0.0),
        limit="text" if tokens < left / per_token else "time",
        epochs=sum(phase.steps * phase.sequences * phase.sequence_length for phase in phases) / max(1, text.tokens),
        batch=batch,
    )


def _fitting(vocab_size: int, machine: Machine) -> list[Network]:
    """Return the networks that memory suffices for. Raises BertlineError if there is none."""
    fitting = [network for network in NETWORKS if processes_for(network, vocab_size, machine)]
    if not fitting:
        free = f"{(machine.gpu_memory or machine.memory) / 1e9:.1f} GB"
        raise BertlineError(
            f"{free} of memory are too little for the smallest network; close programs, or take another machine"
        )
    return fitting


def _phase(length: int, batch: int, tokens: float, learning_rate: float, speed: float) -> Phase:
    """Return a phase of about so many `tokens`, `batch` of them in a global batch, at so many a second."""
    sequences = max(1, batch // length)
    steps = max(MIN_STEPS, round(tokens / (sequences * length)))
    return Phase(
        sequence_length=length,
        sequences=sequences,
        steps=steps,
        learning_rate=learning_rate,
        warmup=max(1, round(0.06 * steps)),
        seconds=steps * sequences * length / speed,
    )


def _for_training(seconds: float, other: float) -> float:
    return max(0.25 * seconds, seconds - other)


def _seconds_of_fine_tunings(tokens: float, tokens_per_second: float) -> float:
    return SECONDS_OF_FINE_TUNINGS + tokens / tokens_per_second if tokens else 0.0


def _is_compiled(seconds: float, machine: Machine) -> bool:
    """Return whether compiling pays for a training of so many seconds."""
    return seconds >= SECONDS_TO_COMPILE and (bool(machine.gpus) or machine.has_compiler)


def _gain(seconds: float, machine: Machine) -> float:
    """Return by how many times compiling makes a training of so many seconds faster."""
    return COMPILED_GAIN if _is_compiled(seconds, machine) and not machine.gpus else 1.0


def _shards(text: Amount, machine: Machine) -> int:
    """Return the number of shards: of 200 MB; of a text that takes a while, at least one for each core."""
    for_cores = min(machine.cores, int(text.bytes // 20e6))
    return max(
        1, min(math.ceil(text.bytes / 200e6) if text.bytes > 200e6 * machine.cores else for_cores, text.documents)
    )


def _held_out(text: Amount) -> float:
    """Return the share of the documents that are held out: 5 percent of little text, about 5 MB of much.

    Of few documents it is that of two, so that there is one, and at most a fifth.
    """
    share = min(HELD_OUT_SHARE, max(0.0005, HELD_OUT_BYTES / max(1, text.bytes)))
    return float(f"{max(share, min(0.2, HELD_OUT_DOCUMENTS / text.documents)):.1g}")


def _seconds_of_data(text: Amount, shards: int, machine: Machine) -> float:
    """Return the time of all jobs but the trainings."""
    megabytes = text.bytes / 1e6
    parallel = min(machine.cores, 8)
    jobs = 18 + 2 * shards + JOBS_OF_PART * text.parts
    vocabulary = SECONDS_OF_VOCABULARY * min(megabytes, VOCABULARY_MEGABYTES)
    return jobs * SECONDS_PER_JOB / parallel + megabytes * SECONDS_PER_MEGABYTE / machine.cores + vocabulary


def _check_disk(text: Amount, machine: Machine) -> None:
    needed = 4 * text.bytes + 2.2 * 2 * text.tokens + 1e9
    if needed > machine.disk:
        raise BertlineError(
            f"the disk of this folder has {machine.disk / 1e9:.1f} GB left; about {needed / 1e9:.1f} GB are needed"
            "; free some, or work in a folder on another disk"
        )
