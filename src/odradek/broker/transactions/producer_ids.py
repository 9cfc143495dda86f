"""Allocation of producer ids from blocks that the controller assigns to a broker.

When a broker stops, the unused ids of its block are lost. So are those of a block whose response
from another broker was lost. No id is ever allocated twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.result_tasks import wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.broker.requests.cluster import ClusterRequests

PRODUCER_ID_MAX = 2**63 - 1


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


async def block_of_controller(cluster: ClusterRequests, broker_id: int) -> range:
    """Return a block of producer ids from the active controller, which is another broker.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS if the controller did not respond in time, as in
            Kafka (``RPCProducerIdManager``). The client tries again. Another error if the
            controller refuses, or if its response has no ids.
    """
    request = AllocateProducerIdsRequest(broker_id, cluster.membership.broker_epoch)
    try:
        response = await wait(cluster.channel.send(request, AllocateProducerIdsResponse))
    except OSError as error:
        reason = f"No producer ids from the controller: {error}"
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason) from error
    first, count = response.producer_id_start, response.producer_id_len
    if response.error_code:
        reason = f"The controller refused to allocate producer ids: error {response.error_code}"
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
    if first < 0 or count <= 0 or first + count - 1 > PRODUCER_ID_MAX:
        reason = f"The controller allocated {count} producer ids from {first}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
    return range(first, first + count)
