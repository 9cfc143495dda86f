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
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.requests.fetch_sessions import INVALID_SESSION_ID, FetchContext, FetchPartition
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.broker.requests.throttling import fetch_limit, throttled_fetch
from odradek.errors import ErrorCode, KafkaError
from odradek.log.residency import NotResident
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replication.partition import UNDEFINED_EPOCH, Partition
from odradek.slicing import ELEMENTS_A_TURN, Pause, begun_work, in_turns

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.broker.requests.fetch_sessions import FetchSession, PartitionKey
    from odradek.log.unified_log import LogReadInfo
    from odradek.protocol.messages.fetch_request import FetchRequest
    from odradek.replication.purgatory import DelayedFetch

Result = FetchResponse | asyncio.Future[FetchResponse] | Coroutine[Any, Any, Any]

TOPIC_ID_VERSION = 13
CURRENT_LEADER_VERSION = 16
STORAGE_ERROR_VERSION = 6
ZSTD_VERSION = 10
READ_COMMITTED = 1
CONSUMER = -1

_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(services: Services, context: RequestContext, request: FetchRequest) -> Result:
    """Reads now; answers now, or when there is enough to answer with."""
    return begun_work(_Reading(services, context, request).start(request))


def handle_long(services: Services, context: RequestContext, request: FetchRequest) -> Result:
    """As `handle`, for a request that names very many partitions."""
    return in_turns(_Reading(services, context, request).start(request))


def _wanted(request: FetchRequest, by_id: bool) -> Generator[None, None, list[FetchPartition]]:
    """What the request names; yields wherever a turn is over."""
    wanted = []
    left = ELEMENTS_A_TURN
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        left -= 1
        for each in topic.partitions:
            if left <= 0:
                left = ELEMENTS_A_TURN
                yield
            left -= 1
            wanted.append(
                FetchPartition(
                    key,
                    each.partition,
                    each.fetch_offset,
                    each.partition_max_bytes,
                    each.current_leader_epoch,
                    each.last_fetched_epoch,
                )
            )
    return wanted


def _forgotten(request: FetchRequest, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


class _Reading:
    """One fetch from its first read to its answer.

    What may be long is a generator that yields wherever a turn is over: what is said of a partition
    is of one moment, but then not what is said of all of them.
    """

    __slots__ = (
        "_answer_now",
        "_before_zstd",
        "_by_id",
        "_cold_read",
        "_committed",
        "_context",
        "_delayed",
        "_fetch",
        "_future",
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

    _fetch: FetchContext
    # Of one read of all partitions:
    _answer_now: bool
    _size_bytes: int
    _partitions: list[Partition]
    # Of one partition that has to be read from the disk.
    _cold_read: Callable[[], LogReadInfo]

    def __init__(self, services: Services, context: RequestContext, request: FetchRequest) -> None:
        self._services = services
        self._context = context
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
        self._leaders: set[int] = set()
        self._future: asyncio.Future[FetchResponse] | None = None
        # Of a long fetch from its first read on, of any other while it waits.
        self._delayed: DelayedFetch | None = None

    def start(
        self, request: FetchRequest
    ) -> Generator[Pause, None, FetchResponse | asyncio.Future[FetchResponse]]:
        """The answer, or a future of it when the fetch has to wait."""
        by_id = self._by_id
        fetch = self._fetch = self._services.fetch_sessions.context(
            request.session_id,
            request.session_epoch,
            by_id,
            (yield from _wanted(request, by_id)),
            _forgotten(request, by_id) if request.forgotten_topics_data else [],
        )
        if fetch.error:
            return FetchResponse(0, int(fetch.error), INVALID_SESSION_ID, [])
        if fetch.partitions[ELEMENTS_A_TURN:]:  # a short request may have a large session
            self._watch([], self._min_bytes)
        try:
            answers = yield from self._read_all()
            if (
                self._size_bytes < self._min_bytes
                and not self._answer_now
                and self._max_wait_ms > 0
                and self._partitions
            ):
                return self._wait(answers)
            if self._delayed is not None:
                self._delayed.cancel()
            return (yield from self._respond(answers))
        except BaseException:
            if self._delayed is not None:
                self._delayed.cancel()
            raise

    def _watch(self, partitions: list[Partition], bytes_missing: int) -> None:
        """From now on what comes to `partitions`, and the time, can end the wait."""
        self._delayed = self._services.replica_manager.fetches.watch(
            partitions,
            bytes_missing,
            max(self._max_wait_ms, 0),
            self._resume,
            stable=self._committed,
        )

    def _wait(self, answers: list[PartitionData]) -> asyncio.Future[FetchResponse]:
        """Waits for what would make another read worth while."""
        _close_regions(answers)
        future = self._services.replica_manager.fetches.loop.create_future()
        self._future = future
        future.add_done_callback(self._ended)
        if self._delayed is None:
            self._watch(self._partitions, self._min_bytes - self._size_bytes)
        elif self._delayed.ended:
            self._resume()
        else:
            self._delayed.appended(self._size_bytes)
        return future

    def _resume(self) -> None:
        """The wait is over: the same read again, and whatever it gives is the answer."""
        future = self._future
        if future is None or future.done():  # None: still reading, and told when that is done
            return
        self._delayed = None
        rest = begun_work(self._finish(future))
        if rest is not None:
            reading = future.get_loop().create_task(rest)
            future.add_done_callback(lambda _: reading.cancel())

    def _finish(self, future: asyncio.Future[FetchResponse]) -> Generator[Pause, None, None]:
        try:
            response = yield from self._respond((yield from self._read_all()))
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

    def _read_all(self) -> Generator[Pause, None, list[PartitionData]]:
        """Reads every partition within max.bytes; answers in the order of the partitions."""
        self._size_bytes = 0
        self._answer_now = False
        self._partitions = []
        partitions = self._fetch.partitions
        if len(partitions) == 1:
            answer = self._read(partitions[0])
            if answer is None:
                answer = yield from self._read_cold(partitions[0])
            return [answer]
        answers: list[PartitionData] = []
        left = ELEMENTS_A_TURN
        try:
            for wanted in partitions:
                if not left:
                    left = ELEMENTS_A_TURN
                    yield None
                left -= 1
                answer = self._read(wanted)
                if answer is None:
                    answer = yield from self._read_cold(wanted)
                answers.append(answer)
        except BaseException:
            _close_regions(answers)
            raise
        return answers

    def _read_cold(self, wanted: FetchPartition) -> Generator[Pause, None, PartitionData]:
        """Has a thread read what is not in memory, then answers from what it found, as things are
        by then.
        """
        answer = None
        while answer is None:
            read = self._services.replica_manager.read_in_thread(self._cold_read)
            yield read
            answer = self._read(wanted, read.result)
        return answer

    def _read(  # noqa: C901 - calls are what this path costs
        self, wanted: FetchPartition, found: Callable[[], LogReadInfo] | None = None
    ) -> PartitionData | None:
        """Reads one partition within what is left of max.bytes; an error is in the answer.

        None when the disk would have to be read: `_cold_read` does that on a thread, and is `found`
        then.
        """
        manager = self._services.replica_manager
        name: Any = wanted.topic
        if self._by_id:
            name = manager.topic_names.get(name)
        partition = manager.partitions.get((name, wanted.partition))
        if partition is None:
            return self._unknown(wanted, name)
        self._partitions.append(partition)
        if self._delayed is not None:  # what comes after its turn counts as if it had waited
            self._delayed.watch([partition], stable=self._committed)
        log = partition.log
        # Taken before the read, so that no answer claims more than was true then (R7).
        high_watermark = stable_offset = log.high_watermark
        log_start_offset = log.log_start_offset
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            stable_offset = log.stable_offset(high_watermark)
        size_bytes = self._size_bytes
        remaining = self._max_bytes - size_bytes
        max_bytes = wanted.max_bytes if wanted.max_bytes < remaining else max(remaining, 0)
        committed = self._committed
        max_offset = stable_offset if committed else high_watermark
        try:
            if self._replica_id != CONSUMER:
                self._check_replica(partition, wanted)
            if self._before_zstd and log.config.compression_type == "zstd":
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            region, epoch, end_offset, info = partition.read(
                wanted.fetch_offset,
                max_bytes,
                not size_bytes,
                wanted.leader_epoch,
                wanted.last_fetched_epoch,
                max_offset,
                committed,
                found,
            )
        except KafkaError as error:
            return self._failed(partition, wanted, error)
        except NotResident:
            self._partitions.pop()
            limits = (wanted.fetch_offset, max_bytes, max_offset, not size_bytes)
            self._cold_read = partial(log.read, *limits, with_aborted=committed)
            return None
        answer = PartitionData(
            wanted.partition,
            0,
            high_watermark,
            stable_offset,
            log_start_offset,
            aborted_transactions=None,
            records=b"" if region is None else region,
        )
        if region is not None:
            self._size_bytes = size_bytes + region.length
        if committed and info is not None:
            aborted = info.aborted or ()
            answer.aborted_transactions = [AbortedTransaction(*each) for each in aborted]
        if epoch != UNDEFINED_EPOCH:
            answer.diverging_epoch = EpochEndOffset(epoch, end_offset)
            self._answer_now = True
        return answer

    def _unknown(self, wanted: FetchPartition, name: str | None) -> PartitionData:
        self._answer_now = True
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        return PartitionData(wanted.partition, int(code), -1, records=b"")

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

    def _respond(self, answers: list[PartitionData]) -> Generator[None, None, FetchResponse]:
        """The response, or what is answered instead of the records, which then are given back."""
        fetch, session = self._fetch, self._fetch.session
        session_id = INVALID_SESSION_ID if session is None else session.id
        try:
            if session is not None:
                self._check_epoch(session)
            if self._limited:
                refusal = throttled_fetch(
                    self._services, self._context, self._size_bytes, session_id
                )
                if refusal is not None:
                    _close_regions(answers)
                    return refusal
            if len(answers) == 1:
                topics = self._of_one(fetch.partitions[0], answers[0])
            else:
                topics = yield from self._by_topic(answers)
        except KafkaError as error:
            _close_regions(answers)
            return FetchResponse(0, int(error.code), session_id, [])
        except BaseException:
            _close_regions(answers)
            raise
        if fetch.create_session:
            session_id = self._create_session(answers)
        response = FetchResponse(0, 0, session_id, topics)
        if self._leaders:
            hints = leader_endpoints(self._services, self._context, self._leaders)
            response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
        return response

    def _check_epoch(self, session: FetchSession) -> None:
        if session.epoch != self._fetch.epoch:
            # Another request of the same session came between: a duplicate, says Kafka too.
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    def _by_topic(
        self, answers: list[PartitionData]
    ) -> Generator[None, None, list[FetchableTopicResponse]]:
        """What the session does not leave out, neighbours of one topic in one entry, as
        ``FetchResponse.toMessage`` does.
        """
        session = self._fetch.session
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        left = ELEMENTS_A_TURN
        for wanted, answer in zip(self._fetch.partitions, answers, strict=True):
            if not left:
                left = ELEMENTS_A_TURN
                yield
                if session is not None:
                    self._check_epoch(session)
            left -= 1
            if session is not None and not _is_told(session, wanted, answer):
                continue
            topic = wanted.topic
            if topic == last:
                topics[-1].partitions.append(answer)
            else:
                last = topic
                topics.append(self._topic(topic, answer))
        return topics

    def _of_one(
        self, wanted: FetchPartition, answer: PartitionData
    ) -> list[FetchableTopicResponse]:
        """`_by_topic`, of the usual fetch of one partition: without turns."""
        session = self._fetch.session
        if session is not None and not _is_told(session, wanted, answer):
            return []
        return [self._topic(wanted.topic, answer)]

    def _topic(self, topic: Any, answer: PartitionData) -> FetchableTopicResponse:
        if self._by_id:
            return FetchableTopicResponse(topic_id=topic, partitions=[answer])
        return FetchableTopicResponse(topic, partitions=[answer])

    def _create_session(self, answers: list[PartitionData]) -> int:
        for wanted, answer in zip(self._fetch.partitions, answers, strict=True):
            wanted.high_watermark = answer.high_watermark
            wanted.log_start_offset = answer.log_start_offset
        return self._services.fetch_sessions.create(self._fetch.partitions, self._by_id)


def _is_told(session: FetchSession, wanted: FetchPartition, answer: PartitionData) -> bool:
    """Whether an incremental answer names the partition; with records it has had its turn."""
    if not _is_changed(wanted, answer):
        return False
    if len(answer.records):  # type: ignore[arg-type]
        session.move_to_end(wanted)
    return True


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
