"""Decisions of a follower about its log: truncation and out-of-range offsets. Pure.

A follower fetches with its leader epoch and the epoch of its last record. The response has records,
or the diverging epoch: the largest epoch that both logs may share, and its end offset in the
leader's log. The follower then truncates and fetches again (rules F10 to F12 in
docs/kafka-semantics.md, Kafka's ``AbstractFetcherThread``). A follower never truncates to its high
watermark, because records above it may be committed (KIP-101).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.log.state.leader_epochs import UNDEFINED_EPOCH, LeaderEpochFileCache


class FetchPosition(NamedTuple):
    """The state of a follower for which a fetch was sent.

    Attributes:
        leader_epoch: The leader epoch of the follower, from the metadata.
        fetch_offset: The log end of the follower.
        last_fetched_epoch: The epoch of its last record, -1 for an empty log.
    """

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


def accepts_response(sent: FetchPosition, current: FetchPosition) -> bool:
    """Return whether a response still belongs to the follower's state (rule F11).

    A new leader epoch, a truncation or an append makes the responses to earlier fetches void.
    """
    return sent == current


@dataclass(frozen=True, slots=True)
class Truncation:
    """A truncation of the log.

    Attributes:
        offset: The new log end.
        complete: Whether the log then ends in an epoch that the leader knows. Otherwise the next
            fetch may diverge again, in an earlier epoch (KIP-279).
    """

    offset: int
    complete: bool


def truncation_for(
    epochs: LeaderEpochFileCache,
    log_end_offset: int,
    diverging_epoch: int,
    diverging_end_offset: int,
) -> Truncation:
    """Return the truncation after a response with a diverging epoch (rule F10).

    If the follower has records of that epoch, both logs are equal up to the smaller of the ends.
    Otherwise the follower truncates to the end of its largest smaller epoch and asks again.
    """
    epoch, end_offset = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if epoch == UNDEFINED_EPOCH:
        # No smaller epoch is known. The leader's epoch is smaller than each epoch of this log.
        return Truncation(min(diverging_end_offset, log_end_offset), complete=True)
    if epoch != diverging_epoch:
        return Truncation(min(end_offset, log_end_offset), complete=False)
    return Truncation(min(end_offset, diverging_end_offset, log_end_offset), complete=True)


def begins_inside_batch(
    log_start_offset: int, log_end_offset: int, leader_log_start_offset: int
) -> bool:
    """Return whether a log may be emptied for a batch that begins below its end (rule F12).

    DeleteRecords can move the leader's log start into a batch. A follower that begins there gets
    the whole batch. No record of its own log may be lost: it has none, or the leader has deleted
    them all. Kafka requires an empty log (``Partition.appendRecordsToFollowerOrFutureReplica``).
    """
    return log_end_offset <= max(log_start_offset, leader_log_start_offset)


@dataclass(frozen=True, slots=True)
class Restart:
    """The reaction to OFFSET_OUT_OF_RANGE.

    Attributes:
        offset: The offset of the next fetch.
        truncate_fully: Whether the log is emptied and begins at `offset`. Otherwise it is truncated
            to `offset`.
    """

    offset: int
    truncate_fully: bool


def restart_for(
    log_end_offset: int, leader_log_start_offset: int, leader_log_end_offset: int
) -> Restart:
    """Return where to continue after OFFSET_OUT_OF_RANGE (rule F12).

    A leader with a smaller log end was elected uncleanly: the follower truncates to it. A follower
    below the leader's log start begins again there.
    """
    if leader_log_end_offset < log_end_offset:
        return Restart(leader_log_end_offset, truncate_fully=False)
    if leader_log_start_offset > log_end_offset:
        return Restart(leader_log_start_offset, truncate_fully=True)
    return Restart(log_end_offset, truncate_fully=False)
