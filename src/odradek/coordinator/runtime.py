"""The coordinator runtime: replicated state machines over the partitions of an internal topic.

A *shard* is a state machine over one partition. Its handlers return a `CoordinatorResult`.
`CoordinatorRuntime.write` performs it in three steps. It appends the records as one batch. It
replays them through `Shard.replay`, the function that also loads them after a restart. It responds
when they are committed (with ``log.flush.interval.messages``: when they are on the disk).

A write whose append fails leaves no trace. A write that was appended and has not committed in time
gets an error as its response. It stays in the state, because its record stays in the log. The
latest state is therefore ahead of the committed records, and reads use the committed view
(`uncommitted_changes`).

A shard belongs to the leader epoch in which it was loaded (`shard_lifecycle`). Its appends name
this epoch, so nothing is appended after its end. The shard is dropped with its uncommitted state
when the epoch ends, and loaded from the log when this broker leads the partition again. No request
is needed for that, because timers and prepared transactions wait in the log.

Loading (`shard_loading`) reads the partition from the log start. The loading task owns the shard
until all records are replayed. The shard serves when all of them are committed. Until then `shard`
raises COORDINATOR_LOAD_IN_PROGRESS. A crash leaves whole batches in the log, so a restart restores
the state after a prefix of all writes. The prefix contains every committed write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

from odradek.coordinator.batch_builder import build_coordinator_batch
from odradek.coordinator.coordinator_result import (
    CoordinatorRecord,
    CoordinatorResult,
    CoordinatorTimer,
    Pair,
    Ticket,
    Timestamp,
    TransactionalProducer,
    encode_record,
    response_code,
)
from odradek.coordinator.deadline_timers import DeadlineTimers
from odradek.coordinator.encoded_records import EncodedRecords
from odradek.coordinator.led_partitions import LedPartitions
from odradek.coordinator.shard_lifecycle import (
    NOT_LED,
    REFUSALS,
    Actions,
    ShardLifecycle,
    Transition,
)
from odradek.coordinator.shard_loading import (
    BlockShard,
    RecordBlock,
    Shard,
    ShardLoader,
    TransactionalShard,
    replay_record,
)
from odradek.coordinator.shard_transitions import ShardTransitions
from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition
from odradek.log.log_append_info import LogAppendInfo
from odradek.log.state.verification import NO_GUARD
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import NO_PRODUCER_ID, Compression
from odradek.results import PendingResult, Result

logger = logging.getLogger(__name__)

LOAD_PIECE_BYTES = 5 * 1024 * 1024
# Kafka's default of offsets.commit.timeout.ms.
COMMIT_TIMEOUT_MS = 5_000
# Delay of a timer that is due before its shard has begun to serve.
EARLY_TIMER_MS = 100
# Size of the cache of `partition_for`. Each commit and heartbeat of a group needs the hash, which
# reads the name code unit by code unit.
PARTITIONS_REMEMBERED_MAX = 10_000


S = TypeVar("S", bound=Shard)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Encode = Callable[[CoordinatorRecord], Pair]


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(PARTITIONS_REMEMBERED_MAX)
def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of an internal topic that holds `key`.

    Kafka's formula is ``Utils.abs(key.hashCode()) % partition_count``.
    """
    value = java_string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partition_count


class _Write(Generic[R_co]):
    """A write that is appended and not committed, or a response that follows such a write."""

    __slots__ = ("_failed", "_result", "last_offset", "pending")

    def __init__(
        self, last_offset: int, result: CoordinatorResult[R_co], failed: Callable[[ErrorCode], R_co]
    ) -> None:
        self.last_offset = last_offset
        self._result = result
        self._failed = failed
        self.pending: PendingResult[R_co] = PendingResult()

    def end(self, code: ErrorCode, now: Timestamp) -> CoordinatorResult[None] | None:
        """Send the response, unless a timeout has sent it before.

        Return the result to perform next.
        """
        after_commit = self._result.after_commit
        following = None if after_commit is None else after_commit(code, now)
        if not self.pending.done:
            succeeded = code is ErrorCode.NONE
            self.pending.complete(self._result.response if succeeded else self._failed(code))
        return following


class _ServedPartition(NamedTuple):
    """The partition of a served shard, and the leader epoch in which the shard was loaded."""

    topic_partition: TopicPartition
    leader_epoch: int


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker. Owned and changed by the event loop alone.

    Args:
        new_shard: Makes an empty shard for a partition and the leader epoch of its load.
        partitions: The partitions that this broker leads.
        commit_timeout_ms: Time after which a write that is not committed gets an error.
        encode: Returns the bytes of a record.
    """

    def __init__(
        self,
        topic: TopicName,
        family: str,
        *,
        new_shard: Callable[[int, int], S],
        partitions: LedPartitions,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        compression: Compression = Compression.NONE,
        load_piece_bytes: int = LOAD_PIECE_BYTES,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        encode: Encode = encode_record,
    ) -> None:
        self._topic = topic
        self._encode = encode
        self._loader = ShardLoader(family, executor, load_piece_bytes)
        self._transitions = ShardTransitions(topic, clock)
        self._new_shard = new_shard
        self._partitions = partitions
        self._append = partitions.append_internal
        self._clock = clock
        self._compression = compression
        self._lifecycles: dict[int, ShardLifecycle] = {}
        # The shards that are loaded, but do not serve yet.
        self._loaded: dict[int, S] = {}
        self._shards: dict[int, S] = {}
        # The partition and the leader epoch of each served shard.
        self._served: dict[int, _ServedPartition] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        # By partition, in the order of their offsets. A partition without such writes has no entry.
        self._uncommitted: dict[int, deque[_Write[object]]] = {}
        self._commit_timeout_ms = commit_timeout_ms
        # With the time limit, and with the shard that was served at the time of the write.
        self._waiting: deque[tuple[float, int, S, _Write[object]]] = deque()
        self._loop_timers = timers
        self._timers: dict[int, DeadlineTimers] = {}
        self._commit_timer = DeadlineTimers(clock, timers, self._time_out)
        self._reload_timer = DeadlineTimers(clock, timers, self._reload)

    # -- shards ------------------------------------------------------------------------------------

    def shard(self, partition: int) -> S:
        """Return the shard of a partition, which serves requests.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the shard is loaded, or while a record
                that it has loaded is not committed. NOT_COORDINATOR when this broker does not lead
                the partition, or its log is damaged.
        """
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(self.refusal(partition))
        return shard

    def refusal(self, partition: int) -> ErrorCode:
        """Return the error for requests while a shard does not serve."""
        lifecycle = self._lifecycles.get(partition)
        if lifecycle is None:
            return ErrorCode.NOT_COORDINATOR
        # A shard that begins to serve has not restarted the sessions of all its members yet.
        return REFUSALS.get(lifecycle.phase, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch in which this broker coordinates a partition, or `NOT_LED`."""
        lifecycle = self._lifecycles.get(partition)
        return NOT_LED if lifecycle is None else lifecycle.leader_epoch

    def shards(self) -> Iterator[S]:
        """Iterate over the shards that serve requests."""
        return iter(list(self._shards.values()))

    def serves(self, partition: int, shard: S) -> bool:
        """Return whether this object is still the shard that the runtime serves."""
        return self._shards.get(partition) is shard

    def all_shards(self, partition_count: int) -> list[S]:
        """Return every shard of the topic that this broker serves.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS when one of them is not loaded.
        """
        shards = []
        for partition in range(partition_count):
            try:
                shards.append(self.shard(partition))
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return shards

    async def loads_done(self, timeout_s: float | None = None) -> None:
        """Wait until the present loading tasks have ended, or for `timeout_s`."""
        if self._loading:
            await asyncio.wait(list(self._loading.values()), timeout=timeout_s)

    # -- lifecycle: see `shard_lifecycle` ----------------------------------------------------------

    def follow(self, partition: int) -> None:
        """Load or drop a shard as the leadership of this broker requires. Repeatable."""
        leader_epoch = self._partitions.led_epoch(TopicPartition(self._topic, partition))
        if leader_epoch is None:
            self.unload(partition)
            return
        lifecycle = self._lifecycles.get(partition)
        if lifecycle is None:
            lifecycle = self._lifecycles[partition] = ShardLifecycle()
        self._perform(partition, lifecycle, lifecycle.elected(leader_epoch))

    def follow_all(self, partition_count: int) -> None:
        """Begin to load every shard of the topic that this broker leads."""
        for partition in range(partition_count):
            self.follow(partition)

    def unload(self, partition: int) -> None:
        """Drop a shard with its uncommitted state. Waiting requests get NOT_COORDINATOR."""
        lifecycle = self._lifecycles.pop(partition, None)
        if lifecycle is not None:
            self._perform(partition, lifecycle, lifecycle.deposed())

    def unload_all(self) -> None:
        """Drop all shards, as `unload`."""
        for partition in list(self._lifecycles):
            self.unload(partition)

    def _perform(self, partition: int, lifecycle: ShardLifecycle, actions: Actions) -> None:
        if actions.drop:
            self._drop(partition)
        if actions.load:
            self._begin_load(partition, lifecycle)
        if actions.await_offset is not None:
            self._await_committed(partition, lifecycle, actions.await_offset)
        if actions.serve:
            shard = self._loaded[partition]
            self._transitions.add(self._starting(partition, shard, lifecycle, lifecycle.load))
        if actions.reload_ms:
            due_ms = self._clock.monotonic_ms() + actions.reload_ms
            self._reload_timer.arm(str(partition), due_ms)

    def _begin_load(self, partition: int, lifecycle: ShardLifecycle) -> None:
        """Begin to load a shard. The shard of an empty partition needs no task."""
        topic_partition = TopicPartition(self._topic, partition)
        try:
            log = self._partitions.log(topic_partition)
        except KafkaError as error:
            self._load_failed(partition, lifecycle, lifecycle.load, error)
            return
        shard = self._loaded[partition] = self._new_shard(partition, lifecycle.leader_epoch)
        if log.log_start_offset == log.log_end_offset:
            self._perform(
                partition, lifecycle, lifecycle.loaded(lifecycle.load, log.log_end_offset)
            )
            return
        load = self._load(partition, lifecycle, lifecycle.load, shard, log)
        self._loading[partition] = asyncio.get_running_loop().create_task(load)

    async def _load(
        self, partition: int, lifecycle: ShardLifecycle, load: int, shard: S, log: UnifiedLog
    ) -> None:
        actions: Actions | None = None
        failure: Exception
        try:
            log_end_offset = await self._loader.load(shard, log)
        except Exception as error:  # noqa: BLE001 - a defect must not leave the shard loading
            failure = error
        else:
            actions = lifecycle.loaded(load, log_end_offset)
        finally:
            if self._loading.get(partition) is asyncio.current_task():
                del self._loading[partition]
        if actions is None:
            self._load_failed(partition, lifecycle, load, failure)
        else:
            self._perform(partition, lifecycle, actions)

    def _load_failed(
        self, partition: int, lifecycle: ShardLifecycle, load: int, error: Exception
    ) -> None:
        """Log a failed load, and load again after a pause unless the log is damaged."""
        # Damaged bytes stay damaged: `CorruptRecord` and `MalformedMessage` are ValueErrors. Other
        # errors may pass. For example, a process is without a free descriptor for a while.
        is_damaged = isinstance(error, ValueError)
        actions = lifecycle.load_failed(load, is_damaged=is_damaged)
        if actions.reload_ms:
            logger.error(
                "cannot load %s-%d: %s. It is loaded again in %g s",
                self._topic,
                partition,
                error,
                actions.reload_ms / 1000,
                exc_info=None if isinstance(error, KafkaError | OSError) else error,
            )
        elif actions.drop:
            # A damaged batch must not stop other shards.
            logger.error(
                "cannot load %s-%d: its log is damaged. Requests get NOT_COORDINATOR until another "
                "leader is elected or the broker is started again. `odradek log dump` checks the "
                "files",
                self._topic,
                partition,
                exc_info=error,
            )
        self._perform(partition, lifecycle, actions)

    def _reload(self, partition_text: str) -> None:
        partition = int(partition_text)
        lifecycle = self._lifecycles.get(partition)
        if lifecycle is not None:
            self._perform(partition, lifecycle, lifecycle.reload_due(lifecycle.load))

    def _await_committed(self, partition: int, lifecycle: ShardLifecycle, offset: int) -> None:
        """Wait until the loaded records are committed."""
        load = lifecycle.load

        def reached(high_watermark: int) -> None:
            self._perform(
                partition, lifecycle, lifecycle.high_watermark_moved(load, high_watermark)
            )

        try:
            self._partitions.await_committed(
                TopicPartition(self._topic, partition), offset, reached
            )
        except KafkaError as error:
            # The leadership has ended. The call of `follow` is about to come.
            logger.debug("%s-%d is not served: %s", self._topic, partition, error)

    def _starting(
        self, partition: int, shard: S, lifecycle: ShardLifecycle, load: int
    ) -> Transition:
        """Serve a loaded shard, after it has prepared for that, unless it is dropped before."""
        steps = shard.starting()
        while lifecycle.serves(load):
            elements = next(steps, None)
            if elements is None:
                self._serve(partition, shard, lifecycle)
                return
            yield elements

    def _serve(self, partition: int, shard: S, lifecycle: ShardLifecycle) -> None:
        del self._loaded[partition]
        self._shards[partition] = shard
        topic_partition = TopicPartition(self._topic, partition)
        self._served[partition] = _ServedPartition(topic_partition, lifecycle.leader_epoch)
        shard.loaded()

    def _drop(self, partition: int) -> None:
        """Drop a shard with its uncommitted state. Its waiting requests end in time slices."""
        task = self._loading.pop(partition, None)
        if task is not None:
            task.cancel()
        self._reload_timer.cancel(str(partition))
        self._loaded.pop(partition, None)
        writes = self._uncommitted.pop(partition, None)
        timers = self._timers.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            unloading = shard.unloading(ErrorCode.NOT_COORDINATOR)
            self._transitions.add(self._ending(unloading, writes or deque()))
        if timers is not None:
            self._transitions.add(timers.cancelling())

    def _ending(self, unloading: Transition, writes: deque[_Write[object]]) -> Transition:
        """End the requests that wait for a shard that was dropped."""
        yield from unloading
        for write in writes:
            write.end(ErrorCode.NOT_COORDINATOR, self.now())
            yield 1

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self,
        partition: int,
        result: CoordinatorResult[R],
        failed: Callable[[ErrorCode], R],
        producer: TransactionalProducer | None = None,
    ) -> Result[R]:
        """Perform a result: append its records, replay them, respond when they are committed.

        Args:
            partition: The partition of a loaded shard.
            result: The decision of the shard's state machine.
            failed: Returns the response for an error of the log.
            producer: The producer in whose transaction the records are written. They take effect
                with the marker of the transaction.
        """
        shard = self._shards[partition]
        records = result.records
        if records:
            pairs = list(map(self._encode, records))
            now_ms = self._clock.time_ms()
            try:
                served = self._served[partition]
                if producer is None:
                    batch = build_coordinator_batch(pairs, now_ms, self._compression)
                    appended = self._append(served[0], batch, NO_GUARD, served[1])
                else:
                    batch = self._transactional_batch(pairs, now_ms, producer)
                    appended = self._append(served[0], batch, producer.guard, served[1])
            except KafkaError as error:
                return self._not_appended(partition, result, failed, error)
            if not appended.completed:
                first = int.from_bytes(batch[:8], "big")
                return self._wait_for_commit(partition, result, failed, appended, first, producer)
            offset = appended.value.first_offset
            if producer is not None:
                self._replay_transactional(shard, offset, records, producer)
            else:
                for key, value, _ in records:
                    shard.replay(offset, key, value)
                    offset += 1
        if result.after_replay is not None or result.timers or result.completed:
            self._apply(partition, result)
        if partition in self._uncommitted:
            # The response may depend on records that are not committed yet.
            last_offset = self._uncommitted[partition][-1].last_offset
            return self._wait(partition, _Write(last_offset, result, failed)).pending
        if result.after_commit is not None:
            self._follow_up(partition, shard, result.after_commit(ErrorCode.NONE, self.now()))
        return Result(result.response)

    def write_block(
        self,
        partition: int,
        block: RecordBlock,
        response: R,
        failed: Callable[[ErrorCode], R],
        producer: TransactionalProducer | None = None,
    ) -> Result[R]:
        """Append and replay the records of a long write. They were made in time slices.

        They are one batch, written in one slice, as by `write`. `response` is sent when they are
        committed.
        """
        shard, (topic_partition, leader_epoch) = self._shards[partition], self._served[partition]
        assert isinstance(shard, BlockShard)
        result = CoordinatorResult([], response)
        records, now_ms, producer_id = block.encoded, self._clock.time_ms(), NO_PRODUCER_ID
        try:
            if producer is None:
                batch = build_coordinator_batch(records, now_ms, self._compression)
                appended = self._append(topic_partition, batch, NO_GUARD, leader_epoch)
            else:
                producer_id = producer.producer_id
                batch = self._transactional_batch(records, now_ms, producer)
                appended = self._append(topic_partition, batch, producer.guard, leader_epoch)
        except KafkaError as error:
            return self._not_appended(partition, result, failed, error)
        if appended.completed:
            shard.replay_block(block, appended.value.first_offset, producer_id)
            return self.write(partition, result, failed)  # the response may wait for other writes
        first_offset = int.from_bytes(batch[:8], "big")
        last_offset = first_offset + len(records) - 1
        shard.keep_block(last_offset, block)
        shard.replay_block(block, first_offset, producer_id)
        write = self._wait(partition, _Write(last_offset, result, failed))
        appended.on_done(partial(self._ended, partition, shard, write))
        return write.pending

    def _transactional_batch(
        self, pairs: list[Pair] | EncodedRecords, now_ms: int, producer: TransactionalProducer
    ) -> bytearray:
        return build_coordinator_batch(
            pairs,
            now_ms,
            self._compression,
            producer.producer_id,
            producer.producer_epoch,
            transactional=True,
        )

    def _apply(self, partition: int, result: CoordinatorResult[R]) -> None:
        """Perform the parts of a result that are not in records."""
        if result.after_replay is not None:
            result.after_replay()
        if result.timers:
            self._arm(partition, result.timers)
        if result.completed:
            complete_tickets(result.completed)

    def _replay_transactional(
        self,
        shard: S,
        offset: int,
        records: list[CoordinatorRecord],
        producer: TransactionalProducer,
    ) -> None:
        for key, value, _ in records:
            replay_record(shard, offset, producer.producer_id, key, value)
            offset += 1

    def _wait_for_commit(
        self,
        partition: int,
        result: CoordinatorResult[R],
        failed: Callable[[ErrorCode], R],
        appended: Result[LogAppendInfo],
        offset: int,
        producer: TransactionalProducer | None,
    ) -> Result[R]:
        """Replay records that are appended and not committed. Respond when they are committed."""
        shard = self._shards[partition]
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for key, value, _ in result.records:
            shard.keep(offset, key)
            replay_record(shard, offset, producer_id, key, value)
            offset += 1
        write = self._wait(partition, _Write(offset - 1, result, failed))
        appended.on_done(partial(self._ended, partition, shard, write))
        self._apply(partition, result)
        return write.pending

    def _not_appended(
        self,
        partition: int,
        result: CoordinatorResult[R],
        failed: Callable[[ErrorCode], R],
        error: KafkaError,
    ) -> Result[R]:
        is_deposed = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        logger.log(
            logging.INFO if is_deposed else logging.ERROR,
            "cannot write to %s-%d: %s. The request is refused",
            self._topic,
            partition,
            error,
        )
        code = response_code(error.code)
        timers, completed, after_commit = result.timers, result.completed, result.after_commit
        if result.after_failed_append is not None:
            undone = result.after_failed_append(code, self.now())
            timers, completed, after_commit = undone.timers, undone.completed, None
        if partition in self._shards:
            self._arm(partition, timers)
        complete_tickets(completed)
        if after_commit is not None:
            self._follow_up(partition, self._shards.get(partition), after_commit(code, self.now()))
        return Result(failed(code))

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        committed: bool,
        append: Callable[[int], Result[LogAppendInfo]],
    ) -> Result[ErrorCode]:
        """End a transaction in this partition.

        `append` appends its marker to the log, in the leader epoch of the shard.

        Returns:
            NONE when the marker is committed, or the error when it is not committed in time.

        Raises:
            KafkaError: The shard is not served, or nothing was appended.
        """
        shard = self.shard(partition)
        topic_partition, leader_epoch = self._served[partition]
        appended = append(leader_epoch)
        committed_already = appended.completed
        offset = -1
        if not committed_already:
            offset = self._partitions.log(topic_partition).log_end_offset - 1
        if isinstance(shard, TransactionalShard):
            if not committed_already:
                shard.keep_transaction(offset, producer_id)
            shard.end_transaction(producer_id, committed)
        if committed_already:
            return Result(ErrorCode.NONE)
        marked: CoordinatorResult[ErrorCode] = CoordinatorResult([], ErrorCode.NONE)
        write = self._wait(partition, _Write(offset, marked, lambda code: code))
        appended.on_done(partial(self._ended, partition, shard, write))
        return write.pending

    # -- commits -----------------------------------------------------------------------------------

    def _wait(self, partition: int, write: _Write[R]) -> _Write[R]:
        self._uncommitted.setdefault(partition, deque()).append(write)
        deadline_ms = self._clock.monotonic_ms() + self._commit_timeout_ms
        self._waiting.append((deadline_ms, partition, self._shards[partition], write))
        self._commit_timer.arm(self._topic, deadline_ms)
        return write

    def _ended(
        self, partition: int, shard: S, write: _Write[object], appended: Result[LogAppendInfo]
    ) -> None:
        """Handle the end of an append: the write is committed, or cannot be committed."""
        if self._shards.get(partition) is not shard:
            return
        error = appended.error
        if error is None:
            self._commit(partition, shard, write.last_offset)
            return
        logger.error(
            "a write to %s-%d is not committed: %s. The request gets an error",
            self._topic,
            partition,
            error,
        )
        code = ErrorCode.NOT_COORDINATOR
        if isinstance(error, KafkaError):
            code = response_code(error.code)
        self._follow_up(partition, shard, write.end(code, self.now()))
        self.follow(partition)

    def _commit(self, partition: int, shard: S, offset: int) -> None:
        """Respond to all writes up to `offset`. Their records are committed."""
        shard.commit(offset)
        writes = self._uncommitted.get(partition, deque())
        committed = []
        while writes and writes[0].last_offset <= offset:
            committed.append(writes.popleft())
        if committed and not writes:
            del self._uncommitted[partition]
        for write in committed:
            self._follow_up(partition, shard, write.end(ErrorCode.NONE, self.now()))
        while self._waiting and self._waiting[0][3].pending.done:
            self._waiting.popleft()

    def _time_out(self, _: str) -> None:
        """Send an error to the writes that are not committed in time.

        They stay in the state, because their records stay in the log.
        """
        now_ms = self._clock.monotonic_ms()
        waiting = self._waiting
        while waiting and (waiting[0][3].pending.done or waiting[0][0] <= now_ms):
            partition, shard, write = waiting.popleft()[1:]
            if not write.pending.done:
                code = response_code(ErrorCode.REQUEST_TIMED_OUT)
                logger.warning(
                    "a write to %s-%d is not committed within %g s. The request gets %s, and the "
                    "records stay in the log",
                    self._topic,
                    partition,
                    self._commit_timeout_ms / 1000,
                    code.name,
                )
                self._follow_up(partition, shard, write.end(code, self.now()))
        if waiting:
            self._commit_timer.arm(self._topic, waiting[0][0])

    def _follow_up(
        self, partition: int, shard: S | None, result: CoordinatorResult[None] | None
    ) -> None:
        """Perform the result of a continuation, if the shard is still served."""
        if result is not None and shard is not None and self._shards.get(partition) is shard:
            self.write(partition, result, lambda code: None)

    def now(self) -> Timestamp:
        return Timestamp(self._clock.monotonic_ms(), self._clock.time_ms())

    # -- timers ------------------------------------------------------------------------------------

    def _arm(self, partition: int, timers: list[CoordinatorTimer]) -> None:
        armed = self._timers.get(partition)
        if armed is None:
            fire = partial(self._fire, partition)
            armed = self._timers[partition] = DeadlineTimers(self._clock, self._loop_timers, fire)
        for key, deadline_ms in timers:
            armed.arm(key, deadline_ms)

    def arm(self, partition: int, key: str, deadline_ms: float) -> None:
        """Arm one timer of a shard, without a write. The shard serves, or begins to."""
        self._arm(partition, [CoordinatorTimer(key, deadline_ms)])

    def _fire(self, partition: int, key: str) -> None:
        shard = self._shards.get(partition)
        if shard is not None:
            shard.on_timer(key)
        elif partition in self._loaded:  # it is about to serve
            self.arm(partition, key, self._clock.monotonic_ms() + EARLY_TIMER_MS)


def complete_tickets(completed: list[tuple[Ticket, object]]) -> None:
    """Complete the requests that wait for tickets."""
    for ticket, response in completed:
        assert isinstance(ticket, PendingResult)
        if not ticket.done:
            ticket.complete(response)
