"""The result of a coordinator's state machine: records, response, timers. Pure.

A handler of a state machine reads the state and returns a `CoordinatorResult`. It appends nothing
and does not wait. `CoordinatorRuntime.write` performs the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from odradek.errors import ErrorCode
from odradek.protocol import record_codec
from odradek.protocol.codec import Message

R = TypeVar("R")

Ticket = object
"""Represents one waiting request. A state machine never inspects it."""
Pair = tuple[bytes, bytes | None]
"""The key and the value (None: a tombstone) of one record."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic: its key, and its value in version `value_version`.

    A value of None is a tombstone.
    """

    key: Message
    value: Message | None
    value_version: int


def encode_record(record: CoordinatorRecord) -> Pair:
    """Return the bytes of a record's key and value."""
    key, value, version = record
    encoded = None if value is None else record_codec.encode_value(value, version)
    return record_codec.encode_key(key), encoded


class Timestamp(NamedTuple):
    """One reading of the clock: `monotonic_ms` for deadlines, `time_ms` for records."""

    monotonic_ms: float
    time_ms: int


class CoordinatorTimer(NamedTuple):
    """A timer to arm. The runtime calls ``Shard.on_timer(key)`` no later than `deadline_ms`.

    The deadline is in monotonic milliseconds. Infinity stands for no timer.
    """

    key: str
    deadline_ms: float


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are written.

    The append checks `guard`, so that it opens no transaction that was not verified (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    guard: int = 0


@dataclass(slots=True)
class CoordinatorResult(Generic[R]):
    """The decision of a state machine about one event.

    Attributes:
        records: Appended as one batch and replayed. If the append fails, the write leaves no trace.
        response: The response to the request, sent when the records are committed.
        timers: Armed after the replay, or after the append has failed.
        completed: Tickets of other requests that are completed now, with their responses. They do
            not depend on the records, so they are completed also when the append has failed.
        after_replay: Called after the replay. It changes the state that is not in records.
        after_commit: Called with NONE when the records are committed, or with the error when they
            cannot be committed. After a timeout it is called with the error, and again with NONE
            if the records are committed later. Its result is performed, too.
        after_failed_append: Called with the error when nothing was appended. The tickets and timers
            of its result are then used. `timers`, `completed` and `after_commit` are not used.
    """

    records: list[CoordinatorRecord]
    response: R
    timers: list[CoordinatorTimer] = field(default_factory=list)
    completed: list[tuple[Ticket, object]] = field(default_factory=list)
    after_replay: Callable[[], None] | None = None
    after_commit: Callable[[ErrorCode, Timestamp], CoordinatorResult[None]] | None = None
    after_failed_append: Callable[[ErrorCode, Timestamp], CoordinatorResult[None]] | None = None


_RESPONSE_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def response_code(code: ErrorCode) -> ErrorCode:
    """Return the error that clients of a coordinator expect when its log reports `code`."""
    return _RESPONSE_CODES.get(code, code)
