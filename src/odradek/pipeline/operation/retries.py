"""How often a table's query is started again after it failed. Pure functions.

Spark ends a query at its first failure. The batch is then planned again with the same offsets, so a
new start loses and doubles nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DELAY_MIN_S = 1.0
"""Time before the first new start. It doubles with each further failure."""
DELAY_MAX_S = 30.0
"""Longest time before a new start."""
BROKER_AWAY_MAX_S = 600.0
"""Time without a broker after which a table fails."""
TASK_FAILURES_MAX = 3
"""Failures of a batch's tasks after which a table fails. Spark has repeated each task before."""
CONFLICTS_MAX = 5
"""Conflicts of a batch's commit with another program after which a table fails."""


class Cause(StrEnum):
    """Why a query failed."""

    BROKER = "no broker"
    TASK = "a task failed"
    CONFLICT = "a commit of another program"
    OTHER = "another failure"


FAILURES_MAX = {Cause.TASK: TASK_FAILURES_MAX, Cause.CONFLICT: CONFLICTS_MAX, Cause.OTHER: 0}
"""Failures with a cause that are followed by a new start, since the last finished batch."""


@dataclass(frozen=True, slots=True)
class RetryState:
    """The failures since the last finished batch.

    Attributes:
        failures: How many failures had the newest cause, without another cause in between.
        cause: The newest cause.
        since_s: The time of the first of them.
    """

    failures: int = 0
    cause: Cause | None = None
    since_s: float = 0.0


NO_FAILURES = RetryState()
"""The state after a finished batch."""


def after_failure(state: RetryState, cause: Cause, now_s: float) -> tuple[RetryState, float | None]:
    """Return the state after a failure, and the seconds until the next start, or None for no more.

    Args:
        state: The state before.
        cause: Why the query failed.
        now_s: The time on a clock that never goes back.
    """
    if cause is not state.cause:
        state = RetryState(0, cause, now_s)
    state = RetryState(state.failures + 1, cause, state.since_s)
    if cause is Cause.BROKER:
        left_s = state.since_s + BROKER_AWAY_MAX_S - now_s
        if left_s <= 0:
            return state, None
        return state, min(_delay_s(state.failures), left_s)
    if state.failures > FAILURES_MAX[cause]:
        return state, None
    return state, _delay_s(state.failures)


def _delay_s(failures: int) -> float:
    doublings = min(failures - 1, 10)
    return min(DELAY_MIN_S * 2.0**doublings, DELAY_MAX_S)


_SIGNS = (
    # The first sign that is in the failure decides. A failed task contains the failure below it.
    (
        Cause.CONFLICT,
        (
            "io.delta.exceptions.Concurrent",
            "io.delta.exceptions.MetadataChangedException",
            "org.apache.iceberg.exceptions.CommitFailedException",
        ),
    ),
    (
        Cause.BROKER,
        (
            "org.apache.kafka.common.errors.TimeoutException",
            "org.apache.kafka.common.errors.DisconnectException",
            "org.apache.kafka.common.errors.NetworkException",
            "org.apache.kafka.common.errors.BrokerNotAvailableException",
            "org.apache.kafka.common.errors.LeaderNotAvailableException",
            "org.apache.kafka.common.errors.NotLeaderOrFollowerException",
            "java.util.concurrent.TimeoutException: Cannot fetch record",
        ),
    ),
    (Cause.TASK, ("Job aborted due to stage failure", "TASK_WRITE_FAILED")),
)


def cause_of(failure: str) -> Cause:
    """Return the cause of a failure.

    Args:
        failure: The text of the JVM's exception, with the exceptions that caused it.
    """
    for cause, signs in _SIGNS:
        if any(sign in failure for sign in signs):
            return cause
    return Cause.OTHER
