"""Warnings about a dataset that is of little use with its settings, derived from its card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bertline.files import Json, one_line_damage, read_object
from bertline.results.paths import HELD_OUT

# Shares beyond which something is worth a line.
RANDOM_MARGIN = 0.1
DIVIDED_SHARE = 0.1
UNKNOWN_SHARE = 0.01
STRIPPED_SHARE = 0.001
SMALL_VOCABULARY_SHARE = 0.5
EMPTY_SHARE = 0.1
MIN_HELD_OUT_SAMPLES = 10
DROPPED_SHARE = 0.5
SKIPPED_TO_READ = 3  # macOS packs a member that is no text with every file
FILTERS = ("gopher_", "c4_", "fineweb_")  # how their reasons begin
# Other reasons to drop a document, with what to do. `language` is not among them: most documents of Common Crawl are in
# another language.
REMEDIES = {
    "empty": "name files with text, or the column that holds it",
    "short": "lower minimum_characters, or divide the texts into fewer documents",
    "language_": "correct the languages of language_identification, or lower its at_least",
    "encoding": "set the encoding of the pages that declare none, or convert them",
    "oversized": "divide the files",
    "complex": "convert the pages to plain text",
    "not_utf_8": "download the files again",
    "extractor": "take another extractor",
}
MAX_SENTENCE_TOKENS = 128  # on average; English has 25


def warnings_of(card: Json) -> list[str]:
    """Return one line for each problem of a dataset, with advice.

    Args:
        card: its dataset.json, without `warnings`. Keys that older and imported datasets lack may be absent.
    """
    return [*_of_text(card), *_of_tokens(card), *_of_samples(card)]


def warnings_in(cards: Mapping[str, Path | str]) -> Iterator[str]:
    """Yield the warnings in those cards that exist; `cards` are paths by the datasets' names."""
    for name, path in cards.items():
        if Path(path).exists():
            with one_line_damage(path):
                warnings = [str(warning) for warning in read_object(path).get("warnings", [])]
            yield from (f"dataset {name}: {warning}" for warning in warnings)


def _of_text(card: Json) -> Iterator[str]:
    for corpus in card["corpora"]:
        is_random = corpus.get("settings", {}).get("format") == "leipzig"
        if is_random and card.get("settings", {}).get("pair_objective", "none") != "none":
            yield (
                f"the sentences of {corpus['name']} are in no order, so no sentence continues another; set "
                "pair_objective: none for the dataset"
            )
        if texts := corpus.get("look_split", 0):
            yield (
                f"{texts} of the texts of {corpus['name']} look like one sentence per line with an empty line between "
                "documents, but each was read as one document; if they have this form, set sentences: lines for the "
                "corpus"
            )
        yield from _of_dropped(corpus)
        if (lost := corpus.get("lost", {})).get("places"):
            yield (
                f"the dump of {corpus['name']} is damaged in {lost['places']} places: {lost['bytes']:,} bytes of "
                f"it could not be unpacked, and {lost['pages']:,} pages are incomplete; use an intact file if there is "
                "one"
            )
    sentences, tokens = card.get("sentences", 0), card.get("text_tokens", 0)
    if sentences and tokens > MAX_SENTENCE_TOKENS * sentences:
        given = {corpus.get("settings", {}).get("sentences") for corpus in card["corpora"]}
        remedy = "" if given == {"unicode"} else "set sentences: unicode for the corpora, or "
        yield (
            f"a sentence has {tokens / sentences:.0f} tokens on average, so hardly any ends were found; {remedy}split "
            "the text and set sentences: lines"
        )


def _of_dropped(corpus: Json) -> Iterator[str]:
    name, dropped, read = corpus["name"], corpus.get("dropped", {}), corpus.get("read", 0)
    if not read:
        return

    def mostly(kinds: str | tuple[str, ...]) -> tuple[float, str] | None:
        """Return the share of documents dropped for reasons that begin so, and the most frequent; None if few were."""
        counts = {reason: count for reason, count in dropped.items() if reason.startswith(kinds)}
        if sum(counts.values()) <= DROPPED_SHARE * read:
            return None
        return sum(counts.values()) / read, max(counts, key=lambda reason: counts[reason])

    if found := mostly(FILTERS):
        yield (
            f"filters dropped {found[0]:.0%} of the documents of {name}, most by {found[1]}; they are made for English "
            "web pages: set stop_words, or remove the filters from cleaning"
        )
    for kind, remedy in REMEDIES.items():
        if found := mostly(kind):
            most = f", most by {found[1]}" if found[1] != kind else ""
            yield f"{found[0]:.0%} of the documents of {name} were dropped as {kind.rstrip('_')}{most}; {remedy}"
    removed = corpus.get("paragraphs_removed", {}).get("symbols", 0)
    if removed and mostly("empty"):
        yield (
            f"of {name}, {removed:,} paragraphs with symbols, such as emoji or Braille, but no letter or digit are "
            "left out; write Braille in letters"
        )
    skipped = corpus.get("members_skipped", {}).get("not a text", 0)
    if skipped > SKIPPED_TO_READ * read:
        yield (
            f"{skipped:,} members of archives of {name} were not read, and only {read:,} documents; if they are texts, "
            "end their names in .txt or .html"
        )


def _of_tokens(card: Json) -> Iterator[str]:
    characters = card.get("characters", 0)
    asked = card.get("settings", {}).get("tokenizer", {}).get("vocab_size", 0)
    if (made := card.get("tokenizer", {}).get("vocab_size", asked)) < SMALL_VOCABULARY_SHARE * asked:
        yield (
            f"the vocabulary has {made:,} tokens, not {asked:,}, because no more words are frequent in the text; add "
            "text, or lower vocab_size"
        )
    if (hidden := card.get("unknown_characters", 0)) > UNKNOWN_SHARE * characters:
        yield (
            f"[UNK] replaces {hidden / characters:.1%} of the characters; take a vocabulary of this language, a "
            "larger vocab_size, or train: bpe"
        )
    if (altered := card.get("stripped_characters", 0)) > STRIPPED_SHARE * characters:
        yield (
            f"the tokenizer removes or decomposes {altered / characters:.1%} of the characters (marks, not counting "
            "accents of Latin, Greek and Cyrillic, and zero-width joiners); set strip_accents: false, train a "
            "vocabulary on this text, or take one that keeps them"
        )


def _of_samples(card: Json) -> Iterator[str]:
    """Yield the warnings of the sequence length for which they are worst: those of the others have the same reason."""
    is_import = "imported" in card
    sections = [(length, section) for length, section in card["sequence_lengths"].items() if section["train"]]
    if not sections:
        return
    if card.get("settings", {}).get("pair_objective") == "next_sentence":
        shares = [section["samples_with_random_next"] / max(section["samples"], 1) for _, section in sections]
        far, length = max((abs(share - 0.5), length) for share, (length, _) in zip(shares, sections, strict=True))
        if far > RANDOM_MARGIN:
            share = shares[[length for length, _ in sections].index(length)]
            remedy = (
                "give each shard several documents: divide the texts by separator or sentences: lines, or lower shards"
            )
            yield (
                f"{share:.0%} of the samples of length {length} have a random second segment, not half; "
                f"{'make the files again, in which half of the labels are 1' if is_import else remedy}"
            )
    if card.get("settings", {}).get("pair_objective") == "sentence_order":
        divided, length = max(
            (section.get("samples_without_partner", 0) / max(section["samples"], 1), length)
            for length, section in sections
        )
        if divided > DIVIDED_SHARE:
            yield (
                f"{divided:.0%} of the pairs of length {length} are not of whole sentences, so their ends reveal the "
                "order; give each document several sentences that fit, or set pair_objective: none"
            )
    held_out, length = min(
        (sum(entry["samples"] for entry in section[HELD_OUT]), length) for length, section in sections
    )
    if held_out < MIN_HELD_OUT_SAMPLES:
        remedy = "raise held_out, or divide the texts into more documents"
        yield (
            f"{held_out or 'no'} samples of length {length} are held out, so the held-out loss says little; "
            f"{'give files, or more of them, with --held-out' if is_import else remedy}"
        )
    counts = [
        (sum(not entry["samples"] for entry in section["train"]), len(section["train"]), length)
        for length, section in sections
    ]
    empty, shards, length = max(counts, key=lambda count: (count[0] / count[1], count[2]))
    if empty > EMPTY_SHARE * shards and is_import:
        yield f"{empty} of {shards} files of length {length} are empty; leave them out"
    elif empty > EMPTY_SHARE * shards:
        yield (
            f"{empty} of {shards} shards of length {length} are empty, with {card.get('documents', 0)} documents to "
            "train on; lower shards, or divide the texts into documents"
        )
