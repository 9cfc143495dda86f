"""Producer ids, handed out one by one from blocks that the controller keeps apart.

What a broker had not used of its block when it stopped is lost: an id is never given out twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ProducerIdAllocator:
    """This broker's block. Used on the event loop only."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()

    def next_or_none(self) -> int | None:
        """A fresh producer id, or None when a new block has to be taken first."""
        return next(self._ids, None)

    async def next(self) -> int:
        """A fresh producer id; KafkaError when the controller has none."""
        async with self._lock:
            producer_id = self.next_or_none()
            if producer_id is None:
                self._ids = iter(await self._allocate_block())
                producer_id = self.next_or_none()
        assert producer_id is not None, "an empty block of producer ids"
        return producer_id
