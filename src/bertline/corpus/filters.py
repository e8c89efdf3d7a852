"""The filters that judge whole documents: by their language, and by published measures of quality.

They run after the cleaning steps of paragraphs: first the language, then those of `cleaning`, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bertline.corpus.cleaning_steps import STEPS, Counts, no_counts
from bertline.corpus.language import language_filter
from bertline.corpus.quality import c4, fineweb, gopher_quality, gopher_repetition
from bertline.files import Json

# config/config.schema.yaml lists these names under `cleaning`, together with those of STEPS.
FILTERS: dict[str, Callable[..., str | None]] = {
    "gopher_quality": gopher_quality,
    "gopher_repetition": gopher_repetition,
    "fineweb": fineweb,
}
LINE_FILTER = "c4"  # it also drops lines

# Maps a text to the part that is kept, and to the reason to drop the document, or None.
Judge = Callable[[str], tuple[str, str | None]]


def steps_of(settings: Json) -> Sequence[str]:
    """Return the cleaning steps of a corpus's settings that work on paragraphs, in their order."""
    return [name for name in settings["cleaning"] if name in STEPS]


def counts_of(settings: Json) -> Counts:
    """Return counts of zero for what a corpus's cleaning removes from the documents that it keeps."""
    return no_counts([name for name in settings["cleaning"] if name in STEPS or name == LINE_FILTER])


def judge_of(settings: Json, counts: Counts) -> Judge:
    """Return the function that applies all filters of a corpus's settings.

    Args:
        counts: from `counts_of`; what `c4` removes from documents, also from those that a later filter drops, is added.

    Reasons to drop a document are `language_` with the language found, and the filters' own, as `fineweb_short_lines`.
    Raises BertlineError for a language that cannot be identified.
    """
    identification, names = settings.get("language_identification"), [*settings["cleaning"]]
    drop_language = None
    if identification:
        keep = identification["keep"]
        drop_language = language_filter([keep] if isinstance(keep, str) else keep, identification["at_least"])
    filters: dict[str, Callable[..., str | None]] = {
        **FILTERS,
        "gopher_quality": partial(gopher_quality, stop_words=settings["stop_words"]),
    }

    def judge(text: str) -> tuple[str, str | None]:
        if drop_language and (language := drop_language(text)):
            return text, f"language_{language}"
        for name in names:
            if name == LINE_FILTER:
                kept, reason = c4(text)
                if reason is None and len(kept) != len(text):
                    counts[name]["documents"] += 1
                    counts[name]["lines"] += text.count("\n") - kept.count("\n")
                    counts[name]["characters"] += len(text) - len(kept)
                text = kept
            else:
                reason = filters[name](text) if name in filters else None
            if reason is not None:
                return text, f"{name}_{reason}"
        return text, None

    return judge
