"""A leader that a test scripts: the requests of a follower's channels, and responses to them.

Requests and responses pass through the codec, so a follower gets what it would get from a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import Files
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import BrokerRegistration, Endpoint
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.fetch_session import FINAL_EPOCH
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest
from odradek.protocol.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.records.batch import LEADER_FIELDS, parse_header
from odradek.replication.fetch_plan import FetcherSettings
from odradek.replication.fetcher_manager import FetcherManager
from odradek.replication.offset_lookup import LATEST
from odradek.replication.partition import Partition
from odradek.replication.replication_parts import FollowedPartition
from odradek.replication.single_partition_fetch import FETCH_VERSION, SinglePartitionFetch
from odradek.results import PendingResult, Result
from tests.helpers.led_partitions import led
from tests.helpers.manual_timers import SteppedTimers
from tests.log.builders import NOW_MS, TOPIC_ID, batch_of, open_manager
from tests.replication.fakes import HeldExecutor

FOLLOWER, LEADER = BrokerId(2), BrokerId(1)
BROKER_EPOCH = 41
LEADER_EPOCH = 5
LISTENER = "BROKERS"
SETTINGS = FetcherSettings()
LIST_OFFSETS_VERSION = 10


class Asked(NamedTuple):
    """A request that waits for its response."""

    request: Any
    decode: Callable[[memoryview, int], tuple[Any, int]]
    result: PendingResult[Any]


class ScriptedChannel:
    """One channel of the follower. The test responds to its requests."""

    def __init__(self, host: str, port: int, purpose: str) -> None:
        self.address = (host, port)
        self.purpose = purpose
        self.asked: list[Asked] = []
        self.closed = False

    def send(
        self,
        request: Any,
        response: type[Any],
        *,
        timeout_ms: float | None = None,
        version: int | None = None,
    ) -> Result[Any]:
        assert not self.closed
        assert timeout_ms == SETTINGS.timeout_ms
        if version is None:
            version = LIST_OFFSETS_VERSION
        result: PendingResult[Any] = PendingResult()
        if isinstance(request, SinglePartitionFetch):
            decoded: Any = decode(FetchRequest, version, memoryview(request.body), 0)
            self.asked.append(Asked(decoded, request.decode_response, result))
            return result
        decoded = decode(type(request), version, memoryview(encode(request, version)), 0)
        decoder = partial(decode, response, version)
        self.asked.append(Asked(decoded, lambda frame, pos: (decoder(frame, pos), 0), result))
        return result

    def close(self) -> None:
        self.closed = True
        for each in self._taken():
            each.result.fail(ConnectionResetError("closed"))

    def _taken(self) -> list[Asked]:
        asked, self.asked = self.asked, []
        return asked

    @property
    def fetch(self) -> FetchRequest:
        """The fetch in flight."""
        (asked,) = self.asked
        assert isinstance(asked.request, FetchRequest)
        return asked.request

    @property
    def partitions(self) -> list[FetchPartition]:
        """The partitions that the fetch in flight names."""
        return [each for topic in self.fetch.topics for each in topic.partitions]

    @property
    def forgotten(self) -> list[int]:
        return [each for topic in self.fetch.forgotten_topics_data for each in topic.partitions]

    def respond(self, response: Message, version: int = FETCH_VERSION) -> None:
        """Respond to the oldest request."""
        asked = self.asked.pop(0)
        data = bytes(encode(response, version))
        asked.result.complete(asked.decode(memoryview(data), 0)[0])

    def answer(
        self,
        *partitions: PartitionData,
        session_id: int = 7,
        error: ErrorCode = ErrorCode.NONE,
        topic_id: Uuid = TOPIC_ID,
    ) -> None:
        """Respond to the fetch in flight with these partitions."""
        topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(partitions))]
        self.respond(FetchResponse(0, int(error), session_id, topics if partitions else []))

    def lose(self, error: Exception | None = None) -> None:
        """Lose the connection with the requests in flight."""
        for each in self._taken():
            each.result.fail(error or ConnectionResetError("lost"))


class Follower:
    """A fetcher manager with logs on the disk, and the channels to its leader."""

    def __init__(
        self,
        root: Path,
        *,
        files: Files | None = None,
        settings: FetcherSettings = SETTINGS,
        config: LogConfig | None = None,
    ) -> None:
        self.clock = ManualClock(NOW_MS)
        self.timers = SteppedTimers(self.clock)
        self.manager: LogManager = open_manager(root, config or LogConfig(), files, self.clock)
        self.executor = HeldExecutor()
        self.channels: list[ScriptedChannel] = []
        self.brokers = {BrokerId(each): registration(each) for each in (1, 2, 3)}
        self.fetchers = FetcherManager(
            FOLLOWER,
            broker_epoch=lambda: BROKER_EPOCH,
            brokers=lambda: self.brokers,
            listener=LISTENER,
            connect=self._connect,
            clock=self.clock,
            timers=self.timers,
            executor=self.executor,
            loop=asyncio.get_running_loop(),
            settings=settings,
        )

    def _connect(self, host: str, port: int, purpose: str) -> ScriptedChannel:
        self.channels.append(ScriptedChannel(host, port, purpose))
        return self.channels[-1]

    def channel(self, purpose: str, host: str = "broker-1") -> ScriptedChannel:
        """Return the channel to the leader that is in use."""
        found = [
            each
            for each in self.channels
            if each.purpose == purpose and each.address[0] == host and not each.closed
        ]
        return found[-1]

    @property
    def catch_up(self) -> ScriptedChannel:
        return self.channel("catch-up")

    @property
    def in_sync(self) -> ScriptedChannel:
        return self.channel("in-sync")

    @property
    def control(self) -> ScriptedChannel:
        return self.channel("control")

    def partition(self, number: int = 0, topic: str = "t") -> Partition:
        """Return a new partition without records."""
        key = TopicPartition(topic, number)
        return Partition(key, TOPIC_ID, self.manager.create(key, TOPIC_ID))

    def follow(self, *partitions: Partition, epoch: int = 5, leader: int = LEADER) -> None:
        """Follow the partitions, as after an image with this leader and epoch."""
        for partition in partitions:
            partition.become_follower(led(epoch, (1, 2, 3), leader=leader))
        self.fetchers.follow(
            [FollowedPartition(each, BrokerId(leader), epoch) for each in partitions]
        )

    def follow_in_sync(self, *partitions: Partition, epoch: int = 5) -> None:
        """Follow the partitions, with a leader that has the same empty logs."""
        self.follow(*partitions, epoch=epoch)
        self.catch_up.answer(*(nothing(each.topic_partition.partition) for each in partitions))

    def release(self) -> None:
        """Run the work that waits for a thread."""
        self.executor.release()


def registration(broker: int) -> BrokerRegistration:
    """Return a broker whose inter-broker listener is at broker-N:9092."""
    listeners = (Endpoint("CLIENTS", "clients", 1), Endpoint(LISTENER, f"broker-{broker}", 9092))
    return BrokerRegistration(BrokerId(broker), "clients", 1, listeners=listeners)


def records(
    number: int = 0, data: bytes = b"", high_watermark: int = 0, log_start: int = 0
) -> PartitionData:
    """Return a partition of a response, with records."""
    return PartitionData(number, 0, high_watermark, -1, log_start, records=data)


def nothing(number: int = 0, high_watermark: int = 0, log_start: int = 0) -> PartitionData:
    return records(number, b"", high_watermark, log_start)


def failed(number: int, error: ErrorCode) -> PartitionData:
    return PartitionData(number, int(error), -1, records=b"")


def diverging(number: int, epoch: int, end_offset: int) -> PartitionData:
    return PartitionData(
        number, 0, 0, -1, 0, diverging_epoch=EpochEndOffset(epoch, end_offset), records=b""
    )


def list_offsets(
    request: ListOffsetsRequest, offsets: dict[int, tuple[int, int]], error: int = 0
) -> ListOffsetsResponse:
    """Return the response to a lookup. `offsets` has (start, end) for each partition."""
    assert request.replica_id == FOLLOWER
    topics = []
    for topic in request.topics:
        found = []
        for each in topic.partitions:
            offset = offsets[each.partition_index][each.timestamp == LATEST]
            found.append(ListOffsetsPartitionResponse(each.partition_index, error, -1, offset))
        topics.append(ListOffsetsTopicResponse(topic.name, found))
    return ListOffsetsResponse(0, topics)


def bytes_of(log: UnifiedLog) -> bytes:
    """Return the bytes of all segments."""
    return b"".join(
        Path(segment.file.path).read_bytes()[: segment.size]
        for segment in log.segments
        if segment.size
    )


def batches(first: int, count: int, epoch: int = LEADER_EPOCH, value: bytes = b"value") -> bytes:
    """Return batches of one record, as a leader stores them."""
    return bytes(leader_log(first, [(epoch, count)], value))


def leader_log(first: int, epochs: list[tuple[int, int]], value: bytes = b"value") -> bytearray:
    data = bytearray()
    offset = first
    for epoch, count in epochs:
        for _ in range(count):
            batch = bytearray(batch_of([value + b" %d" % offset]))
            LEADER_FIELDS.pack_into(batch, 0, offset, parse_header(batch).batch_length, epoch)
            data += batch
            offset += 1
    return data


def batch_at(first: int, count: int, epoch: int = LEADER_EPOCH) -> bytes:
    """Return one batch of `count` records."""
    batch = bytearray(batch_of([b"value %d" % offset for offset in range(first, first + count)]))
    LEADER_FIELDS.pack_into(batch, 0, first, parse_header(batch).batch_length, epoch)
    return bytes(batch)


def append(log: UnifiedLog, epochs: list[tuple[int, int]], value: bytes = b"value") -> None:
    """Append batches of these (epoch, count) to a log, at its end."""
    data = memoryview(leader_log(log.log_end_offset, epochs, value))
    log.append_as_follower(data, 1_000, now_ms=NOW_MS)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def after_truncation(it: Follower) -> FetchPartition:
    """Run the truncation, and return the partition that is fetched then."""
    await until(lambda: bool(it.executor.held))
    it.release()
    for _ in range(10):
        await asyncio.sleep(0)
    if it.catch_up.fetch.session_epoch == -1:
        it.catch_up.answer(session_id=0)
    (fetched,) = it.catch_up.partitions
    return fetched


async def look_up(it: Follower, offsets: dict[int, tuple[int, int]]) -> None:
    for asked in tuple(it.control.asked):
        it.control.respond(list_offsets(asked.request, offsets), 10)
    await asyncio.sleep(0)


def run_follower(root: Path, test: Callable[[Follower], Any], **options: Any) -> None:
    """Run a test coroutine with a follower. No callback may raise an exception."""
    problems: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, each: problems.append(each))
        follower = Follower(root, **options)
        await test(follower)
        stopped = asyncio.ensure_future(follower.fetchers.stop())
        await asyncio.sleep(0)
        follower.release()  # a stop waits for truncations
        await stopped
        follower.manager.close()

    asyncio.run(main())
    assert not problems


def fetched_offsets(it: Follower) -> list[int]:
    """Return the offsets of the fetches in flight."""
    asked = [each for channel in it.channels for each in channel.asked]
    fetches = [each.request for each in asked if isinstance(each.request, FetchRequest)]
    topics = [topic for each in fetches for topic in each.topics]
    return [each.fetch_offset for topic in topics for each in topic.partitions]


async def back_off(it: Follower) -> None:
    """Let the backoffs of the replicas and connections pass. Close the sessions without them."""
    for _ in range(4):
        for channel in it.channels:
            if channel.asked and channel.fetch.session_epoch == FINAL_EPOCH:
                channel.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms)
        await asyncio.sleep(0)
