"""The transaction coordinator: it performs the decisions of `transaction_decisions`.

It finds the transactional id of a request, calls the decision, commits the record through the
runtime and responds. After the response to EndTxn, or after a restart, a task of `completion`
completes each prepared transaction: it writes markers to all partitions, then Complete.

A request is executed when its record is appended, or after a block of producer ids was fetched. Its
response follows when the record is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Protocol, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.coordinator.coordinator_result import CoordinatorResult, Timestamp, response_code
from odradek.coordinator.led_partitions import LedPartitions
from odradek.coordinator.runtime import CoordinatorRuntime, partition_for
from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.transaction import transaction_decisions as state
from odradek.coordinator.transaction.completion import Completions
from odradek.coordinator.transaction.held_additions import HeldAdditions
from odradek.coordinator.transaction.transaction_decisions import (
    Identity,
    Init,
    TransactionResponse,
    TransactionResult,
)
from odradek.coordinator.transaction.transaction_marker import WriteMarkers
from odradek.coordinator.transaction.transaction_metadata import (
    PREPARED,
    TransactionMetadata,
    to_record,
    tombstone,
)
from odradek.coordinator.transaction.transaction_shard import TransactionShard
from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.metadata.features import TRANSACTION_VERSION
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.result_tasks import in_task
from odradek.results import Result

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Expired transactional ids that are removed with one batch.
EXPIRED_PER_BATCH_MAX = 500


class ProducerIds(Protocol):
    """The source of new producer ids."""

    def next_or_none(self) -> int | None: ...

    async def next(self) -> int: ...


Codes = Mapping[TopicPartition, ErrorCode]


class TransactionCoordinator:
    """The coordinator of the transactional ids whose ``__transaction_state`` partition is led here.

    Owned by the event loop. `write_markers` writes markers to partitions
    (`transaction_marker.WriteMarkers`). `start` begins to load the shards of the partitions that
    are led here, and to complete their prepared transactions. After `stop` requests get
    COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        image: Callable[[], MetadataImage],
        partitions: LedPartitions,
        executor: Executor,
        producer_ids: ProducerIds,
        write_markers: WriteMarkers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._image = image
        self._producer_ids = producer_ids
        self._active = False
        self.held = HeldAdditions(timers)
        self._background: dict[Result[TransactionResponse], None] = {}
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_STATE,
            "transaction",
            new_shard=lambda partition, leader_epoch: TransactionShard(
                partition, leader_epoch, self._loaded, self._unloading
            ),
            partitions=partitions,
            clock=clock,
            timers=timers,
            executor=executor,
            load_piece_bytes=config.get_int("transaction.state.log.load.buffer.size"),
            commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        )
        self.completions = Completions(
            image=image,
            clock=clock,
            timers=timers,
            write_markers=write_markers,
            commit=self._commit,
        )

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve requests, and to load the shards of the partitions that are led here."""
        self._active = True
        self.runtime.follow_all(self._existing_partitions())

    def stop(self) -> None:
        """Stop serving. Prepared transactions are completed after the next start."""
        self._active = False
        self.runtime.unload_all()
        for result in list(self._background):
            result.cancel()

    def leadership_changed(self, partition: int) -> None:
        """Load or drop the shard of a partition that this broker begins or ends to lead."""
        self.runtime.follow(partition)

    def _existing_partitions(self) -> int:
        return self._image().partition_count(TRANSACTION_STATE)

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of ``__transaction_state`` that holds this transactional id."""
        count = self._existing_partitions() or self._config.get_int(
            "transaction.state.log.num.partitions"
        )
        return partition_for(transactional_id, count)

    @property
    def transaction_version(self) -> int:
        """The finalized level of ``transaction.version``."""
        return self._image().features.get(TRANSACTION_VERSION, 0)

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.runtime.shard(self.partition_of(transactional_id))

    # -- requests of producers ---------------------------------------------------------------------

    def init_producer_id(self, event: Init) -> Result[TransactionResponse]:
        """Handle InitProducerId with a transactional id."""
        if not event.transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if not 0 < event.timeout_ms <= self._config.get_int("transaction.max.timeout.ms"):
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def decide(current: TransactionMetadata | None, fresh_id: int | None) -> TransactionResult:
            now_ms = self._clock.time_ms()
            return state.init_producer_id(
                current, event, now_ms, self.transaction_version, fresh_id
            )

        return self._run(event.transactional_id, decide)

    def add_partitions(
        self,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        client_transaction_version: int = 0,
        *,
        may_wait: bool = False,
    ) -> Result[TransactionResponse]:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn.

        Args:
            identity: The producer.
            partitions: The partitions to add.
            client_transaction_version: The transaction version of the client.
            may_wait: Whether the request may be held while the producer's last transaction is being
                completed (`HeldAdditions`).
        """
        if not identity.transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        version = client_transaction_version

        def run() -> Result[TransactionResponse]:
            return self._run(
                identity.transactional_id,
                lambda current, _: state.add_partitions(
                    current, identity, partitions, self._clock.time_ms(), version
                ),
            )

        return self.held.first_decided(identity.transactional_id, run) if may_wait else run()

    def end_transaction(
        self, identity: Identity, committed: bool, client_transaction_version: int = 0
    ) -> Result[TransactionResponse]:
        """Handle EndTxn. The result is done when Prepare is committed."""
        if not identity.transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        version = client_transaction_version
        return self._run(
            identity.transactional_id,
            lambda current, fresh_id: state.end_transaction(
                current, identity, committed, self._clock.time_ms(), version, fresh_id
            ),
        )

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        add: bool,
    ) -> Result[Codes]:
        """Check that the producer may write to `partitions` in its transaction.

        With `add` (version 2) they become part of it. The result has a code for each partition. A
        partition that is not in the transaction is TRANSACTION_ABORTABLE.
        """
        identity = Identity(transactional_id, producer_id, producer_epoch)
        requested = frozenset(partitions)
        if add:
            added = self.add_partitions(identity, requested, state.EPOCH_BUMP_FROM)
            return added.then(lambda response: dict.fromkeys(requested, response.code))
        if not transactional_id:
            return Result(dict.fromkeys(requested, ErrorCode.INVALID_REQUEST))
        try:
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            return Result(dict.fromkeys(requested, error.code))
        current = shard.transactions.get(transactional_id)
        if current is not None and current.pending:
            current = state.verifiable(current, shard.committed(transactional_id), requested)
        return Result(state.verify_partitions(current, identity, requested))

    # -- requests of administrators ----------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the committed metadata of a transactional id.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST for an empty id, or the error of
                its shard.
        """
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        found = self._shard_of(transactional_id).committed(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def all_transactions(self) -> list[TransactionMetadata]:
        """Return the committed metadata of all transactional ids.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while a shard is loading, or
            COORDINATOR_NOT_AVAILABLE
                before the start and after the stop.
        """
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shards = self.runtime.all_shards(self._existing_partitions())
        return [each for shard in shards for each in shard.all_committed()]

    # -- time --------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort the transactions that are open for too long. Their producers are fenced."""
        now_ms = self._clock.time_ms()
        for shard in self.runtime.shards():
            for transactional_id in list(shard.ongoing):
                current = shard.transactions[transactional_id]
                if state.is_timed_out(current, now_ms):
                    logger.info(
                        "transaction %s is aborted: open for over %d ms",
                        transactional_id,
                        current.timeout_ms,
                    )
                    self._run_behind(transactional_id, self._time_out)

    def _time_out(
        self, current: TransactionMetadata | None, fresh_id: int | None
    ) -> TransactionResult:
        now_ms = self._clock.time_ms()
        if current is None or not state.is_timed_out(current, now_ms):
            return state.decided(ErrorCode.NONE)
        return state.fence(current, now_ms, self.transaction_version, fresh_id)

    def remove_expired(self) -> None:
        """Remove the transactional ids that were not used for a long time.

        The time is ``transactional.id.expiration.ms``.
        """
        now_ms = self._clock.time_ms()
        expiration_ms = self._config.get_int("transactional.id.expiration.ms")
        for shard in self.runtime.shards():
            expired = [
                each.transactional_id
                for each in shard.transactions.values()
                if state.is_expired(each, now_ms, expiration_ms)
            ]
            for first in range(0, len(expired), EXPIRED_PER_BATCH_MAX):
                batch = expired[first : first + EXPIRED_PER_BATCH_MAX]
                tombstones = [tombstone(each) for each in batch]
                result = CoordinatorResult(tombstones, ErrorCode.NONE)
                removed = self.runtime.write(shard.partition, result, lambda code: code)
                if removed.completed and removed.value is not ErrorCode.NONE:
                    break

    # -- performing --------------------------------------------------------------------------------

    def _run(self, transactional_id: str, decide: state.Decide) -> Result[TransactionResponse]:
        try:
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            return _refused(response_code(error.code))
        current = shard.transactions.get(transactional_id)
        result = decide(current, None)
        if result.needs_producer_id:
            fresh_id = self._producer_ids.next_or_none()
            if fresh_id is None:
                return self._run_with_new_block(transactional_id, decide)
            result = decide(current, fresh_id)
        return self._perform(shard, result)

    @in_task
    async def _run_with_new_block(
        self, transactional_id: str, decide: state.Decide
    ) -> Result[TransactionResponse]:
        """Fetch producer ids first. The state may change in the meantime, so decide again."""
        try:
            fresh_id = await self._producer_ids.next()
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            return _refused(response_code(error.code))
        result = decide(shard.transactions.get(transactional_id), fresh_id)
        return self._perform(shard, result)

    def _run_behind(self, transactional_id: str, decide: state.Decide) -> None:
        """Run a decision in the background: no client waits for its response."""
        result = self._run(transactional_id, decide)
        if not result.done:
            self._background[result] = None
            result.on_done(self._background.pop)

    def _perform(
        self, shard: TransactionShard, result: TransactionResult
    ) -> Result[TransactionResponse]:
        if result.next is None:
            return Result(result.response)
        return self._write(shard, result.next, result, TransactionResponse)

    def _commit(self, shard: TransactionShard, following: TransactionMetadata) -> Result[ErrorCode]:
        """Append `following` and make it the state. Return the code of the write."""
        result = CoordinatorResult([], ErrorCode.NONE)
        return self._write(shard, following, result, lambda code: code)

    def _write(
        self,
        shard: TransactionShard,
        following: TransactionMetadata,
        result: CoordinatorResult[T],
        failed: Callable[[ErrorCode], T],
    ) -> Result[T]:
        """Write `following`. Until it is committed, the transactional id is pending.

        The record does not have all fields, so `following` replaces the replayed metadata.
        """
        if not self.runtime.serves(shard.partition, shard):
            return Result(failed(ErrorCode.NOT_COORDINATOR))
        result.records = [to_record(following, self.transaction_version)]
        result.after_replay = partial(shard.adopt, state.pending(following))
        result.after_commit = partial(self._committed, shard, following)
        return self.runtime.write(shard.partition, result, failed)

    def _committed(
        self,
        shard: TransactionShard,
        following: TransactionMetadata,
        code: ErrorCode,
        now: Timestamp,
    ) -> CoordinatorResult[None]:
        if code is ErrorCode.NONE:
            shard.adopt(following)
            if following.state in PREPARED:
                self.completions.begin(shard, following)
            else:
                self.held.changed(following.transactional_id)
        return CoordinatorResult([], None)

    def _loaded(self, shard: TransactionShard) -> None:
        """Begin to complete the prepared transactions of a shard that was loaded."""
        self.completions.begin_all(shard)
        if shard.transactions:
            logger.info(
                "%s-%d: %d transactional ids loaded",
                TRANSACTION_STATE,
                shard.partition,
                len(shard.transactions),
            )

    def _unloading(self, shard: TransactionShard) -> Transition:
        """Cancel the completions of a shard that is dropped.

        The next broker that loads it completes its transactions.
        """
        yield from self.completions.cancelling(shard)
        yield from self.held.deciding_again()


def _refused(code: ErrorCode) -> Result[TransactionResponse]:
    return Result(TransactionResponse(code))
