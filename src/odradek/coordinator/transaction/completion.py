"""Completion of prepared transactions: a marker in each partition, then the Complete record.

Each transaction has one task. A partition is done in three cases:

- Its marker is committed.
- Its topic was deleted. Otherwise the transaction would never end (KAFKA-12671).
- It refuses the marker, because it has seen a newer epoch of the producer.

TRANSACTION_COORDINATOR_FENCED ends the task: a newer coordinator has written a marker of the
producer, so this one has been deposed. As in Kafka, it does not write Complete.
Any other failure is tried again, with growing pauses, until the shard is dropped. Markers have the
leader epoch in which the shard was loaded as their coordinator epoch. A coordinator that was
deposed, and does not know it yet, thus never passes as its successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from heapq import merge
from itertools import islice

from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.transaction import transaction_decisions as state
from odradek.coordinator.transaction.transaction_marker import TransactionMarker, WriteMarkers
from odradek.coordinator.transaction.transaction_metadata import (
    PREPARED,
    TransactionMetadata,
    TransactionState,
)
from odradek.coordinator.transaction.transaction_shard import TransactionShard
from odradek.environment.backoff import Backoff
from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE, begin, in_slices

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 1_000
ELEMENTS_BEGUN = 10
"""Elements of a time slice that a completion counts as. It soon writes its first markers."""
SORTED_PER_SLICE = 500
"""Partitions that are sorted in one time slice. They take half a millisecond."""
REFUSED_NAMED_MAX = 5
"""Partitions that a log line about refused markers names."""

# The partition has seen a newer producer epoch, or cannot have markers. It needs none.
_NEEDS_NO_MARKER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


Commit = Callable[[TransactionShard, TransactionMetadata], Result[ErrorCode]]


class Completions:
    """The transactions of this broker that are being completed. Owned by the event loop."""

    def __init__(
        self,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        timers: Timers,
        write_markers: WriteMarkers,
        commit: Commit,
    ) -> None:
        self._image = image
        self._clock = clock
        self._timers = timers
        self._write_markers = write_markers
        self._commit = commit
        # A shard without tasks has no entry.
        self._tasks: dict[TransactionShard, dict[asyncio.Task[None], None]] = {}

    def begin_all(self, shard: TransactionShard) -> None:
        """Begin to complete all prepared transactions of a shard that was loaded, in time slices.

        No request has to ask for that.
        """
        begin(self._beginning(shard), "the completion of loaded transactions")

    def _beginning(self, shard: TransactionShard) -> Generator[None, None, None]:
        left = ELEMENTS_PER_SLICE
        # Metadata is replaced and not changed, so these are the transactions that were loaded.
        for each in list(shard.transactions.values()):
            left -= 1
            if each.state in PREPARED:
                left -= ELEMENTS_BEGUN
                self.begin(shard, each)
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield

    def begin(self, shard: TransactionShard, prepared: TransactionMetadata) -> None:
        """Begin to complete a transaction whose Prepare is committed.

        If its shard was dropped in the meantime, the next broker that loads it completes the
        transaction.
        """
        if not shard.served:
            return
        task = asyncio.get_running_loop().create_task(self._complete(shard, prepared))
        self._tasks.setdefault(shard, {})[task] = None
        task.add_done_callback(partial(self._ended, shard))

    def _ended(self, shard: TransactionShard, task: asyncio.Task[None]) -> None:
        tasks = self._tasks[shard]
        del tasks[task]
        if not tasks:
            del self._tasks[shard]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "completing a transaction of %s-%d has failed. It is completed when the partition "
                "is loaded again",
                TRANSACTION_STATE,
                shard.partition,
                exc_info=error,
            )

    def cancelling(self, shard: TransactionShard) -> Transition:
        """Cancel the tasks of a shard that is no longer served.

        Yield after each one, because all tasks that are cancelled together end in one iteration of
        the event loop.
        """
        for task in list(self._tasks.get(shard, ())):
            task.cancel()
            yield 1

    async def done(self) -> None:
        """Wait until the present tasks have ended."""
        if tasks := [task for tasks in self._tasks.values() for task in tasks]:
            await asyncio.wait(tasks)

    async def _complete(self, shard: TransactionShard, prepared: TransactionMetadata) -> None:
        backoff = Backoff(self._timers, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX)
        remaining: Collection[TopicPartition] = prepared.partitions
        while existing := await in_slices(self._finding_existing(remaining)):
            done = await self._marked(shard, prepared, existing)
            if done is None:
                return
            remaining = [each for each in existing if each not in done]
            if remaining:
                await backoff.wait()
        while shard.served and not await self._completed(shard, prepared):
            await backoff.wait()

    def _finding_existing(
        self, partitions: Iterable[TopicPartition]
    ) -> Generator[None, None, list[TopicPartition]]:
        """Return the partitions that exist, in order. Yields after each time slice."""
        existing = []
        runs = yield from _sorted_runs(partitions)
        for count, partition in enumerate(merge(*runs), 1):
            if self._image().partition(*partition) is not None:
                existing.append(partition)
            if not count % ELEMENTS_PER_SLICE:
                yield
        return existing

    async def _marked(
        self,
        shard: TransactionShard,
        prepared: TransactionMetadata,
        partitions: list[TopicPartition],
    ) -> set[TopicPartition] | None:
        """Write the markers. Return the partitions that are done, or None if it is deposed."""
        marker = TransactionMarker(
            prepared.producer_id,
            prepared.producer_epoch,
            shard.leader_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            partitions,
            max(prepared.client_transaction_version, 1),
        )
        try:
            codes = (await self._write_markers([marker])).get(prepared.producer_id, {})
        except Exception:
            # Even after an unexpected error the transaction must be completed.
            logger.exception(
                "transaction %s: cannot write its markers. They are written again after a pause",
                prepared.transactional_id,
            )
            return set()
        return await in_slices(self._finding_done(prepared, partitions, codes))

    def _finding_done(
        self,
        prepared: TransactionMetadata,
        partitions: Collection[TopicPartition],
        codes: Mapping[TopicPartition, ErrorCode],
    ) -> Generator[None, None, set[TopicPartition] | None]:
        """Return the partitions that are done, and log the others. Yield after each time slice.

        Return None if this coordinator is deposed.
        """
        done: set[TopicPartition] = set()
        refused: dict[ErrorCode, list[TopicPartition]] = {}
        for count, partition in enumerate(partitions, 1):
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is not ErrorCode.NONE:
                refused.setdefault(code, []).append(partition)
            if code is ErrorCode.NONE or code in _NEEDS_NO_MARKER:
                done.add(partition)
            if not count % ELEMENTS_PER_SLICE:
                yield
        is_deposed = ErrorCode.TRANSACTION_COORDINATOR_FENCED in refused
        retried = "left to the newer coordinator" if is_deposed else "written again after a pause"
        for code, of_code in refused.items():
            is_needless = code in _NEEDS_NO_MARKER
            logger.log(
                logging.ERROR if is_needless else logging.INFO,
                "transaction %s: the markers for %d partitions (%s%s) were refused with %s. They "
                "are %s",
                prepared.transactional_id,
                len(of_code),
                ", ".join(map(str, of_code[:REFUSED_NAMED_MAX])),
                ", ..." if len(of_code) > REFUSED_NAMED_MAX else "",
                code.name,
                "left out" if is_needless else retried,
            )
        return None if is_deposed else done

    async def _completed(self, shard: TransactionShard, prepared: TransactionMetadata) -> bool:
        """Append Complete. Return False when it must be tried again."""
        completed = state.complete(prepared, self._clock.time_ms())
        code = await wait(self._commit(shard, completed))
        if code is not ErrorCode.NONE:
            logger.warning(
                "transaction %s: Complete is not committed: %s. It is written again unless the log "
                "has it",
                prepared.transactional_id,
                code.name,
            )
        # A record that was appended stays in the log, also when it is not committed in time.
        return shard.transactions.get(prepared.transactional_id) is not prepared


def _sorted_runs(
    partitions: Iterable[TopicPartition],
) -> Generator[None, None, list[list[TopicPartition]]]:
    """Return sorted lists with all of the partitions. Yield after each time slice.

    Sorting all of them would take one slice: 6 ms for 10,000 topics.
    """
    runs, left = [], iter(partitions)
    while run := sorted(islice(left, SORTED_PER_SLICE)):
        runs.append(run)
        yield
    return runs
