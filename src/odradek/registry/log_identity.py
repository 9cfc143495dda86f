"""The identity of the log, and the checks that it has not changed.

A topic that was deleted and created again has other records at the same offsets, and so has the
topic of another cluster at the same address. The reader of the log does not notice either if the
new topic is long enough. Therefore an instance compares the ids of cluster and topic with those of
its start: at an interval, after an error of the reader, and before it becomes the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.registry.kafka_settings import InstanceFailure, KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

CHECK_INTERVAL_S = 5.0
"""Pause between two checks."""
RETRY_S = 1.0
"""Minimum pause between two checks, also after errors of the reader."""
ABSENT_MS = 10_000.0
"""Time for which brokers report that the topic does not exist, before the instance ends.

A broker that has just started may not know all topics yet.
"""
REQUEST_TIMEOUT_S = 5.0
"""Time limit of a request of a check."""


class LogLost(InstanceFailure):
    """The topic no longer has the records that were read."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The ids of the cluster and of the topic. Empty: the brokers do not report one."""

    cluster_id: str
    topic_id: str

    def difference(self, found: LogIdentity) -> str | None:
        """Return the part of an error line that says what has changed, or None."""
        if self.cluster_id and found.cluster_id and self.cluster_id != found.cluster_id:
            return f"belongs to cluster {found.cluster_id} instead of {self.cluster_id}"
        if self.topic_id and found.topic_id and self.topic_id != found.topic_id:
            return f"was created again (its id is {found.topic_id} instead of {self.topic_id})"
        return None


class IdentitySource(Protocol):
    """Requests the current identity."""

    async def read(self) -> LogIdentity | None:
        """Return the identity, or None if the topic does not exist.

        Raises:
            TimeoutError: The brokers did not report it.
        """


class LogIdentityWatch:
    """The checks of one instance. Owned by the event loop.

    Args:
        topic: The name of the topic.
        expected: The identity at the start.
        source: Requests the current one.
        clock: Measures how long the topic is absent.
        timers: The pauses between the checks.
        fail: Receives the error after which the checks have ended, such as `LogLost`.
    """

    def __init__(
        self,
        topic: str,
        expected: LogIdentity,
        source: IdentitySource,
        clock: Clock,
        timers: Timers,
        fail: Callable[[Exception], None],
    ) -> None:
        self._topic = topic
        self._expected = expected
        self._source = source
        self._clock = clock
        self._timers = timers
        self._fail = fail
        self._absent_since_ms: float | None = None
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check at an interval."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def suspect(self) -> None:
        """Check as soon as `RETRY_S` permits, because the reader of the log has an error."""
        self._due.set()

    async def verify(self) -> None:
        """Return if the log is the one of the start.

        Raises:
            LogLost: It is another one, or the topic is absent for `ABSENT_MS`.
            TimeoutError: The brokers did not report the identity, or the topic does not exist now.
        """
        found = await self._source.read()
        if found is None:
            self._report_absent()
            raise TimeoutError(f"topic '{self._topic}' does not exist")
        self._absent_since_ms = None
        difference = self._expected.difference(found)
        if difference is not None:
            raise LogLost(
                f"Topic '{self._topic}' {difference}. Start the registry again to read the topic"
                " from its beginning."
            )

    async def close(self) -> None:
        """End the checks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        # The identity was read a moment before the start.
        await self._pause()
        while True:
            self._due.clear()
            with contextlib.suppress(TimeoutError):  # the reader logs failures of connections
                try:
                    await self.verify()
                except InstanceFailure as error:
                    self._fail(error)
                    return
            await self._pause()

    async def _pause(self) -> None:
        pause_s = CHECK_INTERVAL_S if self._absent_since_ms is None else RETRY_S
        timer = self._timers.call_later(pause_s, self._due.set)
        try:
            await self._timers.sleep(RETRY_S)
            await self._due.wait()
        finally:
            timer.cancel()

    def _report_absent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._absent_since_ms is None:
            self._absent_since_ms = now_ms
        elif now_ms - self._absent_since_ms >= ABSENT_MS:
            raise LogLost(
                f"Topic '{self._topic}' was deleted, and with it all schemas. Restore the topic,"
                " or start the registry again to create an empty one."
            )


class KafkaIdentity:
    """Requests the identity from the brokers. Owned by the event loop.

    Args:
        settings: The cluster and the topic.
        executor: A thread that creates the client.
    """

    def __init__(self, settings: KafkaSettings, executor: Executor) -> None:
        self._settings = settings
        self._executor = executor
        self._admin: AdminClient | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> LogIdentity | None:
        """Return the identity, or None if the topic does not exist.

        Raises:
            TimeoutError: The brokers did not report it.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        admin = await self._client()
        topic = self._settings.topic
        described = admin.describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S
        )[topic]
        cluster = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
        try:
            cluster_id = (await asyncio.wrap_future(cluster)).cluster_id or ""
            topic_id = str((await asyncio.wrap_future(described)).topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise TimeoutError(self._settings.hide(error.args[0].str())) from None
        return LogIdentity(cluster_id, topic_id)

    def close(self) -> None:
        """Drop the client. May block for a short time."""
        self._admin = None

    async def _client(self) -> AdminClient:
        async with self._lock:
            if self._admin is None:
                loop = asyncio.get_running_loop()
                self._admin = await loop.run_in_executor(self._executor, self._connect)
            return self._admin

    def _connect(self) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient({**self._settings.admin(), "error_cb": _ignored})
        except KafkaException as error:
            raise self._settings.invalid(error.args[0].str()) from None


def _ignored(error: KafkaError) -> None:
    """Receive an error of a connection, which the reader of the log reports, too."""
