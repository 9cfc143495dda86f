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
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

CALL_TIMEOUT_S = 10.0
"""Time limit of a call of the producer."""
COMMITS_MAX = 2
"""Attempts to commit a transaction. After the last one its outcome is unknown."""

EncodedRecord = tuple[bytes, bytes | None]


class WriterFenced(Exception):
    """Another producer with the transactional id has begun. Nothing more can be written."""


class OutcomeUnknown(Exception):
    """The brokers did not respond, so a transaction may be committed or aborted."""


class WriteRefused(Exception):
    """A transaction was aborted, because the brokers refused a record. The producer continues."""


class RecordTooLarge(WriteRefused):
    """A record is larger than the topic permits."""


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
            WriterFenced, OutcomeUnknown: See the classes.
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
            raise self._final(error) from None
        self._producer = producer

    def announce(self, position: int, leader: Leader, group_metadata: object) -> None:
        """Commit `position` for the group, with the leader as its metadata.

        Args:
            position: The end of the log.
            leader: This instance.
            group_metadata: The membership of this instance, as confluent-kafka returns it.

        Raises:
            WriterFenced, OutcomeUnknown: See the classes.
            WriteRefused: The membership has changed in the meantime.
        """
        from confluent_kafka import KafkaException, TopicPartition

        producer = self._fenced_producer
        offset = TopicPartition(self._settings.topic, PARTITION, position, encode_leader(leader))
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction([offset], group_metadata, CALL_TIMEOUT_S)
        except KafkaException as error:
            raise self._aborted(error) from None
        self._commit()

    def write(self, records: Sequence[EncodedRecord]) -> int:
        """Write records in one transaction, and return the offset of the last one.

        Args:
            records: Key and value, at least one.

        Raises:
            WriterFenced, OutcomeUnknown, WriteRefused: See the classes.
        """
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
        except (KafkaException, BufferError) as error:
            raise self._aborted(error) from None
        self._commit()
        if len(offsets) != len(records):
            raise OutcomeUnknown("the brokers have not confirmed all records of a transaction")
        return max(offsets)

    def close(self) -> None:
        """Drop the producer. An open transaction ends by its timeout or by the next producer."""
        self._producer = None

    @property
    def _fenced_producer(self) -> Producer:
        assert self._producer is not None, "earlier producers were fenced"
        return self._producer

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        for attempt in range(1, COMMITS_MAX + 1):
            try:
                self._fenced_producer.commit_transaction(CALL_TIMEOUT_S)
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.txn_requires_abort():
                    raise self._aborted(error) from None
                if not kafka_error.retriable() or attempt == COMMITS_MAX:
                    raise self._final(error) from None
            else:
                return

    def _aborted(self, cause: KafkaException | BufferError) -> Exception:
        """Abort the transaction after an error, and return the error of the call."""
        from confluent_kafka import KafkaException

        if isinstance(cause, KafkaException) and _is_fenced(cause.args[0]):
            return self._final(cause)
        try:
            self._fenced_producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            return self._final(error)
        return self._refusal(cause)

    def _refusal(self, cause: KafkaException | BufferError) -> WriteRefused:
        from confluent_kafka import KafkaError, KafkaException

        if not isinstance(cause, KafkaException):
            return WriteRefused("a request has more records than the producer's queue holds")
        error = cause.args[0]
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return RecordTooLarge(
                f"a record is larger than max.message.bytes of topic '{self._settings.topic}' or"
                f" than {RECORD_BYTES_MAX} bytes"
            )
        return WriteRefused(self._settings.hide(error.str()))

    def _final(self, error: KafkaException) -> Exception:
        """Return the error of a call after which the producer cannot be used."""
        text = self._settings.hide(error.args[0].str())
        return WriterFenced(text) if _is_fenced(error.args[0]) else OutcomeUnknown(text)


def _is_fenced(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Kafka

    return error.code() in (
        Kafka._FENCED,
        Kafka.PRODUCER_FENCED,
        Kafka.INVALID_PRODUCER_EPOCH,
    )


def _ignored(error: KafkaError) -> None:
    """Receive an error of a connection."""
