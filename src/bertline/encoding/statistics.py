"""Statistics of samples in any layout, to compare the files of different programs."""

from __future__ import annotations

from collections import Counter

import numpy as np
from tabulate import tabulate

from bertline.command_line import Files
from bertline.console import progress
from bertline.encoding.inspection import blocks_of
from bertline.encoding.interchange import Block, open_any
from bertline.encoding.layout import SampleFile
from bertline.encoding.ranges import offsets_of

SPECIAL_TOKENS_PER_SAMPLE = 2  # [CLS] and the last [SEP]; another [SEP] with a second segment


def compare_samples(files: Files) -> str:
    """Return a table with a row for each folder of files: padding, random second segments, masks.

    Args:
        files: files of samples, in any layout.

    Raises BertlineError for a file of another kind.
    """
    totals: dict[tuple[str, str], Counter[str]] = {}
    for path in progress(files, description="samples", unit="files"):
        file = open_any(path)
        if isinstance(file, SampleFile):
            layout, length = "native", file.attributes["sequence_length"]
        else:
            layout, length = file.layout, file.sequence_length
        counts = totals.setdefault((str(path.parent), layout), Counter())
        for block in blocks_of(file):
            counts.update(_counts_of(block, length))
    rows = [{"folder": folder, "layout": layout, **_columns(counts)} for (folder, layout), counts in totals.items()]
    return tabulate(rows, "keys", floatfmt=".1f", intfmt=",", missingval="")


def _counts_of(block: Block, sequence_length: int) -> Counter[str]:
    positions = np.repeat(offsets_of(block.lengths)[:-1], block.mask_counts) + block.masked_positions
    pairs = block.second_segment_start > 0
    counts = Counter(
        samples=len(block.lengths),
        places=len(block.lengths) * sequence_length,
        tokens=int(block.lengths.sum()),
        pairs=int(pairs.sum()),
        random_pairs=int(block.next_sentence_labels[pairs].sum()),
        masked=len(positions),
        kept=int((block.ids[positions] == block.masked_input_ids).sum()),
    )
    # [MASK] is by far the most frequent id that replaces another.
    replaced = block.masked_input_ids[block.ids[positions] != block.masked_input_ids]
    counts["[MASK]"] = int(np.unique(replaced, return_counts=True)[1].max(initial=0))
    return counts


def _columns(counts: Counter[str]) -> dict[str, float | int | None]:
    def percent(part: int, whole: int) -> float | None:
        return 100 * part / whole if whole else None

    words = counts["tokens"] - SPECIAL_TOKENS_PER_SAMPLE * counts["samples"] - counts["pairs"]
    masked = counts["masked"]
    return {
        "samples": counts["samples"],
        "tokens of a sample": counts["tokens"] / counts["samples"] if counts["samples"] else None,
        "padding, %": percent(counts["places"] - counts["tokens"], counts["places"]),
        "two segments, %": percent(counts["pairs"], counts["samples"]),
        "of these random, %": percent(counts["random_pairs"], counts["pairs"]),
        # Without masks in the file, they are drawn during training.
        "masked, %": percent(masked, words) if masked else None,
        "of these [MASK], %": percent(counts["[MASK]"], masked),
        "kept, %": percent(counts["kept"], masked),
        "random, %": percent(masked - counts["[MASK]"] - counts["kept"], masked),
    }
