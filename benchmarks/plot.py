"""The plots of the results."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import Any

COLOURS = {"odradek": "#1f6feb", "kafka": "#8b8b8b"}
LABELS = {"odradek": "Odradek", "kafka": "Apache Kafka"}
MIB = 1 << 20

Values = dict[str, list[float]]


def plot_first_light(result: dict[str, Any], path: Path) -> None:
    """Every value of every pair, as a dot: a column a load, the last for start and memory."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = [_load_column(row) for row in result["rows"].values()]
    memory = {name: [value / MIB] for name, value in result["peak_memory_bytes"].items()}
    starts = {name: [1000 * v for v in values] for name, values in result["start_s"].items()}
    columns.append(
        ("start, and memory", ("ms to the first answer", starts), ("MiB at the peak", memory))
    )
    figure, axes = plt.subplots(2, len(columns), figsize=(2.6 * len(columns), 6), squeeze=False)
    for column, (title, *panels) in enumerate(columns):
        for line, (label, values) in enumerate(panels):
            _panel(axes[line][column], values, label)
        axes[0][column].set_title("\n".join(textwrap.wrap(title, 28)), fontsize=8)
    figure.suptitle("Odradek beside Apache Kafka: all values; the bar is the median", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _load_column(row: dict[str, Any]) -> tuple[str, tuple[str, Values], tuple[str, Values]]:
    """Throughput (or p99, where latency is measured) above, CPU below."""

    def metric(key: str) -> Values:
        return {name: [measure[key] for measure in row[name]] for name in COLOURS}

    above = (f"{row['unit']}/s, more is better", metric("throughput_per_s"))
    if "odradek_latency_us" in row:
        each = {n: [p["p99"] for p in row[f"{n}_latency_us_each"]] for n in COLOURS}
        above = ("p99 in µs, less is better", each)
    below = (f"CPU-s a {row['cpu_unit']}, less is better", metric("cpu_per_unit_s"))
    return row["title"], above, below


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
