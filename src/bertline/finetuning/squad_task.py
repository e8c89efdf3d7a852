"""SQuAD as a prepared task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import separators_in_pair
from bertline.files import write_json
from bertline.finetuning.digest import digest_of_examples
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.scoring import compute_scores
from bertline.finetuning.squad_answers import answer_questions, copy_position, most_frequent_answer, n_best
from bertline.finetuning.squad_windows import SquadFile, Windows, log_questions_cut_off, make_windows, read_squad
from bertline.tasks.lengths import check_overlap
from bertline.tasks.squad import SquadTask

logger = logging.getLogger(__name__)


def prepare_squad(
    task: SquadTask, data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PreparedTask:
    """Prepare SQuAD v1.1 or v2.0.

    Raises BertlineError for a bad file, one without an answer to train on, or windows that would not overlap.
    """
    check_overlap(settings, 2 + separators_in_pair(tokenizer))
    files = {split: read_squad(data[split], version_2=task.version == "v2") for split in ("train", "dev")}
    for split, file in files.items():
        if file.misplaced:
            logger.warning(
                "%s: questions without an answer that is at its offset: %d, the first is '%s'; %s",
                data[split],
                len(file.misplaced),
                file.misplaced[0],
                "training leaves them out" if split == "train" else "they are scored by the answer's text",
            )
    limits = {key: settings[key] for key in ("max_sequence_length", "doc_stride", "max_query_length")}
    windows = {
        split: make_windows(file, tokenizer, **limits, for_training=split == "train") for split, file in files.items()
    }
    for split, made in windows.items():
        log_questions_cut_off(split, made, len(files[split].questions), limits["max_query_length"])
    train, dev = windows["train"], windows["dev"]
    if len(train.sequences) == 0:
        raise BertlineError(f"{data['train']}: no question has an answer that is at its offset; name another file")
    dev_file, majority = files["dev"], most_frequent_answer(files["train"])
    baselines = {
        "majority": {question.id: majority for question in dev_file.questions},
        "copy_position": copy_position(train, dev_file, dev),
    }
    evaluate = partial(_evaluate, dev_file, dev, settings["max_answer_length"], task.version)
    return PreparedTask(
        head=task.head,
        outputs=2,
        primary="f1",
        train=train.sequences,
        train_targets=train.answer,
        predicted=(PredictedSet("dev", dev.sequences, evaluate, digest_of_examples(dev_file.labelled())),),
        baselines={name: _score(dev_file, texts, task.version)["f1"] for name, texts in baselines.items()},
        examples={
            "train": len(files["train"].questions) - train.unusable,
            "dev": len(dev_file.questions),
            "train_windows": len(train.sequences),
            "dev_windows": len(dev.sequences),
            "train_unusable": train.unusable,
            "train_misplaced": len(files["train"].misplaced),
            "dev_misplaced": len(dev_file.misplaced),
        },
    )


def _evaluate(
    squad: SquadFile, windows: Windows, max_answer_length: int, version: str, logits: np.ndarray
) -> Evaluation:
    answered = answer_questions(squad, windows, logits[:, 0], logits[:, 1], max_answer_length=max_answer_length)
    predictions = {question: found.best_text for question, found in answered.items()}
    null_odds = {question: found.null_difference for question, found in answered.items()}
    details: dict[str, float] = {}
    if version == "v2":
        threshold = _score(squad, predictions, version, null_odds)["best_f1_threshold"]
        predictions = {name: text if null_odds[name] <= threshold else "" for name, text in predictions.items()}
        details["null_threshold"] = threshold
    scores = _score(squad, predictions, version)

    def write(folder: Path) -> None:
        write_json(folder / "predictions.json", predictions)
        write_json(folder / "nbest.json", n_best(answered, with_null=version == "v2"))
        if version == "v2":
            write_json(folder / "null_odds.json", null_odds)

    kept = {
        name: value for name, value in scores.items() if name.endswith(("exact_match", "f1")) and "best" not in name
    }
    return Evaluation(kept, write, details)


def _score(
    squad: SquadFile, texts: Mapping[str, str], version: str, null_odds: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Score the `texts` of a file's questions by their ids; null_odds is the doubt in each, 0 if it is not given."""
    predictions: list[dict[str, Any]] = [{"id": name, "prediction_text": text} for name, text in texts.items()]
    if version == "v2":
        for given in predictions:
            given["no_answer_probability"] = null_odds[given["id"]] if null_odds else 0.0
    references = [
        {
            "id": question.id,
            "answers": {
                "text": [answer.text for answer in question.answers],
                "answer_start": [answer.start for answer in question.answers],
            },
        }
        for question in squad.questions
    ]
    return compute_scores("squad", version, predictions, references)
