"""Brokers that waited for the processor."""

from __future__ import annotations

import math
import os

from conformance.faults.sessions import Cause, Expiry, cause_of
from conformance.faults.starvation import STARVED, Starvation, joined, waited_s


def test_times_of_a_broker_that_follow_each_other_are_one_cause() -> None:
    parts = [Cause(STARVED, 1, 0.0, 0.3), Cause(STARVED, 2, 0.1, 0.4), Cause(STARVED, 1, 0.2, 0.9)]
    assert joined(parts) == [Cause(STARVED, 1, 0.0, 0.9), Cause(STARVED, 2, 0.1, 0.4)]
    assert len(joined([Cause(STARVED, 1, 0.0, 0.3), Cause(STARVED, 1, 0.5, 0.9)])) == 2


def test_the_kernel_counts_the_waits_of_a_process() -> None:
    assert 0 <= waited_s(os.getpid()) < math.inf


def test_a_broker_that_waited_for_most_of_the_time_was_starved() -> None:
    starvation = Starvation(dict)
    starvation._sample(1, 100, 10.0, 5.0)
    starvation._sample(1, 100, 10.5, 5.1)  # a fifth of the time
    assert starvation.causes == []
    starvation._sample(1, 100, 11.0, 5.5)
    starvation._sample(1, 100, 11.5, 7.0)  # it has waited since 10.0, and runs again
    starvation._sample(1, 101, 12.0, 90.0)  # another process
    (cause,) = joined(starvation.causes)
    assert (cause.broker, cause.began, cause.ended) == (1, 10.0, 11.5)


def test_a_starved_broker_may_lose_its_session_after_a_third_of_the_timeout() -> None:
    lost = Expiry(100.0, 1, 1, "broker")
    for began, text in ((98.9, STARVED), (99.5, "")):
        cause = Cause(STARVED, 1, began, 100.0, share=1 / 3)
        assert cause_of(lost, [cause], timeout_s=3.0, slack_s=5.0) == text
