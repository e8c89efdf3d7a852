"""A model for MLflow that answers questions: the code that MLflow stores with the weights and loads, without Bertline.

Transformers no longer has a pipeline for question answering. The windows and the choice of the answer are those of
Google's run_squad.py, as in `bertline.finetuning.squad_answers`.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd  # MLflow's inputs; one of its dependencies
import torch
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

COLUMNS = ["question", "context"]


class QuestionAnswering(PythonModel):
    """Answers the rows of a table with the columns `question` and `context`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the network, its tokenizer and, from task.json, the lengths and the threshold of "no answer"."""
        folder = context.artifacts["model"]
        task = json.loads(Path(folder, "task.json").read_text(encoding="utf-8"))
        self.settings, self.null_threshold = task["settings"], task.get("null_threshold")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
        # Between question and context: two in RoBERTa's template, one in BERT's.
        template = self.tokenizer("a", "a")["input_ids"]
        self.separators = template.count(self.tokenizer.sep_token_id) - 1

    def predict(self, context: PythonModelContext, model_input: pd.DataFrame, params: Any = None) -> list[str]:
        """Return a text of the context for each row of a data frame; "" for no answer.

        MLflow makes one row with two lists of {"question": [...], "context": [...]}. Raises ValueError for lists of
        different lengths, and for a cell that is not a text.
        """
        rows = model_input[COLUMNS].explode(COLUMNS)
        for column in COLUMNS:
            for number, cell in enumerate(rows[column]):
                if not isinstance(cell, str):
                    raise ValueError(f"row {number} of the column {column} is {cell}, not a text")
        return [self.answer(*row) for row in rows.itertuples(index=False)]

    def answer(self, question: str, context: str) -> str:
        """Return the best answer over all windows of a context."""
        query = self.tokenizer(question, add_special_tokens=False)["input_ids"][: self.settings["max_query_length"]]
        encoded = self.tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)
        tokens, spans = encoded["input_ids"], encoded["offset_mapping"]
        windows = self.windows(len(tokens), self.settings["max_sequence_length"] - len(query) - 2 - self.separators)
        starts, ends = self.logits(query, [tokens[first:last] for first, last in windows])
        shift = len(query) + 1 + self.separators
        best, text = -torch.inf, ""
        for number, (first, last) in enumerate(windows):
            part = slice(shift, shift + last - first)
            chosen = torch.tensor([most_context(windows, token) == number for token in range(first, last)])
            scores = starts[number, part].masked_fill(~chosen.bool(), -torch.inf)[:, None] + ends[number, part]
            allowed = torch.ones_like(scores).triu().tril(self.settings["max_answer_length"] - 1).bool()
            scores = scores.masked_fill(~allowed, -torch.inf)
            for index in scores.flatten().argsort(descending=True, stable=True).tolist():
                start, end = divmod(index, last - first)
                if scores[start, end] <= best:
                    break
                found = text_between(context, spans[first + start][0], spans[first + end][1])
                if found:  # white space is no answer
                    best, text = float(scores[start, end]), found
                    break
        null = float((starts[:, 0] + ends[:, 0]).min())
        unanswered = self.null_threshold is not None and null - best > self.null_threshold
        return "" if unanswered else text

    def windows(self, tokens: int, room: int) -> list[tuple[int, int]]:
        """Return the parts of a context, one every `doc_stride` tokens until one reaches its end."""
        found = [(0, min(room, tokens))]
        while found[-1][1] < tokens:
            first = found[-1][0] + min(room, self.settings["doc_stride"])
            found.append((first, min(first + room, tokens)))
        return found

    def logits(self, query: list[int], parts: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Return the start and end logits of query and part for each part, float32 [parts, S] each."""
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        begin = [cls, *query, *[sep] * self.separators]
        rows = [[*begin, *part, sep] for part in parts]
        inputs = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        if "token_type_ids" in self.tokenizer.model_input_names:
            places = torch.arange(inputs["input_ids"].shape[1])
            inputs["token_type_ids"] = ((places >= len(begin)) & inputs["attention_mask"].bool()).long()
        with torch.inference_mode():
            outputs = self.network(**inputs)
        return outputs.start_logits, outputs.end_logits


def text_between(context: str, start: int, stop: int) -> str:
    """Return the text of tokens, with the marks that a vocabulary without accents leaves out."""
    while stop > start and stop < len(context) and unicodedata.category(context[stop]) == "Mn":
        stop += 1
    return context[start:stop].strip()


def most_context(windows: list[tuple[int, int]], token: int) -> int:
    """Return the window with the most context on both sides of a token, the first of equals."""
    scores = [
        min(token - first, last - 1 - token) + 0.01 * (last - first) if first <= token < last else -1.0
        for first, last in windows
    ]
    return scores.index(max(scores))


set_model(QuestionAnswering())
