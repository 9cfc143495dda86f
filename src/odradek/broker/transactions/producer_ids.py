"""Allocation of producer ids from blocks that the controller assigns to a broker.

As in Kafka (``RPCProducerIdManager``), the broker requests a block in the background, before the
current one is used up, and has one request in flight. Kafka responds with
COORDINATOR_LOAD_IN_PROGRESS while there is no id. Here a request waits for the block first. In a
cluster it waits for `BLOCK_WAIT_MS` at most: the controller may be unknown for many seconds, and
the later requests of the connection wait for this one.

When a broker stops, the unused ids of its blocks are lost. No id is ever allocated twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from odradek.environment.timers import wait_at_most
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.environment.timers import Timers

logger = logging.getLogger(__name__)

BLOCK_WAIT_MS = 1_000
"""The longest time for which a request waits for a block of the controller, in milliseconds."""

LOCAL_BLOCK_WAIT_MS = 60_000
"""The longest time for which a request waits for a block of its own broker, a single one.

The block is there after a write to a disk, which may be slow.
"""

LEFT_PERCENT = 10
"""Part of a block that is left when the next one is requested, in percent."""


class ProducerIdAllocator:
    """The blocks of this broker. Used on the event loop only.

    Args:
        allocate_block: Returns the next block. Raises `KafkaError` if there is none.
        timers: The environment's timers.
        wait_ms: The longest time for which a request waits for a block.
    """

    def __init__(
        self, allocate_block: Callable[[], Awaitable[range]], timers: Timers, wait_ms: float
    ) -> None:
        self._allocate_block = allocate_block
        self._timers = timers
        self._wait_ms = wait_ms
        self._ids = range(0)
        self._next_block = range(0)
        self._requested_at = 0
        self._request: asyncio.Task[KafkaError | None] | None = None

    def next_or_none(self) -> int | None:
        """Return a new producer id, or None if the blocks are used up."""
        if not self._ids:
            self._ids, self._next_block = self._next_block, range(0)
            self._requested_at = len(self._ids) * LEFT_PERCENT // 100
            if not self._ids:
                return None
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) <= self._requested_at and not self._next_block:
            self._request_block()
        return producer_id

    async def next(self) -> int:
        """Return a new producer id, from a new block if necessary.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS if there is no block yet. The client tries
                again. Another error if the controller could not allocate a block.
        """
        while (producer_id := self.next_or_none()) is None:
            request = self._request_block()
            await wait_at_most(self._timers, (request,), self._wait_ms)
            if not request.done() or request.cancelled():
                raise _try_again("The controller has not allocated producer ids yet.")
            error = request.result()
            if error is not None:
                raise error
        return producer_id

    def close(self) -> None:
        """Cancel the request for a block."""
        if self._request is not None:
            self._request.cancel()

    def _request_block(self) -> asyncio.Task[KafkaError | None]:
        if self._request is None:
            self._request = asyncio.get_running_loop().create_task(self._receive_block())
        return self._request

    async def _receive_block(self) -> KafkaError | None:
        """Receive the next block. Return an error if there is none."""
        try:
            block = await self._allocate_block()
            assert block, "an empty block of producer ids"
            self._next_block = block
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:  # this broker has been deposed
                return _try_again(error.message)
            return error
        except Exception as error:
            logger.exception(
                "bug in the request for the producer ids after %d. Producers are refused until "
                "another request succeeds. Report the traceback",
                self._ids.stop,
            )
            reason = f"There are no producer ids: {error}"
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        finally:
            self._request = None
        return None


def _try_again(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
