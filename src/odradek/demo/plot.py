"""The demo's picture, with traffic over time, stacked by kind, and the top pages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from odradek.demo.results import Traffic

_COLORS = {
    "page_view": "#2a6f97",
    "impression": "#a9d6e5",
    "click": "#e76f51",
    "2xx": "#2a6f97",
    "3xx": "#a9d6e5",
    "4xx": "#f4a261",
    "5xx": "#d62828",
}
_LABELS = {"page_view": "page views", "impression": "impressions", "click": "clicks"}
_INK = "#33415c"
_PAGE_CHARACTERS_MAX = 38


def save_plot(traffic: Traffic, title: str, subtitle: str, path: Path) -> None:
    """Draw the traffic, and write it as a PNG to `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12, hspace=0.06)
    figure = Figure(figsize=(12, 7.5), dpi=110, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, height_ratios=[3, 2])
    figure.suptitle(title, x=0.012, ha="left", fontsize=17, fontweight="bold", color=_INK)
    _draw_traffic(upper, traffic, subtitle)
    _draw_pages(lower, traffic)
    figure.savefig(path)


def _draw_traffic(axes: Any, traffic: Traffic, subtitle: str) -> None:
    from matplotlib import dates

    axes.set_title(subtitle, loc="left", fontsize=11, color=_INK)
    _quiet(axes)
    kinds = list(traffic.by_kind)
    if not kinds:
        return
    times, series = traffic.times, list(traffic.by_kind.values())
    if len(times) == 1:  # an area needs two points
        times = [times[0], times[0] + timedelta(seconds=traffic.bucket_s)]
        series = [counts * 2 for counts in series]
    axes.stackplot(
        times,
        *series,
        labels=[_LABELS.get(kind, kind) for kind in kinds],
        colors=[_COLORS[kind] for kind in kinds],
        linewidth=0,
    )
    axes.set_ylabel(f"per {_duration(traffic.bucket_s)}", color=_INK)
    matplotlib_dates: Any = dates
    locator = matplotlib_dates.AutoDateLocator(minticks=6, maxticks=12)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(matplotlib_dates.ConciseDateFormatter(locator))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0)
    totals = [sum(counts) for counts in zip(*series, strict=True)]
    axes.set_ylim(0, 1.15 * max(1, *totals))  # room for the legend
    axes.grid(axis="y", color="#dde3ea", linewidth=0.8)
    axes.legend(loc="upper left", frameon=False, ncols=len(kinds), labelcolor=_INK)


def _draw_pages(axes: Any, traffic: Traffic) -> None:
    pages = traffic.top_pages[::-1]
    names = [_short(page) for page, _ in pages]
    bars = axes.barh(range(len(pages)), [views for _, views in pages], color="#2a6f97", height=0.7)
    axes.set_yticks(range(len(pages)), names)
    axes.bar_label(bars, labels=[f"{views:,}" for _, views in pages], padding=4, color=_INK)
    axes.set_title("Top pages, by views", loc="left", fontsize=11, color=_INK)
    axes.xaxis.set_visible(False)
    axes.margins(x=0.08)
    _quiet(axes)
    axes.spines["bottom"].set_visible(False)


def _quiet(axes: Any) -> None:
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#a0aab8")
    axes.tick_params(length=0, colors=_INK)


def _short(page: str) -> str:
    if len(page) <= _PAGE_CHARACTERS_MAX:
        return page
    return f"{page[: _PAGE_CHARACTERS_MAX - 1]}…"


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds % unit == 0:
            number = seconds // unit
            return name if number == 1 else f"{number} {name}s"
    raise AssertionError(seconds)
