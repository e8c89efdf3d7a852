"""SQuAD's exact match and F1 for `evaluate.load`; the config is `v1` or `v2`."""

from typing import Any

import datasets
import evaluate

from bertline.finetuning.squad_metrics import best_null_threshold, leave_unanswered, score_squad


class SquadMetrics(evaluate.Metric):
    """Exact match and F1 in percent, by question id; a question without a prediction counts as wrong.

    With `v2`, also HasAns and NoAns, and the best score that any threshold on no_answer_probability gives.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in ("v1", "v2"):
            raise ValueError(f"config_name {self.config_name!r} is none of v1, v2")
        predictions = {"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}
        if self.config_name == "v2":
            predictions["no_answer_probability"] = datasets.Value("float64")
        answers = {"text": [datasets.Value("string")], "answer_start": [datasets.Value("int64")]}
        references = {"id": datasets.Value("string"), "answers": answers}
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions and references as in the metrics 'squad' and 'squad_v2' of the Hub",
            features=datasets.Features({"predictions": predictions, "references": references}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        answers = {given["id"]: given["answers"]["text"] for given in references}
        texts = {given["id"]: given["prediction_text"] for given in predictions}
        if self.config_name == "v1":
            return score_squad(answers, texts)
        scores = score_squad(answers, texts, version_2=True)
        doubts = {given["id"]: given["no_answer_probability"] for given in predictions}
        for name in ("exact_match", "f1"):
            threshold = best_null_threshold(answers, texts, doubts, score=name)
            left = leave_unanswered(texts, doubts, threshold)
            scores[f"best_{name}"] = score_squad(answers, left, version_2=True)[name]
            scores[f"best_{name}_threshold"] = threshold
        return scores
