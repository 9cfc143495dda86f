"""Writing transaction markers into the partitions that this broker leads.

For the handler of WriteTxnMarkers, and for the transaction coordinator of this broker, which needs
no connection to itself. A partition of ``__consumer_offsets`` belongs to the group coordinator: its
marker goes there, so that the offsets of the transaction count, or are forgotten, with it
(``KafkaApis.handleWriteTxnMarkersRequest``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.slicing import Turns

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.ids import TopicPartition

Results = dict[int, dict["TopicPartition", ErrorCode]]

_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionMarker(NamedTuple):
    """One marker for many partitions. For `transaction_version` see
    `ProducerStateManager.check_marker`.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int = 1


async def write_markers(services: Services, markers: Sequence[Sequence[Any]]) -> Results:
    """Appends every marker and waits until each is committed, or cannot be.

    `markers` are as `TransactionMarker`. All are appended before this coroutine waits for any.
    """
    turns = Turns()
    results: Results = {}
    waiting: list[tuple[dict[TopicPartition, ErrorCode], TopicPartition, Any]] = []
    for marker in (TransactionMarker(*each) for each in markers):
        codes = results.setdefault(marker.producer_id, {})
        for topic_partition in marker.partitions:
            await turns.take()
            try:
                appended = _append(services, marker, topic_partition)
            except KafkaError as error:
                codes[topic_partition] = _code(error)
                continue
            codes[topic_partition] = ErrorCode.NONE
            if asyncio.isfuture(appended):
                waiting.append((codes, topic_partition, appended))
    for codes, topic_partition, appended in waiting:
        try:
            await appended
        except KafkaError as error:
            codes[topic_partition] = _code(error)
    return results


def _append(services: Services, marker: TransactionMarker, topic_partition: TopicPartition) -> Any:
    """What says whether the marker is committed: a future, or something else when it is."""
    producer_id, producer_epoch, coordinator_epoch, committed, _, version = marker
    topic, partition = topic_partition
    manager = services.replica_manager
    manager.partition(topic, partition)
    if topic == CONSUMER_OFFSETS:
        return services.groups.offsets.complete_transaction(
            partition, producer_id, producer_epoch, coordinator_epoch, committed
        )
    return manager.append_marker(
        topic_partition,
        producer_id,
        producer_epoch,
        coordinator_epoch,
        committed,
        transaction_version=version,
    )


def _code(error: KafkaError) -> ErrorCode:
    """Transaction coordinators do not expect the group coordinator's errors: they try again."""
    if error.code in _COORDINATOR_ERRORS:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code
