"""Plots of the results."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import Any

COLOURS = {"odradek": "#1f6feb", "kafka": "#8b8b8b"}
LABELS = {"odradek": "Odradek", "kafka": "Apache Kafka"}
MIB = 1 << 20

Values = dict[str, list[float]]


Column = tuple[str, list[tuple[str, Values]]]
"""A title, and panels with a label and the values of each broker."""


def plot(columns: list[Column], path: Path, metadata: dict[str, str]) -> None:
    """Every value of every pair as a dot, in a column for each load."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(columns), figsize=(2.6 * len(columns), 6), squeeze=False)
    for column, (title, panels) in enumerate(columns):
        for line, (label, values) in enumerate(panels):
            _panel(axes[line][column], values, label)
        axes[0][column].set_title("\n".join(textwrap.wrap(title, 28)), fontsize=8)
    figure.suptitle("Odradek and Apache Kafka: all values; the bar is the median", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=metadata)
    plt.close(figure)


def _panel(axis: Any, values: Values, label: str) -> None:
    for position, (name, colour) in enumerate(COLOURS.items()):
        axis.plot([position] * len(values[name]), values[name], "o", color=colour, alpha=0.6)
        middle = statistics.median(values[name])
        axis.plot([position - 0.25, position + 0.25], [middle, middle], color=colour, linewidth=3)
    axis.set_xlim(-0.6, 1.6)
    axis.set_ylim(0, 1.15 * max(max(of) for of in values.values()))
    axis.set_xticks([0, 1], list(LABELS.values()), fontsize=8)
    axis.set_ylabel(label, fontsize=8)
    axis.tick_params(axis="y", labelsize=7)
    axis.ticklabel_format(axis="y", style="plain")
