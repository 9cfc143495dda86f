"""The comparison of two commits: verdicts, continuation, and one small run of the whole program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.commits_verdict import (
    BETTER,
    EQUAL,
    HISTOGRAM,
    ROWS,
    WORSE,
    Row,
    judge,
    page,
    pool,
    quantile,
)
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import commits_compared

ROOT = Path(__file__).resolve().parents[2]
RATE = Row("rate", "a rate", "1/s", higher_is_better=True)
CPU = Row("cpu", "cpu", "s")
P50 = Row("p50", "p50", "µs", quantile=0.5)
P99 = Row("p99", "p99", "µs", quantile=0.99, pooled=True)


def pairs_of(row: Row, ratios: list[float]) -> list[Any]:
    """Pairs with these ratios, the base being another in each of them."""
    return [
        {"base": {row.key: 100.0 * (n + 1)}, "head": {row.key: 100.0 * (n + 1) * ratio}}
        for n, ratio in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ([1.0] * 9, EQUAL),
        ([1.049] * 9, EQUAL),  # the median is within 5 %
        ([0.951] * 9, EQUAL),
        ([0.949] * 9, WORSE),
        ([1.051] * 9, BETTER),
        # The median is 0.9, and 1.0 lies between the quartiles.
        ([0.7, 0.8, 0.8, 0.9, 0.9, 1.0, 1.01, 1.1, 1.1], EQUAL),
        # The median is 0.9, and the upper quartile is 0.99.
        ([0.7, 0.8, 0.8, 0.9, 0.9, 0.95, 0.99, 1.1, 1.1], WORSE),
        ([0.5] * 4 + [1.0] * 5, EQUAL),
        ([2.0], BETTER),
    ],
)
def test_a_rate_is_judged_by_the_median_and_the_quartiles_of_its_paired_ratios(
    ratios: list[float], word: str
) -> None:
    assert judge(pairs_of(RATE, ratios), RATE).word == word
    opposite = {BETTER: WORSE, WORSE: BETTER, EQUAL: EQUAL}
    assert judge(pairs_of(CPU, ratios), CPU).word == opposite[word]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=15))
def test_a_row_with_a_median_of_one_is_equal(ratios: list[float]) -> None:
    found = judge(pairs_of(CPU, [*ratios, 1.0, *(1 / ratio for ratio in ratios)]), CPU)
    assert found.word == EQUAL and found.ratio == pytest.approx(1.0)


def test_a_load_that_used_less_than_a_tick_has_a_ratio() -> None:
    both = [{"base": {"cpu": 0.0}, "head": {"cpu": 0.0}}]
    assert judge(both, CPU).word == EQUAL
    assert judge([{"base": {"cpu": 0.0}, "head": {"cpu": 0.01}}], CPU).word == WORSE


@given(st.lists(st.integers(0, 50), min_size=1), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_quantile_of_a_histogram_is_that_of_its_values(taken: list[int], of: float) -> None:
    histogram = pool([{str(value): 1} for value in taken])
    found = quantile(histogram, of)
    assert found in taken
    assert sum(value <= found for value in taken) >= of * len(taken)
    assert sum(value < found for value in taken) < of * len(taken)


def test_p99_is_that_of_all_pairs_together_and_p50_that_of_each_pair() -> None:
    calm, slow = {"100": 990, "200": 10}, {"100": 900, "1000": 100}
    pairs = [{"base": {HISTOGRAM: calm}, "head": {HISTOGRAM: calm}} for _ in range(9)]
    pairs[4]["head"] = {HISTOGRAM: slow}
    assert judge(pairs, P50).ratio == 1.0
    found = judge(pairs, P99)
    # 100 of 9,000 records took 1,000 µs: more than one in a hundred.
    assert (found.base, found.head, found.quartiles, found.word) == (100, 1000, None, WORSE)


@pytest.mark.parametrize(("us", "word"), [(124, EQUAL), (126, WORSE), (76, EQUAL), (74, BETTER)])
def test_p99_is_equal_within_a_quarter(us: int, word: str) -> None:
    pairs = [{"base": {HISTOGRAM: {"100": 5}}, "head": {HISTOGRAM: {str(us): 5}}}]
    assert judge(pairs, P99).word == word


class Measured:
    """A clock in seconds, and pairs that take ten of them each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pairs: list[int] = []
        self.saved: list[int] = []

    def measure(self, pair: int) -> dict[str, Any]:
        self.now_s += 10
        self.pairs.append(pair)
        return {"pair": pair}

    def run(self, result: dict[str, Any], until_s: float) -> bool:
        return commits_compared.compare(
            result,
            self.measure,
            lambda found: self.saved.append(len(found["pairs"])),
            until_s,
            lambda: self.now_s,
        )


def test_a_run_ends_in_time_and_the_next_one_continues_after_a_warm_up_pair() -> None:
    result: dict[str, Any] = {"pairs": [], "pairs_wanted": 5}
    first = Measured()
    assert not first.run(result, until_s=35)
    assert first.now_s <= 35
    assert first.saved == [1, 2]
    second = Measured()
    assert second.run(result, until_s=1000)
    assert len(second.pairs) == 4  # a warm-up and the three that were missing
    assert [pair["pair"] for pair in result["pairs"]] == [0, 1, 2, 3, 4]
    assert not Measured().pairs and Measured().run(result, until_s=0)


def test_the_order_of_the_sides_alternates() -> None:
    orders = [commits_compared.order_of(pair) for pair in range(4)]
    assert orders == [("base", "head"), ("head", "base")] * 2


def test_pairs_of_other_commits_or_of_another_machine_are_not_continued(tmp_path: Path) -> None:
    out = tmp_path / "commits.json"
    settings = {
        "base": {"commit": "a"},
        "head": {"commit": "b"},
        "scale": 1.0,
        "machine": {"date": "1", "processor": "x"},
        "pairs_wanted": 9,
    }
    assert commits_compared.recorded(out, settings)["pairs"] == []
    out.write_text(json.dumps({**settings, "pairs": [1, 2]}))
    later = {**settings, "machine": {"date": "2", "processor": "x"}}
    assert commits_compared.recorded(out, later)["pairs"] == [1, 2]
    for change in ({"head": {"commit": "c"}}, {"scale": 0.5}, {"machine": {"processor": "y"}}):
        with pytest.raises(SystemExit):
            commits_compared.recorded(out, {**settings, **change})


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the source is not a git repository")
def test_a_small_run_measures_every_row_at_both_commits_without_kafka(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.commits_compared", "HEAD", "HEAD", "--quick"]
    done = subprocess.run(
        [*command, "--seed", "7", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: so small a run may find a row worse
    (path,) = tmp_path.glob("commits-*.json")
    result = json.loads(path.read_text())
    assert len(result["pairs"]) == 1 and result["pairs"][0]["seed"] == 7
    assert {"java", "kafka"}.isdisjoint(result["machine"])
    table = path.with_suffix(".md").read_text()
    assert table == page(result)
    for row in ROWS:
        assert judge(result["pairs"], row).base >= 0
        assert f"| {row.title} | {row.unit} |" in table
    assert str(tmp_path) not in table
    listed = subprocess.check_output(["git", "worktree", "list"], cwd=ROOT, text=True)
    assert "bench-source-" not in listed
