"""Membership of an instance in the group that elects the writer, on a thread of its own.

The member never uses records. The assignment of the partition makes it the candidate, and the
metadata of the group's committed offset names the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.registry.election import Leader, decode_leader
from odradek.registry.kafka_errors import RepeatedErrors, joined
from odradek.registry.kafka_settings import KafkaSettings
from odradek.registry.schemas_log import PARTITION, POLL_S

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
"""Time limit of a request for the committed offset."""
REJOIN_PAUSE_MS = 2_000.0
"""Time outside of the group after this instance has left it, so that another one takes over."""
REVOKE_TIMEOUT_S = 3.0
"""Time that a revocation waits for the write in progress. Later the successor fences it."""

T = TypeVar("T")
Call = Callable[["Consumer"], None]


class MemberEvents(Protocol):
    """The receiver of the events of a member, on the event loop."""

    def partition_assigned(self) -> None:
        """The group has assigned the partition to this instance."""

    async def partition_revoked(self, reason: str) -> None:
        """The partition is revoked or lost. Return when this instance writes no longer."""

    def membership_failed(self, error: Exception) -> None:
        """The thread has ended with an error."""


class GroupMember:
    """The thread of the membership.

    Its methods belong to the event loop, on which the events are delivered.

    Args:
        settings: The cluster, the topic and the group.
        events: Receives the events.
        monotonic_ms: The clock, in milliseconds.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        events: MemberEvents,
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._events = events
        self._monotonic_ms = monotonic_ms
        self._errors = RepeatedErrors(settings, monotonic_ms)
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._is_ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="odradek-registry-group", daemon=True
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Join the group."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def rejoin(self) -> None:
        """Leave the group, and join it again after `REJOIN_PAUSE_MS`."""
        self._calls.put(self._leave_and_join)

    async def group_metadata(self) -> object:
        """Return the current membership, for a transaction that commits offsets.

        Raises:
            TimeoutError: The thread did not respond.
        """
        return await self._ask(lambda consumer: consumer.consumer_group_metadata())

    async def leader(self) -> Leader | None:
        """Return the leader in the metadata of the committed offset.

        Raises:
            TimeoutError: The brokers did not respond.
        """
        return await self._ask(self._read_leader)

    async def close(self, timeout_s: float) -> bool:
        """Leave the group. Return after `timeout_s` seconds, and whether the thread has ended."""
        self._is_ended.set()
        return self._thread.ident is None or await joined(self._thread, timeout_s)

    async def _ask(self, function: Callable[[Consumer], T]) -> T:
        """Return the result of a function that runs on the thread."""
        result: Future[T] = Future()

        def call(consumer: Consumer) -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function(consumer))
            except Exception as error:  # noqa: BLE001 - raised on the event loop
                result.set_exception(error)

        self._calls.put(call)
        async with asyncio.timeout(CALL_TIMEOUT_S + REVOKE_TIMEOUT_S):
            return await asyncio.wrap_future(result)

    # --- on the thread ---

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        try:
            consumer = Consumer({**self._settings.member(), "error_cb": self._errors.report})
        except KafkaException as error:
            self._post_failure(self._settings.invalid(error.args[0].str()))
            return
        try:
            self._subscribe(consumer)
            while not self._is_ended.is_set():
                self._run_calls(consumer)
                self._poll(consumer)
        except Exception as error:  # noqa: BLE001 - raised on the event loop
            self._post_failure(error)
        finally:
            consumer.close()

    def _subscribe(self, consumer: Consumer) -> None:
        # The callbacks assign by themselves. Otherwise librdkafka asks for the protocol of the
        # group, and in rare cases gets no response.
        consumer.subscribe(
            [self._settings.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def _run_calls(self, consumer: Consumer) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._calls.get_nowait()(consumer)

    def _poll(self, consumer: Consumer) -> None:
        """Take part in the group. Records are dropped."""
        message = consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            self._errors.report(error)

    def _leave_and_join(self, consumer: Consumer) -> None:
        consumer.unsubscribe()
        until_ms = self._monotonic_ms() + REJOIN_PAUSE_MS
        while self._monotonic_ms() < until_ms and not self._is_ended.is_set():
            self._poll(consumer)
        if not self._is_ended.is_set():
            self._subscribe(consumer)

    def _read_leader(self, consumer: Consumer) -> Leader | None:
        from confluent_kafka import KafkaException, TopicPartition

        asked = [TopicPartition(self._settings.topic, PARTITION)]
        try:
            (committed,) = consumer.committed(asked, timeout=CALL_TIMEOUT_S)
        except KafkaException as error:
            raise TimeoutError(self._settings.hide(error.args[0].str())) from None
        return decode_leader(committed.metadata)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
            self._call_soon(self._events.partition_assigned)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._stop_writing("the group has assigned the partition to another instance")
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._stop_writing("the membership in the group was lost")
        consumer.incremental_unassign(partitions)

    def _stop_writing(self, reason: str) -> None:
        """Have the event loop stop the writer, and wait for the write in progress."""
        assert self._loop is not None, "the member was started"
        revoked = self._events.partition_revoked(reason)
        try:
            stopping = asyncio.run_coroutine_threadsafe(revoked, self._loop)
        except RuntimeError:  # the event loop is closed
            revoked.close()
            return
        try:
            stopping.result(REVOKE_TIMEOUT_S)
        except TimeoutError:
            logger.warning(
                "a write to topic '%s' is still in progress. The next writer ends it",
                self._settings.topic,
            )

    def _post_failure(self, error: Exception) -> None:
        self._call_soon(lambda: self._events.membership_failed(error))

    def _call_soon(self, call: Callable[[], None]) -> None:
        assert self._loop is not None, "the member was started"
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(call)
