"""The causes of expired sessions. Pure.

ZooKeeper logs each session that expires. A broker logs each session that it has lost. Both must
have a cause among the faults of the run. A cause is the end of the broker's process, or a time in
which the broker could not reach ZooKeeper, or ZooKeeper did not run. It must have lasted for half
of the session timeout at least, because a client pings after a third of it. The last cause is a
broker that has waited for the processor (`starvation`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

TIME_FORMAT = "%Y-%m-%d %H:%M:%S,%f"
_EXPIRED = re.compile(r"^\[?([\d-]+[ T][\d:,]+)\]? .*Expiring session 0x([0-9a-f]+)", re.MULTILINE)
_REGISTERED = re.compile(r"broker \d+ is registered with epoch \d+ in session 0x([0-9a-f]+)")
_LOST = re.compile(r"^([\d-]+ [\d:,]+) .*broker (\d+) has lost its session", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cause:
    """A time in which sessions may expire.

    Attributes:
        text: The cause for the report.
        broker: Whose session. None: those of all brokers.
        began, ended: Seconds since the epoch. `ended` is infinite for a process that has ended.
        process: The number of the broker's process, from 1, if the cause is its end. It is a
            cause for the sessions of this process.
        share: The least part of the session timeout that it must have lasted.
    """

    text: str
    broker: int | None
    began: float
    ended: float
    process: int | None = None
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Expiry:
    """An expired session, by the log of ZooKeeper or the broker's log."""

    at: float
    broker: int
    process: int
    source: str = "ZooKeeper"


def expired_in_zookeeper(log: str, owners: Mapping[int, tuple[int, int]]) -> list[Expiry]:
    """Return the sessions of brokers that expired. Other sessions are left out.

    Args:
        log: The log of ZooKeeper.
        owners: Broker and number of its process, by the id of the session.
    """
    return [
        Expiry(seconds(text), *owners[int(session, 16)])
        for text, session in _EXPIRED.findall(log)
        if int(session, 16) in owners
    ]


def registered_in(log: str) -> list[int]:
    """Return the ids of the sessions in which the process with this log has registered."""
    return [int(session, 16) for session in _REGISTERED.findall(log)]


def lost_by_broker(log: str, process: int) -> list[Expiry]:
    """Return the sessions that the process with this log has lost while it ran."""
    return [
        Expiry(seconds(text), int(broker), process, "broker") for text, broker in _LOST.findall(log)
    ]


def seconds(text: str) -> float:
    """Return the time of a log line in seconds since the epoch."""
    return datetime.strptime(text.replace("T", " "), TIME_FORMAT).astimezone().timestamp()


def cause_of(expiry: Expiry, causes: Sequence[Cause], timeout_s: float, slack_s: float) -> str:
    """Return the cause of an expiry, or nothing.

    Args:
        expiry: The session.
        causes: All causes of the run.
        timeout_s: The session timeout.
        slack_s: How much later than the timeout a session may expire, or a broker may notice it.
    """
    since = expiry.at - timeout_s - slack_s
    for cause in causes:
        if cause.broker not in (None, expiry.broker):
            continue
        if cause.process is not None:
            if cause.process == expiry.process and cause.began <= expiry.at:
                return cause.text
            continue
        lasted = min(cause.ended, expiry.at) - cause.began
        if cause.began <= expiry.at and cause.ended >= since and lasted >= timeout_s * cause.share:
            return cause.text
    return ""
