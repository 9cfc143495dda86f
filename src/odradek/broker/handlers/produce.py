"""Produce, versions 3-13: append record batches (0-2 are advertised and refused, KAFKA-18659).

The records of each partition must be exactly one batch of format v2. The handler checks its header
and CRC, and appends the batches in the order of the request. With acks=1 the broker responds when
the batch is in the log, and with acks=all when the high watermark has passed it. With acks=0 it
never responds, and an error closes the connection. With any acks, the broker first flushes a topic
whose flush.messages is due.

Batches for topics whose compression.type is not ``producer`` are recompressed. The records of
internal and compacted topics need keys and are checked one by one
(`odradek.records.validate_body`).

A transactional batch needs a transactional id in the request. Before the first batch of a
transaction in a partition, the coordinator must confirm that the partition is in the transaction
(`odradek.broker.transactions.partition_verification`). From version 12 on, the coordinator adds
the partition to the transaction in the same step (KIP-890).

KIP-467 (error messages), KIP-516 (topic ids, version 13), KIP-951 (the current leader, version 10).
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from odradek.broker.requests.apis import PRODUCE_TOPIC_ID_FROM, PRODUCE_ZSTD_FROM
from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.broker.transactions.partition_verification import (
    Operation,
    RequestedPartition,
    Transaction,
    Verdicts,
    verify,
)
from odradek.errors import ErrorCode, KafkaError, RecordsRefused
from odradek.log.state.verification import CLIENT, NO_GUARD, Origin
from odradek.net.connection import CloseConnection
from odradek.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOW_ATTRIBUTES_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    Compression,
    parse_header,
)
from odradek.replication.partition import ACKS_NONE
from odradek.replication.record_append import AppendEntry, AppendResult
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.ids import Uuid
    from odradek.protocol.messages.produce_request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

ABORTABLE_VERSION = 11
ADD_PARTITION_VERSION = 12
CURRENT_LEADER_VERSION = 10
FAILURES_NAMED_MAX = 10
"""Maximum number of a request's failures that the log line names."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""

_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

Response = ProduceResponse | None
"""None with acks=0, which has no response."""


def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> Result[Response]:
    """Append each partition's batch. The module docstring describes when the broker responds."""
    topics = request.topic_data
    if request.transactional_id is not None or not topics or topics[1:]:
        return _Produce(services, context, request).many()
    topic = topics[0]
    partitions = topic.partition_data
    if not partitions or partitions[1:]:
        return _Produce(services, context, request).many()
    data = partitions[0]
    entry = _entry(context.api_version, topic, data)
    appended = services.replica_manager.append_records(
        [entry],
        request.acks,
        request.timeout_ms,
        internal_topics_allowed=context.client_id == ADMIN_CLIENT_ID,
    )
    if appended.completed and request.acks != ACKS_NONE:
        info = appended.value[0].info
        if info is not None:  # the common case
            partition = PartitionProduceResponse(
                data.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
            )
            response = TopicProduceResponse(topic.name, topic.topic_id, [partition])
            return Result(ProduceResponse([response]))
    if not appended.completed:
        appended.on_executed(partial(_forget_records, [entry], request))
    respond = partial(response_to, services, context, request)
    return appended.chain(respond, executed=True)


def response_to(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    results: list[AppendResult],
) -> Result[Response]:
    """Return the response to a request without repeated partitions.

    Args:
        services: The services of the broker.
        context: The context of the request.
        request: The request.
        results: The result of each partition, in the order of the request.
    """
    produce = _Produce(services, context, request)
    for topic in request.topic_data:
        for data in topic.partition_data:
            produce.collect(topic, data)
    return produce.respond(results)


def _entry(version: int, topic: TopicProduceData, data: PartitionProduceData) -> AppendEntry:
    key = topic.topic_id if version >= PRODUCE_TOPIC_ID_FROM else topic.name
    records: memoryview | None = data.records  # type: ignore[assignment]
    entry = AppendEntry(key, data.index, records)
    if version < PRODUCE_ZSTD_FROM and _attributes(records) & COMPRESSION_MASK == Compression.ZSTD:
        entry.error = KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests of version {version} may not use zstd",
        )
    return entry


def _attributes(records: memoryview | None) -> int:
    """Return the low byte of the batch's attributes.

    It is 0 if the batch is too short for one, which the append reports as an error.
    """
    if records is None or len(records) <= LOW_ATTRIBUTES_POSITION:
        return 0
    return records[LOW_ATTRIBUTES_POSITION]


def _forget_records(entries: list[AppendEntry], request: ProduceRequest) -> None:
    """Release the records of an executed request, which are views of the frame.

    The response may have to wait for a flush. The frame's memory is no longer charged by then, so
    the views must not keep it alive.
    """
    for entry in entries:
        entry.records = None
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None


def _partitions(topic: TopicProduceData) -> list[PartitionProduceData]:
    return topic.partition_data


class _Produce:
    """The execution of one request: its entries and the state of its response."""

    __slots__ = (
        "_context",
        "_entries",
        "_failures",
        "_has_transactional",
        "_leaders",
        "_request",
        "_services",
    )

    def __init__(
        self, services: Services, context: RequestContext, request: ProduceRequest
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        # The entries by topic and partition. As in Kafka, the last records apply if a partition is
        # named more than once, and each topic has one entry in the response.
        self._entries: dict[tuple[str, Uuid], dict[int, AppendEntry]] = {}
        self._has_transactional = False
        self._failures: list[str] = []
        self._leaders: set[int] = set()

    # --- the appends ---

    def many(self) -> Result[Response]:
        """Execute a request with any number of partitions, or with a transactional id."""
        collected = each_partition(
            self._request.topic_data, _partitions, self.collect, self._include_topic
        )
        return collected.chain(self._append_collected)

    def collect(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        """Add the entry of one partition."""
        entries = self._entries.setdefault((topic.name, topic.topic_id), {})
        entries[data.index] = entry = _entry(self._context.api_version, topic, data)
        if _attributes(entry.records) & TRANSACTIONAL_MASK:
            self._has_transactional = True

    def _include_topic(self, topic: TopicProduceData, _: object) -> None:
        """Add the topic to the response, even if it has no partitions."""
        self._entries.setdefault((topic.name, topic.topic_id), {})

    def _append_collected(self, _: object) -> Result[Response]:
        entries = list(chain.from_iterable(each.values() for each in self._entries.values()))
        transactional_id = self._request.transactional_id
        if transactional_id is not None:
            return self._append_transactional(entries, transactional_id)
        if self._has_transactional:
            return self._refuse(
                entries, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            )
        return self._append(entries)

    def _append(self, entries: list[AppendEntry]) -> Result[Response]:
        appended = self._services.replica_manager.append_records(
            entries,
            self._request.acks,
            self._request.timeout_ms,
            internal_topics_allowed=self._context.client_id == ADMIN_CLIENT_ID,
        )
        if not appended.completed:
            appended.on_executed(partial(_forget_records, entries, self._request))
        return appended.chain(self.respond, executed=True)

    def _refuse(self, entries: list[AppendEntry], error: KafkaError) -> Result[Response]:
        """Respond with the same error for each partition, and append nothing."""
        return self.respond([AppendResult(None, error)] * len(entries))

    # --- transactions ---

    def _append_transactional(
        self, entries: list[AppendEntry], transactional_id: str
    ) -> Result[Response]:
        """Verify the transaction of the batches with the coordinator, then append them."""
        producers: set[tuple[int, int]] = set()
        sequences: dict[RequestedPartition, int] = {}
        for entry in entries:
            if entry.records is None or len(entry.records) < HEADER_BYTES:
                continue
            header = parse_header(entry.records)
            if header.magic == MAGIC_V2 and header.is_transactional and header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
                sequences[entry.topic, entry.partition] = header.base_sequence
        if len(producers) > 1:
            message = "Transactional records contained more than one producer ID"
            return self._refuse(entries, KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message))
        if not producers:
            return self._append_verified(entries, {})
        transaction = Transaction(transactional_id, *producers.pop())
        verdicts = verify(self._services, transaction, sequences, self._operation())
        return verdicts.chain(partial(self._append_verified, entries))

    def _append_verified(self, entries: list[AppendEntry], verdicts: Verdicts) -> Result[Response]:
        for entry in entries:
            verdict = verdicts.get((entry.topic, entry.partition), NO_GUARD)
            if isinstance(verdict, int):
                entry.origin = CLIENT if verdict == NO_GUARD else Origin(verdict)
            elif entry.error is None:
                entry.error = self._refusal(verdict)
        return self._append(entries)

    def _operation(self) -> Operation:
        version = self._context.api_version
        if version >= ADD_PARTITION_VERSION:
            return Operation.ADD_PARTITION
        if version >= ABORTABLE_VERSION:
            return Operation.GENERIC_ERROR
        return Operation.DEFAULT_ERROR

    def _refusal(self, verdict: KafkaError) -> KafkaError:
        """Return the error for a batch whose verification failed."""
        code = verdict.code
        if code is ErrorCode.INVALID_TXN_STATE:
            return KafkaError(code, "Partition was not added to the transaction")
        if code in _COORDINATOR_ERRORS and (
            code is not ErrorCode.CONCURRENT_TRANSACTIONS
            or self._operation() is not Operation.ADD_PARTITION
        ):
            # Every client retries after this error code, without a Metadata request first.
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {code.name}",
            )
        return verdict

    # --- the response ---

    def respond(self, results: list[AppendResult]) -> Result[Response]:
        """Return the response. `results` has the order of the entries."""
        remaining = iter(results)
        topics = each_partition(
            self._entries.items(),
            lambda topic: topic[1],
            lambda topic, index: self._partition(index, next(remaining)),
            lambda topic, partitions: TopicProduceResponse(*topic[0], partitions),
        )
        return topics.then(self._finished)

    def _partition(self, index: int, result: AppendResult) -> PartitionProduceResponse:
        info, error = result.info, result.error
        if info is not None:
            return PartitionProduceResponse(
                index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
            )
        assert error is not None
        where = index if result.topic_partition is None else result.topic_partition
        self._failures.append(f"{where}: {error.code.name}")
        partition = PartitionProduceResponse(index, int(error.code), -1)
        if error.message != error.code.name:
            partition.error_message = error.message
        if isinstance(error, RecordsRefused):
            partition.log_start_offset = result.log_start_offset
            partition.record_errors = [
                BatchIndexAndErrorMessage(each, why) for each, why in error.reasons.items()
            ]
        if (
            result.current_leader is not None
            and self._context.api_version >= CURRENT_LEADER_VERSION
        ):
            partition.current_leader = LeaderIdAndEpoch(*result.current_leader)
            self._leaders.add(result.current_leader[0])
        return partition

    def _finished(self, topics: list[TopicProduceResponse]) -> Response:
        if self._request.acks == ACKS_NONE:
            self._close_if_failed()
            return None
        response = ProduceResponse(topics)
        if self._leaders:
            hints = leader_endpoints(self._services, self._context, self._leaders)
            response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
        return response

    def _close_if_failed(self) -> None:
        """Raise CloseConnection if a partition has failed.

        With acks=0, closing the connection is the only way to report an error to the producer.
        """
        failures = self._failures
        if failures:
            named = ", ".join(failures[:FAILURES_NAMED_MAX])
            more = f", and {len(failures)} in all" if len(failures) > FAILURES_NAMED_MAX else ""
            raise CloseConnection(f"produce with acks=0 failed: {named}{more}")
