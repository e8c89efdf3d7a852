"""SQuAD as a prepared task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.sequences import SpecialTokens
from bertline.finetuning.squad import SquadFile, Windows, make_windows, read_squad
from bertline.finetuning.squad_answers import answer_questions, copy_position, most_frequent_answer, n_best
from bertline.finetuning.squad_metrics import best_null_threshold, leave_unanswered, score_squad

logger = logging.getLogger(__name__)

COUNTS = ("total", "missing", "unknown")  # what `score_squad` returns besides scores


def prepare_squad(
    task: str, data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer, special: SpecialTokens
) -> PreparedTask:
    """Prepare SQuAD v1.1 or v2.0. Raises BertlineError for a bad file, or one without an answer to train on."""
    version_2 = task == "squad_v2"
    files = {split: read_squad(data[split], version_2=version_2) for split in ("train", "dev")}
    for split, file in files.items():
        if file.misplaced:
            logger.warning(
                "%s: questions with an answer that is not at its offset: %d, the first is '%s'; %s",
                data[split],
                len(file.misplaced),
                file.misplaced[0],
                "training leaves them out" if split == "train" else "they are scored by the answer's text",
            )
    limits = {key: settings[key] for key in ("max_sequence_length", "doc_stride", "max_query_length")}
    windows = {
        split: make_windows(file, tokenizer, special, **limits, for_training=split == "train")
        for split, file in files.items()
    }
    train, dev = windows["train"], windows["dev"]
    if len(train.sequences) == 0:
        raise BertlineError(f"{data['train']}: no question has an answer that is at its offset; name another file")
    answers = {question.id: [answer.text for answer in question.answers] for question in files["dev"].questions}

    def score(predictions: dict[str, str]) -> float:
        return score_squad(answers, predictions, version_2=version_2)["f1"]

    def evaluate(logits: np.ndarray) -> Evaluation:
        return _evaluate(files["dev"], dev, answers, logits, settings["max_answer_length"], version_2)

    return PreparedTask(
        head="answer",
        outputs=2,
        primary="f1",
        train=train.sequences,
        train_targets=train.answer,
        predicted=(PredictedSet("dev", dev.sequences, evaluate),),
        baselines={
            "majority": score(dict.fromkeys(answers, most_frequent_answer(files["train"]))),
            "copy_position": score(copy_position(train, files["dev"], dev)),
        },
        examples={
            "train": len(files["train"].questions) - train.unusable,
            "dev": len(answers),
            "train_windows": len(train.sequences),
            "dev_windows": len(dev.sequences),
            "train_unusable": train.unusable,
            "train_misplaced": len(files["train"].misplaced),
            "dev_misplaced": len(files["dev"].misplaced),
        },
        special=special,
        vocabulary=tokenizer.get_vocab_size(),
    )


def _evaluate(
    squad: SquadFile,
    windows: Windows,
    answers: dict[str, list[str]],
    logits: np.ndarray,
    max_answer_length: int,
    version_2: bool,
) -> Evaluation:
    answered = answer_questions(squad, windows, logits[:, 0], logits[:, 1], max_answer_length=max_answer_length)
    predictions = {question: found.best_text for question, found in answered.items()}
    null_odds = {question: found.null_difference for question, found in answered.items()}
    details: dict[str, float] = {}
    if version_2:
        threshold = best_null_threshold(answers, predictions, null_odds)
        predictions = leave_unanswered(predictions, null_odds, threshold)
        details["null_threshold"] = threshold
    scores = score_squad(answers, predictions, version_2=version_2)

    def write(folder: Path) -> None:
        write_json(folder / "predictions.json", predictions)
        write_json(folder / "nbest.json", n_best(answered, with_null=version_2))
        if version_2:
            write_json(folder / "null_odds.json", null_odds)

    return Evaluation({name: value for name, value in scores.items() if name not in COUNTS}, write, details)
