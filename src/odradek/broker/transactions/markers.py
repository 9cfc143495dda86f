"""Append of transaction markers to the partitions that this broker leads.

The handler of WriteTxnMarkers uses it. The transaction coordinator of this broker uses it, too, and
so needs no connection to its own broker. A partition of ``__consumer_offsets`` belongs to the group
coordinator. Its marker goes through the group coordinator, which applies or discards the offsets of
the transaction together with the marker (``KafkaApis.handleWriteTxnMarkersRequest``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.results import Result, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.transaction.transaction_marker import TransactionMarker
    from odradek.ids import TopicPartition
    from odradek.replication.replica_manager import ReplicaManager

Codes = dict["TopicPartition", ErrorCode]
Results = dict[int, Codes]

_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def write_markers(
    replica_manager: ReplicaManager,
    groups: Callable[[], GroupCoordinator],
    markers: Sequence[TransactionMarker],
) -> Result[Results]:
    """Append every marker. The result is done when each marker is committed or has failed.

    Args:
        replica_manager: Appends the markers.
        groups: Returns the group coordinator. It is called only for a marker in a partition of
            ``__consumer_offsets``.
        markers: The markers to append.

    Returns:
        The error codes, by producer id and partition.
    """
    results: Results = {}

    def append(
        marker: TransactionMarker, partition: TopicPartition
    ) -> tuple[Codes, TopicPartition, Result[ErrorCode]]:
        try:
            appended = _append(replica_manager, groups, marker, partition).then(_marker_code)
        except KafkaError as error:
            appended = Result(_marker_code(error.code))
        return (
            results[marker.producer_id],
            partition,
            appended.recover(KafkaError, lambda error: _marker_code(error.code)),
        )

    def commit(
        appended: list[list[tuple[Codes, TopicPartition, Result[ErrorCode]]]],
    ) -> Result[Results]:
        written = [each for of_marker in appended for each in of_marker]

        def note(codes: list[ErrorCode]) -> Results:
            for (of_producer, partition, _), code in zip(written, codes, strict=True):
                of_producer[partition] = code
            return results

        return gather([result for _, _, result in written]).then(note)

    for marker in markers:
        results.setdefault(marker.producer_id, {})
    appended = each_partition(
        markers, lambda marker: marker.partitions, append, lambda _, appended: appended
    )
    return appended.chain(commit)


def _append(
    replica_manager: ReplicaManager,
    groups: Callable[[], GroupCoordinator],
    marker: TransactionMarker,
    topic_partition: TopicPartition,
) -> Result[ErrorCode]:
    """Append one marker. The result is NONE when it is committed, otherwise an error code."""
    producer_id, producer_epoch, coordinator_epoch, committed, _, version = marker
    topic, partition = topic_partition
    replica_manager.partition(topic, partition)
    if topic == CONSUMER_OFFSETS:
        return groups().offsets.complete_transaction(
            partition, producer_id, producer_epoch, coordinator_epoch, committed, version
        )
    appended = replica_manager.append_marker(
        topic_partition,
        producer_id,
        producer_epoch,
        coordinator_epoch,
        committed,
        transaction_version=version,
    )
    return appended.then(lambda _: ErrorCode.NONE)


def _marker_code(code: ErrorCode) -> ErrorCode:
    """Return `code`, with the errors of a group coordinator replaced by NOT_LEADER_OR_FOLLOWER.

    Transaction coordinators do not expect the errors of a group coordinator. They retry after this
    one.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _COORDINATOR_ERRORS else code
