"""Predictions of a fine-tuned model for new texts: classes, numbers, tags, and answers to questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import find_tokenizer, read_tokenizer, special_token_ids
from bertline.files import Json, read_json
from bertline.finetuning.loop import predict
from bertline.finetuning.prediction_options import check_finetuned
from bertline.finetuning.sequences import Inputs
from bertline.finetuning.squad_answers import QuestionAnswers, answer_questions
from bertline.finetuning.squad_windows import SquadFile, log_questions_cut_off, make_windows
from bertline.finetuning.tag_task import OUTSIDE, TaggedFile, log_words_cut_off, tag_inputs
from bertline.finetuning.text_task import sequences_of_texts
from bertline.modeling.architectures import architecture_of
from bertline.modeling.encoder import Encoder
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.huggingface import load_huggingface
from bertline.modeling.huggingface_config import (
    check_head,
    head_of,
    labels_of,
    max_length_of,
    names_of,
    read_configuration,
)
from bertline.modeling.pair_template import has_token_types, uses_token_types
from bertline.results import paths
from bertline.tasks.registry import TASKS, texts_of_task
from bertline.tasks.task import Head, TextTask
from bertline.training.objective import prepare_precision

# Settings for models of other programs, which lack task.json: Google's for SQuAD. Other heads read what fits.
SETTINGS = {"max_sequence_length": 384, "doc_stride": 128, "max_query_length": 64, "max_answer_length": 30}


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned network and everything that its predictions depend on.

    Attributes:
        network: on the device that computes.
        tokenizer: of its inputs.
        labels: names of its classes; empty for a regression and for answers.
        settings: max_sequence_length and, for answers, doc_stride, max_query_length and max_answer_length.
        task: the content of task.json; empty for a model of another program.
        precision: fp32, tf32, bf16 or fp16.
    """

    network: TaskNetwork
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    settings: Json
    task: Json
    precision: str

    @property
    def head(self) -> Head:
        """Kind of its outputs."""
        return self.network.kind

    @property
    def text_task(self) -> TextTask | None:
        """The registered task on texts that it was trained for; None for a table and for other models."""
        task = TASKS.get(self.task.get("task", ""))
        return task if isinstance(task, TextTask) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the one or two texts in a table of inputs."""
        return texts_of_task(self.task.get("task", ""), self.task.get("table"))

    def outputs(self, sequences: Inputs) -> np.ndarray:
        """Return the network's outputs as `predict` does."""
        return predict(self.network, sequences, special_token_ids(self.tokenizer)["[PAD]"], self.precision)


def load_finetuned(folder: Path, *, precision: str = "fp32", device: torch.device | None = None) -> FinetunedModel:
    """Load a fine-tuned BERT or ModernBERT in Hugging Face's layout, made by Bertline or by another program.

    Raises BertlineError if the folder does not exist, or its network has no head for a task or another kind of head.
    """
    path, device = folder / paths.CONFIG, device or torch.device("cpu")
    if not path.exists():
        raise BertlineError(f"{path} does not exist; name the folder of a fine-tuned model")
    head = check_finetuned(head_of(read_configuration(path), path), folder)
    config, weights = load_huggingface(folder, head)
    made = names_of(config).TASKS[head][0]
    if "classifier.weight" not in weights:
        raise BertlineError(f"{folder}/{paths.WEIGHTS} lacks the weights of the head of a {made}; get it again")
    outputs = len(weights["classifier.weight"])
    if outputs < 1 or (head == "answer" and outputs != 2):
        raise BertlineError(f"{folder}/{paths.WEIGHTS}: the head of a {made} has {outputs} outputs; get it again")
    if head == "sequence":
        check_head(path, outputs)
    network = architecture_of(config).task_network(config, head, outputs)
    missing = network.load_state_dict(weights, strict=False).missing_keys
    if missing:
        raise BertlineError(f"{folder}/{paths.WEIGHTS} lacks {missing[0]}, which a {made} has; get it again")
    prepare_precision(precision, device)
    tokenizer = read_tokenizer(find_tokenizer(folder))
    check_ids(folder, tokenizer, config.vocab_size)
    task = _read_task(folder / paths.FINETUNED_TASK)
    set_token_types(network.encoder, folder, tokenizer)
    settings = {**SETTINGS, **task.get("settings", {})}
    if "max_sequence_length" not in task.get("settings", {}) and head != "answer":
        settings["max_sequence_length"] = max_length_of(folder)
    settings["max_sequence_length"] = int(min(settings["max_sequence_length"], config.max_position_embeddings))
    labels = labels_of(path, head, outputs)
    equal = next((label for label in labels if labels.count(label) > 1), None)
    if equal is not None:
        raise BertlineError(f"{path}: id2label gives two classes the name '{equal}'; give them different ones")
    return FinetunedModel(
        network.to(device).eval(),
        tokenizer,
        labels,
        settings,
        task,
        precision,
    )


def check_ids(folder: Path, tokenizer: Tokenizer, size: int) -> None:
    """Raise BertlineError for a tokenizer with ids that the network in the folder has no embeddings for."""
    entry, largest = max(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    if largest >= size:
        raise BertlineError(
            f"{find_tokenizer(folder)}: its '{entry}' has the id {largest}, but the network has {size} tokens; "
            "put the tokenizer there that it was trained with"
        )


def set_token_types(encoder: Encoder, folder: Path, tokenizer: Tokenizer) -> None:
    """Let the encoder of a network in a folder ignore token types if transformers gives the second text none."""
    # Our own were trained with types, whatever an old template says.
    if not (folder / paths.FINETUNED_TASK).exists() and has_token_types(encoder.config):
        encoder.embeddings.has_token_types = uses_token_types(folder, tokenizer, encoder.config)


def _read_task(path: Path) -> Json:
    """Return the content of a task.json, {} if there is none. Raises BertlineError if it is of another form."""
    task = read_json(path) if path.exists() else {}
    parts = [task] + ([task.get("settings", {}), task.get("table", {})] if isinstance(task, dict) else [])
    if (
        not all(isinstance(part, dict) for part in parts)
        or not isinstance(task.get("task", ""), str)
        or not all(type(parts[1].get(key, 1)) is int and parts[1].get(key, 1) > 0 for key in SETTINGS)
        or not _are_texts(parts[2].get("texts", ["text"]))
        or type(parts[2].get("word", 0)) is not int
        or not isinstance(task.get("null_threshold", 0.0), int | float | None)
    ):
        raise BertlineError(f"{path} is not the description of a fine-tuned model; get it again, or delete it")
    return dict(task)


def _are_texts(given: object) -> bool:
    return isinstance(given, list) and 1 <= len(given) <= 2 and all(isinstance(one, str) for one in given)


def classify(model: FinetunedModel, texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the probabilities of the classes, or the number of a regression: float32 [N, outputs].

    An input is one text or two.
    """
    limit = model.settings["max_sequence_length"]
    outputs = model.outputs(sequences_of_texts("inputs", texts, model.tokenizer, limit))
    return torch.from_numpy(outputs).softmax(1).numpy() if model.labels else outputs


def tag(model: FinetunedModel, sentences: list[list[str]]) -> list[list[str]]:
    """Return the tags of each sentence's words; words beyond max_sequence_length are O."""
    file, limit = TaggedFile(sentences, sentences), model.settings["max_sequence_length"]
    inputs = tag_inputs(file, model.tokenizer, limit)
    log_words_cut_off("inputs", file, inputs, limit)
    chosen = model.outputs(inputs.sequences)[inputs.first_pieces].argmax(axis=1)
    return [
        [model.labels[index] for index in found] + [OUTSIDE] * (len(words) - len(found))
        for words, found in zip(sentences, np.split(chosen, np.cumsum(inputs.words_of)[:-1]), strict=True)
    ]


def answer(model: FinetunedModel, squad: SquadFile) -> dict[str, QuestionAnswers]:
    """Return the answers to the questions of a file, by id."""
    limits = {key: model.settings[key] for key in ("max_sequence_length", "doc_stride", "max_query_length")}
    windows = make_windows(squad, model.tokenizer, **limits, for_training=False)
    log_questions_cut_off("inputs", windows, len(squad.questions), limits["max_query_length"])
    logits = model.outputs(windows.sequences)
    longest = model.settings["max_answer_length"]
    return answer_questions(squad, windows, logits[:, 0], logits[:, 1], max_answer_length=longest)
