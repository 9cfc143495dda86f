"""Election of the registry's one writer, as seen by one instance. Pure.

All instances are members of one consumer group on the topic of the schemas. The topic has one
partition, so the group assigns it to one member, the candidate. Two members may believe for a while
that they own the partition. Therefore a candidate writes only after these steps:

1. It reads the log to its end, so that step 3 is short.
2. It fences its predecessor: ``init_transactions`` of the common transactional id. From then on the
   brokers reject each write of the predecessor.
3. It reads the log to its new end. It now knows all that the predecessor has written.
4. It commits its URL and epoch as the metadata of the group's offset, in a transaction.

A step that fails is repeated from step 1 after a pause. A candidate whose steps fail
`FAILURES_MAX` times in a row leaves the group, so that another instance becomes the candidate. A
writer stops when the group revokes the partition, when its brokers are lost, when another producer
has fenced it, and when the outcome of a transaction is unknown.

`step` maps (state, event, time) to (state, effects). `odradek.registry.leadership` performs the
effects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES_MAX = 3
"""Take-overs that fail in a row before the candidate leaves the group."""
PAUSE_MS = 250.0
"""Pause after the first failure. It doubles with each further failure."""
FENCED_PAUSE_MS = 3_000.0
"""Pause after another producer has fenced this instance.

The group revokes the partition within this time, if another instance owns it.
"""
URL_LENGTH_MAX = 1_024
"""Maximum length of an advertised URL. Brokers limit the metadata of an offset to 4,096 bytes."""


class Phase(StrEnum):
    """The position of an instance in the take-over."""

    FOLLOWING = "following"
    READING = "reading the log"
    FENCING = "fencing the previous writer"
    CATCHING_UP = "reading the rest of the log"
    ANNOUNCING = "committing its URL"
    WRITING = "writing"
    PAUSING = "pausing after a failure"
    LEAVING = "leaving the group"


HAS_PRODUCER = frozenset({Phase.FENCING, Phase.CATCHING_UP, Phase.ANNOUNCING, Phase.WRITING})
"""The phases in which the instance may have a transactional producer."""

CAN_FAIL = HAS_PRODUCER | {Phase.READING}
"""The phases in which an effect is in flight, or writes may fail."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The writer as the group knows it: the metadata of the committed offset.

    Attributes:
        url: The URL to which followers forward writes.
        epoch: The epoch of the leader that was known before, plus one. An instance that knows only
            earlier epochs refuses forwarded writes.
    """

    url: str
    epoch: int


def encode_leader(leader: Leader) -> str:
    """Return the metadata for the committed offset: ``{"url": ..., "epoch": ...}``."""
    return json.dumps({"url": leader.url, "epoch": leader.epoch}, separators=(",", ":"))


def decode_leader(metadata: str | None) -> Leader | None:
    """Return the leader in the metadata of a committed offset.

    None is returned for metadata that another program has committed.
    """
    # librdkafka sends the zero byte at the end of the string, too.
    text = (metadata or "").rstrip("\0")
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    url, epoch = found.get("url"), found.get("epoch")
    if not isinstance(url, str) or not isinstance(epoch, int) or isinstance(epoch, bool):
        return None
    return Leader(url, epoch)


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state of one instance.

    Attributes:
        phase: The position in the take-over.
        term: The number of take-overs that this instance has begun. Results of earlier ones are
            ignored.
        failures: Take-overs that have failed in a row.
        retry_at_ms: The time at which a pause ends.
        leader: The newest known leader, which may be this instance.
    """

    phase: Phase = Phase.FOLLOWING
    term: int = 0
    failures: int = 0
    retry_at_ms: float = 0.0
    leader: Leader | None = None


# --- events ---


@dataclass(frozen=True, slots=True)
class PartitionAssigned:
    """The group has assigned the partition to this instance."""


@dataclass(frozen=True, slots=True)
class PartitionRevoked:
    """The partition was revoked, or the membership was lost. `reason` is a part of a log line."""

    reason: str


@dataclass(frozen=True, slots=True)
class LogRead:
    """The state has applied all records below `position`, which was the end of the log."""

    term: int
    position: int


@dataclass(frozen=True, slots=True)
class PredecessorFenced:
    """The producer of this term is initialized. Brokers reject writes of its predecessors."""

    term: int


@dataclass(frozen=True, slots=True)
class Announced:
    """The URL of this instance is committed."""

    term: int
    leader: Leader


@dataclass(frozen=True, slots=True)
class StepFailed:
    """An effect or a write of a term has failed, and the outcome of a write may be unknown.

    Attributes:
        term: The term.
        reason: The failure, for the log.
        is_fenced: Whether another producer with the same transactional id has begun.
    """

    term: int
    reason: str
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class LeaderRead:
    """The metadata of the group's committed offset was read."""

    leader: Leader


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A timer of `WakeAt` has expired."""


Event = (
    PartitionAssigned
    | PartitionRevoked
    | LogRead
    | PredecessorFenced
    | Announced
    | StepFailed
    | LeaderRead
    | TimePassed
)


# --- effects ---


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """Get the end offset of the log and apply all records below it. Then: `LogRead`."""

    term: int


@dataclass(frozen=True, slots=True)
class FencePredecessor:
    """Initialize a producer with the transactional id. Then: `PredecessorFenced`."""

    term: int


@dataclass(frozen=True, slots=True)
class AnnounceWriter:
    """Commit `position` with URL and epoch in a transaction. Then: `Announced`."""

    term: int
    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StartWriting:
    """Accept writes with the producer of this term."""

    term: int


@dataclass(frozen=True, slots=True)
class StopWriting:
    """Accept no further writes and drop the producer of this term."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave the group, and join it again after a pause."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Deliver `TimePassed` at this time."""

    time_ms: float


Effect = (
    ReadToEnd | FencePredecessor | AnnounceWriter | StartWriting | StopWriting | LeaveGroup | WakeAt
)
Step = tuple[ElectionState, tuple[Effect, ...]]


def step(state: ElectionState, event: Event, now_ms: float) -> Step:
    """Return the state after an event, and the effects in the order in which they have to begin.

    Args:
        state: The state before.
        event: The event. A result of an earlier term changes nothing.
        now_ms: Monotonic time in milliseconds.
    """
    match event:
        case PartitionAssigned():
            return _assigned(state)
        case PartitionRevoked():
            return _revoked(state, event.reason)
        case LeaderRead():
            return _leader_read(state, event.leader), ()
        case TimePassed():
            return _time_passed(state, now_ms)
        case StepFailed():
            if state.phase in CAN_FAIL and event.term == state.term:
                return _failed(state, event, now_ms)
        case _:
            if event.term == state.term:
                return _succeeded(state, event)
    return state, ()


def _assigned(state: ElectionState) -> Step:
    if state.phase in (Phase.FOLLOWING, Phase.LEAVING):
        return _take_over(replace(state, failures=0))
    return state, ()


def _take_over(state: ElectionState) -> Step:
    term = state.term + 1
    return replace(state, phase=Phase.READING, term=term), (ReadToEnd(term),)


def _succeeded(state: ElectionState, event: LogRead | PredecessorFenced | Announced) -> Step:
    """Return the next step of the take-over. Repeated and late results change nothing."""
    term = state.term
    match state.phase, event:
        case Phase.READING, LogRead():
            return replace(state, phase=Phase.FENCING), (FencePredecessor(term),)
        case Phase.FENCING, PredecessorFenced():
            return replace(state, phase=Phase.CATCHING_UP), (ReadToEnd(term),)
        case Phase.CATCHING_UP, LogRead(position=position):
            epoch = 1 if state.leader is None else state.leader.epoch + 1
            announcing = replace(state, phase=Phase.ANNOUNCING)
            return announcing, (AnnounceWriter(term, position, epoch),)
        case Phase.ANNOUNCING, Announced(leader=leader):
            writing = replace(state, phase=Phase.WRITING, failures=0, leader=leader)
            return writing, (StartWriting(term),)
    return state, ()


def _revoked(state: ElectionState, reason: str) -> Step:
    following = replace(state, phase=Phase.FOLLOWING, failures=0)
    return following, _stop(state, reason)


def _stop(state: ElectionState, reason: str) -> tuple[Effect, ...]:
    return (StopWriting(state.term, reason),) if state.phase in HAS_PRODUCER else ()


def _failed(state: ElectionState, event: StepFailed, now_ms: float) -> Step:
    stopping = _stop(state, event.reason)
    failures = state.failures + 1
    if failures >= FAILURES_MAX:
        return replace(state, phase=Phase.LEAVING, failures=0), (*stopping, LeaveGroup())
    pause_ms = PAUSE_MS * 2.0 ** (failures - 1)
    if event.is_fenced:
        pause_ms = max(pause_ms, FENCED_PAUSE_MS)
    retry_at_ms = now_ms + pause_ms
    pausing = replace(state, phase=Phase.PAUSING, failures=failures, retry_at_ms=retry_at_ms)
    return pausing, (*stopping, WakeAt(retry_at_ms))


def _leader_read(state: ElectionState, leader: Leader) -> ElectionState:
    """Return the state with a leader that was read.

    The read of a writer may have begun before it committed its own URL.
    """
    return state if state.phase is Phase.WRITING else replace(state, leader=leader)


def _time_passed(state: ElectionState, now_ms: float) -> Step:
    if state.phase is not Phase.PAUSING:
        return state, ()
    # The timer of an earlier pause, or one that is a little early.
    return (
        _take_over(state) if now_ms >= state.retry_at_ms else (state, (WakeAt(state.retry_at_ms),))
    )
