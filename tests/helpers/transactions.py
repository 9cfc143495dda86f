"""Transactions written to a running broker without the coordinator, for tests of readers."""

from __future__ import annotations

from typing import Any

from odradek.log.state.verification import NOT_VERIFIED, Origin
from odradek.testing import Broker
from testkit.requests import batch


def _append(broker: Broker, topic: str, partition: int, data: bytearray, origin: Any) -> int:
    async def append(server: Any) -> int:
        found = server.services.replica_manager.partition(topic, partition)
        now_ms = server.services.clock.time_ms()
        return int(found.append(memoryview(data), -1, now_ms, origin).first_offset)

    return broker.call(append)


def produce_plain(broker: Broker, *values: bytes, topic: str = "t", partition: int = 0) -> int:
    """Append a batch outside of any transaction. Return its first offset."""
    return _append(broker, topic, partition, batch(*values), None)


def produce_transactional(
    broker: Broker,
    producer_id: int,
    sequence: int,
    *values: bytes,
    epoch: int = 0,
    topic: str = "t",
    partition: int = 0,
    **options: Any,
) -> int:
    """Append a batch to the producer's transaction, opening it if necessary.

    Return the first offset of the batch.
    """
    data = batch(
        *values,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )
    return _append(broker, topic, partition, data, Origin(NOT_VERIFIED))


def end_transaction(
    broker: Broker,
    producer_id: int,
    *,
    committed: bool,
    epoch: int = 0,
    topic: str = "t",
    partition: int = 0,
) -> None:
    """Append the marker that ends a transaction."""

    async def append(server: Any) -> None:
        manager = server.services.replica_manager
        manager.append_marker((topic, partition), producer_id, epoch, 0, committed)

    broker.call(append)
