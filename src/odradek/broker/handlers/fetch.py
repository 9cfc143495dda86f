"""Fetch, versions 4-18: from consumers; full, sessionless and incremental (KIP-227).

Records leave as regions of files, by reference. Partitions are read in the order of the request,
or of the session, which puts those that gave records last; the first batch of the first partition
that has one is whole even when it is larger than max.bytes (KIP-74), the others keep to what is
left. A fetch waits for min.bytes at most max.wait, unless a partition has an error or its reader's
log diverged (KIP-320, version 12). Topics are named by id from version 13 on (KIP-516).

With isolation level read_committed a fetch reads up to the last stable offset, waits for it to
move, and is told which transactions in what it got were aborted (KIP-98); high watermark, last
stable offset, records and that list are of one moment.

A consumer over its quota is answered at once without records and has to pause (KIP-219); its
session is as it was.

A fetch that says it is from a replica gets what Kafka gives to a replica that is not assigned,
from a partition that knows no followers: an error, and no state changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.fetch_sessions import INVALID_SESSION_ID, FetchContext, FetchPartition
from odradek.broker.leader_hints import leader_endpoints
from odradek.broker.throttling import fetch_limit, throttled_fetch
from odradek.cluster.partition import UNDEFINED_EPOCH, Partition
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.turns import ELEMENTS_A_TURN, Turns

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.broker.fetch_sessions import PartitionKey
    from odradek.cluster.purgatory import DelayedFetch
    from odradek.protocol.messages.fetch_request import FetchPartition as AskedPartition
    from odradek.protocol.messages.fetch_request import FetchRequest

TOPIC_ID_VERSION = 13
CURRENT_LEADER_VERSION = 16
STORAGE_ERROR_VERSION = 6
ZSTD_VERSION = 10
READ_COMMITTED = 1
CONSUMER = -1

_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse] | Coroutine[Any, Any, Any]:
    """Reads now; answers now, or when there is enough to answer with."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    fetch = services.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        by_id,
        _wanted(request, by_id),
        _forgotten(request, by_id) if request.forgotten_topics_data else [],
    )
    if fetch.error:
        return FetchResponse(0, int(fetch.error), INVALID_SESSION_ID, [])
    reading = _Reading(services, context, request, fetch)
    if fetch.partitions[ELEMENTS_A_TURN:]:  # a short request may have a large session
        return reading.start_in_turns()
    return reading.start()


async def handle_long(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse]:
    """As `handle`, in turns: for a request that names many partitions."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    turns = Turns()
    wanted = []
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        wanted += await turns.map(partial(_wanted_partition, key), topic.partitions)
    fetch = services.fetch_sessions.context(
        request.session_id, request.session_epoch, by_id, wanted, _forgotten(request, by_id)
    )
    if fetch.error:
        return FetchResponse(0, int(fetch.error), INVALID_SESSION_ID, [])
    return await _Reading(services, context, request, fetch).start_in_turns()


def _wanted_partition(topic: str | bytes, each: AskedPartition) -> FetchPartition:
    return FetchPartition(
        topic,
        each.partition,
        each.fetch_offset,
        each.partition_max_bytes,
        each.current_leader_epoch,
        each.last_fetched_epoch,
    )


def _wanted(request: FetchRequest, by_id: bool) -> list[FetchPartition]:
    return [
        FetchPartition(
            topic.topic_id if by_id else topic.topic,
            each.partition,
            each.fetch_offset,
            each.partition_max_bytes,
            each.current_leader_epoch,
            each.last_fetched_epoch,
        )
        for topic in request.topics
        for each in topic.partitions
    ]


def _forgotten(request: FetchRequest, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


class _Reading:
    """One fetch from its first read to its answer."""

    __slots__ = (
        "_answer_now",
        "_before_zstd",
        "_by_id",
        "_committed",
        "_context",
        "_delayed",
        "_fetch",
        "_future",
        "_in_turns",
        "_leaders",
        "_limited",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_partitions",
        "_replica_id",
        "_services",
        "_size_bytes",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: FetchRequest,
        fetch: FetchContext,
    ) -> None:
        self._services = services
        self._context = context
        self._fetch = fetch
        self._by_id = context.api_version >= TOPIC_ID_VERSION
        self._before_zstd = context.api_version < ZSTD_VERSION
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_wait_ms = request.max_wait_ms
        self._max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
        self._replica_id = request.replica_id
        if request.replica_state is not None:
            self._replica_id = request.replica_state.replica_id
        self._limited = services.quotas.fetch.enabled and self._replica_id == CONSUMER
        if self._limited:
            self._max_bytes = fetch_limit(services, context, self._max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._answer_now = False
        self._size_bytes = 0
        self._partitions: list[Partition] = []
        self._leaders: set[int] = set()
        self._future: asyncio.Future[FetchResponse] | None = None
        self._in_turns = False
        self._delayed: DelayedFetch | None = None

    def start(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        """The answer, or a future of it when the fetch has to wait."""
        answers = self._read_all(self._fetch.partitions, 0)
        if (
            self._size_bytes >= self._min_bytes
            or self._answer_now
            or self._max_wait_ms <= 0
            or not self._partitions
        ):
            return self._respond(answers)
        return self._wait(answers)

    async def start_in_turns(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        """As `start`, giving way to others; what is said of a partition is of one moment, but not
        what is said of all of them. What comes to a partition after its turn counts as it does
        while the fetch waits.
        """
        self._in_turns = True
        delayed = self._delayed = self._services.replica_manager.fetches.watch(
            [], self._min_bytes, max(self._max_wait_ms, 0), self._resume
        )
        try:
            answers = await self._read_all_in_turns()
            if (
                self._size_bytes < self._min_bytes
                and not self._answer_now
                and self._max_wait_ms > 0
                and self._partitions
            ):
                return self._wait_on(delayed, answers)
            delayed.cancel()
            return await self._respond_in_turns(answers)
        except BaseException:
            delayed.cancel()
            raise

    def _wait_on(
        self, delayed: DelayedFetch, answers: list[PartitionData]
    ) -> asyncio.Future[FetchResponse]:
        """As `_wait`, with what has been waiting since the reading began."""
        _close_regions(answers)
        future = self._future = self._services.replica_manager.fetches.loop.create_future()
        future.add_done_callback(self._ended)
        if delayed.ended:
            self._resume()
        else:
            delayed.appended(self._size_bytes)
        return future

    def _wait(self, answers: list[PartitionData]) -> asyncio.Future[FetchResponse]:
        """Waits for what would make another read worth while."""
        _close_regions(answers)
        manager = self._services.replica_manager
        self._future = manager.fetches.loop.create_future()
        self._future.add_done_callback(self._ended)
        self._delayed = manager.fetches.watch(
            self._partitions,
            self._min_bytes - self._size_bytes,
            self._max_wait_ms,
            self._resume,
            stable=self._committed,
        )
        return self._future

    def _resume(self) -> None:
        """The wait is over: the same read again, and whatever it gives is the answer."""
        future = self._future
        if future is None or future.done():  # None: still reading, and told when that is done
            return
        if self._in_turns:
            reading = future.get_loop().create_task(self._resume_in_turns(future))
            future.add_done_callback(lambda _: reading.cancel())
            return
        try:
            future.set_result(self._respond(self._read_all(self._fetch.partitions, 0)))
        except Exception as error:  # noqa: BLE001 - the dispatcher logs it and closes the connection
            future.set_exception(error)

    async def _resume_in_turns(self, future: asyncio.Future[FetchResponse]) -> None:
        try:
            response = await self._respond_in_turns(await self._read_all_in_turns())
        except Exception as error:  # noqa: BLE001 - the dispatcher logs it and closes the connection
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(response)
            else:
                for topic in response.responses:
                    _close_regions(topic.partitions)

    def _ended(self, future: asyncio.Future[FetchResponse]) -> None:
        """Answered, or the client went away: nobody waits any more."""
        if self._delayed is not None:
            self._delayed.cancel()

    async def _read_all_in_turns(self) -> list[PartitionData]:
        """As `_read_all`: some partitions at a time, within what the ones before have left."""
        wanted = self._fetch.partitions
        answers: list[PartitionData] = []
        partitions: list[Partition] = []
        size = 0
        answer_now = False
        turns = Turns()
        try:
            for start in range(0, len(wanted), ELEMENTS_A_TURN):
                await turns.take()
                turns.charge(ELEMENTS_A_TURN)
                answers += self._read_all(wanted[start : start + ELEMENTS_A_TURN], size)
                if self._delayed is not None:
                    self._delayed.watch(self._partitions, stable=self._committed)
                partitions += self._partitions
                size = self._size_bytes
                answer_now |= self._answer_now
        except BaseException:
            _close_regions(answers)
            raise
        self._partitions = partitions
        self._answer_now = answer_now
        return answers

    def _read_all(self, asked: list[FetchPartition], size_bytes: int) -> list[PartitionData]:
        """Reads every partition within max.bytes, of which `size_bytes` are used up; answers in the
        order of the partitions.
        """
        manager = self._services.replica_manager
        names = manager.topic_names
        self._size_bytes = size_bytes
        self._answer_now = False
        partitions = self._partitions = []
        remaining = self._max_bytes - size_bytes
        answers = []
        for wanted in asked:
            topic: Any = wanted.topic
            name: Any = names.get(topic) if self._by_id else topic
            partition = manager.partitions.get((name, wanted.partition))
            if partition is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if name is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                answers.append(PartitionData(wanted.partition, int(code), -1, records=b""))
                self._answer_now = True
                continue
            partitions.append(partition)
            answer = self._read(partition, wanted, remaining)
            answers.append(answer)
            size = len(answer.records)  # type: ignore[arg-type]
            self._size_bytes += size
            remaining -= size
        return answers

    def _read(self, partition: Partition, wanted: FetchPartition, remaining: int) -> PartitionData:
        """Reads one partition; an error is in the answer."""
        log = partition.log
        # Taken before the read, so that no answer claims more than was true then (R7).
        high_watermark = stable_offset = log.high_watermark
        log_start_offset = log.log_start_offset
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            stable_offset = log.stable_offset(high_watermark)
        try:
            if self._replica_id != CONSUMER:
                self._check_replica(partition, wanted)
            if self._before_zstd and log.config.compression_type == "zstd":
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            region, epoch, end_offset, info = partition.read(
                wanted.fetch_offset,
                wanted.max_bytes if wanted.max_bytes < remaining else max(remaining, 0),
                not self._size_bytes,
                wanted.leader_epoch,
                wanted.last_fetched_epoch,
                stable_offset if self._committed else high_watermark,
            )
        except KafkaError as error:
            return self._failed(partition, wanted, error)
        answer = PartitionData(
            wanted.partition,
            0,
            high_watermark,
            stable_offset,
            log_start_offset,
            aborted_transactions=None,
            records=b"" if region is None else region,
        )
        if self._committed and info is not None:
            aborted = log.aborted_in(wanted.fetch_offset, info)
            answer.aborted_transactions = [AbortedTransaction(*each) for each in aborted]
        if epoch != UNDEFINED_EPOCH:
            answer.diverging_epoch = EpochEndOffset(epoch, end_offset)
            self._answer_now = True
        return answer

    def _check_replica(self, partition: Partition, wanted: FetchPartition) -> None:
        """No other broker is a replica here (``Partition.followerReplicaOrThrow``)."""
        if self._replica_id < 0:
            return
        partition.check_leader_epoch(wanted.leader_epoch)
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER
            if wanted.leader_epoch == UNDEFINED_EPOCH
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )

    def _failed(
        self, partition: Partition, wanted: FetchPartition, error: KafkaError
    ) -> PartitionData:
        self._answer_now = True
        code = error.code
        version = self._context.api_version
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(
            wanted.partition, int(code), -1, aborted_transactions=None, records=b""
        )
        if code in _LEADER_ERRORS and version >= CURRENT_LEADER_VERSION:
            answer.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
            self._leaders.add(partition.leader)
        return answer

    def _respond(self, answers: list[PartitionData]) -> FetchResponse:
        """The response, with what the session leaves out left out."""
        fetch = self._fetch
        session = fetch.session
        session_id = INVALID_SESSION_ID
        partitions = fetch.partitions
        if session is not None or self._limited:
            refusal = self._refusal(answers)
            if refusal is not None:
                return refusal
        if session is not None:
            session_id = session.id
            changed = [pair for pair in zip(partitions, answers, strict=True) if _is_changed(*pair)]
            for wanted, answer in changed:
                if len(answer.records):  # type: ignore[arg-type]
                    session.move_to_end(wanted)
        else:
            changed = list(zip(partitions, answers, strict=True))
            if fetch.create_session:
                session_id = self._create_session(changed)
        response = FetchResponse(0, 0, session_id, self._by_topic(changed))
        if self._leaders:
            hints = leader_endpoints(self._services, self._context, self._leaders)
            response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
        return response

    async def _respond_in_turns(self, answers: list[PartitionData]) -> FetchResponse:
        """As `_respond`, in pieces."""
        refusal = self._refusal(answers)
        if refusal is not None:
            return refusal
        fetch, session = self._fetch, self._fetch.session
        topics: list[FetchableTopicResponse] = []
        turns = Turns()
        try:
            for start in range(0, len(answers), ELEMENTS_A_TURN):
                await turns.take()
                turns.charge(ELEMENTS_A_TURN)
                end = start + ELEMENTS_A_TURN
                piece = list(zip(fetch.partitions[start:end], answers[start:end], strict=True))
                if session is not None:
                    piece = [pair for pair in piece if _is_changed(*pair)]
                    for wanted, answer in piece:
                        if len(answer.records):  # type: ignore[arg-type]
                            session.move_to_end(wanted)
                _add_topics(topics, self._by_topic(piece))
        except BaseException:
            _close_regions(answers)
            raise
        session_id = INVALID_SESSION_ID if session is None else session.id
        if fetch.create_session:
            session_id = self._create_session(list(zip(fetch.partitions, answers, strict=True)))
        response = FetchResponse(0, 0, session_id, topics)
        if self._leaders:
            hints = leader_endpoints(self._services, self._context, self._leaders)
            response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
        return response

    def _refusal(self, answers: list[PartitionData]) -> FetchResponse | None:
        """What is answered instead of the records, which then are given back."""
        fetch, session = self._fetch, self._fetch.session
        session_id = INVALID_SESSION_ID if session is None else session.id
        refusal = None
        if session is not None and session.epoch != fetch.epoch:
            # Another request of the same session came between: a duplicate, says Kafka too.
            code = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            refusal = FetchResponse(0, code, session_id, [])
        elif self._limited:
            refusal = throttled_fetch(self._services, self._context, self._size_bytes, session_id)
        if refusal is not None:
            _close_regions(answers)
        return refusal

    def _create_session(self, answered: list[tuple[FetchPartition, PartitionData]]) -> int:
        for wanted, answer in answered:
            wanted.high_watermark = answer.high_watermark
            wanted.log_start_offset = answer.log_start_offset
        return self._services.fetch_sessions.create(self._fetch.partitions, self._by_id)

    def _by_topic(
        self, answered: list[tuple[FetchPartition, PartitionData]]
    ) -> list[FetchableTopicResponse]:
        """Neighbours of one topic in one entry, as ``FetchResponse.toMessage`` does."""
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        for wanted, answer in answered:
            topic = wanted.topic
            if topic != last:
                last = topic
                entry = FetchableTopicResponse(partitions=[])
                if self._by_id:
                    entry.topic_id = topic  # type: ignore[assignment]
                else:
                    entry.topic = topic  # type: ignore[assignment]
                topics.append(entry)
            topics[-1].partitions.append(answer)
        return topics


def _add_topics(topics: list[FetchableTopicResponse], more: list[FetchableTopicResponse]) -> None:
    """Adds what follows, and goes on with the topic in which the last piece ended."""
    if topics and more:
        last, first = topics[-1], more[0]
        if (last.topic, last.topic_id) == (first.topic, first.topic_id):
            last.partitions += first.partitions
            del more[0]
    topics += more


def _is_changed(known: FetchPartition, answer: PartitionData) -> bool:
    """Whether an incremental answer names the partition; remembers what it will then have said."""
    changed = (
        len(answer.records) > 0  # type: ignore[arg-type]
        or known.high_watermark != answer.high_watermark
        or known.log_start_offset != answer.log_start_offset
        or answer.error_code != 0
        or answer.diverging_epoch is not None
    )
    known.high_watermark = answer.high_watermark
    known.log_start_offset = answer.log_start_offset
    if answer.error_code:
        # So that the partition is named again when the error has gone.
        known.high_watermark = -1
    return changed


def _close_regions(answers: list[PartitionData]) -> None:
    """Gives back the regions that will not be sent."""
    for answer in answers:
        close = getattr(answer.records, "close", None)
        if close is not None:
            close()
