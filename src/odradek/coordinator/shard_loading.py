"""Loading of a shard from its log: bytes are read in a thread, records are replayed on the loop.

A Python loop in a thread holds the interpreter lock and delays the event loop by milliseconds, so
threads only read files and decompress. Decoding and replay run on the event loop in time slices of
`SLICE_RECORDS` records. A runtime loads one shard at a time. Otherwise fifty loading shards would
run fifty slices between two requests. The loading task owns the shard until the load has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, runtime_checkable

from odradek.collector import postponed_full_collections
from odradek.coordinator.encoded_records import EncodedRecords
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.unified_log import UnifiedLog
from odradek.protocol import record_codec
from odradek.protocol.codec import Message
from odradek.protocol.errors import MalformedMessage
from odradek.records.batch import NO_PRODUCER_ID, BatchHeader, Compression, parse_header
from odradek.records.record import Record, body_of, iter_batches, records_of
from odradek.slicing import end_slice, in_slices

logger = logging.getLogger(__name__)

SLICE_RECORDS = 20
"""Records that are decoded and replayed in one time slice: 0.2 ms, and 2 ms with cold caches."""
BYTES_PER_RECORD = 4_096
"""A record counts as one more for each 4,096 bytes: a group of 1,000 members is one record."""
# A decoder logs a warning for at most this many kinds of unreadable records.
SKIPPED_KINDS_MAX = 100
# The type in the key of a control record (after its version), and whether it is a commit.
MARKERS = {b"\x00\x00": False, b"\x00\x01": True}


class Shard(Protocol):
    """A state machine over one partition."""

    def replay(self, offset: int, key: Message, value: Message | None) -> None:
        """Apply one record to the state: at load time, and right after it was appended."""

    def keep(self, offset: int, key: Message) -> None:
        """Keep the committed value that the record at `offset` with this key will replace.

        The record is appended, but not committed yet.
        """

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""

    def starting(self) -> Iterator[int]:
        """Prepare to serve: the whole partition is replayed and committed.

        Yield the number of elements after each step (`shard_transitions`). No request sees the
        shard before this has ended.
        """

    def loaded(self) -> None:
        """Begin to serve."""

    def unloading(self, code: ErrorCode) -> Iterator[int]:
        """End the shard, which is not served any longer.

        The iterator completes the waiting requests with `code`, and yields as `starting`.
        """

    def on_timer(self, key: str) -> None:
        """Handle the timer of this key, which is due."""


@runtime_checkable
class TransactionalShard(Protocol):
    """A shard whose partition takes part in clients' transactions."""

    def replay_transactional(
        self, offset: int, producer_id: int, key: Message, value: Message | None
    ) -> None:
        """Apply one record that takes effect when its transaction is committed."""

    def keep_transaction(self, offset: int, producer_id: int) -> None:
        """Keep all committed values that the marker at `offset` may replace, as `Shard.keep`."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commit or abort the producer's open transaction, whose marker has been appended."""


class RecordBlock(Protocol):
    """The records of one long write, made in time slices before the write."""

    @property
    def encoded(self) -> EncodedRecords:
        """The bytes of the records."""


@runtime_checkable
class BlockShard(Protocol):
    """A shard that applies the records of a long write faster than record by record."""

    def keep_block(self, offset: int, block: Any) -> None:
        """Keep the values that the uncommitted records of a `RecordBlock` will replace.

        The last one is at `offset`.
        """

    def replay_block(self, block: Any, first_offset: int, producer_id: int) -> None:
        """Apply the records of a `RecordBlock`, which was appended.

        The shard may apply them in later time slices, if no request can see that.
        """


class BulkLoader(Protocol):
    """Loader of the simple batches of one piece of a log, faster than record by record.

    Both methods yield at the end of each time slice.
    """

    def take(self, pos: int, first: int) -> Generator[None, None, tuple[int, int]]:
        """Take batches from `pos` on, up to the first batch for the general path.

        Args:
            pos: Position in the piece, in bytes.
            first: Records with smaller offsets are left out.

        Returns:
            The position after the last batch that was taken, and the offset after it (0 when none
            was taken).
        """

    def finish(self) -> Generator[None, None, None]:
        """End the piece. When this returns, the shard contains all records that were taken."""


@runtime_checkable
class BulkShard(Protocol):
    """A shard with a faster path for most of its records at load time."""

    def bulk(self, data: bytes) -> BulkLoader: ...


class RecordDecoder:
    """Decoder of the records of one family.

    It skips a record that it cannot decode, such as a type of a later Kafka, or bytes that an
    administrator produced. It logs one warning for each kind. Such a record must not make the
    shard unavailable.
    """

    def __init__(self, family: str) -> None:
        self._family = family
        self._skipped: set[str] = set()
        self._source = f"{family} records"

    def begin(self, topic_partition: TopicPartition) -> None:
        """Take the partition of the following records. It is named in the warnings."""
        self._source = str(topic_partition)

    def __call__(self, record: Record) -> tuple[Message, Message | None] | None:
        """Return the key and the value of a record.

        The value of a tombstone is None. The result is None when this version cannot read the
        record.
        """
        if record.key is None:
            self._skip("a record without a key", record.offset)
            return None
        try:
            key = record_codec.decode_key(self._family, record.key)
            if record.value is None:
                return key, None
            value_class = record_codec.value_class(self._family, key)
            return key, record_codec.decode_value(value_class, record.value)
        except (record_codec.UnknownRecordType, MalformedMessage) as error:
            self._skip(str(error), record.offset)
            return None

    def _skip(self, what: str, offset: int) -> None:
        if what not in self._skipped and len(self._skipped) < SKIPPED_KINDS_MAX:
            self._skipped.add(what)
            logger.warning("%s: %s: skipped, first at offset %d", self._source, what, offset)


def replay_record(
    shard: Shard, offset: int, producer_id: int, key: Message, value: Message | None
) -> None:
    """Replay one record. A record with a producer id belongs to a transaction."""
    if producer_id != NO_PRODUCER_ID and isinstance(shard, TransactionalShard):
        shard.replay_transactional(offset, producer_id, key, value)
    else:
        shard.replay(offset, key, value)


class ShardLoader:
    """Loader of the shards of one internal topic, one at a time. Owned by the event loop.

    Args:
        family: The record family of the topic, as `record_codec` names it.
        executor: Threads that read and decompress.
        piece_bytes: Size of the pieces in which a log is read (``offsets.load.buffer.size``).
    """

    def __init__(self, family: str, executor: Executor, piece_bytes: int) -> None:
        self._decode = RecordDecoder(family)
        self._executor = executor
        self.piece_bytes = piece_bytes
        self._loading = asyncio.Lock()
        self._left = SLICE_RECORDS

    async def load(self, shard: Shard, log: UnifiedLog) -> int:
        """Replay the whole log into the shard. Return the log end offset that was loaded.

        Raises:
            KafkaError, OSError: The log cannot be read now.
            ValueError: A batch is damaged.
        """
        async with self._loading:
            self._decode.begin(log.topic_partition)
            end = log.log_end_offset
            offset = log.log_start_offset
            while offset < end:
                region = log.read(offset, self.piece_bytes, end, True).region
                if region is None:
                    break
                try:
                    data = await self._off_loop(region.read)
                finally:
                    region.close()
                offset = await self.load_piece(shard, data, offset)
            return end

    async def _off_loop(self, function: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    async def load_piece(self, shard: Shard, data: bytes, first: int) -> int:
        """Replay the batches in `data` from offset `first` on.

        Return the offset after the last batch.
        """
        next_offset = pos = 0
        bulk = shard.bulk(data) if isinstance(shard, BulkShard) else None
        with postponed_full_collections():
            while True:
                if bulk is not None:
                    pos, taken = await in_slices(bulk.take(pos, first))
                    next_offset = taken or next_offset
                batch = next(iter_batches(memoryview(data)[pos:]), None)
                if batch is None:
                    break
                header = parse_header(batch)
                next_offset = header.last_offset + 1
                await self._replay_batch(shard, batch, header, first)
                pos += len(batch)
            if bulk is not None:
                await in_slices(bulk.finish())
        if not next_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the log was cut short while it was read")
        return next_offset

    async def _replay_batch(
        self, shard: Shard, batch: memoryview, header: BatchHeader, first: int
    ) -> None:
        if header.compression == Compression.NONE:
            body = body_of(batch, header)
        else:
            body = await self._off_loop(partial(body_of, batch, header))
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records_of(body, header):
            await self._take(record)
            if header.is_control:
                _replay_marker(shard, record, header)
                continue
            decoded = self._decode(record) if record.offset >= first else None
            if decoded is not None:
                replay_record(shard, record.offset, producer_id, *decoded)

    async def _take(self, record: Record) -> None:
        if self._left <= 0:
            self._left = SLICE_RECORDS
            await end_slice()
        self._left -= 1 + len(record.value or b"") // BYTES_PER_RECORD


def _replay_marker(shard: Shard, record: Record, header: BatchHeader) -> None:
    """Replay a control record. Only the end of a transaction changes a shard."""
    kind = MARKERS.get(bytes(record.key or b"")[2:])
    if kind is not None and isinstance(shard, TransactionalShard):
        shard.end_transaction(header.producer_id, kind)
