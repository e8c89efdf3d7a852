"""Scores published by BERT's authors, for comparison.

Source: Devlin et al. 2018, arXiv 1810.04805, tables 1 to 3. SQuAD: single models on the development sets. GLUE: on the
test sets, scored by the evaluation server, so that they are close to, but not the same as, development scores.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A score of BERT-base and of BERT-large, in percent; None where none was published."""

    base: float | None
    large: float | None


SOURCE = "Devlin et al. 2018, arXiv 1810.04805: GLUE on the test sets, SQuAD on the development sets"

PUBLISHED_SCORES = {  # by group and score
    ("squad_v1", "exact_match"): Published(80.8, 84.1),
    ("squad_v1", "f1"): Published(88.5, 90.9),
    ("squad_v2", "exact_match"): Published(None, 78.7),
    ("squad_v2", "f1"): Published(None, 81.9),
    ("glue/cola", "matthews"): Published(52.1, 60.5),
    ("glue/sst2", "accuracy"): Published(93.5, 94.9),
    ("glue/mrpc", "f1"): Published(88.9, 89.3),
    ("glue/stsb", "spearman"): Published(85.8, 86.5),
    ("glue/qqp", "f1"): Published(71.2, 72.1),
    ("glue/mnli", "accuracy"): Published(84.6, 86.7),
    ("glue/mnli", "accuracy_mismatched"): Published(83.4, 85.9),
    ("glue/qnli", "accuracy"): Published(90.5, 92.7),
    ("glue/rte", "accuracy"): Published(66.4, 70.1),
}
