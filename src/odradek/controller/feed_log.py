"""The last changes of the metadata as encoded records, for brokers that poll. Pure.

The log has a limit of bytes and drops the oldest changes above it. A broker whose position was
dropped, or is one of another controller, has to fetch the whole image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from odradek.protocol.messages.metadata_feed_response import FeedDelta

FEED_LOG_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of the changes that are kept. The newest change is kept whatever its size."""

_DELTA_OVERHEAD_BYTES = 64
_RECORD_OVERHEAD_BYTES = 8


class FeedLog:
    """The changes after one image, by consecutive metadata offsets.

    Args:
        controller_epoch: The epoch of the controller.
        offset: The metadata offset of the image that the log begins after.
        bytes_max: Limit of all changes.
    """

    def __init__(
        self, controller_epoch: int, offset: int, bytes_max: int = FEED_LOG_BYTES_MAX
    ) -> None:
        self.controller_epoch = controller_epoch
        self.end_offset = offset
        """The metadata offset of the newest change."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._deltas: deque[tuple[FeedDelta, int]] = deque()

    @property
    def start_offset(self) -> int:
        """The metadata offset after which all changes are kept."""
        return self.end_offset - len(self._deltas)

    def append(self, delta: FeedDelta) -> None:
        assert delta.metadata_offset == self.end_offset + 1, "offsets are consecutive"
        assert delta.controller_epoch == self.controller_epoch
        size = size_of(delta)
        self._deltas.append((delta, size))
        self._bytes += size
        self.end_offset += 1
        while self._bytes > self._bytes_max and len(self._deltas) > 1:
            self._bytes -= self._deltas.popleft()[1]

    def covers(self, controller_epoch: int, offset: int) -> bool:
        """Return whether a broker at this position can continue with changes."""
        return (
            controller_epoch == self.controller_epoch
            and self.start_offset <= offset <= self.end_offset
        )

    def after(self, offset: int, bytes_max: int, records_max: int) -> Sequence[FeedDelta]:
        """Return changes after an offset that is covered.

        Args:
            offset: The last offset that the broker has applied.
            bytes_max: Limit of their size. The first change is returned whatever its size.
            records_max: Limit of the number of their records. The same holds.
        """
        found: list[FeedDelta] = []
        first = offset - self.start_offset
        for index in range(first, len(self._deltas)):
            delta, size = self._deltas[index]
            bytes_max -= size
            records_max -= len(delta.records)
            if found and (bytes_max < 0 or records_max < 0):
                break
            found.append(delta)
        return found


def size_of(delta: FeedDelta) -> int:
    """Return an upper bound of the size of a change in a response."""
    return _DELTA_OVERHEAD_BYTES + sum(
        len(record.frame) + _RECORD_OVERHEAD_BYTES for record in delta.records
    )
