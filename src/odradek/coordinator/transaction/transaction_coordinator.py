"""The transaction coordinator: the asynchronous shell around the pure machine of `state`.

It finds the transactional id of a request, lets the machine decide, commits the record through the
runtime and answers. A prepared transaction is finished by a task of `completion`, after EndTxn has
been answered, and again after a restart: markers to every partition, then Complete.

An operation is answered at once when its record is committed at once; with a future while the disk
is waited for; with a coroutine when a block of producer ids has to be fetched first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, Protocol

from odradek.config.broker import BrokerConfig
from odradek.coordinator.futures import mapped, mapped_done
from odradek.coordinator.runtime import Append, CoordinatorRuntime, partition_for
from odradek.coordinator.transaction import transaction_decisions as state
from odradek.coordinator.transaction.completion import Completions, WriteMarkers
from odradek.coordinator.transaction.transaction_decisions import Decision, Identity, Init
from odradek.coordinator.transaction.transaction_metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TransactionMetadata,
    to_record,
    tombstone,
)
from odradek.coordinator.transaction.transaction_shard import TransactionShard
from odradek.environment.clock import Clock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import TRANSACTION_STATE

logger = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
# So many expired transactional ids are forgotten with one batch.
EXPIRED_PER_BATCH_MAX = 500

_RESPONSE_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def response_code(code: ErrorCode) -> ErrorCode:
    """What producers are told when the coordinator's log gives `code` (they expect nothing
    else)."""
    return _RESPONSE_CODES.get(code, code)


class ProducerIds(Protocol):
    """Where fresh producer ids come from."""

    def next_or_none(self) -> int | None: ...

    async def next(self) -> int: ...


class Outcome(NamedTuple):
    """The answer to a request."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


Answer = Outcome | asyncio.Future[Outcome] | Coroutine[Any, Any, Outcome]
Codes = dict[TopicPartition, ErrorCode]


class TransactionCoordinator:
    """Serves the transactional ids whose partition of ``__transaction_state`` this broker leads.

    Owned by the event loop. `log_of` and `append` are the replica manager's, `write_markers` puts
    markers into partitions (see `completion.WriteMarkers`). `start` begins to load what there is
    and to finish what was prepared; after `stop` requests are answered COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        image: Callable[[], MetadataImage],
        log_of: Callable[[TopicPartition], UnifiedLog],
        append: Append,
        executor: Executor,
        producer_ids: ProducerIds,
        write_markers: WriteMarkers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._image = image
        self._producer_ids = producer_ids
        self._active = False
        self._background: set[asyncio.Task[Outcome]] = set()
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_STATE,
            "transaction",
            new_shard=lambda partition: TransactionShard(partition, self._loaded, self._unloaded),
            log_of=log_of,
            append=append,
            clock=clock,
            executor=executor,
            load_piece_bytes=config.get_int("transaction.state.log.load.buffer.size"),
        )
        self.completions = Completions(
            image=image, clock=clock, write_markers=write_markers, commit=self._commit
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Serves from now on; shards that have a log begin to load."""
        self._active = True
        self.runtime.load_all(self._existing_partitions())

    def stop(self) -> None:
        """Serves nothing more; what is being completed goes on after the next start."""
        self._active = False
        self.runtime.unload_all(ErrorCode.NOT_COORDINATOR)
        self.completions.cancel_all()
        for task in self._background:
            task.cancel()

    def on_metadata(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follows the metadata: the topic of the coordinator may be made anew."""
        if self._active and old is not None:
            self.runtime.follow(old, new)

    def _existing_partitions(self) -> int:
        return self._image().partition_count(TRANSACTION_STATE)

    def partition_of(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that holds this transactional id."""
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

    # -- what producers ask ------------------------------------------------------------------------

    def init_producer_id(self, event: Init) -> Answer:
        """InitProducerId with a transactional id."""
        if not event.transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
        if not 0 < event.timeout_ms <= self._config.get_int("transaction.max.timeout.ms"):
            return Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def decide(current: TransactionMetadata | None, fresh_id: int | None) -> Decision:
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
    ) -> Answer:
        """AddPartitionsToTxn and AddOffsetsToTxn."""
        if not identity.transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
        version = client_transaction_version
        return self._run(
            identity.transactional_id,
            lambda current, _: state.add_partitions(
                current, identity, partitions, self._clock.time_ms(), version
            ),
        )

    def end_transaction(
        self, identity: Identity, committed: bool, client_transaction_version: int = 0
    ) -> Answer:
        """EndTxn, answered when Prepare is committed."""
        if not identity.transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
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
    ) -> Codes | asyncio.Future[Codes]:
        """T7: may the producer write to `partitions` in its transaction? With `add` (version 2)
        they are made part of it. Answered for each partition, in a future while the record is not
        committed. A partition that is not in the transaction is TRANSACTION_ABORTABLE.
        """
        identity = Identity(transactional_id, producer_id, producer_epoch)
        wanted = frozenset(partitions)
        if add:
            answer = self.add_partitions(identity, wanted, state.EPOCH_BUMP_FROM)
            if isinstance(answer, Outcome):
                return dict.fromkeys(wanted, answer.code)
            assert asyncio.isfuture(answer), "adding partitions needs no producer id"
            return mapped(answer, lambda outcome: dict.fromkeys(wanted, outcome.code))
        if not transactional_id:
            return dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
        try:
            current = self._shard_of(transactional_id).transactions.get(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(wanted, error.code)
        return state.verify_partitions(current, identity, wanted)

    # -- what administrators ask -------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """One transactional id. KafkaError: TRANSACTIONAL_ID_NOT_FOUND, or why it cannot be
        said."""
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        found = self._shard_of(transactional_id).transactions.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def all_transactions(self) -> list[TransactionMetadata]:
        """Every transactional id. KafkaError COORDINATOR_LOAD_IN_PROGRESS while one shard loads."""
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shards = self.runtime.all_shards(self._existing_partitions())
        return [each for shard in shards for each in shard.transactions.values()]

    # -- time --------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """T6: aborts the transactions that are open for too long; their producers are fenced."""
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

    def _time_out(self, current: TransactionMetadata | None, fresh_id: int | None) -> Decision:
        now_ms = self._clock.time_ms()
        if current is None or not state.is_timed_out(current, now_ms):
            return Decision(ErrorCode.NONE)
        return state.fence(current, now_ms, self.transaction_version, fresh_id)

    def remove_expired(self) -> None:
        """Forgets the transactional ids that nobody has used for ``transactional.id.expiration.
        ms``."""
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
                try:
                    self.runtime.write(shard.partition, [tombstone(each) for each in batch])
                except KafkaError as error:
                    logger.warning("cannot forget expired transactional ids: %s", error)
                    break

    # -- performing --------------------------------------------------------------------------------

    def _run(self, transactional_id: str, decide: state.Decide) -> Answer:
        try:
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            return Outcome(response_code(error.code))
        current = shard.transactions.get(transactional_id)
        decision = decide(current, None)
        if decision.needs_producer_id:
            fresh_id = self._producer_ids.next_or_none()
            if fresh_id is None:
                return self._run_with_new_block(transactional_id, decide)
            decision = decide(current, fresh_id)
        return self._perform(shard, decision)

    async def _run_with_new_block(self, transactional_id: str, decide: state.Decide) -> Outcome:
        """Fetches producer ids first; meanwhile anything may have happened, so it is decided
        afresh."""
        try:
            fresh_id = await self._producer_ids.next()
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            return Outcome(response_code(error.code))
        decision = decide(shard.transactions.get(transactional_id), fresh_id)
        answer = self._perform(shard, decision)
        return answer if isinstance(answer, Outcome) else await answer

    def _run_behind(self, transactional_id: str, decide: state.Decide) -> None:
        """Runs what no client waits for."""
        answer = self._run(transactional_id, decide)
        if asyncio.iscoroutine(answer):
            task = asyncio.get_running_loop().create_task(answer)
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _perform(
        self, shard: TransactionShard, decision: Decision
    ) -> Outcome | asyncio.Future[Outcome]:
        outcome = Outcome(decision.code, decision.producer_id, decision.producer_epoch)
        following = decision.next
        if following is None:
            return outcome
        try:
            committed = self._commit(shard, following)
        except KafkaError as error:
            logger.error("transaction %s cannot be stored: %s", following.transactional_id, error)
            return Outcome(response_code(error.code))
        if committed is None:
            if decision.sends_markers:
                self.completions.begin(shard, following)
            return outcome
        return mapped(committed, partial(self._committed, shard, decision, outcome))

    def _committed(
        self, shard: TransactionShard, decision: Decision, outcome: Outcome, code: ErrorCode
    ) -> Outcome:
        if code is not ErrorCode.NONE:
            return Outcome(response_code(code))
        if decision.sends_markers and decision.next is not None:
            self.completions.begin(shard, decision.next)
        return outcome

    def _commit(
        self, shard: TransactionShard, following: TransactionMetadata
    ) -> asyncio.Future[ErrorCode] | None:
        """Appends `following` and makes it the state; None when it is committed already, else a
        future of the code with which that ends: until then the transactional id is pending. Raises
        KafkaError when nothing was appended."""
        record = to_record(following, self.transaction_version)
        written = self.runtime.write(shard.partition, [record])
        if written is None:
            shard.adopt(following)
            return None
        shard.adopt(state.pending(following))

        def finish(done: asyncio.Future[None]) -> ErrorCode:
            error = done.exception()
            if error is not None:
                return error.code if isinstance(error, KafkaError) else ErrorCode.NOT_COORDINATOR
            shard.adopt(following)
            return ErrorCode.NONE

        return mapped_done(written, finish)

    def _loaded(self, shard: TransactionShard) -> None:
        """A shard has been read from its log: what was prepared is completed."""
        for each in list(shard.transactions.values()):
            if each.state in PREPARED:
                self.completions.begin(shard, each)
        if shard.transactions:
            logger.info(
                "%s-%d: %d transactional ids loaded",
                TRANSACTION_STATE,
                shard.partition,
                len(shard.transactions),
            )

    def _unloaded(self, shard: TransactionShard, code: ErrorCode) -> None:
        """A shard goes: what it was completing is completed by whoever loads it next."""
        self.completions.cancel(shard)
