"""The coordinator runtime: replicated state machines over the partitions of an internal topic.

A *shard* is a state machine over one partition. Its handlers decide: they return records and a
response. `CoordinatorRuntime.write` does: it appends the records as one batch, replays them into
the shard through `Shard.replay`, the very function that loads them after a restart, and says when
they are committed (with ``log.flush.interval.messages`` that is when they are on the disk). What
was not appended never reaches the state; when a batch was appended but could not be committed, the
shard is dropped and its partition is not served any more, as its directory is offline.

Loading (`shard_loading`) reads the partition from the log start. The shard belongs to the loading
task until it is whole. Until then `shard` raises COORDINATOR_LOAD_IN_PROGRESS. A crash at any
moment leaves whole batches in the log, so a restart finds the state of a prefix of all writes,
among them every committed one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.coordinator.batch_builder import Pair, build_pairs_batch
from odradek.coordinator.shard_loading import (
    Shard,
    ShardLoader,
    TransactionalShard,
    replay_record,
)
from odradek.environment.clock import Clock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition
from odradek.log.unified_log import LogAppendInfo, UnifiedLog
from odradek.metadata.image import MetadataImage
from odradek.protocol import record_codec
from odradek.records.batch import Compression

logger = logging.getLogger(__name__)

LOAD_PIECE_BYTES = 5 * 1024 * 1024
# The hash goes through a name unit by unit, and each commit and heartbeat of a group asks for it.
PLACES_REMEMBERED_MAX = 10_000


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic: its key, and its value in `value_version` (None: a
    tombstone)."""

    key: Any
    value: Any
    value_version: int


class Producer(NamedTuple):
    """In whose transaction records are written; `guard` is handed to the append, which refuses to
    open a transaction that nobody vouched for (KIP-890)."""

    producer_id: int
    producer_epoch: int
    guard: int = 0


S = TypeVar("S", bound=Shard)
# Takes the guard of a transaction's records too, where there is one.
Append = Callable[..., Any]
Encode = Callable[[CoordinatorRecord], Pair]


def encode_record(record: CoordinatorRecord) -> Pair:
    """The bytes of any record's key and value."""
    key, value, version = record
    encoded = None if value is None else record_codec.encode_value(value, version)
    return record_codec.encode_key(key), encoded


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(PLACES_REMEMBERED_MAX)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that holds `key` (``Utils.abs(key.hashCode()) % n``)."""
    value = java_string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partition_count


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker. Owned and changed by the event loop alone.

    `new_shard` makes an empty shard for a partition; `log_of` gives a partition's log, or raises
    KafkaError when this broker has none; `append` appends one batch and returns what says its
    offset (``LogAppendInfo``), or a future of that, done when the batch is committed. `encode`
    gives a record's bytes, for shards that know a faster way to some.
    """

    def __init__(
        self,
        topic: TopicName,
        family: str,
        *,
        new_shard: Callable[[int], S],
        log_of: Callable[[TopicPartition], UnifiedLog],
        append: Append,
        clock: Clock,
        executor: Executor,
        compression: Compression = Compression.NONE,
        load_piece_bytes: int = LOAD_PIECE_BYTES,
        encode: Encode = encode_record,
    ) -> None:
        self._topic = topic
        self._encode = encode
        self._loader = ShardLoader(family, executor, load_piece_bytes)
        self._new_shard = new_shard
        self._log_of = log_of
        self._append = append
        self._clock = clock
        self._compression = compression
        self._shards: dict[int, S] = {}
        self._places: dict[int, TopicPartition] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._failed: dict[int, ErrorCode] = {}
        # The last write of each partition that was not committed at once.
        self._last_writes: dict[int, asyncio.Future[None]] = {}

    # -- shards ------------------------------------------------------------------------------------

    def shard(self, partition: int) -> S:
        """The shard, loaded. Raises COORDINATOR_LOAD_IN_PROGRESS while it is not (and begins to
        load it), NOT_COORDINATOR when the partition is not here or cannot be read."""
        shard = self._shards.get(partition)
        if shard is None:
            shard = self.load(partition)
            if shard is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def shards(self) -> Iterator[S]:
        """The loaded shards."""
        return iter(list(self._shards.values()))

    def serves(self, partition: int, shard: S) -> bool:
        """Whether this is (still) the shard that is served."""
        return self._shards.get(partition) is shard

    def load(self, partition: int) -> S | None:
        """Begins to load a shard, if that is still to be done; an empty partition is loaded at
        once."""
        if partition in self._shards:
            return self._shards[partition]
        if partition in self._failed:
            raise KafkaError(self._failed[partition])
        if partition in self._loading:
            return None
        try:
            log = self._log_of(TopicPartition(self._topic, partition))
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
        shard = self._new_shard(partition)
        if log.log_start_offset == log.log_end_offset:
            self._serve(partition, shard)
            return shard
        task = asyncio.get_running_loop().create_task(self._load(partition, shard, log))
        self._loading[partition] = task
        return None

    def load_all(self, partition_count: int) -> None:
        """Begins to load every shard of the topic; what is not here is named in the log."""
        for partition in range(partition_count):
            try:
                self.load(partition)
            except KafkaError as error:
                logger.warning("%s-%d is not served: %s", self._topic, partition, error)

    def all_shards(self, partition_count: int) -> list[S]:
        """Every shard of the topic that is here. Raises COORDINATOR_LOAD_IN_PROGRESS when one is
        not loaded."""
        shards = []
        for partition in range(partition_count):
            try:
                shards.append(self.shard(partition))
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return shards

    async def loads_done(self, timeout_s: float | None = None) -> None:
        """Waits until nothing that is loading now is any more, or for `timeout_s`."""
        if self._loading:
            await asyncio.wait(list(self._loading.values()), timeout=timeout_s)

    async def _load(self, partition: int, shard: S, log: UnifiedLog) -> None:
        try:
            await self._loader.load(shard, log)
        except KafkaError as error:
            # The disk may be read again later: the next request tries it.
            logger.error("cannot load %s-%d: %s", self._topic, partition, error)
            return
        except (ValueError, OSError):
            # Batches that cannot be unpacked take no other shard away, and are not read again.
            logger.exception("cannot load %s-%d", self._topic, partition)
            self._failed[partition] = ErrorCode.NOT_COORDINATOR
            return
        finally:
            if self._loading.get(partition) is asyncio.current_task():
                del self._loading[partition]
        self._serve(partition, shard)

    def _serve(self, partition: int, shard: S) -> None:
        self._shards[partition] = shard
        self._places[partition] = TopicPartition(self._topic, partition)
        shard.loaded()

    def unload(self, partition: int, code: ErrorCode) -> None:
        """Stops serving a shard: its waiting requests are answered with `code`."""
        task = self._loading.pop(partition, None)
        if task is not None:
            task.cancel()
        self._failed.pop(partition, None)
        self._last_writes.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.unload(code)

    def unload_all(self, code: ErrorCode) -> None:
        """Stops serving all shards."""
        for partition in [*self._shards, *self._loading, *self._failed]:
            self.unload(partition, code)

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Stops serving all shards when `old` becomes `new` and the topic is deleted or made
        anew."""
        before = old.topics_by_name.get(self._topic)
        after = new.topics_by_name.get(self._topic)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self.unload_all(ErrorCode.NOT_COORDINATOR)

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self,
        partition: int,
        records: list[CoordinatorRecord],
        producer: Producer | None = None,
    ) -> asyncio.Future[None] | None:
        """Appends `records` as one batch and replays them; None says that they are committed.

        Otherwise the returned future ends when they are, or with a KafkaError. Raises KafkaError
        when they could not be appended: then nothing has happened. With a `producer` they belong to
        its transaction, and count from its marker on.
        """
        shard = self._shards[partition]
        pairs = list(map(self._encode, records))
        now_ms = self._clock.time_ms()
        if producer is None:
            batch = build_pairs_batch(pairs, now_ms, self._compression)
            appended = self._append(self._places[partition], batch)
        else:
            batch = build_pairs_batch(
                pairs,
                now_ms,
                self._compression,
                producer.producer_id,
                producer.producer_epoch,
                transactional=True,
            )
            appended = self._append(self._places[partition], batch, producer.guard)
        at_once = appended.__class__ is LogAppendInfo
        offset = appended.first_offset if at_once else int.from_bytes(batch[:8], "big")
        for key, value, _ in records:
            if producer is None:
                shard.replay(offset, key, value)
            else:
                replay_record(shard, offset, producer.producer_id, key, value)
            offset += 1
        return None if at_once else self._when_committed(partition, shard, appended)

    def end_transaction(
        self, partition: int, producer_id: int, committed: bool, append: Callable[[], Any]
    ) -> asyncio.Future[None] | None:
        """Ends a transaction in this partition: `append` puts its marker into the log.

        Answers as `write`; raises KafkaError when the shard is not served or nothing was appended.
        """
        shard = self.shard(partition)
        appended = append()
        if isinstance(shard, TransactionalShard):
            shard.end_transaction(producer_id, committed)
        return self._when_committed(partition, shard, appended)

    def _when_committed(
        self, partition: int, shard: S, appended: Any
    ) -> asyncio.Future[None] | None:
        if not asyncio.isfuture(appended):
            return None
        return self._committed(partition, shard, appended)

    def _committed(
        self, partition: int, shard: S, appended: asyncio.Future[Any]
    ) -> asyncio.Future[None]:
        """Ends with `appended`; its failure takes the shard out of service."""
        committed: asyncio.Future[None] = appended.get_loop().create_future()

        def finish(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if committed.done():
                return
            if done.cancelled() or error is not None:
                logger.error("a write to %s-%d was not committed", self._topic, partition)
                if not isinstance(error, KafkaError):
                    error = KafkaError(ErrorCode.NOT_COORDINATOR)
                committed.set_exception(error)
                if self._shards.get(partition) is shard:
                    self._fail(partition)
            else:
                committed.set_result(None)

        appended.add_done_callback(finish)
        self._last_writes[partition] = committed
        return committed

    def uncommitted(self, partition: int) -> asyncio.Future[None] | None:
        """Ends when all that the shard holds now is committed, or fails; None when it is. Others
        wait for it too: it is not to be cancelled."""
        last = self._last_writes.get(partition)
        return None if last is None or last.done() else last

    def _fail(self, partition: int) -> None:
        """The state holds what the log may not: the shard is not served again in this life."""
        self.unload(partition, ErrorCode.NOT_COORDINATOR)
        self._failed[partition] = ErrorCode.NOT_COORDINATOR
