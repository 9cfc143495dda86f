"""Types of a fetch of partitions: the limit of a read, and the data of one partition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from odradek.errors import ErrorCode
from odradek.ids import NO_OFFSET
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.log.log_read import LogReadInfo
    from odradek.records.region import FileRegion

READ_COMMITTED = 1
"""The isolation level of a request that reads only committed transactions (KIP-98)."""


class FetchIsolation(Enum):
    """The limit up to which a fetch reads (Kafka's ``FetchIsolation``)."""

    LOG_END = auto()
    """Replicas."""
    HIGH_WATERMARK = auto()
    """Consumers."""
    COMMITTED = auto()
    """Consumers with isolation level read_committed: up to the last stable offset."""


class WaitingFetch(Protocol):
    """A delayed fetch as a partition sees it: it counts bytes, and can be interrupted."""

    def appended(self, size_bytes: int) -> None: ...

    def interrupt(self) -> None: ...


class FollowerTarget(Protocol):
    """The request for one partition of a follower's fetch."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    follower_log_start_offset: int


class ColdRead(Exception):
    """The signal that a read would have to wait for the disk.

    Attributes:
        read: Reads from the disk, on any thread.
    """

    def __init__(self, read: Callable[[], LogReadInfo]) -> None:
        super().__init__()
        self.read = read


@dataclass(slots=True)
class FetchPartitionData:
    """The data of one partition in a fetch, or its error.

    Attributes:
        region: The records. None when there are none, or when the reader's log diverged.
        copied: The records for a follower that are not committed, copied. Only without a region.
        aborted_transactions: (producer id, first offset) of the aborted transactions that overlap
            the region, for `FetchIsolation.COMMITTED` only.
        diverging_epoch: The largest epoch that the reader's log and this one may share (KIP-320).
        current_leader: The leader's id and epoch, set with an error that says that this broker does
            not lead the partition in the requested epoch.
    """

    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    region: FileRegion | None = None
    aborted_transactions: list[tuple[int, int]] | None = None
    diverging_epoch: int = UNDEFINED_EPOCH
    diverging_end_offset: int = UNDEFINED_EPOCH_OFFSET
    error: ErrorCode = ErrorCode.NONE
    current_leader: tuple[int, int] | None = None
    copied: bytes | bytearray = b""
