"""The plots of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"odradek": "#1f6feb", "kafka": "#8b8b8b"}
LABELS = {"odradek": "Odradek", "kafka": "Apache Kafka"}


def plot_first_light(result: dict[str, Any], path: Path) -> None:
    """Every value of every pair, as a dot; throughput above, CPU below, a panel a row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = result["rows"]
    figure, axes = plt.subplots(2, len(rows), figsize=(3.1 * len(rows), 6.4), squeeze=False)
    for column, row in enumerate(rows.values()):
        _panel(axes[0][column], row, "throughput_per_s", f"{row['unit']}/s, more is better")
        _panel(axes[1][column], row, "cpu_per_unit_s", f"CPU-s a {row['cpu_unit']}, less is better")
        axes[0][column].set_title(_wrapped(row["title"]), fontsize=8)
    figure.suptitle("Odradek beside Apache Kafka: all values; the bar is the median")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Any, row: dict[str, Any], metric: str, label: str) -> None:
    for position, name in enumerate(("odradek", "kafka")):
        values = sorted(measure[metric] for measure in row[name])
        axis.plot([position] * len(values), values, "o", color=COLOURS[name], alpha=0.6)
        middle = values[len(values) // 2]
        axis.plot(
            [position - 0.25, position + 0.25], [middle, middle], color=COLOURS[name], linewidth=3
        )
    axis.set_xlim(-0.6, 1.6)
    axis.set_ylim(bottom=0)
    axis.set_xticks([0, 1], [LABELS["odradek"], LABELS["kafka"]], fontsize=8)
    axis.set_ylabel(label, fontsize=8)
    axis.tick_params(axis="y", labelsize=7)


def _wrapped(title: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(title, 30))
