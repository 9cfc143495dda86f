"""Fetch, versions 4-18: return records to consumers, with or without a fetch session (KIP-227).

The response refers to records as regions of files. Partitions are read in the order of the request,
or in the order of the session, in which partitions that returned records move to the end. The first
batch of the first partition with records is returned whole, even if it is larger than max.bytes
(KIP-74). The other partitions share the remaining bytes. A fetch waits for min.bytes, for at most
max.wait. It does not wait if a partition has an error or if the reader's log has diverged (KIP-320,
version 12). From version 13 on topics are named by id (KIP-516).

With isolation level read_committed a fetch reads up to the last stable offset and waits until that
offset moves. The response lists the aborted transactions among the returned records (KIP-98). High
watermark, last stable offset, records and that list of a partition are consistent.

A consumer that exceeds its quota immediately gets a response without records and has to pause
(KIP-219). Its session does not change.

A fetch with a replica id gets an error and changes no state, because partitions have no followers.
Kafka returns the same to a replica that is not assigned. In a cluster, followers fetch on the
inter-broker listener only. On another listener such a fetch is TOPIC_AUTHORIZATION_FAILED for each
partition and creates no session. Kafka returns that error to a client that may not act as a broker
(CVE-2018-1288).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each, each_partition
from odradek.broker.requests.fetch_sessions import FetchContext, FetchPartition
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.broker.requests.throttling import fetch_limit, throttled_fetch
from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
from odradek.protocol.fetch_session import INVALID_SESSION_ID
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replication.delayed_fetch import CONSUMER, FetchParams, close_regions
from odradek.replication.fetch_data import READ_COMMITTED, FetchIsolation, FetchPartitionData
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.broker.requests.fetch_sessions import PartitionKey
    from odradek.ids import Uuid
    from odradek.protocol.messages.fetch_request import FetchPartition as RequestedPartition
    from odradek.protocol.messages.fetch_request import FetchRequest, FetchTopic

TOPIC_ID_VERSION = 13
CURRENT_LEADER_VERSION = 16
STORAGE_ERROR_VERSION = 6
ZSTD_VERSION = 10
CONSUMER_ISOLATION = FetchIsolation.HIGH_WATERMARK

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> Result[FetchResponse]:
    """Return the records, immediately or when enough are available."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    topics = request.topics
    if (request.replica_id >= 0 or request.replica_state is not None) and _is_no_broker(
        services, context, request
    ):
        return _refused_replica(request, by_id)
    if topics and not topics[1:] and topics[0].partitions and not topics[0].partitions[1:]:
        # The most common fetch.
        return _fetch(services, context, request, [requested_partition(by_id, topics[0])])
    requested: list[FetchPartition] = []
    collected = each_partition(
        topics,
        lambda topic: topic.partitions,
        lambda topic, partition: requested.append(requested_partition(by_id, topic, partition)),
        lambda topic, _: None,
    )
    return collected.chain(lambda _: _fetch(services, context, request, requested))


def _is_no_broker(services: Services, context: RequestContext, request: FetchRequest) -> bool:
    """Return whether a client fetches as a replica on a listener that is not for brokers."""
    cluster = services.cluster
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    return (
        cluster is not None
        and replica_id >= 0
        and context.session.listener_name != cluster.listener
    )


def _refused_replica(request: FetchRequest, by_id: bool) -> Result[FetchResponse]:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, partition: PartitionData(partition.partition, code, -1, records=b""),
        lambda topic, partitions: (
            FetchableTopicResponse(topic_id=topic.topic_id, partitions=partitions)
            if by_id
            else FetchableTopicResponse(topic.topic, partitions=partitions)
        ),
    )
    return topics.then(lambda topics: FetchResponse(0, 0, INVALID_SESSION_ID, topics))


def _fetch(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    requested: list[FetchPartition],
) -> Result[FetchResponse]:
    fetch = services.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        context.api_version >= TOPIC_ID_VERSION,
        requested,
        _forgotten(request, context) if request.forgotten_topics_data else [],
    )
    if fetch.error:
        return Result(FetchResponse(0, int(fetch.error), INVALID_SESSION_ID, []))
    params = fetch_params(services, context, request)
    data = services.replica_manager.fetch_records(params, fetch.partitions)
    is_limited = services.quotas.fetch.enabled and params.replica_id == CONSUMER
    response = _ResponseBuilder(services, context, fetch, is_limited)
    if data.completed:
        return response.of(data.value)
    return data.chain(response.of, executed=True)


def fetch_params(services: Services, context: RequestContext, request: FetchRequest) -> FetchParams:
    """Return the properties of the fetch, within the limits of the broker and of the quota."""
    replica_id = request.replica_id
    if request.replica_state is not None:
        replica_id = request.replica_state.replica_id
    isolation = CONSUMER_ISOLATION
    if replica_id >= 0:
        isolation = FetchIsolation.LOG_END
    elif request.isolation_level == READ_COMMITTED:
        isolation = FetchIsolation.COMMITTED
    max_bytes = services.config.get_int("fetch.max.bytes")
    if request.max_bytes < max_bytes:
        max_bytes = request.max_bytes
    if services.quotas.fetch.enabled and replica_id == CONSUMER:
        max_bytes = fetch_limit(services, context, max_bytes)
    return FetchParams(
        isolation,
        replica_id,
        request.min_bytes if request.min_bytes < max_bytes else max_bytes,
        max_bytes,
        request.max_wait_ms,
        context.api_version >= ZSTD_VERSION,
    )


def requested_partition(
    by_id: bool, topic: FetchTopic, partition: RequestedPartition | None = None
) -> FetchPartition:
    """Return the parameters of the fetch for one partition. Default: the topic's only partition."""
    if partition is None:
        (partition,) = topic.partitions
    return FetchPartition(
        topic.topic_id if by_id else topic.topic,
        partition.partition,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
    )


def _forgotten(request: FetchRequest, context: RequestContext) -> list[PartitionKey]:
    by_id = context.api_version >= TOPIC_ID_VERSION
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


class _ResponseBuilder:
    """Builder of the response to one request from the data of its partitions."""

    __slots__ = (
        "_by_id",
        "_context",
        "_fetch",
        "_is_limited",
        "_last_topic",
        "_leaders",
        "_services",
        "_topics",
    )

    def __init__(
        self, services: Services, context: RequestContext, fetch: FetchContext, is_limited: bool
    ) -> None:
        self._services = services
        self._context = context
        self._fetch = fetch
        self._is_limited = is_limited
        self._by_id = context.api_version >= TOPIC_ID_VERSION
        self._leaders: set[int] = set()
        self._topics: list[FetchableTopicResponse] = []
        self._last_topic: str | Uuid | None = None

    def of(self, data: list[FetchPartitionData]) -> Result[FetchResponse]:
        """Return the response. Close the regions that it does not contain."""
        if data[1:]:
            return self._of_many(data)
        try:
            if self._is_limited:
                refusal = self._throttled(data)
                if refusal is not None:
                    return Result(refusal)
            if data:
                self._add((self._fetch.partitions[0], data[0]))
            return Result(self._finished(data))
        except KafkaError as error:
            close_regions(data)
            return Result(self._refused(error))
        except BaseException:
            close_regions(data)
            raise

    def _of_many(self, data: list[FetchPartitionData]) -> Result[FetchResponse]:
        def close_on_failure(done: Result[FetchResponse]) -> None:
            if done.error is not None:
                close_regions(data)

        if self._is_limited:
            refusal = self._throttled(data)
            if refusal is not None:
                return Result(refusal)
        read = list(zip(self._fetch.partitions, data, strict=True))
        response = each(self._add, read).then(lambda _: self._finished(data))
        response.on_done(close_on_failure)
        return response.recover(KafkaError, self._refused)

    def _throttled(self, data: list[FetchPartitionData]) -> FetchResponse | None:
        """Return the response without records if the client exceeds its quota, otherwise None."""
        session = self._fetch.session
        if session is not None and session.epoch != self._fetch.epoch:
            return None  # the request is refused for its epoch, and its bytes are not counted
        size_bytes = sum(each.region.length for each in data if each.region is not None)
        session_id = self._session_id
        refusal = throttled_fetch(self._services, self._context, size_bytes, session_id)
        if refusal is not None:
            close_regions(data)
        return refusal

    def _refused(self, error: KafkaError) -> FetchResponse:
        return FetchResponse(0, int(error.code), self._session_id, [])

    @property
    def _session_id(self) -> int:
        session = self._fetch.session
        return INVALID_SESSION_ID if session is None else session.id

    def _finished(self, data: list[FetchPartitionData]) -> FetchResponse:
        """Return the response, to which all partitions have been added."""
        session = self._fetch.session
        session_id = INVALID_SESSION_ID if session is None else session.id
        if self._fetch.create_session:
            session_id = self._create_session(data)
        response = FetchResponse(0, 0, session_id, self._topics)
        if self._leaders:
            hints = leader_endpoints(self._services, self._context, self._leaders)
            response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
        return response

    def _add(self, read: tuple[FetchPartition, FetchPartitionData]) -> None:
        """Add a partition, unless the incremental response omits it.

        Adjacent partitions of one topic share an entry, as in ``FetchResponse.toMessage``.
        """
        requested, data = read
        session = self._fetch.session
        if session is not None:
            if session.epoch != self._fetch.epoch:
                # Another request of the session arrived in the meantime. As in Kafka, this request
                # counts as a duplicate.
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if not session.includes(requested, data):
                return
        partition = self._partition(requested.partition, data)
        topic = requested.topic
        if topic == self._last_topic:
            self._topics[-1].partitions.append(partition)
            return
        self._last_topic = topic
        self._topics.append(
            FetchableTopicResponse(topic_id=topic, partitions=[partition])  # type: ignore[arg-type]
            if self._by_id
            else FetchableTopicResponse(topic, partitions=[partition])  # type: ignore[arg-type]
        )

    def _partition(self, index: int, data: FetchPartitionData) -> PartitionData:
        if data.error:
            return self._failed(index, data)
        partition = PartitionData(
            index,
            0,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            aborted_transactions=None,
            records=b"" if data.region is None else data.region,
        )
        if data.aborted_transactions is not None:
            partition.aborted_transactions = [
                AbortedTransaction(*each) for each in data.aborted_transactions
            ]
        if data.diverging_epoch != UNDEFINED_EPOCH:
            partition.diverging_epoch = EpochEndOffset(
                data.diverging_epoch, data.diverging_end_offset
            )
        return partition

    def _failed(self, index: int, data: FetchPartitionData) -> PartitionData:
        code, version = data.error, self._context.api_version
        if code in _UNKNOWN:
            return PartitionData(index, int(code), -1, records=b"")
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = PartitionData(index, int(code), -1, aborted_transactions=None, records=b"")
        if data.current_leader is not None and version >= CURRENT_LEADER_VERSION:
            partition.current_leader = LeaderIdAndEpoch(*data.current_leader)
            self._leaders.add(data.current_leader[0])
        return partition

    def _create_session(self, data: list[FetchPartitionData]) -> int:
        for requested, read in zip(self._fetch.partitions, data, strict=True):
            requested.set_returned(read)
        return self._services.fetch_sessions.create(self._fetch.partitions, self._by_id)
