"""Verdicts of the comparison of two commits, and the Markdown page with its table; pure.

A pair holds the measurements of both sides: `{"base": {...}, "head": {...}}`, each a number by
metric, or for latencies a histogram (microseconds -> count). The ratio of a pair is HEAD : BASE.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.tables import show

SIDES = ("base", "head")
MEDIAN_WITHIN = 0.05
"""A row is equal when the median of its paired ratios is at most this far from 1."""
P99_WITHIN = 0.25
"""A p99 row is equal when the ratio of the pooled percentiles is at most this far from 1."""
HISTOGRAM = "latency.histogram_us"

EQUAL, BETTER, WORSE = "equal", "better", "**worse**"
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `quantile` is set for rows that are computed from the histograms."""

    key: str
    title: str
    unit: str
    higher_is_better: bool = False
    quantile: float | None = None
    pooled: bool = False
    is_judged: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of one row. `quartiles` is None where the values were pooled."""

    base: float
    head: float
    ratio: float
    quartiles: tuple[float, float] | None
    word: str


PRODUCE = "produce, 200-byte records, batches of 50, acks=1"
SINGLE = "produce, one 200-byte record a request"
LARGE = "produce, 1 KB records, 128 KB batches"
FETCH = "fetch from the beginning, warm"
LATENCY = "produce at 5,000 records/s, acks=1"
PER_MILLION, PER_GIB = "CPU-s a million records", "CPU-s a GiB"

ROWS = (
    Row("batches_of_50.rate", PRODUCE, "records/s", higher_is_better=True),
    Row("batches_of_50.cpu", PRODUCE, PER_MILLION),
    Row("one_a_request.rate", SINGLE, "records/s", higher_is_better=True),
    Row("one_a_request.cpu", SINGLE, PER_MILLION),
    Row("large_batches.rate", LARGE, "MB/s", higher_is_better=True),
    Row("large_batches.cpu", LARGE, PER_GIB),
    Row("fetch.rate", FETCH, "MB/s", higher_is_better=True),
    Row("fetch.cpu", FETCH, PER_GIB),
    Row("latency.cpu", LATENCY, PER_MILLION),
    Row("latency.p50", LATENCY, "p50, µs", quantile=0.50),
    Row("latency.p99", LATENCY, "p99, µs, pooled", quantile=0.99, pooled=True),
    Row("memory", "peak memory after the loads", "MiB"),
    Row("start", "start to first answered request", "ms"),
    Row("start_compiling", "the same while Python compiles the source", "ms", is_judged=False),
)


def quantile(histogram: Mapping[str, int], of: float) -> float:
    """The smallest value that at least the fraction `of` of the counted values does not exceed."""
    left = math.ceil(sum(histogram.values()) * of)
    for value in sorted(histogram, key=int):
        left -= histogram[value]
        if left <= 0:
            return float(value)
    raise ValueError("an empty histogram has no quantiles")


def pool(histograms: Sequence[Mapping[str, int]]) -> Counter[str]:
    pooled: Counter[str] = Counter()
    for each in histograms:
        pooled.update(each)
    return pooled


def values(pairs: Sequence[Mapping[str, Any]], row: Row, side: str) -> list[float]:
    """The value of each pair, in the order of the pairs."""
    if row.quantile is None:
        return [float(pair[side][row.key]) for pair in pairs]
    return [quantile(pair[side][HISTOGRAM], row.quantile) for pair in pairs]


def judge(pairs: Sequence[Mapping[str, Any]], row: Row) -> Verdict:
    """Compare both sides of a row over all pairs."""
    if row.pooled and row.quantile is not None:
        base, head = (
            quantile(pool([pair[side][HISTOGRAM] for pair in pairs]), row.quantile)
            for side in SIDES
        )
        ratio = _ratio(base, head)
        equal = abs(ratio - 1) <= P99_WITHIN
        return Verdict(base, head, ratio, None, _word(ratio, equal, row.higher_is_better))
    base_values, head_values = (values(pairs, row, side) for side in SIDES)
    ratios = list(map(_ratio, base_values, head_values))
    ratio = statistics.median(ratios)
    low, high = quartiles(ratios)
    equal = abs(ratio - 1) <= MEDIAN_WITHIN or low <= 1 <= high
    word = _word(ratio, equal, row.higher_is_better) if row.is_judged else NOT_JUDGED
    medians = statistics.median(base_values), statistics.median(head_values)
    return Verdict(*medians, ratio, (low, high), word)


def _ratio(base: float, head: float) -> float:
    """HEAD : BASE. CPU time is counted in ticks of 10 ms, so that a small load may cost none."""
    if base == head:
        return 1.0
    return head / base if base else math.inf


def quartiles(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile. Both are the value if there is only one."""
    if len(ratios) == 1:
        return ratios[0], ratios[0]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, high


def _word(ratio: float, equal: bool, higher_is_better: bool) -> str:
    if equal:
        return EQUAL
    return BETTER if (ratio > 1) == higher_is_better else WORSE


def verdicts(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Verdict]:
    return {row.key: judge(pairs, row) for row in ROWS}


def page(result: Mapping[str, Any]) -> str:
    """The Markdown page of a comparison, complete or not."""
    pairs = result["pairs"]
    base, head = (result[side]["commit"][:7] for side in SIDES)
    lines = [
        f"# Commit {head} compared with {base}",
        "",
        "On this page you see how the speed of two commits of Odradek differs.",
        "",
        f"`python -m benchmarks.commits_compared {base} {head}`. Each pair starts both brokers",
        "on empty directories and drives one of them at a time with the same librdkafka programs.",
        "The order of the two alternates from pair to pair. The first pair of each run of the",
        "program is a warm-up and is not counted.",
        "",
        "Ratios are HEAD : BASE. A row is equal when the median of its paired ratios is within",
        f"{MEDIAN_WITHIN:.0%} of 1, or when 1.0 lies between its quartiles. The p99 row pools the",
        f"values of all pairs and is equal within {P99_WITHIN:.0%}. CPU is user and system time of",
        "the broker's processes.",
        "",
        "A start is measured with compiled modules, as pip installs them. At first this program",
        "inherited PYTHONDONTWRITEBYTECODE from its environment, so that each start compiled the",
        "source. That measure has a row of its own, which is not judged.",
        "",
        f"- base: `{result['base']['commit']}` {result['base']['subject']}",
        f"- head: `{result['head']['commit']}` {result['head']['subject']}",
        f"- {len(pairs)} of {result['pairs_wanted']} pairs, number of records scaled by "
        f"{result['scale']:g}, seed {result['seed']}",
        f"- {', '.join(result['machine'].values())}",
        "",
    ]
    if not pairs:
        return "\n".join(lines)
    lines += [
        "| row | metric | base | head | ratio | quartiles | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        found = judge(pairs, row)
        quartiles = (
            "" if found.quartiles is None else " to ".join(f"{q:.3f}" for q in found.quartiles)
        )
        lines.append(
            f"| {row.title} | {row.unit} | {show(found.base)} | {show(found.head)} "
            f"| {found.ratio:.3f} | {quartiles} | {found.word} |"
        )
    lines += ["", "All values, in the order of the pairs:", ""]
    for row in ROWS:
        for side in SIDES:
            each = ", ".join(show(value) for value in values(pairs, row, side))
            lines.append(f"- {row.title}, {row.unit}, {side}: {each}")
    return "\n".join(lines) + "\n"
