"""Choice of the points of a journal that MLflow gets; the journal itself keeps all.

MLflow's pages show at most 320 points of a line, but its server sorts all of them for that: see docs/tracking.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from bertline.results.records import Phase, Training

# A metric of a phase has about this many points in MLflow at the end.
POINTS = 2000
# Keys that a trainer writes at every point of the journal. All others, such as evaluations, are rare.
FREQUENT = ("train/", "system/")


def thin(training: Training) -> Iterator[dict[str, float]]:
    """Yield for each line of a training's journal the metrics to send.

    A phase's steps are divided into at most 2,000 equal intervals, and the first point of each metric in each interval
    is chosen; so are the line of the last step and every evaluation. The choice at a line depends only on the recipe
    and the lines before it, so what was sent stays chosen while the journal grows. All points of a fine-tuning are
    chosen.
    """
    steps = training.recipe.get("settings", {}).get("steps", 0) if isinstance(training, Phase) else 0
    width = max(1, -(-int(steps) // POINTS))
    before: dict[str, int] = {}
    for line in training.journal:
        interval = line.step // width
        yield {
            key: value
            for key, value in line.metrics.items()
            if width == 1 or line.step == steps or not key.startswith(FREQUENT) or before.get(key) != interval
        }
        before |= dict.fromkeys(line.metrics, interval)
