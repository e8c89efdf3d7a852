"""Descriptions of the report's figures, for screen readers and for figures that are not loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertline.reporting.scores import BASELINE_TITLES, ScoreRow, Spread
from bertline.results.curves import curve, hours_of
from bertline.results.describe import counted, duration, number
from bertline.results.records import Phase


def of_loss_curve(phase: Phase) -> str:
    """Describe where the losses of a phase begin and end."""
    baseline = "" if phase.trigram_loss is None else f" The trigram model's held-out loss is {phase.trigram_loss:.2f}."
    return f"{_losses([phase])} over {counted(phase.journal[-1].step, 'step')}.{baseline}"


def of_loss_over(phases: Sequence[Phase], axis: str) -> str:
    """Describe where the losses of all phases begin and end."""
    if axis == "hours":
        return f"{_losses(phases)} over {duration(3600 * sum(map(hours_of, phases)))} of training."
    return f"{_losses(phases)} over {_tokens(phases)} tokens."


def of_held_out_losses(runs: Mapping[str, Sequence[Phase]]) -> str:
    """Describe the held-out loss at the end of each evaluated run."""
    ends = [
        f"{name} {values[-1]:.3f} after {places[-1].tokens:,.0f} tokens"
        for name, phases in runs.items()
        for places, values in [curve(phases, "held_out/mlm_loss")]
    ]
    return f"Last held-out losses in nats: {'; '.join(ends)}."


def of_scores_by_step(lines: Mapping[str, Sequence[tuple[int, Spread]]]) -> str:
    """Describe the first and the last score of each line."""
    parts = [
        f"{name} from {points[0][1]} at step {points[0][0]:,} to {points[-1][1]} at step {points[-1][0]:,}"
        for name, points in lines.items()
    ]
    return f"Scores in percent, the median with the worst and the best seed: {'; '.join(parts)}."


def of_throughput(phases: Sequence[Phase]) -> str:
    """Describe the range of the speed, and the last share of the device's peak."""
    _, speeds = curve(phases, "train/tokens_per_second")
    _, shares = curve(phases, "train/model_flops_utilization")
    if not speeds:
        return "No speed was recorded."
    peak = f"; at last {100 * shares[-1]:.0f} percent of the device's peak" if shares else ""
    ends = f"{min(speeds):,.0f} to {max(speeds):,.0f} tokens per second, at last {speeds[-1]:,.0f}"
    return f"{ends}{peak}."


def of_length_histogram(edges: Sequence[float], counts: Sequence[int]) -> str:
    """Describe how many samples there are, and the length that most of them have."""
    top = max(range(len(counts)), key=counts.__getitem__)
    span = f"from {number(edges[top])} to {number(edges[top + 1])} tokens"
    return f"{counted(sum(counts), 'sample')}; the most frequent length is {span}, with {counts[top]:,} of them."


def of_document_lengths(histograms: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> str:
    """Describe the most frequent length of each corpus's documents."""
    parts = []
    for name, (edges, counts) in histograms.items():
        top = max(range(len(counts)), key=counts.__getitem__)
        share = 100 * counts[top] / sum(counts)
        parts.append(f"{name} {number(edges[top])} to {number(edges[top + 1])} ({share:.0f} percent)")
    return f"The most frequent lengths of documents in bytes: {'; '.join(parts)}."


def of_score_dots(rows: Sequence[ScoreRow]) -> str:
    """Describe the main score of each task, from pretrained and from random weights, and the baselines."""
    parts = []
    for row in rows:
        if row.primary:
            scores = [f"pretrained {row.pretrained}"] if row.pretrained else []
            scores += [f"random weights {row.better_random}"] if row.better_random else []
            scores += [f"{BASELINE_TITLES.get(name, name)} {value:.1f}" for name, value in row.baselines.items()]
            parts.append(f"{row.title}: {', '.join(scores)}")
    return f"Scores in percent, the median with the worst and the best seed. {'; '.join(parts)}."


def _losses(phases: Sequence[Phase]) -> str:
    parts = []
    for name, key in (("training", "train/mlm_loss"), ("held out", "held_out/mlm_loss")):
        _, values = curve(phases, key)
        if values:
            parts.append(f"{name} from {values[0]:.2f} to {values[-1]:.2f}")
    return f"Loss of masked tokens in nats: {', '.join(parts) or 'none was recorded'}"


def _tokens(phases: Sequence[Phase]) -> str:
    reached, _ = curve(phases, "train/tokens")
    return f"{reached[-1].tokens:,.0f}" if reached else "an unknown number of"
