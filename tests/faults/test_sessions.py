"""The causes of expired sessions, from the logs of ZooKeeper and of the brokers."""

from __future__ import annotations

import math

import pytest
from conformance.faults.sessions import (
    Cause,
    Expiry,
    cause_of,
    expired_in_zookeeper,
    lost_by_broker,
    registered_in,
    seconds,
)

AT = seconds("2026-11-26 10:00:10,500")
ZOOKEEPER_LOG = """\
[2026-11-26 10:00:10,500] INFO Expiring session 0x10002a, timeout of 3000ms exceeded (org.x)
[2026-11-26 10:00:11,000] INFO Expiring session 0x10002b, timeout of 3000ms exceeded (org.x)
"""
BROKER_LOG = (
    "2026-11-26 10:00:01,000 INFO    odradek.broker.broker_lifecycle: broker 2 is registered with"
    " epoch 34 in session 0x10002a\n"
    "2026-11-26 10:00:10,500 WARNING odradek.broker.broker_lifecycle: broker 2 has lost its session"
    " with the metadata store. It begins another one\n"
)


def test_an_expired_session_belongs_to_the_process_that_has_registered_in_it() -> None:
    (session,) = registered_in(BROKER_LOG)
    assert expired_in_zookeeper(ZOOKEEPER_LOG, {session: (2, 4)}) == [Expiry(AT, 2, 4)]


def test_a_broker_reports_the_session_that_it_has_lost() -> None:
    assert lost_by_broker(BROKER_LOG, 4) == [Expiry(AT, 2, 4, "broker")]


@pytest.mark.parametrize(
    ("cause", "explains"),
    [
        (Cause("cut", 2, AT - 4, AT + 1), True),
        (Cause("cut", 2, AT - 4, AT - 2), True),
        (Cause("cut", None, AT - 4, AT + 1), True),
        (Cause("cut", 3, AT - 4, AT + 1), False),  # of another broker
        (Cause("cut", 2, AT - 1, AT + 1), False),  # too short
        (Cause("cut", 2, AT - 60, AT - 40), False),  # too early
        (Cause("cut", 2, AT + 1, AT + 9), False),  # too late
        (Cause("SIGKILL", 2, AT - 3, math.inf, process=4), True),
        (Cause("SIGKILL", 2, AT - 3, math.inf, process=3), False),  # of another process
        (Cause("SIGKILL", 2, AT + 1, math.inf, process=4), False),
    ],
)
def test_a_cause_explains_the_sessions_that_it_has_disturbed_for_long_enough(
    cause: Cause, explains: bool
) -> None:
    found = cause_of(Expiry(AT, 2, 4), [cause], timeout_s=3.0, slack_s=5.0)
    assert found == (cause.text if explains else "")
