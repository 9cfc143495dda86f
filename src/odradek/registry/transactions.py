"""The transactional producer of one term of a writer.

All instances have the transactional id in common. `fence` makes the brokers reject each later write
of an earlier producer, and aborts its open transaction. Every method blocks, and runs on the one
thread of the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.registry.election import Leader, encode_leader
from odradek.registry.kafka_settings import RECORD_BYTES_MAX, KafkaSettings
from odradek.registry.schemas_log import PARTITION

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CALL_TIMEOUT_S = 10.0
"""Time limit of a call of the producer."""
COMMITS_MAX = 2
"""Attempts to commit a transaction. After the last one its outcome is unknown."""

EncodedRecord = tuple[bytes, bytes | None]


class WriterLost(Exception):
    """The producer cannot be used any longer.

    Attributes:
        is_fenced: Whether another producer with the transactional id has begun.
        may_be_written: Whether the transaction may be committed, because the response to the
            commit is missing.
    """

    def __init__(self, reason: str, *, is_fenced: bool, may_be_written: bool) -> None:
        super().__init__(reason)
        self.is_fenced = is_fenced
        self.may_be_written = may_be_written


class WriteRefused(Exception):
    """A transaction was aborted, because the brokers refused it. The producer continues."""


class RecordTooLarge(WriteRefused):
    """A record is larger than the topic permits."""


class SequenceGap(WriteRefused):
    """The sequence numbers of records that the brokers refused in an earlier write are missing."""


class TransactionalProducer:
    """A producer with the transactional id of the registry.

    Args:
        settings: The cluster and the topic.
        cluster_id: The id of the cluster, a part of the transactional id.
    """

    def __init__(self, settings: KafkaSettings, cluster_id: str) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._producer: Producer | None = None

    def fence(self) -> None:
        """Fence earlier producers and abort their open transaction.

        Raises:
            WriterLost: The brokers do not respond, or another producer has begun.
            RefusedSetting: A Kafka property is not valid.
        """
        from confluent_kafka import KafkaException, Producer

        try:
            # Errors of connections are reported by the other clients of the instance.
            producer = Producer({**self._settings.producer(self._cluster_id), "error_cb": _ignored})
        except KafkaException as error:
            raise self._settings.invalid(error.args[0].str()) from None
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
        except KafkaException as error:
            raise self._lost(error.args[0], may_be_written=False) from None
        self._producer = producer

    def announce(self, position: int, leader: Leader, group_metadata: object) -> None:
        """Commit `position` for the group, with the leader as its metadata.

        Args:
            position: The end of the log.
            leader: This instance.
            group_metadata: The membership of this instance, as confluent-kafka returns it.

        Raises:
            WriterLost: See the class.
            WriteRefused: The membership has changed in the meantime.
        """
        from confluent_kafka import KafkaException, TopicPartition

        producer = self._fenced_producer
        offset = TopicPartition(self._settings.topic, PARTITION, position, encode_leader(leader))
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction([offset], group_metadata, CALL_TIMEOUT_S)
        except KafkaException as error:
            raise self._aborted(error.args[0]) from None
        self._commit()

    def write(self, records: Sequence[EncodedRecord]) -> int:
        """Write records in one transaction, and return the offset of the last one.

        Args:
            records: Key and value, at least one.

        Raises:
            WriterLost, WriteRefused: See the classes.
        """
        try:
            return self._write(records)
        except SequenceGap:
            # librdkafka has bumped the producer's epoch when it aborted this transaction.
            return self._write(records)

    def _write(self, records: Sequence[EncodedRecord]) -> int:
        """Make one attempt to write records. Raise the errors of `write`, and `SequenceGap`."""
        from confluent_kafka import KafkaException

        producer = self._fenced_producer
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset())

        try:
            producer.begin_transaction()
            for key, value in records:
                producer.produce(self._settings.topic, value, key, PARTITION, on_delivery=delivered)
            producer.flush(CALL_TIMEOUT_S)
        except BufferError:
            raise self._aborted(None) from None
        except KafkaException as error:
            raise self._aborted(error.args[0]) from None
        self._commit()
        if len(offsets) != len(records):
            raise WriterLost(
                f"{len(records)} records were committed, but the brokers have confirmed"
                f" {len(offsets)}",
                is_fenced=False,
                may_be_written=True,
            )
        return max(offsets)

    def close(self) -> None:
        """Drop the producer. The next producer aborts an open transaction."""
        self._producer = None

    @property
    def _fenced_producer(self) -> Producer:
        if self._producer is None:
            raise WriterLost("the producer is closed", is_fenced=False, may_be_written=False)
        return self._producer

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        for attempt in range(1, COMMITS_MAX + 1):
            try:
                self._fenced_producer.commit_transaction(CALL_TIMEOUT_S)
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.txn_requires_abort():
                    raise self._aborted(kafka_error) from None
                if not kafka_error.retriable() or attempt == COMMITS_MAX:
                    raise self._lost(kafka_error, may_be_written=True) from None
            else:
                return

    def _aborted(self, cause: KafkaError | None) -> WriterLost | WriteRefused:
        """Abort a transaction that was not committed, and return the error of the call.

        Args:
            cause: The error of the producer. None: its queue is full.
        """
        from confluent_kafka import KafkaException

        if cause is not None and (cause.fatal() or _is_fenced(cause)):
            return self._lost(cause, may_be_written=False)
        try:
            self._fenced_producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            return self._lost(error.args[0], may_be_written=False)
        return self._refusal(cause)

    def _refusal(self, cause: KafkaError | None) -> WriteRefused:
        from confluent_kafka import KafkaError as Kafka

        if cause is None:
            return WriteRefused("a request has more records than the queue of the producer holds")
        if cause.code() in (Kafka.MSG_SIZE_TOO_LARGE, Kafka.RECORD_LIST_TOO_LARGE):
            return RecordTooLarge(
                f"a record is larger than max.message.bytes of topic '{self._settings.topic}' or"
                f" than {RECORD_BYTES_MAX} bytes"
            )
        text = self._settings.hide(cause.str())
        if cause.code() == Kafka.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return SequenceGap(text)
        return WriteRefused(text)

    def _lost(self, error: KafkaError, *, may_be_written: bool) -> WriterLost:
        text = self._settings.hide(error.str())
        return WriterLost(text, is_fenced=_is_fenced(error), may_be_written=may_be_written)


def _is_fenced(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Kafka

    return error.code() in (Kafka._FENCED, Kafka.PRODUCER_FENCED, Kafka.INVALID_PRODUCER_EPOCH)


def _ignored(error: KafkaError) -> None:
    """Receive an error of a connection."""
