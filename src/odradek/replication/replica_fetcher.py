"""The fetcher of the partitions that this broker follows of one leader.

It has three connections to the leader: for replicas in sync, for catch-up, and for control
requests. Control requests look up the leader's offsets. `FetchPlan` assigns each partition to a
connection.

A response is applied inside the callback of the connection, and the next request is sent in the
same step, without a task. A large response is applied in time slices. Between two slices a
partition may be paused, stopped or appended to, so each slice checks it again.

A partition in a response has:

- Records: append them in runs of at most `BATCHES_A_RUN_MAX` batches and `RUN_BYTES_MAX` bytes.
  If `flush.messages` requires a flush, the next request on the connection waits for it.
- A diverging epoch: pause the partition, and truncate the logs of all such partitions of the
  response together, off the event loop. Fetch again when the truncation is on the disk (rule F10).
- A first batch that begins below the log end: the leader's log starts inside that batch. If the
  leader has deleted all records of this log, empty it. Fetch again (rule F12).
- OFFSET_OUT_OF_RANGE: pause the partition, look up the leader's start and end, and truncate or
  begin again at the leader's start (rule F12).
- Another error, or invalid records: back off for `replica.fetch.backoff.ms`, or shortly while the
  leader's metadata may differ. A new leader or epoch ends the backoff, because it makes a new
  `FollowedReplica`.
- An I/O error of the log: stop the partition with KAFKA_STORAGE_ERROR.

A response of an earlier position or epoch changes nothing (rule F11). A response that does not
belong to the session costs the connection. The replicas that it has paused before back off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.log.truncation import LogTruncations
from odradek.protocol.messages.fetch_request import FetchRequest, ReplicaState
from odradek.protocol.messages.fetch_response import EpochEndOffset, FetchResponse
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.records.batch import HEADER_BYTES
from odradek.records.batch_run import UnexpectedAppendOffset
from odradek.replication.fetch_plan import FetchPlan
from odradek.replication.fetch_session_handler import (
    FetchSessionHandler,
    InvalidFetchResponse,
    SentPartition,
)
from odradek.replication.fetcher_parts import (
    DONE,
    FetchConnection,
    FetcherParts,
    FollowUp,
    LeaderChannel,
    first_size,
    ignore,
    records_bytes,
)
from odradek.replication.followed_replica import FollowedReplica, ReplicaPhase
from odradek.replication.follower_decisions import (
    begins_inside_batch,
    restart_for,
    truncation_for,
)
from odradek.replication.leader_offsets import (
    LOOKUPS_A_REQUEST_MAX,
    leader_offsets,
    list_offsets_requests,
)
from odradek.replication.single_partition_fetch import (
    FETCH_VERSION,
    SinglePartitionPacker,
    SinglePartitionResponse,
)
from odradek.results import Result, gather
from odradek.slicing import SLICE_MS, Pause, begin, sliced

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from odradek.environment.timers import Timer
    from odradek.ids import BrokerId
    from odradek.log.log_append_info import FollowerAppendInfo
    from odradek.protocol.messages.fetch_response import PartitionData
    from odradek.replication.partition import Partition

logger = logging.getLogger(__name__)

RUN_BYTES_MAX = 524_288
"""Maximum number of bytes of one append, unless its first batch is larger. It also has at most the
bytes of a segment. The system takes up to 2.5 ms of CPU for each MiB that a file grows by.
"""

SLICE_COST_MAX = 3_000
"""Maximum cost of a time slice. One unit is about a microsecond."""
PARTITION_COST = 15
BATCH_COST = 2
FLUSH_COST = 25
TRUNCATION_COST = 50
BYTES_A_COST = 1_024

REMOVED_PER_SLICE = 100
"""Replicas that a stopped fetcher removes in one time slice."""

WOKEN_PER_SLICE = 100
"""Replicas whose backoff ends in one time slice, unless the clock ends it before."""

PARTITIONS_WITH_DECODING_MAX = 50
"""Largest number of partitions of a response that are applied in the time slice that decodes it."""

RETRY_MS = 50
"""Delay before the request after a lost one. It doubles up to `replica.fetch.backoff.ms`."""

FLUSH_ATTEMPTS_MAX = 10
"""Attempts to flush a log that fails because of a bug, `replica.fetch.backoff.ms` apart. Then the
partition fails with KAFKA_STORAGE_ERROR. Without free descriptors the attempts continue.
"""

_TRANSPORT = (OSError, KafkaError)
_EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors until leader and follower have the same metadata."""


class ReplicaFetcher:
    """The fetcher of one leader's partitions. Used on the event loop only."""

    def __init__(self, leader: BrokerId, parts: FetcherParts) -> None:
        self.leader = leader
        self.replicas: dict[FollowedReplica, None] = {}
        self._parts = parts
        self._clock = parts.clock
        self._plan = plan = FetchPlan(parts.settings)
        self._in_sync = FetchConnection("in-sync", plan.in_sync)
        self._catch_up = FetchConnection("catch-up", plan.catch_up)
        self._connections = (self._in_sync, self._catch_up)
        for each in self._connections:
            each.responded = partial(self._responded, each)
        settings = parts.settings
        self._packer = SinglePartitionPacker(
            parts.broker_id,
            settings.wait_max_ms,
            settings.min_bytes,
            settings.response_max_bytes,
            settings.partition_max_bytes,
        )
        self._control: LeaderChannel | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._stopped = False

    # --- replicas ---

    def add(self, replica: FollowedReplica) -> None:
        """Fetch a replica, unless its log is truncated at the moment."""
        self.replicas[replica] = None
        self._begin(replica)

    def truncated(self, replica: FollowedReplica) -> None:
        """Fetch a replica that waits for the end of a truncation of its log.

        It may have been added after that, and wait for a flush or a lookup.
        """
        if replica.phase is ReplicaPhase.TRUNCATING:
            self._plan.pause(replica)
            self._begin(replica)
            self.fetch()

    def _begin(self, replica: FollowedReplica) -> None:
        """Fetch a replica from its log end as soon as its log permits it.

        Every fetch of a new or paused replica begins here. The end of a truncation begins it again.
        Otherwise the log is flushed first if `flush.messages` requires that, because the offset of
        a fetch says that the records below are on the disk. A recovery has found the unflushed
        records, an earlier leader has sent them, or an error followed them in a response.
        """
        log = replica.log
        if log.is_truncating:
            self._plan.truncate(replica)
        elif log.unflushed_messages >= log.config.flush_messages:
            self._flush_first(replica, 1)
        else:
            self._plan.resume(replica)

    def _flush_first(self, replica: FollowedReplica, attempt: int) -> None:
        if replica.phase is not ReplicaPhase.PAUSED:
            return
        parts = self._parts
        flush = parts.loop.run_in_executor(parts.executor, replica.log.flush)
        flush.add_done_callback(partial(self._flushed_first, replica, attempt))

    def _flushed_first(
        self, replica: FollowedReplica, attempt: int, flush: asyncio.Future[None]
    ) -> None:
        if flush.cancelled():
            return
        error = flush.exception()  # otherwise asyncio reports that it was never retrieved
        if self._stopped or replica.phase is not ReplicaPhase.PAUSED:
            return
        if error is None:
            self._plan.resume(replica)
            self.fetch()
        else:
            self._flush_failed(replica, attempt, error)

    def _flush_failed(self, replica: FollowedReplica, attempt: int, error: BaseException) -> None:
        """Flush the log of a paused replica again after a delay, or stop the replica.

        A KafkaError of an online directory means that there was no free descriptor.
        """
        is_bug = not isinstance(error, KafkaError) and attempt >= FLUSH_ATTEMPTS_MAX
        if replica.log.log_dir.offline or replica.log.closed or is_bug:
            self._parts.storage_failed(replica)
            return
        topic_partition = replica.partition.topic_partition
        level = logging.WARNING if attempt % FLUSH_ATTEMPTS_MAX == 1 else logging.DEBUG
        logger.log(level, "flushing %s failed: %s. It is tried again", topic_partition, error)
        delay_s = self._parts.settings.backoff_ms / 1000
        self._parts.timers.call_later(delay_s, self._flush_first, replica, attempt + 1)

    def remove(self, replica: FollowedReplica) -> None:
        """Never fetch the replica again. A response in flight does not change it."""
        self._plan.stop(replica)
        del self.replicas[replica]

    def removing(self) -> Generator[None, None, None]:
        """Remove and free all replicas of a stopped fetcher, in time slices."""
        count = 0
        while self.replicas:
            self._plan.end(self.replicas.popitem()[0])
            count += 1
            if not count % REMOVED_PER_SLICE:
                yield
        yield from self._plan.releasing()

    def stop(self) -> None:
        """End all fetches and connections. Nothing changes the replicas from now on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in self._connections:
            connection.responded = ignore  # no reference cycle is left
            connection.processing.cancel()
            if connection.channel is not None:
                connection.channel.close()
        if self._control is not None:
            self._control.close()

    # --- requests ---

    def fetch(self) -> None:
        """Send the requests that are due. Each long one is the last of its time slice."""
        if self._stopped:
            return
        for connection in self._connections:
            session = connection.session
            if session.is_due:
                self._send(connection)
                if session.is_long and session.is_busy:
                    self._parts.loop.call_soon(self.fetch)
                    return

    def _send(self, connection: FetchConnection) -> None:
        if connection.retry_ms is not None:
            return
        channel = connection.channel
        if channel is None:
            channel = connection.channel = self._open(connection.name)
            if channel is None:
                self._retry_later(connection, self._parts.settings.backoff_ms)
                return
        session = connection.session
        single = self._plan.next_single(session)
        if single is not None:
            packed = self._packer.pack(*session.session, single, self._parts.broker_epoch())
            channel.send(
                packed,
                FetchResponse,
                timeout_ms=self._parts.settings.timeout_ms,
                version=FETCH_VERSION,
            ).on_done(connection.responded)
            return
        parts = self._plan.next_request(session)
        if session.ended_sessions:
            begin(session.freeing(), "a new fetch session")
        if parts is None:
            return
        wait_ms, max_bytes = self._plan.limits(session, parts)
        settings = self._parts.settings
        request = FetchRequest(
            replica_state=ReplicaState(self._parts.broker_id, self._parts.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=max_bytes,
            session_id=parts.session_id,
            session_epoch=parts.session_epoch,
            topics=parts.topics,
            forgotten_topics_data=parts.forgotten,
        )
        channel.send(
            request, FetchResponse, timeout_ms=settings.timeout_ms, version=FETCH_VERSION
        ).on_done(connection.responded)

    def _open(self, name: str) -> LeaderChannel | None:
        endpoint = self._parts.endpoint(self.leader)
        return None if endpoint is None else self._parts.connect(*endpoint, name)

    # --- time ---

    def _retry_later(self, connection: FetchConnection, delay_ms: float) -> None:
        connection.retry_ms = self._clock.monotonic_ms() + delay_ms
        self._arm()

    def _arm(self) -> None:
        """Arm the timer for the next backoff that ends. A timer that is too early does no harm."""
        times = [self._plan.wake_ms, *(each.retry_ms for each in self._connections)]
        wake_ms = min((each for each in times if each is not None), default=None)
        if wake_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
        self._timer_ms = wake_ms
        delay_s = max(0.0, wake_ms - self._clock.monotonic_ms()) / 1000
        self._timer = self._parts.timers.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for _ in range(WOKEN_PER_SLICE):
            replica = self._plan.wake(now_ms)
            if replica is None:
                break
            self._begin(replica)
            if self._clock.monotonic_ms() >= now_ms + SLICE_MS:
                break
        for connection in self._connections:
            if connection.retry_ms is not None and connection.retry_ms <= now_ms:
                connection.retry_ms = None
        self.fetch()
        self._arm()

    # --- responses ---

    def _responded(self, connection: FetchConnection, result: Result[FetchResponse]) -> None:
        if self._stopped:
            return
        if result.error is not None:
            self._lost(connection, result.error)
            return
        try:
            response, applied = result.value, None
            if response.__class__ is SinglePartitionResponse:
                applied = self._apply_single(connection, response)
            processing = applied or sliced(self._apply(connection, response))
        except Exception as error:  # noqa: BLE001 - `_lost` reports it
            self._lost(connection, error)
            return
        if connection is self._in_sync and (applied is not None or response.responses):
            self._parts.pacer.in_sync_responses += 1
        if processing.completed:
            connection.session.ended()
            if connection is self._catch_up:
                self._pace(response)
            self.fetch()
        else:
            connection.processing = processing
            processing.on_done(partial(self._processed, connection, response))

    def _pace(self, response: FetchResponse) -> None:
        """Send the next fetch for catch-up after a delay, if its rate is limited."""
        size_bytes = records_bytes(response)
        if not size_bytes:
            return
        delay_ms = self._parts.pacer.delay_ms(size_bytes, self._clock.monotonic_ms())
        if delay_ms:
            self._retry_later(self._catch_up, delay_ms)

    def _processed(
        self, connection: FetchConnection, response: FetchResponse, processed: Result[None]
    ) -> None:
        connection.processing = DONE
        if self._stopped:
            return
        if processed.error is not None:
            self._lost(connection, processed.error)
            return
        connection.session.ended()
        if connection is self._catch_up:
            self._pace(response)
        # The next request may name as many partitions, and is made in a time slice of its own.
        self._parts.loop.call_soon(self.fetch)

    def _lost(self, connection: FetchConnection, error: Exception) -> None:
        """Begin a new session after a delay, because a response was lost or was not valid."""
        is_first, channel = connection.failures == 0, connection.channel
        is_transport = isinstance(error, _TRANSPORT)
        logger.log(
            logging.DEBUG if is_transport or not is_first else logging.WARNING,
            "a fetch from broker %d on the %s connection failed: %s",
            self.leader,
            connection.name,
            error,
            exc_info=None if isinstance(error, (InvalidFetchResponse, *_TRANSPORT)) else error,
        )
        has_moved = channel is not None and channel.address != self._parts.endpoint(self.leader)
        if channel is not None and (has_moved or not is_transport):
            connection.channel = None
            channel.close()
        connection.session.lost()
        connection.session.ended()
        delay_ms = min(RETRY_MS << min(connection.failures, 20), self._parts.settings.backoff_ms)
        connection.failures += 1
        self._retry_later(connection, delay_ms)

    def _apply_single(
        self, connection: FetchConnection, response: SinglePartitionResponse
    ) -> Result[None] | None:
        """Append the records of one replica without the generator of `_apply`, if one run suffices.

        Return None, before any change, if the fetch is void. `_apply` handles the response then.
        """
        session, data = connection.session, response.data
        sent = session.sent_to(response.topic_id, data.partition_index)
        if sent is None or not sent.is_current():
            return None
        session.responded(response.session, 0)
        self._plan.responded(session)
        replica, records, follow_up = sent.replica, data.records, FollowUp(deque(), [], {})
        assert isinstance(records, memoryview)
        now_ms = self._clock.time_ms()
        info = self._append(session, replica, records, now_ms, data, follow_up)
        connection.failures = 0
        if info is None or info.size_bytes < len(records) or info.must_flush:
            rest = self._rest_of_single(session, replica, records, info, now_ms, data, follow_up)
            return sliced(rest)
        self._appended(replica, data, info, follow_up)
        return DONE

    def _rest_of_single(
        self,
        session: FetchSessionHandler,
        replica: FollowedReplica,
        records: memoryview,
        info: FollowerAppendInfo | None,
        now_ms: int,
        data: PartitionData,
        follow_up: FollowUp,
    ) -> Generator[Pause, None, Result[None]]:
        """Do what is left after the first run, as `_apply` does."""
        cost, ends_ms = 0, self._clock.monotonic_ms() + SLICE_MS
        try:
            if info is not None and info.size_bytes < len(records):
                cost = info.batches * BATCH_COST + info.size_bytes // BYTES_A_COST
                info, cost, ends_ms = yield from self._append_rest(
                    session, replica, records, info, now_ms, data, follow_up, cost, ends_ms
                )
            self._appended(replica, data, info, follow_up)
            yield from self._follow_up(follow_up, cost)
        except BaseException:
            self._not_followed_up(follow_up)
            raise
        return DONE

    def _apply(  # noqa: C901 - calls are what this path costs
        self, connection: FetchConnection, response: FetchResponse
    ) -> Generator[Pause, None, Result[None]]:
        """Apply a response in time slices. Each partition is checked in its slice.

        The clock ends a slice, too. The first append to a log creates its directory and files, the
        first one in a leader epoch writes a file, and any append may roll the segment. A response
        with many partitions was decoded in the current slice, which ends therefore.
        """
        session = connection.session
        session.responded(response.session_id, response.error_code)
        if response.error_code:
            self._session_refused(connection, response.error_code)
            return DONE
        self._plan.responded(session)
        count = 0
        for topic in response.responses:
            count += len(topic.partitions)
        if count > PARTITIONS_WITH_DECODING_MAX:
            yield None
        now_ms, cost, follow_up = self._clock.time_ms(), 0, FollowUp(deque(), [], {})
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            for topic in response.responses:
                for data in topic.partitions:
                    if cost and (cost >= SLICE_COST_MAX or self._clock.monotonic_ms() > ends_ms):
                        yield None
                        cost, ends_ms = 0, self._clock.monotonic_ms() + SLICE_MS
                    sent = session.sent(topic.topic_id, data.partition_index)
                    replica, records = sent.replica, data.records
                    cost += PARTITION_COST
                    if not sent.is_current():
                        session.changed(replica.key)
                    elif data.error_code or data.diverging_epoch is not None or not records:
                        self._without_records(sent, data, follow_up)
                    else:
                        assert isinstance(records, memoryview)
                        info = self._append(session, replica, records, now_ms, data, follow_up)
                        if info is not None:
                            cost += info.batches * BATCH_COST + info.size_bytes // BYTES_A_COST
                            if info.size_bytes < len(records):
                                info, cost, ends_ms = yield from self._append_rest(
                                    session,
                                    replica,
                                    records,
                                    info,
                                    now_ms,
                                    data,
                                    follow_up,
                                    cost,
                                    ends_ms,
                                )
                        self._appended(replica, data, info, follow_up)
            if any(follow_up):
                yield from self._follow_up(follow_up, cost)
        except BaseException:
            self._not_followed_up(follow_up)
            raise
        connection.failures = 0
        return DONE

    def _session_refused(self, connection: FetchConnection, error_code: int) -> None:
        """Begin a new session with the next request, after a delay if that fails as well.

        Raises:
            KafkaError: It is not the first failure.
        """
        connection.failures += 1
        if connection.failures > 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {error_code}")

    # --- partitions of a response ---

    def _without_records(
        self, sent: SentPartition, data: PartitionData, follow_up: FollowUp
    ) -> None:
        """Handle an error, a diverging epoch, or new offsets of the leader."""
        replica, plan = sent.replica, self._plan
        code, diverging = data.error_code, data.diverging_epoch
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            plan.pause(replica)
            follow_up.out_of_range.append(replica)
        elif code:
            self._back_off(replica, code, "the leader's response")
        elif diverging is None:
            replica.partition.follower_appended(data.high_watermark, data.log_start_offset)
            plan.fetched(replica, data.high_watermark, has_records=False)
            if replica.log.log_start_offset != sent.log_start_offset:
                plan.position_changed(replica)
        elif min(diverging.epoch, diverging.end_offset) < 0:
            self._back_off(replica, ErrorCode.INVALID_REQUEST, f"a response with {diverging}")
        else:
            plan.pause(replica)
            follow_up.diverging.append((replica, diverging))

    def _append(
        self,
        session: FetchSessionHandler,
        replica: FollowedReplica,
        records: memoryview,
        now_ms: int,
        data: PartitionData,
        follow_up: FollowUp,
    ) -> FollowerAppendInfo | None:
        """Append the first run of the records. Return None if they are refused.

        If the log must be flushed, no session fetches from the new log end before that.
        """
        limit = replica.log.config.segment_bytes  # so that a run rolls few segments
        if limit > RUN_BYTES_MAX:
            limit = RUN_BYTES_MAX
        if len(records) > limit:
            records = records[: max(limit, first_size(records))]
        try:
            info = replica.log.append_as_follower(records, replica.leader_epoch, now_ms=now_ms)
            if info.must_flush and replica not in follow_up.unflushed:
                self._plan.hold(replica, session)
                follow_up.unflushed[replica] = (replica.generation, data.high_watermark)
            return info
        except UnexpectedAppendOffset as error:
            log = replica.log
            if begins_inside_batch(log.log_start_offset, log.log_end_offset, data.log_start_offset):
                self._plan.pause(replica)
                follow_up.diverging.append((replica, error))
            else:
                self._log_failed(replica, error)
        except KafkaError as error:
            self._log_failed(replica, error)
        return None

    def _append_rest(
        self,
        session: FetchSessionHandler,
        replica: FollowedReplica,
        records: memoryview,
        info: FollowerAppendInfo,
        now_ms: int,
        data: PartitionData,
        follow_up: FollowUp,
        cost: int,
        ends_ms: float,
    ) -> Generator[None, None, tuple[FollowerAppendInfo | None, int, float]]:
        """Append the runs after the first one in time slices.

        Returns:
            The last run, or None if the replica was changed between two slices. The cost of the
            last slice, and the time at which it ends.
        """
        generation, log = replica.generation, replica.log
        while True:
            records = records[info.size_bytes :]
            if len(records) < HEADER_BYTES or first_size(records) > len(records):
                return info, cost, ends_ms  # a part of a batch
            if cost >= SLICE_COST_MAX or self._clock.monotonic_ms() > ends_ms:
                yield
                cost, ends_ms = 0, self._clock.monotonic_ms() + SLICE_MS
                if replica.generation != generation or log.log_end_offset != info.log_end_offset:
                    return None, cost, ends_ms
            appended = self._append(session, replica, records, now_ms, data, follow_up)
            if appended is None:
                return None, cost, ends_ms
            info = appended
            cost += info.batches * BATCH_COST + info.size_bytes // BYTES_A_COST

    def _appended(
        self,
        replica: FollowedReplica,
        data: PartitionData,
        info: FollowerAppendInfo | None,
        follow_up: FollowUp,
    ) -> None:
        """Take over the leader's offsets after an append, and fetch from the new log end."""
        plan = self._plan
        if info is not None:
            replica.partition.follower_appended(data.high_watermark, data.log_start_offset)
            if replica not in follow_up.unflushed:
                plan.fetched(replica, data.high_watermark, has_records=True)
        elif replica.phase is not ReplicaPhase.FETCHING:
            return
        plan.position_changed(replica)

    def _log_failed(self, replica: FollowedReplica, error: KafkaError) -> None:
        """Handle invalid records, or an error of the log."""
        if replica.log.log_dir.offline:
            self._parts.storage_failed(replica)
        else:
            self._back_off(replica, error.code, str(error))

    def _back_off(self, replica: FollowedReplica, code: int, reason: str) -> None:
        """Fetch the replica again after a delay. Log the first of equal errors."""
        is_expected = code in _EXPECTED_ERRORS
        self._plan.back_off(replica, self._clock.monotonic_ms(), is_expected=is_expected)
        self._arm()
        if replica.error != code:
            replica.error = code
            logger.log(
                logging.DEBUG if is_expected else logging.WARNING,
                "%s is not fetched from broker %d for a moment: error %d, %s",
                replica.partition.topic_partition,
                self.leader,
                code,
                reason,
            )

    # --- after the partitions of a response ---

    def _follow_up(self, work: FollowUp, cost: int) -> Generator[Pause, None, None]:
        if work.diverging:
            cost = yield from self._truncate(work.diverging, cost)
        if work.out_of_range:
            yield from self._look_up(work.out_of_range)
        if work.unflushed:
            yield from self._flush(work.unflushed, cost)

    def _not_followed_up(self, work: FollowUp) -> None:
        """Fetch the replicas again after a delay whose work an error prevented."""
        if self._stopped:
            return
        paused = (*(replica for replica, _ in work.diverging), *work.out_of_range)
        waiting = [each for each in paused if each.phase is ReplicaPhase.PAUSED]
        for replica, (generation, _) in work.unflushed.items():
            if replica.generation == generation:
                waiting.append(replica)
        for replica in waiting:
            self._back_off(replica, ErrorCode.UNKNOWN_SERVER_ERROR, "an error of the response")

    def _flush(
        self, unflushed: dict[FollowedReplica, tuple[int, int]], cost: int
    ) -> Generator[Pause, None, None]:
        """Flush the logs at the same time. The connection sends nothing before all are flushed."""
        parts, plan, flushes = self._parts, self._plan, []
        for replica, (generation, high_watermark) in unflushed.items():
            if cost >= SLICE_COST_MAX:
                cost = 0
                yield None
            cost += FLUSH_COST
            flush = parts.loop.run_in_executor(parts.executor, replica.log.flush)
            flushes.append((replica, generation, high_watermark, flush))
        for replica, generation, high_watermark, flush in flushes:
            if not flush.done():
                yield flush
            error = flush.exception()
            if error is not None and not isinstance(error, KafkaError):
                raise error
            del unflushed[replica]
            if replica.generation != generation:
                continue
            if error is None:
                plan.fetched(replica, high_watermark, has_records=True)
            else:
                plan.pause(replica)
                self._flush_failed(replica, 1, error)

    def _truncate(
        self,
        diverging: deque[tuple[FollowedReplica, EpochEndOffset | UnexpectedAppendOffset]],
        cost: int,
    ) -> Generator[Pause, None, int]:
        """Truncate the logs that diverged from the leader's, those of a time slice together.

        Returns:
            The cost of the last slice.
        """
        truncations = LogTruncations()
        truncated: list[Partition] = []
        try:
            while diverging:
                if cost >= SLICE_COST_MAX:
                    cost = 0
                    if truncated:
                        self._parts.truncations.start(truncations, truncated)
                        truncations, truncated = LogTruncations(), []
                    yield None
                cost += TRUNCATION_COST
                replica, cause = diverging[0]
                # It may have been stopped in the meantime.
                if replica.phase is ReplicaPhase.PAUSED and self._cut(replica, cause, truncations):
                    self._plan.truncate(replica)
                    truncated.append(replica.partition)
                diverging.popleft()
        finally:
            if truncated:
                self._parts.truncations.start(truncations, truncated)
        return cost

    def _cut(
        self,
        replica: FollowedReplica,
        cause: EpochEndOffset | UnexpectedAppendOffset,
        truncations: LogTruncations,
    ) -> bool:
        """Add a truncation after a diverging epoch (rule F10), or inside a batch (rule F12).

        Returns:
            Whether there is something to truncate. Otherwise the replica backs off.
        """
        log = replica.log
        if isinstance(cause, UnexpectedAppendOffset):
            offset = log.log_end_offset
            logger.info(
                "%s begins again at %d, inside of the leader's batch from offset %d",
                replica.partition.topic_partition,
                offset,
                cause.first_offset,
            )
            truncations.truncate_fully_and_start_at(log, offset, cause.first_offset)
            return True
        cut = truncation_for(log.epochs, log.log_end_offset, cause.epoch, cause.end_offset)
        self._note_truncation(replica, cut.offset)
        if truncations.truncate_to(log, cut.offset):
            return True
        reason = f"epoch {cause.epoch} ends at {cause.end_offset}, and the log does not diverge"
        self._back_off(replica, ErrorCode.INVALID_REQUEST, reason)
        return False

    def _note_truncation(self, replica: FollowedReplica, offset: int) -> None:
        log = replica.log
        is_committed = offset < log.high_watermark
        logger.log(
            logging.WARNING if is_committed else logging.INFO,
            "truncating %s from %d to %d, to follow broker %d in leader epoch %d%s",
            replica.partition.topic_partition,
            log.log_end_offset,
            offset,
            self.leader,
            replica.leader_epoch,
            ". An unclean election removes records below the high watermark" * is_committed,
        )

    # --- control requests ---

    def _look_up(self, replicas: list[FollowedReplica]) -> Generator[None, None, None]:
        """Request the leader's start and end of logs that are out of its range (rule F12).

        Each request has a time slice. Replicas may have been stopped in the meantime. After an
        error, `replicas` has the replicas that are not looked up.
        """
        is_first = True
        while replicas:
            if not is_first:
                yield
            is_first = False
            first = replicas[:LOOKUPS_A_REQUEST_MAX]
            some = [(each, each.generation) for each in first if each.phase is ReplicaPhase.PAUSED]
            if some:
                self._send_lookup(some)
            del replicas[:LOOKUPS_A_REQUEST_MAX]

    def _send_lookup(self, replicas: Sequence[tuple[FollowedReplica, int]]) -> None:
        channel, timeout_ms = self._control_channel(), self._parts.settings.timeout_ms
        if channel is None:
            self._not_looked_up(replicas, "the leader's address is not known")
            return
        requests = list_offsets_requests(self._parts.broker_id, [each for each, _ in replicas])
        sent = [channel.send(each, ListOffsetsResponse, timeout_ms=timeout_ms) for each in requests]
        gather(sent).on_done(partial(self._lookup_done, replicas))

    def _control_channel(self) -> LeaderChannel | None:
        channel = self._control
        if channel is not None and channel.address != self._parts.endpoint(self.leader):
            channel.close()
            channel = None
        if channel is None:
            channel = self._control = self._open("control")
        return channel

    def _not_looked_up(self, replicas: Sequence[tuple[FollowedReplica, int]], why: str) -> None:
        for replica, generation in replicas:
            if replica.generation == generation:
                self._back_off(replica, ErrorCode.OFFSET_OUT_OF_RANGE, why)

    def _lookup_done(
        self,
        replicas: Sequence[tuple[FollowedReplica, int]],
        result: Result[list[ListOffsetsResponse]],
    ) -> None:
        """Use a time slice for each lookup, because one read may have many responses."""
        self._parts.loop.call_soon(self._looked_up, replicas, result)

    def _looked_up(
        self,
        replicas: Sequence[tuple[FollowedReplica, int]],
        result: Result[list[ListOffsetsResponse]],
    ) -> None:
        if self._stopped:
            return
        if result.error is not None:
            self._not_looked_up(replicas, f"the lookup failed: {result.error}")
            return
        found = leader_offsets(*result.value)
        truncations, truncated = LogTruncations(), []
        for replica, generation in replicas:
            if replica.generation != generation:
                continue
            offsets = found.get(replica.partition.topic_partition)
            if offsets is None or offsets.error_code:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if offsets is None else offsets.error_code
                self._back_off(replica, code, "the lookup of its offsets failed")
                continue
            log = replica.log
            restart = restart_for(
                log.log_end_offset, offsets.log_start_offset, offsets.log_end_offset
            )
            if restart.truncate_fully:
                logger.warning(
                    "%s begins again at %d, the leader's log start. It ended at %d",
                    replica.partition.topic_partition,
                    restart.offset,
                    log.log_end_offset,
                )
                truncations.truncate_fully_and_start_at(log, restart.offset)
            else:
                if restart.offset < log.log_end_offset:
                    self._note_truncation(replica, restart.offset)
                if not truncations.truncate_to(log, restart.offset):
                    self._back_off(replica, ErrorCode.OFFSET_OUT_OF_RANGE, "its log is in range")
                    continue
            self._plan.truncate(replica)
            truncated.append(replica.partition)
        if truncated:
            self._parts.truncations.start(truncations, truncated)
