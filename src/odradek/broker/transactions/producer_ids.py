"""Allocation of producer ids from blocks that the controller assigns to a broker.

When a broker stops, the unused ids of its block are lost. No id is ever allocated twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ProducerIdAllocator:
    """The current block of this broker. Used on the event loop only."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()

    def next_or_none(self) -> int | None:
        """Return a new producer id, or None if the block is used up."""
        return next(self._ids, None)

    async def next(self) -> int:
        """Return a new producer id, from a new block if necessary.

        Raises:
            KafkaError: The controller could not allocate a block.
        """
        async with self._lock:
            producer_id = self.next_or_none()
            if producer_id is None:
                self._ids = iter(await self._allocate_block())
                producer_id = self.next_or_none()
        assert producer_id is not None, "an empty block of producer ids"
        return producer_id
