"""The election of the writer, performed: group membership, producer and writer of one instance.

`odradek.registry.election` decides. This module delivers its events and performs its effects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.environment.clock import Clock
from odradek.environment.executors import Pool
from odradek.environment.timers import Timer, Timers
from odradek.registry.applied_log import AppliedLog
from odradek.registry.election import (
    Announced,
    AnnounceWriter,
    Effect,
    ElectionState,
    Event,
    FencePredecessor,
    Leader,
    LeaderRead,
    LeaveGroup,
    LogRead,
    PartitionAssigned,
    PartitionRevoked,
    Phase,
    PredecessorFenced,
    ReadToEnd,
    StartWriting,
    StepFailed,
    StopWriting,
    TimePassed,
    WakeAt,
    step,
)
from odradek.registry.group_member import GroupMember
from odradek.registry.kafka_settings import MEMBER_TIMEOUT_MS, KafkaSettings, RefusedSetting
from odradek.registry.log_identity import LogIdentityWatch, LogLost
from odradek.registry.schemas_log import SchemasLog
from odradek.registry.transactions import TransactionalProducer, WriteRefused, WriterLost
from odradek.registry.writer import RegistryWriter

logger = logging.getLogger(__name__)

LEADER_READ_INTERVAL_MS = 1_000.0
"""Minimum interval between reads of the writer's URL."""
OWN_URL_MS = 2.5 * MEMBER_TIMEOUT_MS
"""Time for which the known writer has the URL of this follower, before a log line names it.

Within this time the group replaces a writer that was killed, also by a new process at its URL.
"""
READ_TIMEOUT_S = 30.0
"""Time limit for the state to apply the rest of the log in a take-over."""
DRAIN_TIMEOUT_S = 2.0
"""Time that a revocation waits for the write in progress."""


class WriterElection:
    """The part of one instance in the election. Owned by the event loop.

    Args:
        settings: The cluster, the topic and the group.
        cluster_id: The id of the cluster.
        url: The URL to which other instances forward writes.
        log: The reader of the log.
        watch: Compares the log with the one of the start, before this instance is the writer.
        applied: The state.
        pool: One thread, on which the producer runs.
        clock: The clock.
        timers: The timers of the event loop.
        failed: Receives an error after which the instance cannot be a member any longer.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster_id: str,
        url: str,
        log: SchemasLog,
        watch: LogIdentityWatch,
        applied: AppliedLog,
        pool: Pool,
        clock: Clock,
        timers: Timers,
        failed: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._url = url
        self._log = log
        self._watch = watch
        self._applied = applied
        self._pool = pool
        self._clock = clock
        self._timers = timers
        self._failed = failed
        self._state = ElectionState()
        self._member = GroupMember(settings, self, clock.monotonic_ms)
        self._producer: TransactionalProducer | None = None
        self._writer: RegistryWriter | None = None
        self._serving = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._own_url_since_ms: float | None = None
        self._is_own_url_reported = False
        self._leader_read: asyncio.Task[None] | None = None
        self._leader_read_ms = -LEADER_READ_INTERVAL_MS

    @property
    def writer(self) -> RegistryWriter | None:
        """The writer, if it is this instance."""
        return self._writer

    @property
    def known_epoch(self) -> int:
        """The epoch of the newest writer that this instance knows, or 0."""
        leader = self._state.leader
        return 0 if leader is None else leader.epoch

    async def leader(self, *, refresh: bool = False) -> Leader | None:
        """Return the writer, or None if the group has none or it is this instance.

        Args:
            refresh: The known URL has failed. It is read again, at most once in
                `LEADER_READ_INTERVAL_MS`.
        """
        if refresh or self._state.leader is None:
            await self._refresh()
        leader = self._state.leader
        if leader is None or leader.url != self._url:
            self._own_url_since_ms = None
            return leader
        self._report_own_url()
        return None

    def _report_own_url(self) -> None:
        """Log once that another instance advertises the URL of this one.

        The known writer is this instance also while it begins or ends to be the writer, and after a
        restart.
        """
        now_ms = self._clock.monotonic_ms()
        if self._state.phase is not Phase.FOLLOWING:
            self._own_url_since_ms = None
        elif self._own_url_since_ms is None:
            self._own_url_since_ms = now_ms
        elif now_ms - self._own_url_since_ms >= OWN_URL_MS and not self._is_own_url_reported:
            self._is_own_url_reported = True
            logger.warning(
                "the writer of topic '%s' advertises %s, the URL of this instance, which is not the"
                " writer and refuses writes. Set --advertise of each instance to a URL of its own"
                " that the others reach",
                self._settings.topic,
                self._url,
            )

    def start(self) -> None:
        """Join the group. The take-over waits until `serving` is called."""
        self._member.start()

    def serving(self) -> None:
        """Permit the take-over, because the URL of this instance accepts connections."""
        self._serving.set()

    async def stop(self, timeout_s: float) -> None:
        """Stop writing and leave the group, for at most `timeout_s` seconds."""
        if not await self._member.close(timeout_s):
            logger.warning(
                "leaving the group of topic '%s' takes too long. The brokers remove this instance"
                " after its session timeout",
                self._settings.topic,
            )
        self._handle(PartitionRevoked("this instance stops"))
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks, *([self._leader_read] if self._leader_read else [])]:
            task.cancel()

    def log_lost(self, error: Exception) -> None:
        """Stop writing, because the topic is no longer the one that was read."""
        self._handle(PartitionRevoked(str(error)))

    # --- events of the member ---

    def partition_assigned(self) -> None:
        """Become the candidate."""
        self._handle(PartitionAssigned())

    async def partition_revoked(self, reason: str) -> None:
        """Stop writing. Return when the write in progress has ended."""
        writer = self._writer
        self._handle(PartitionRevoked(reason))
        if writer is not None:
            await writer.drained(DRAIN_TIMEOUT_S)

    def membership_failed(self, error: Exception) -> None:
        """End the instance, because it can never become the writer again."""
        self._failed(error)

    # --- state machine ---

    def _handle(self, event: Event) -> None:
        before = self._state
        self._state, effects = step(before, event, self._clock.monotonic_ms())
        if isinstance(event, LeaderRead) and before.leader != event.leader:
            self._report_leader(event.leader)
        if isinstance(event, StepFailed) and before.phase is not self._state.phase:
            self._report_failure(before.phase, event)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ReadToEnd():
                self._attempt(effect.term, self._read_to_end(effect.term))
            case FencePredecessor():
                self._attempt(effect.term, self._fence(effect.term))
            case AnnounceWriter():
                self._attempt(effect.term, self._announce(effect))
            case StartWriting():
                self._start_writing(effect.term)
            case StopWriting():
                self._stop_writing(effect.reason)
            case LeaveGroup():
                self._member.rejoin()
            case WakeAt():
                delay_s = max(effect.time_ms - self._clock.monotonic_ms(), 0.0) / 1000
                self._timer = self._timers.call_later(delay_s, self._handle, TimePassed())

    def _attempt(self, term: int, work: Coroutine[Any, Any, Event]) -> None:
        self._begin(self._deliver(term, work))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, term: int, work: Coroutine[Any, Any, Event]) -> None:
        """Deliver the event that the work returns, or its failure."""
        try:
            event = await work
        except WriterLost as error:
            event = StepFailed(term, str(error), error.is_fenced)
        except (TimeoutError, WriteRefused, RefusedSetting) as error:
            event = StepFailed(term, str(error) or "no response within the time limit")
        except LogLost as error:
            self._failed(error)
            event = StepFailed(term, str(error))
        except Exception as error:
            logger.exception("a step of the election of topic '%s' failed", self._settings.topic)
            event = StepFailed(term, repr(error))
        self._handle(event)

    # --- effects ---

    async def _read_to_end(self, term: int) -> Event:
        await self._serving.wait()
        await self._refresh()  # the epoch of the predecessor
        await self._applied.ready()
        end = await self._log.end_offset()
        async with asyncio.timeout(READ_TIMEOUT_S):
            await self._applied.reached(end)
        return LogRead(term, end)

    def _is_in(self, term: int, phase: Phase) -> bool:
        """Whether an effect still applies. A revocation may precede the start of its task."""
        return self._state.term == term and self._state.phase is phase

    async def _fence(self, term: int) -> Event:
        if not self._is_in(term, Phase.FENCING):
            return PredecessorFenced(term)  # the state machine ignores it
        self._producer = TransactionalProducer(self._settings, self._cluster_id)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._producer.fence)
        return PredecessorFenced(term)

    async def _announce(self, effect: AnnounceWriter) -> Event:
        leader = Leader(self._url, effect.epoch)
        await self._watch.verify()
        metadata = await self._member.group_metadata()
        if not self._is_in(effect.term, Phase.ANNOUNCING):
            return Announced(effect.term, leader)  # the state machine ignores it
        assert self._producer is not None, "the predecessor was fenced"
        producer = self._producer
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, producer.announce, effect.position, leader, metadata)
        return Announced(effect.term, leader)

    def _start_writing(self, term: int) -> None:
        assert self._producer is not None, "the predecessor was fenced"
        self._writer = RegistryWriter(
            self._producer,
            self._applied,
            self._pool,
            lambda error: self._handle(StepFailed(term, str(error), error.is_fenced)),
        )
        logger.info(
            "this instance is the writer of topic '%s', in epoch %d, at %s",
            self._settings.topic,
            self.known_epoch,
            self._url,
        )

    def _stop_writing(self, reason: str) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer = None
            logger.info(
                "this instance is no longer the writer of topic '%s': %s",
                self._settings.topic,
                reason,
            )
        if self._producer is not None:
            self._pool.submit(self._producer.close)
            self._producer = None

    # --- the leader ---

    async def _refresh(self) -> None:
        """Read the leader again, unless it was read a short time before."""
        if self._leader_read is None or self._leader_read.done():
            now_ms = self._clock.monotonic_ms()
            if now_ms < self._leader_read_ms + LEADER_READ_INTERVAL_MS:
                return
            self._leader_read_ms = now_ms
            self._leader_read = asyncio.get_running_loop().create_task(self._read_leader())
        await asyncio.shield(self._leader_read)

    async def _read_leader(self) -> None:
        try:
            leader = await self._member.leader()
        except TimeoutError:
            return  # the connection's failure has a line of its own
        if leader is not None:
            self._handle(LeaderRead(leader))

    def _report_leader(self, leader: Leader) -> None:
        if leader.url != self._url:
            logger.info(
                "the writer of topic '%s' is %s, in epoch %d. Writes are forwarded to it",
                self._settings.topic,
                leader.url,
                leader.epoch,
            )

    def _report_failure(self, phase: Phase, event: StepFailed) -> None:
        after = self._state.phase
        retry = "leaves the group for a while" if after is Phase.LEAVING else "tries again"
        logger.warning(
            "this instance failed as the candidate for topic '%s' (%s): %s. It %s",
            self._settings.topic,
            phase.value,
            event.reason,
            retry,
        )
