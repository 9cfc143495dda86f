"""The response to a fetch, made from the data of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each
from odradek.broker.requests.fetch_requests import TOPIC_ID_VERSION
from odradek.broker.requests.fetch_sessions import FetchContext, FetchPartition
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.broker.requests.throttling import throttled_fetch
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
from odradek.replication.delayed_fetch import close_regions
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.ids import Uuid
    from odradek.replication.fetch_data import FetchPartitionData

CURRENT_LEADER_VERSION = 16
STORAGE_ERROR_VERSION = 6

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchResponseBuilder:
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
        if data[ELEMENTS_PER_SLICE:]:
            return self._of_many(data)
        try:
            if self._is_limited:
                refusal = self._throttled(data)
                if refusal is not None:
                    return Result(refusal)
            for read in zip(self._fetch.partitions, data, strict=True):
                self._add(read)
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
            records=data.copied if data.region is None else data.region,
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
        if self._fetch.new_session_id is not None:
            return self._fetch.new_session_id
        return self._services.fetch_sessions.create(self._fetch.partitions, self._by_id)
