"""Removals of committed offsets that are written piece by piece, in time slices."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from odradek.coordinator.coordinator_result import CoordinatorRecord, CoordinatorResult
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.runtime import CoordinatorRuntime
from odradek.coordinator.slice_limits import SliceLimits
from odradek.errors import ErrorCode
from odradek.results import Result


class PendingRemoval:
    """A removal of offsets in one shard, of which some pieces may not be written yet.

    Owned by the event loop. A piece is written and replayed in the slice in which it is decided.

    Attributes:
        written: The result of the last piece. It is committed with all pieces before it.
        count: The number of tombstones that were written.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        shard: GroupShard,
        pieces: Iterator[list[CoordinatorRecord]],
    ) -> None:
        self._runtime = runtime
        self._shard = shard
        self._pieces = pieces
        self._has_ended = False
        self.written: Result[ErrorCode] = Result(ErrorCode.NONE)
        self.count = 0

    def write_next(self) -> bool:
        """Write the next piece. Return False when the removal has ended or has failed."""
        records = None if self._has_ended else next(self._pieces, None)
        if records:
            if not self._runtime.serves(self._shard.partition, self._shard):
                self.written = Result(ErrorCode.NOT_COORDINATOR)
                self._has_ended = True
                return False
            result = CoordinatorResult(records, ErrorCode.NONE)
            self.written = self._runtime.write(self._shard.partition, result, lambda code: code)
            self.count += len(records)
        if records is None or self.has_failed:
            self._has_ended = True
        return not self._has_ended

    @property
    def has_failed(self) -> bool:
        """Whether a piece could not be appended."""
        return self.written.completed and self.written.value is not ErrorCode.NONE

    def writing(self, limits: SliceLimits) -> Generator[None, None, None]:
        """Write all pieces in time slices."""
        written = 0
        while self.write_next():
            yield from limits.spend(1 + self.count - written)
            written = self.count

    def finish(self) -> None:
        """Write the remaining pieces in this slice."""
        while self.write_next():
            pass
