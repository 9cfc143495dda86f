"""The metadata of one transactional id, and its records in ``__transaction_state``.

A record has a whole `TransactionMetadata`: key TransactionLogKey, value TransactionLogValue. The
value is written in version 1 (flexible, with the previous and the next producer id) when
``transaction.version`` is 1 or more, and in version 0 otherwise. Two fields are in memory only, as
in Kafka: `pending` and `last_producer_epoch`. A retry of InitProducerId after a restart is
therefore fenced. A tombstone removes a transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.ids import TopicPartition
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from odradek.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX = 32767
# The last epoch that a client gets. The coordinator uses the next one for fencing.
EPOCH_EXHAUSTED = EPOCH_MAX - 1


class TransactionState(IntEnum):
    """The states with their numbers in the log.

    DEAD and PREPARE_EPOCH_FENCE are never written. They are states of Kafka that are steps within
    one decision here.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name that tools print and filter: ``PREPARE_COMMIT`` is ``PrepareCommit``."""
        return self.name.title().replace("_", "")


STATES_BY_NAME = {state.kafka_name: state for state in TransactionState}
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETED = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
# States between transactions. A transaction may begin, and the transactional id may expire.
IDLE = COMPLETED | {TransactionState.EMPTY}

_S = TransactionState
# The valid states before a transition to each state (rule T10). None stands for a new
# transactional id.
VALID_PREVIOUS: dict[TransactionState, frozenset[TransactionState | None]] = {
    _S.EMPTY: frozenset({None, *IDLE}),
    _S.ONGOING: frozenset({_S.ONGOING, *IDLE}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, *IDLE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The metadata of one transactional id.

    Attributes:
        previous_producer_id: The producer id before the last transition.
        next_producer_id: The producer id after the present transaction, when the epochs of the
            present id are exhausted.
        start_ms: The start of the transaction, or -1 outside of one.
        pending: The last record is appended and not committed. Until it is committed, no other
            transition may begin.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    client_transaction_version: int = 0
    pending: bool = False

    @property
    def epoch_exhausted(self) -> bool:
        """Whether no client may get another epoch of this producer id."""
        return self.producer_epoch >= EPOCH_EXHAUSTED


def to_record(metadata: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """Return the record of `metadata`."""
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if metadata.state is TransactionState.EMPTY
        else _by_topic(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if transaction_version < 1:
        return CoordinatorRecord(TransactionLogKey(metadata.transactional_id), value, 0)
    value.previous_producer_id = metadata.previous_producer_id
    value.next_producer_id = metadata.next_producer_id
    value.client_transaction_version = metadata.client_transaction_version
    return CoordinatorRecord(TransactionLogKey(metadata.transactional_id), value, 1)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that removes a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id), None, 0)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> TransactionMetadata:
    """Return the metadata of a record. Raise ValueError for an unknown state."""
    return TransactionMetadata(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic in order, and the topics in order.

    A third of the time of sorting the pairs: a transaction may have 10,000 partitions.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    for indexes in topics.values():
        indexes.sort()
    return dict(sorted(topics.items()))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    return [
        PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in partitions_by_topic(partitions).items()
    ]
