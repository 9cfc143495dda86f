"""Reader of the topic of the schemas, on a thread of its own.

The thread reads partition 0 from its beginning with ``isolation.level=read_committed``, decodes the
records and passes them to the event loop in batches. The event loop applies them to the state.
Records that do not decode are passed on as `Foreign`.

The end of the log is the last stable offset. A position may therefore pass offsets that have no
record: markers of transactions, aborted records and records that compaction has removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from odradek.registry.kafka_errors import RepeatedErrors, joined
from odradek.registry.kafka_settings import KafkaSettings, RefusedSetting
from odradek.registry.log_identity import LogLost
from odradek.registry.records import Foreign, Record, decode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

BATCH_RECORDS_MAX = 200
"""Maximum number of records of a batch, which the event loop applies in one time slice."""
BATCHES_MAX = 4
"""Maximum number of batches that wait for the event loop. The thread waits above it."""
POLL_S = 0.05
"""Time after which the thread looks for requests and for its end, if no record arrives."""
END_OFFSET_TIMEOUT_S = 5.0
LEADER_TIMEOUT_S = 1.0
"""Time limit of the request for the leader of the partition. The thread reads without it, too."""
PARTITION = 0


class LogEntry(NamedTuple):
    """A record, its offset, and its timestamp in milliseconds since 1970 if it has one."""

    offset: int
    record: Record | Foreign
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Records in the order of the log.

    Attributes:
        entries: The records.
        position: The offset that is read next.
        is_end: Whether `position` was the end of the log when it was read.
    """

    entries: tuple[LogEntry, ...]
    position: int
    is_end: bool


class SchemasLog:
    """The thread that reads the log.

    `start`, `end_offset` and `close` belong to the event loop, on which `apply` and `fail` are
    called.

    Args:
        settings: The cluster and the topic.
        apply: Receives each batch.
        fail: Receives the error after which the thread has ended.
        monotonic_ms: The clock of the intervals of log lines, in milliseconds.
        suspect: Called on the event loop after an error of a request for records.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        apply: Callable[[LogBatch], None],
        fail: Callable[[Exception], None],
        monotonic_ms: Callable[[], float],
        suspect: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._apply = apply
        self._fail = fail
        self._suspect = suspect
        self._errors = RepeatedErrors(settings, monotonic_ms)
        self._free = threading.BoundedSemaphore(BATCHES_MAX)
        self._requests: SimpleQueue[Future[int]] = SimpleQueue()
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odradek-registry-log", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._position = 0

    def start(self) -> None:
        """Begin to read."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def end_offset(self) -> int:
        """Return the end of the log, which includes all transactions that were committed before.

        Raises:
            TimeoutError: No broker has responded.
        """
        request: Future[int] = Future()
        self._requests.put(request)
        async with asyncio.timeout(END_OFFSET_TIMEOUT_S + 1.0):
            return await asyncio.wrap_future(request)

    async def close(self, timeout_s: float) -> None:
        """End the thread. Return after `timeout_s` seconds even if it has not ended."""
        self._is_ended.set()
        if self._thread.ident is not None:
            await joined(self._thread, timeout_s)

    # --- on the thread ---

    def _run(self) -> None:
        try:
            consumer = self._make_consumer()
        except RefusedSetting as error:
            self._post_failure(error)
            return
        try:
            while not self._is_ended.is_set():
                self._answer(consumer)
                self._read(consumer)
        except Exception as error:  # noqa: BLE001 - raised on the event loop
            self._post_failure(error)
        finally:
            consumer.close()
            ended = TimeoutError("the reader of the log has ended")
            _settle(self._taken_requests(), ended)

    def _make_consumer(self) -> Consumer:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

        try:
            consumer = Consumer({**self._settings.reader(), "error_cb": self._errors.report})
        except KafkaException as error:
            raise self._settings.invalid(error.args[0].str()) from None
        # librdkafka looks for the beginning of a partition of unknown leader every 500 ms.
        with contextlib.suppress(KafkaException):
            consumer.get_watermark_offsets(
                TopicPartition(self._settings.topic, PARTITION), timeout=LEADER_TIMEOUT_S
            )
        consumer.assign([TopicPartition(self._settings.topic, PARTITION, OFFSET_BEGINNING)])
        return consumer

    def _read(self, consumer: Consumer) -> None:
        """Wait for a record, and pass it and the records that have arrived with it on."""
        first = consumer.poll(POLL_S)
        if first is None:
            return
        # `consume` alone would wait until the batch is full or its time is over.
        messages = [first, *consumer.consume(BATCH_RECORDS_MAX - 1, 0)]
        entries: list[LogEntry] = []
        is_end = False
        for message in messages:
            error = message.error()
            if error is None:
                entries.append(_entry(message))
                self._position, is_end = message.offset() + 1, False
            elif self._is_end(error):
                self._position, is_end = message.offset(), True
        if entries or is_end:
            self._post(LogBatch(tuple(entries), self._position, is_end))

    def _is_end(self, error: KafkaError) -> bool:
        """Return whether an error is the end of the log. Log other errors.

        Raises:
            LogLost: The topic has been truncated or created again.
        """
        from confluent_kafka import KafkaError as Kafka

        if error.code() == Kafka._PARTITION_EOF:
            return True
        lost = (Kafka._AUTO_OFFSET_RESET, Kafka._LOG_TRUNCATION, Kafka.OFFSET_OUT_OF_RANGE)
        if error.fatal() or error.code() in lost:
            raise LogLost(
                f"Topic '{self._settings.topic}' no longer has the records that were read up to"
                f" offset {self._position} ({self._settings.hide(error.str())}). It was truncated"
                " or created again. Start the registry again to read it from its beginning."
            )
        self._errors.report(error)
        self._call_soon(self._suspect)
        return False

    def _answer(self, consumer: Consumer) -> None:
        """Answer the requests for the end offset with one request to the broker.

        Requests that arrive in the meantime need a later end.
        """
        from confluent_kafka import KafkaException, TopicPartition

        requests = self._taken_requests()
        if not requests:
            return
        partition = TopicPartition(self._settings.topic, PARTITION)
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=END_OFFSET_TIMEOUT_S)
        except KafkaException as error:
            _settle(requests, TimeoutError(self._settings.hide(error.args[0].str())))
        else:
            _settle(requests, end)

    def _taken_requests(self) -> list[Future[int]]:
        requests: list[Future[int]] = []
        with contextlib.suppress(Empty):
            while True:
                requests.append(self._requests.get_nowait())
        return requests

    def _post(self, batch: LogBatch) -> None:
        """Pass a batch to the event loop, as soon as it has applied enough earlier ones."""
        while not self._free.acquire(timeout=POLL_S):
            if self._is_ended.is_set():
                return
        self._call_soon(lambda: self._deliver(batch))

    def _post_failure(self, error: Exception) -> None:
        self._call_soon(lambda: self._fail(error))

    def _call_soon(self, call: Callable[[], None]) -> None:
        assert self._loop is not None, "the log was started"
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the event loop is closed
            self._is_ended.set()

    # --- on the event loop ---

    def _deliver(self, batch: LogBatch) -> None:
        if not self._is_ended.is_set():
            self._apply(batch)
        self._free.release()


def _settle(requests: list[Future[int]], result: int | TimeoutError) -> None:
    for each in requests:
        if not each.set_running_or_notify_cancel():
            continue
        if isinstance(result, int):
            each.set_result(result)
        else:
            each.set_exception(result)


def _entry(message: Message) -> LogEntry:
    kind, timestamp_ms = message.timestamp()
    record = decode(message.key(), message.value())
    return LogEntry(message.offset(), record, timestamp_ms if kind else None)
