"""How often a table's query is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.operation.retries import (
    BROKER_AWAY_MAX_S,
    CONFLICTS_MAX,
    DELAY_MAX_S,
    DELAY_MIN_S,
    FAILURES_MAX,
    NO_FAILURES,
    TASK_FAILURES_MAX,
    Cause,
    after_failure,
    cause_of,
)


def delays(cause: Cause, count: int, every_s: float = 0.0) -> list[float | None]:
    """Return the delays after a number of failures with one cause."""
    state, found = NO_FAILURES, []
    for number in range(count):
        state, delay = after_failure(state, cause, number * every_s)
        found.append(delay)
    return found


@pytest.mark.parametrize(
    ("cause", "limit"), [(Cause.TASK, TASK_FAILURES_MAX), (Cause.CONFLICT, CONFLICTS_MAX)]
)
def test_task_failures_and_conflicts_are_repeated_up_to_their_limit(
    cause: Cause, limit: int
) -> None:
    found = delays(cause, limit + 1)
    assert found[:-1] == [DELAY_MIN_S * 2**number for number in range(limit)]
    assert found[-1] is None


def test_other_failure_is_final() -> None:
    assert delays(Cause.OTHER, 1) == [None]


def test_missing_broker_is_waited_for_until_its_time_is_over() -> None:
    count = int(BROKER_AWAY_MAX_S // DELAY_MAX_S) + 1
    found = delays(Cause.BROKER, count, DELAY_MAX_S)
    assert found[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert None not in found[:-1]
    assert found[-1] is None


def test_last_start_without_a_broker_is_at_the_end_of_its_time() -> None:
    state, _ = after_failure(NO_FAILURES, Cause.BROKER, 0.0)
    for _ in range(10):
        state, _ = after_failure(state, Cause.BROKER, BROKER_AWAY_MAX_S - 5)
    _, delay = after_failure(state, Cause.BROKER, BROKER_AWAY_MAX_S - 5)
    assert delay == 5


def test_another_cause_begins_its_own_count() -> None:
    state, _ = after_failure(NO_FAILURES, Cause.CONFLICT, 0.0)
    state, _ = after_failure(state, Cause.CONFLICT, 1.0)
    state, delay = after_failure(state, Cause.TASK, 2.0)
    assert (state.failures, state.since_s, delay) == (1, 2.0, DELAY_MIN_S)


@given(st.lists(st.tuples(st.sampled_from(Cause), st.floats(0, 100))))
def test_delays_are_in_their_bounds_and_failures_without_a_batch_end(
    failures: list[tuple[Cause, float]],
) -> None:
    state, now_s, same = NO_FAILURES, 0.0, 0
    for cause, passed_s in failures:
        now_s += passed_s
        same = same + 1 if cause is state.cause else 1
        state, delay = after_failure(state, cause, now_s)
        assert delay is None or 0 < delay <= DELAY_MAX_S
        if cause is not Cause.BROKER:
            assert (delay is None) == (same > FAILURES_MAX[cause])


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (
            "StreamingQueryException: Job aborted due to stage failure: Task 0 failed\n"
            "Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms",
            Cause.BROKER,
        ),
        ("Job aborted due to stage failure: java.lang.OutOfMemoryError", Cause.TASK),
        ("io.delta.exceptions.ConcurrentAppendException: Files were added", Cause.CONFLICT),
        (
            "org.apache.iceberg.exceptions.CommitFailedException: Version 7 already exists",
            Cause.CONFLICT,
        ),
        ("java.lang.IllegalStateException: Partition t-0's offset was changed", Cause.OTHER),
        ("", Cause.OTHER),
    ],
)
def test_cause_is_found_in_the_text_of_the_exceptions(failure: str, cause: Cause) -> None:
    assert cause_of(failure) is cause
