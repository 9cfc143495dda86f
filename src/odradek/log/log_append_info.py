"""The outcomes of appends."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.log.state.producer_state_manager import ProducerBatch


@dataclass(slots=True)
class LogAppendInfo:
    """The outcome of an append.

    Attributes:
        log_append_time_ms: -1 for CreateTime.
        duplicate: The batch was already in the log. The offsets are those of the original.
        must_flush: `flush.messages` is reached, so `flush` must return before the append is
            acknowledged.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    must_flush: bool


@dataclass(slots=True)
class FollowerAppendInfo:
    """The outcome of an append as follower.

    Attributes:
        size_bytes: Number of bytes that were appended. The rest of the records, if any, is for the
            next append, or a part of a batch.
        batches: Number of batches that were appended.
        must_flush: `flush.messages` is reached, so `flush` must return before the next fetch.
    """

    log_end_offset: int
    size_bytes: int
    batches: int
    must_flush: bool


def duplicate_info(found: ProducerBatch, log_start_offset: int, must_flush: bool) -> LogAppendInfo:
    """Return the outcome for a duplicate of the batch `found`.

    As in Kafka, its time is the largest timestamp of the batch, for both timestamp types.
    """
    return LogAppendInfo(
        found.first_offset, found.last_offset, found.timestamp, log_start_offset, True, must_flush
    )
