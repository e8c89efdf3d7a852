"""The report's figures as SVG, reproducible to the byte.

Text is not converted to paths, so that it can be selected and scales with the page; series differ in line style and
shade, so that a black-and-white print is legible.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from bertline.reporting.scores import BASELINE_TITLES, ScoreRow, Spread
from bertline.results.curves import Place, curve, places
from bertline.results.describe import counted, score_title, task_title
from bertline.results.records import Phase

# Narrow enough for eleven-point letters to be legible on a phone that shows the figure 360 pixels wide.
WIDTH, HEIGHT = 5.2, 3.3
BLUE, ORANGE, GREY = "#1b5e9e", "#c2540a", "#4a4a4a"

# The page's variables for the figures' colours; those of text that has none are in its style sheet.
VARIABLES = {
    **{"#ffffff": "--paper", "#000000": "--ink", "#dddddd": "--grid", "#777777": "--axis"},
    **{BLUE: "--blue", ORANGE: "--orange", GREY: "--grey"},
}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "axes.edgecolor": "#777777",
    "axes.titlesize": 12,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


@contextmanager
def _drawing(name: str, height: float = HEIGHT) -> Iterator[tuple[Figure, io.StringIO]]:
    """Yield an empty figure and the text that contains its SVG afterwards.

    `name` salts the identifiers, so that one page can contain several figures.
    """
    style: Any = _STYLE | {"svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure, svg = Figure(figsize=(WIDTH, height), layout="constrained"), io.StringIO()
        yield figure, svg
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})


def inline(svg: str, alternative: str) -> str:
    """Convert an SVG file's text to an element of an HTML page.

    Args:
        svg: whose colours become the page's variables, so that they can change with its colour scheme.
        alternative: the text that is read instead of the figure.
    """
    element = svg[svg.index("<svg ") :]
    element = re.sub(r'<g id="[^"]*">', "<g>", element)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r"(?<=[:\s])#[0-9a-f]{6}\b", lambda colour: f"var({VARIABLES[colour[0]]})", element)
    return element.replace("<svg ", f'<svg role="img" aria-label="{escape(alternative)}" ', 1)


def loss_curve(phase: Phase) -> str:
    """Draw masked-token loss in nats by step: training, held-out, and the trigram model's as a horizontal line."""
    with _drawing(f"loss-{phase.name}") as (figure, svg):
        axes = _losses(figure, phase.series("train/mlm_loss"), phase.series("held_out/mlm_loss"))
        if phase.trigram_loss is not None:
            axes.axhline(phase.trigram_loss, color=GREY, linestyle="--", linewidth=1.4)
            axes.annotate(
                f"trigram model, held out: {phase.trigram_loss:.2f}",
                xy=(1, phase.trigram_loss),
                xycoords=("axes fraction", "data"),
                xytext=(0, 4),
                textcoords="offset points",
                horizontalalignment="right",
                color=GREY,
                # The curves pass behind it.
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
            )
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: f"{int(value):,}")
    return svg.getvalue()


def _losses(figure: Figure, training: tuple[list[Any], list[float]], held_out: tuple[list[Any], list[float]]) -> Axes:
    """Draw the losses of training and of held-out text: places and values."""
    axes = figure.add_subplot()
    axes.plot(*training, color=BLUE, linewidth=1.1, label="training")
    axes.plot(*held_out, color=ORANGE, linewidth=1.6, marker="o", markersize=4, label="held out")
    axes.set(xlim=(0, None), ylabel="loss of masked tokens (nats)")
    figure.legend(loc="outside upper left", ncols=2)
    return axes


def loss_over(phases: Sequence[Phase], axis: str) -> str:
    """Draw masked-token loss in nats over all phases, by `tokens` seen or `hours` of training; lines part phases."""
    unit, label_of_axis = (1.0, "tokens seen") if axis == "tokens" else _time_unit(phases)

    def along(place: Place) -> float:
        return unit * float(getattr(place, axis))

    def losses(key: str) -> tuple[list[float], list[float]]:
        reached, values = curve(phases, key)
        return [along(place) for place in reached], values

    with _drawing(f"loss-by-{axis}") as (figure, svg):
        axes = _losses(figure, losses("train/mlm_loss"), losses("held_out/mlm_loss"))
        for count in range(1, len(phases)):
            border = max((along(place) for _, place, _ in places(phases[:count])), default=0.0)
            axes.axvline(border, color=GREY, linestyle=":", linewidth=1.2)
        axes.set_xlabel(label_of_axis)
        if axis == "tokens":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return svg.getvalue()


def held_out_losses(runs: Mapping[str, Sequence[Phase]]) -> str:
    """Draw held-out loss of masked tokens in nats by tokens seen, a line for each evaluated run; name -> phases."""
    lines = {name: curve(phases, "held_out/mlm_loss") for name, phases in runs.items()}
    with _drawing("held-out-losses", height=HEIGHT + 0.22 * len(lines)) as (figure, svg):
        axes = figure.add_subplot()
        for number, (name, (reached, values)) in enumerate(lines.items()):
            axes.plot([place.tokens for place in reached], values, label=name, linewidth=1.6, **_line(number))
        axes.set(xlim=(0, None), xlabel="tokens seen", ylabel="held-out loss (nats)")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.legend(loc="outside upper left", ncols=1, fontsize=10)
    return svg.getvalue()


def _line(number: int) -> dict[str, Any]:
    """Return one of twelve distinguishable line styles; strokes and markers distinguish them in black and white."""
    return {
        "color": (BLUE, ORANGE, GREY)[number % 3],
        "linestyle": ("-", "--", ":", "-.")[number % 4],
        "marker": ("o", "s", "^")[number % 3],
        "markersize": 4,
    }


def scores_by_step(lines: Mapping[str, Sequence[tuple[int, Spread]]]) -> str:
    """Draw scores in percent by step of pretraining, the median with the worst and the best seed; name -> points."""
    with _drawing("scores-by-step", height=HEIGHT + 0.22 * len(lines)) as (figure, svg):
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(lines.items()):
            steps, spreads = [step for step, _ in points], [spread for _, spread in points]
            middle = [spread.median for spread in spreads]
            below = [spread.median - min(spread.values) for spread in spreads]
            above = [max(spread.values) - spread.median for spread in spreads]
            axes.errorbar(steps, middle, [below, above], label=name, linewidth=1.6, capsize=3, **_line(number))
        axes.set(xlim=(0, None), xlabel="step of pretraining", ylabel="score in percent")
        axes.xaxis.set_major_formatter(lambda value, _: f"{int(value):,}")
        figure.legend(loc="outside upper left", ncols=1, fontsize=10)
    return svg.getvalue()


def throughput(phases: Sequence[Phase]) -> str:
    """Draw real tokens per second by hours of training and, if known, the percentage of the device's peak."""
    panels = [("train/tokens_per_second", "tokens per second", 1.0)]
    formatters = [EngFormatter(sep=""), ScalarFormatter()]  # the former calls thousandths "m"
    if curve(phases, "train/model_flops_utilization")[1]:
        panels.append(("train/model_flops_utilization", "percent of peak", 100.0))
    unit, label_of_axis = _time_unit(phases)
    with _drawing("throughput", height=2.8 if len(panels) == 1 else 4.4) as (figure, svg):
        drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (key, label, factor), formatter in zip(drawn, panels, formatters, strict=False):
            reached, values = curve(phases, key)
            times = [unit * place.hours for place in reached]
            axes.plot(times, [factor * value for value in values], color=BLUE, linewidth=1.2)
            axes.set(ylim=(0, None), ylabel=label)
            axes.yaxis.set_major_formatter(formatter)
        drawn[-1].set(xlim=(0, None), xlabel=label_of_axis)
    return svg.getvalue()


def speed_by_micro_batch(sizes: Sequence[int], speeds: Sequence[float], gigabytes: Sequence[float]) -> str:
    """Draw sequences per second and memory by the sequences of a micro-batch."""
    with _drawing("speed-by-micro-batch", height=4.4) as (figure, svg):
        above, below = figure.subplots(2, 1, sharex=True)
        for axes, values, label in ((above, speeds, "sequences per second"), (below, gigabytes, "GB of a process")):
            axes.plot(sizes, values, color=BLUE, marker="o", markersize=4, linewidth=1.6)
            axes.set(ylim=(0, None), ylabel=label)
        below.set_xscale("log", base=2)
        below.set_xticks(sizes, list(map(str, sizes)))
        below.xaxis.set_minor_formatter(NullFormatter())
        below.set_xlabel("sequences of a micro-batch")
    return svg.getvalue()


def speed_up(processes: Sequence[int], factors: Sequence[float]) -> str:
    """Draw the speed-up by the number of processes, and the ideal one."""
    with _drawing("speed-up") as (figure, svg):
        axes = figure.add_subplot()
        ideal = [number / processes[0] for number in processes]
        axes.plot(processes, ideal, color=GREY, linestyle="--", linewidth=1.4, label="ideal")
        axes.plot(processes, factors, color=BLUE, marker="o", markersize=4, linewidth=1.6, label="measured")
        axes.set(xticks=processes, ylim=(0, None), xlabel="processes", ylabel="speed-up")
        figure.legend(loc="outside upper left", ncols=2)
    return svg.getvalue()


def _time_unit(phases: Sequence[Phase]) -> tuple[float, str]:
    """Return the factor from hours to the axis's unit, and its label."""
    hours = max((place.hours for _, place, _ in places(phases)), default=0.0)
    return (1.0, "hours of training") if hours >= 2 else (60.0, "minutes of training")


def length_histogram(sequence_length: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Draw the histogram of the samples' lengths in tokens."""
    with _drawing(f"lengths-{sequence_length}", height=2.8) as (figure, svg):
        axes = figure.add_subplot()
        axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.85)
        axes.set(xlabel=f"tokens in a sample (at most {sequence_length})", ylabel="samples", xlim=(edges[0], edges[-1]))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    return svg.getvalue()


def document_lengths(histograms: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> str:
    """Draw the distribution of each corpus's documents by the bytes of their sentences: corpus -> edges and counts."""
    with _drawing("documents", height=2.8) as (figure, svg):
        axes = figure.add_subplot()
        for number, (name, (edges, counts)) in enumerate(histograms.items()):
            shares = [100 * count / sum(counts) for count in counts]
            line = _line(number)
            axes.stairs(shares, edges, color=line["color"], linestyle=line["linestyle"], linewidth=1.5, label=name)
        axes.set(xscale="log", xlabel="bytes in a document", ylabel="percent of the corpus", ylim=(0, None))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=8))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
        figure.legend(loc="outside upper left", ncols=3, fontsize=10)
    return svg.getvalue()


def _label(row: ScoreRow) -> str:
    size = "" if row.dev_examples is None else f"\n{counted(row.dev_examples, 'example')}"
    return f"{task_title(row.group)}\n{score_title(row.score)}{size}"


def score_dots(rows: Sequence[ScoreRow]) -> str:
    """Draw every seed as a dot: pretrained filled, random weights hollow; baselines as vertical lines."""
    shown = [row for row in rows if row.primary]
    with _drawing("scores", height=1.6 + 0.66 * len(shown)) as (figure, svg):
        axes = figure.add_subplot()
        handles = {}
        for y, row in enumerate(shown):
            if row.pretrained:
                height = [y - 0.16] * len(row.pretrained.values)
                (dots,) = axes.plot(row.pretrained.values, height, "o", color=BLUE, markersize=7, alpha=0.8)
                handles["pretrained"] = dots
            for rate, spread in row.random_weights.items():
                better = rate == row.better_rate
                label, marker, size, below = ("better", "o", 7, 0.1) if better else ("other", "x", 5, 0.28)
                height = [y + below] * len(spread.values)
                (dots,) = axes.plot(
                    spread.values, height, marker, color=ORANGE, markerfacecolor="none", markersize=size
                )
                handles[f"random weights, {label} rate"] = dots
            for name, style in (("majority", "-"), ("copy_position", ":"), ("bm25", "--"), ("candidates", "-.")):
                if name in row.baselines:
                    handles[BASELINE_TITLES[name]] = axes.plot(
                        [row.baselines[name]] * 2, [y - 0.36, y + 0.36], style, color=GREY, linewidth=2
                    )[0]
        axes.set_yticks(range(len(shown)), [_label(row) for row in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("score in percent")
        figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=2, fontsize=10)
    return svg.getvalue()
