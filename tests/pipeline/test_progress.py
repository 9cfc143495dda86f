"""The text of a progress line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.pipeline.progress import Progress, ran_a_batch, total_lag


def source(end: object, latest: object) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def test_line_has_rows_rate_and_lag() -> None:
    line = Progress(7, accepted=1990, rejected=10, duration_ms=4000, lag=123456).text()
    assert line == "batch 7: 2,000 rows in 4.0 s, 500 rows/s, 10 to the quarantine, lag 123,456"


def test_batch_that_took_no_time_has_no_rate() -> None:
    assert Progress(0, 5, 0, 0, None).text() == "batch 0: 5 rows in 0.0 s, 0 rows/s, lag unknown"


def test_report_of_an_idle_query_is_not_that_of_the_next_batch() -> None:
    idle = SimpleNamespace(batchId=12, durationMs={"latestOffset": 7, "triggerExecution": 8})
    batch = {"latestOffset": 7, "addBatch": 4000, "triggerExecution": 4300}
    assert not ran_a_batch(idle)
    assert ran_a_batch(SimpleNamespace(batchId=12, durationMs=batch))


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([source('{"t":{"0":5,"1":7}}', '{"t":{"0":10,"1":7}}')], 5),
        ([source('{"t":{"0":5}}', '{"t":{"0":5,"1":3}}')], 3),
        ([source('{"t":{"0":5}}', '{"t":{"0":4}}')], 0),
        ([source('{"t":{"0":5}}', '{"t":{"0":6}}'), source("None", "None")], 1),
        ([source("None", '{"t":{"0":6}}')], None),
        ([source(None, None)], None),
        ([], None),
    ],
)
def test_lag_is_the_distance_to_the_topics_ends(
    sources: list[SimpleNamespace], lag: int | None
) -> None:
    assert total_lag(sources) == lag
