"""How well the form of a sample, without its meaning, predicts whether its second segment is random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from bertline.encoding.layout import SampleFile, open_samples

FREQUENT_TOKENS = 200


def leak_of_files(files: Sequence[Path]) -> float:
    """Return `leak` of all samples of some files, of which the documents of every second one are tested on."""
    opened = [open_samples(path) for path in files]
    features = np.concatenate([features_of(file) for file in opened])
    labels = np.concatenate([file.next_sentence_labels for file in opened])
    documents = np.concatenate([file.document_index for file in opened])
    return leak(features, labels, documents)


def features_of(file: SampleFile) -> np.ndarray:
    """Return int64 [samples, 5]: length, that of the second segment, whether it is full, and the last two tokens."""
    ends = file.sample_offsets[1:].astype(np.int64) - 1  # of [SEP]
    lengths = np.diff(file.sample_offsets).astype(np.int64)
    second = lengths - file.second_segment_start - 1
    full = lengths == file.attributes["sequence_length"]
    tokens = [file.input_ids[ends - back].astype(np.int64) for back in (1, 2)]
    return np.stack([lengths, second, full, *tokens], axis=1)


def leak(features: np.ndarray, labels: np.ndarray, documents: np.ndarray) -> float:
    """Return the area under the ROC curve of gradient boosting on the documents of odd index, trained on the others.

    0.5 is chance, 1 certainty. `features` are those of `features_of`, labels and documents [samples].
    """
    for column in (3, 4):
        tokens, counts = np.unique(features[:, column], return_counts=True)
        frequent = tokens[np.argsort(-counts, kind="stable")][:FREQUENT_TOKENS]
        order = np.argsort(frequent)
        found = np.minimum(np.searchsorted(frequent[order], features[:, column]), len(frequent) - 1)
        features[:, column] = np.where(frequent[order][found] == features[:, column], found, FREQUENT_TOKENS)
    tested = documents % 2 == 1
    model = HistGradientBoostingClassifier(max_iter=60, categorical_features=[3, 4], random_state=1)
    model.fit(features[~tested], labels[~tested])
    return float(roc_auc_score(labels[tested], model.predict_proba(features[tested])[:, 1]))
