"""Producer ids, handed out from blocks of 1,000 that the metadata store keeps apart (P1).

The node ``/latest_producer_id_block`` holds the last block that anybody took, in ZooKeeper-era Kafka's
format: ``{"version":1,"broker":0,"block_start":"0","block_end":"999"}``. A block is taken by replacing the
node with the one that follows, if nobody else did meanwhile. What a broker had not used of its block when
it stopped is lost: an id is never given out twice.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from odradek.cluster.store.interface import BadVersionError, NodeExistsError, NoNodeError
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.cluster.store.interface import MetadataStore

BLOCK_PATH = "/latest_producer_id_block"
BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1
# Somebody else took a block between our read and our write; so often in a row means a broken store.
ATTEMPTS_MAX = 100


class ProducerIdAllocator:
    """This broker's block. Used on the event loop only."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    def next_or_none(self) -> int | None:
        """A fresh producer id, or None when a new block has to be taken first."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """A fresh producer id; KafkaError when there is none to be had."""
        async with self._lock:
            producer_id = self.next_or_none()
            if producer_id is None:
                self._next, self._end = await self._take_block()
                producer_id = self.next_or_none()
        assert producer_id is not None
        return producer_id

    async def _take_block(self) -> tuple[int, int]:
        """(first id, one behind the last) of a block that is ours alone."""
        for _ in range(ATTEMPTS_MAX):
            try:
                node = await self._store.get(BLOCK_PATH)
            except NoNodeError:
                start = 0
            else:
                start = int(json.loads(node.data)["block_end"]) + 1
            if start > PRODUCER_ID_MAX - BLOCK_SIZE:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
            data = self._block(start)
            try:
                if start == 0:
                    await self._store.create(BLOCK_PATH, data)
                else:
                    await self._store.set(BLOCK_PATH, data, node.version)
            except (BadVersionError, NodeExistsError):
                continue
            return start, start + BLOCK_SIZE
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{BLOCK_PATH} keeps changing")

    def _block(self, start: int) -> bytes:
        block = {
            "version": 1,
            "broker": self._node_id,
            "block_start": str(start),
            "block_end": str(start + BLOCK_SIZE - 1),
        }
        return json.dumps(block, separators=(",", ":")).encode()
