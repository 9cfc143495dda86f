"""Consumers of a simulation: they read assigned partitions and validate their positions (KIP-320).

A consumer remembers the leader epoch of the last record of each partition. When the leader epoch of
the metadata has changed, it asks where that epoch ends (OffsetForLeaderEpoch). An end below its
position means that records which it has read are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from odradek.records.batch import parse_header
from odradek.records.checksum import crc32c
from odradek.records.control import read_marker
from odradek.records.record import iter_batches, iter_records
from tests.simulation.client import Client, Key, Recorder, Retry, World

THINK_S_MAX = 2.0
FETCH_VERSIONS = (12, 16)
FETCH_BYTES = (500, 4_000, 100_000)
REASSIGN_RATE = 0.1
WAIT_MS = 500


@dataclass(slots=True)
class Position:
    """The next offset of a key, and the epochs that it was read in.

    Attributes:
        record_epoch: Leader epoch of the last record that was read, -1: none.
        validated_epoch: Leader epoch of the metadata in which the position was validated.
    """

    offset: int
    record_epoch: int = -1
    validated_epoch: int = -1


class SimulatedConsumer(Client):
    """A consumer of assigned keys, read_committed or read_uncommitted."""

    def __init__(self, world: World, name: str, *, committed: bool = True, host: str = "") -> None:
        super().__init__(world, name, host=host)
        self.committed = committed
        self.isolation = "read_committed" if committed else "read_uncommitted"
        self.record = Recorder(world)
        self.version = self.rng.choice(FETCH_VERSIONS)
        self.positions: dict[Key, Position] = {}
        self._kept: dict[Key, Position] = {}
        self.reads: list[list[int]] = []

    async def run(self) -> None:
        self.assign()
        while not self.world.draining:
            await self.think(THINK_S_MAX)
            if self.rng.random() < REASSIGN_RATE:
                self.assign()
            await self.operation()
        await self.disconnect()

    def assign(self) -> None:
        """Choose keys, from the start or from the last position."""
        count = self.rng.randint(1, min(3, len(self.world.keys)))
        self._kept |= self.positions
        self.positions = {
            key: Position(0) if self.rng.random() < 0.2 else self._kept.get(key, Position(0))
            for key in self.rng.sample(self.world.keys, count)
        }
        self.record.begin("assign")
        sought = {key.number: position.offset for key, position in self.positions.items()}
        self.record.event("ok", sought=sought)

    async def operation(self) -> None:
        """Poll once: fetch each assigned key."""
        self.record.begin("poll", isolation=self.isolation)
        self.reads, moved = [], set[int]()
        for key in list(self.positions):
            try:
                await self.fetch(key)
            except Retry:
                self.world.count("polls failed")
            except Truncated:
                moved.add(key.number)
        self.world.count("polls")
        if self.reads:
            self.world.count("polls with records")
        self.record.event("ok", reads=self.reads, moved=sorted(moved), isolation=self.isolation)

    async def fetch(self, key: Key, wait_ms: int = WAIT_MS) -> int:
        """Fetch one key into `reads`. Return the end that the isolation level allows to read.

        Raises:
            Retry: No records came.
            Truncated: Records that were read are gone.
        """
        address, epoch = await self.leader(key.topic, key.partition)
        position = self.positions[key]
        await self._validate(key, position, address, epoch)
        request = self._request(key, position, epoch, wait_ms)
        response, step = await self.timed_call(address, request, FetchResponse, self.version)
        if response.error_code:
            raise Retry(ErrorCode(response.error_code).name)
        (topic,) = response.responses
        (part,) = topic.partitions
        error = self.check(key.topic, part.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lost(key, position, f"{position.offset} is out of range")
        if error is not ErrorCode.NONE:
            self.world.violation(f"{self.name}: a fetch failed with {error.name}")
            raise Retry(error.name)
        self._take(key, position, part)
        self.world.was_read(key, position.offset, step)
        return part.last_stable_offset if self.committed else part.high_watermark

    async def _validate(
        self, key: Key, position: Position, address: tuple[str, int], epoch: int
    ) -> None:
        """Validate the position when the leader epoch has changed since the last validation."""
        if position.validated_epoch == epoch:
            return
        if position.record_epoch >= 0:
            asked = OffsetForLeaderPartition(key.partition, epoch, position.record_epoch)
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(key.topic, [asked])])
            response = await self.call(address, request, OffsetForLeaderEpochResponse, 4)
            end = response.topics[0].partitions[0]
            if self.check(key.topic, end.error_code) is not ErrorCode.NONE:
                raise Retry("validation")
            self.world.count("positions validated")
            undefined = end.leader_epoch < 0 or end.end_offset < 0
            if undefined or end.end_offset < position.offset:
                what = (
                    f"epoch {position.record_epoch} ends at {end.end_offset} in epoch "
                    f"{end.leader_epoch}, after a read up to {position.offset}"
                )
                self._lost(key, position, what, end.end_offset)
        position.validated_epoch = epoch

    def _lost(self, key: Key, position: Position, what: str, end: int = 0) -> None:
        """Handle the loss of records that were read. A durable topic loses none."""
        self.world.count("positions lost")
        if not self.world.may_lose(key):
            self.world.violation(f"{self.name}: {key.topic}-{key.partition}: {what}")
        position.offset = min(max(end, 0), position.offset)
        position.record_epoch = position.validated_epoch = -1
        raise Truncated(what)

    def _take(self, key: Key, position: Position, part: Any) -> None:
        """Take the records of a response: those that a reader of this isolation level sees."""
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in part.aborted_transactions or ()
        )
        skipped: set[int] = set()
        for batch in iter_batches(part.records or b""):
            header = parse_header(batch)
            if crc32c(batch[21:]) != header.crc:
                self.world.violation(f"{self.name}: a batch at {header.base_offset} has a bad CRC")
                return
            if header.last_offset < position.offset:
                continue
            while self.committed and aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                self._end_transaction(header.producer_id, batch, skipped)
            elif not (header.is_transactional and header.producer_id in skipped):
                self._read(key, position.offset, batch)
            self._advance(key, position, header.last_offset + 1, header.partition_leader_epoch)

    @staticmethod
    def _end_transaction(producer_id: int, batch: memoryview, skipped: set[int]) -> None:
        marker = read_marker(batch)
        if marker is not None and not marker.committed:
            skipped.discard(producer_id)

    def _read(self, key: Key, offset: int, batch: memoryview) -> None:
        for record in iter_records(batch):
            if record.offset >= offset:
                self.reads.append([key.number, record.offset, int(record.value or b"")])

    def _advance(self, key: Key, position: Position, offset: int, epoch: int) -> None:
        if epoch < position.record_epoch:
            # Two unclean elections can bring back a log without the epoch that was read. As in
            # Kafka, the validation does not notice it if that log is longer than the position.
            what = f"the leader epoch falls from {position.record_epoch} to {epoch} below {offset}"
            self._lost(key, position, what, position.offset)
        position.offset, position.record_epoch = offset, epoch

    def _request(self, key: Key, position: Position, epoch: int, wait_ms: int) -> FetchRequest:
        part = FetchPartition(
            key.partition,
            epoch,
            position.offset,
            partition_max_bytes=self.rng.choice(FETCH_BYTES),
        )
        view = self.topics[key.topic]
        topic = FetchTopic(key.topic, partitions=[part])
        if self.version >= 13:
            topic = FetchTopic(topic_id=view.topic_id, partitions=[part])
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.rng.choice(FETCH_BYTES),
            isolation_level=int(self.committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic],
        )

    async def read_to_end(self, deadline_us: int) -> bool:
        """Read all keys from the start. Return whether the end of each was reached in time."""
        self.record.begin("poll", isolation=self.isolation)
        self.reads = []
        self.positions = {key: Position(0) for key in self.world.keys}
        reached = 0
        for key in self.world.keys:
            while self.world.scheduler.now_us < deadline_us:
                try:
                    end = await self.fetch(key, wait_ms=0)
                except Retry:
                    await self.sleep(0.1)
                    continue
                if self.positions[key].offset >= end:
                    reached += 1
                    break
        self.record.event("ok", reads=self.reads, isolation=self.isolation)
        await self.disconnect()
        return reached == len(self.world.keys)


class Truncated(Exception):
    """Records that were read are gone. The position was reset."""
