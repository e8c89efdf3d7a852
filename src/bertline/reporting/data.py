"""Rows of the report's tables on a dataset, from its data card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertline.results.describe import by_length

Row = dict[str, Any]
Card = Mapping[str, Any]


def corpus_rows(card: Card) -> list[Row]:
    """Return for each corpus the documents read, kept, and skipped by reason, the most frequent reason first.

    `sentences`, `tokens` (sequence length -> tokens of the samples) and `licence` are None or empty if they are not in
    the card.
    """
    rows = []
    for corpus in card.get("corpora", []):
        reasons = {**corpus.get("dropped", {}), **corpus.get("removed", {})}
        skipped = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        rows.append(
            {
                "name": corpus["name"],
                "read": corpus["documents"] + sum(reasons.values()),
                "kept": corpus["documents"],
                "skipped": skipped,
                "sentences": corpus.get("sentences"),
                "tokens": {length: section["tokens"] for length, section in by_length(corpus)},
                "licence": corpus.get("licence"),
            }
        )
    return rows


def cleaning_rows(card: Card) -> list[Row]:
    """Return for each corpus and cleaning step the `lines` and `characters` removed, and the `documents` changed."""
    return [
        {
            "corpus": corpus["name"],
            "step": step,
            **{name: counts[name] for name in ("lines", "characters", "documents")},
        }
        for corpus in card.get("corpora", [])
        for step, counts in corpus.get("cleaning", {}).items()
    ]


def overlap_rows(card: Card) -> list[Row]:
    """Return, by corpus, how many documents share 13 consecutive words with each evaluation set, and the first ids."""
    return [
        {
            "set": name,
            "documents": found["documents"],
            "corpora": list(found["corpora"].items()),
            "examples": [f"{example['corpus']} {example['id']}" for example in found["examples"]],
        }
        for name, found in (card.get("evaluation_overlap") or {}).items()
    ]


def document_lengths(card: Card) -> dict[str, tuple[list[int], list[int]]]:
    """Return corpus -> edges in bytes and counts of the histogram of its documents' lengths, without empty end bins."""
    shown = {}
    for corpus in card.get("corpora", []):
        histogram = corpus.get("length_histogram")
        if histogram and any(histogram["counts"]):
            filled = [number for number, count in enumerate(histogram["counts"]) if count]
            first, last = filled[0], filled[-1] + 1
            edges = histogram["edges"][first : last + 1]
            # The last bin is open; the first starts at 0, which a logarithmic axis cannot show.
            edges = [max(edge, 32) for edge in edges[:-1]] + [min(edges[-1], 2 * max(edges[-2], 32))]
            shown[corpus["name"]] = edges, histogram["counts"][first:last]
    return shown


def corpora_table(card: Card) -> Iterable[Sequence[Any]]:
    """Yield the rows of the CSV: one for each corpus, and one for each reason to leave documents out."""
    yield ["corpus", "read", "kept", "skipped", "reason", "sentences", "licence"]
    for row in corpus_rows(card):
        skipped = row["read"] - row["kept"]
        yield [row["name"], row["read"], row["kept"], skipped, "all", row["sentences"], row["licence"]]
        for reason, count in row["skipped"]:
            yield [row["name"], "", "", count, reason, "", ""]


def overlap_table(card: Card) -> Iterable[Sequence[Any]]:
    """Yield the rows of the CSV: one for each evaluation set and corpus."""
    yield ["evaluation_set", "corpus", "documents"]
    for row in overlap_rows(card):
        for corpus, count in row["corpora"]:
            yield [row["set"], corpus, count]
