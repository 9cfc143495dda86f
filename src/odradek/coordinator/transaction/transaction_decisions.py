"""The decisions of the transaction coordinator: (metadata, event, time) -> `TransactionResult`.

Pure. A result has the response and `next`, the new metadata. The response is sent when `next` is
committed to the log. These functions do not append, wait or read the clock.
`transaction_coordinator` does.

The rules are those of Kafka's ``TransactionCoordinator`` and ``TransactionMetadata`` (KIP-98,
KIP-360, KIP-890). When a producer id must be replaced, the result has `needs_producer_id` set, and
the coordinator decides again with a new id. With ``transaction.version`` 2 every EndTxn increments
the epoch, so a delayed request of an earlier transaction cannot reach a later one.

Two steps are safer than Kafka's (docs/deviations.md):

- An InitProducerId with an old epoch is fenced before it aborts the transaction of the producer
  that has replaced it.
- An EndTxn may already have the epoch that the EndTxn before it returned. It gets
  CONCURRENT_TRANSACTIONS while the earlier transaction is being completed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.coordinator.coordinator_result import CoordinatorResult
from odradek.coordinator.transaction.transaction_metadata import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    IDLE,
    PREPARED,
    VALID_PREVIOUS,
    TransactionMetadata,
    TransactionState,
)
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_S = TransactionState
# From this level on, an EndTxn increments the epoch (KIP-890 part 2).
EPOCH_BUMP_FROM = 2


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


class Identity(NamedTuple):
    """The sender of a request in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Init(NamedTuple):
    """InitProducerId. `expected` is the present id and epoch of the producer, if any (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


class TransactionResponse(NamedTuple):
    """The response to a request of a transactional producer."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class TransactionResult(CoordinatorResult[TransactionResponse]):
    """A decision about one transactional id.

    Attributes:
        next: The metadata to commit before the response, or None.
        needs_producer_id: Nothing is decided. Decide again with a new producer id.
    """

    next: TransactionMetadata | None = None
    needs_producer_id: bool = False


Decide = Callable[[TransactionMetadata | None, int | None], TransactionResult]


def decided(
    code: ErrorCode,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    *,
    next: TransactionMetadata | None = None,
) -> TransactionResult:
    """Return a result with this response, which is sent after `next` is committed."""
    response = TransactionResponse(code, producer_id, producer_epoch)
    return TransactionResult([], response, next=next)


def _needs_producer_id() -> TransactionResult:
    return TransactionResult([], TransactionResponse(ErrorCode.NONE), needs_producer_id=True)


def _refuse(code: ErrorCode) -> TransactionResult:
    return decided(code)


def _to(current: TransactionMetadata | None, following: TransactionMetadata) -> TransactionMetadata:
    """Return `following`. Assert that the table of states allows the transition."""
    before = None if current is None else current.state
    assert before in VALID_PREVIOUS[following.state], f"{before!r} -> {following.state!r}"
    assert 0 <= following.producer_epoch <= EPOCH_MAX, following
    return following


# -- InitProducerId --------------------------------------------------------------------------------


def init_producer_id(
    current: TransactionMetadata | None,
    event: Init,
    now_ms: int,
    transaction_version: int,
    fresh_id: int | None,
) -> TransactionResult:
    """Decide about InitProducerId (rule T2).

    Return the producer id, and an epoch that fences earlier producers.
    """
    if current is None:
        return _first(event, now_ms, fresh_id)
    if current.pending or current.state in PREPARED:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    expected = event.expected
    if expected is not None and not _may_continue(current, expected):
        return _refuse(ErrorCode.PRODUCER_FENCED)
    if current.state is _S.ONGOING:
        # No client gets the epoch of the abort. The client repeats its request and gets the next.
        aborted = fence(current, now_ms, transaction_version, fresh_id)
        if aborted.response.code is ErrorCode.NONE and not aborted.needs_producer_id:
            return decided(ErrorCode.CONCURRENT_TRANSACTIONS, next=aborted.next)
        return aborted
    if expected is not None and expected.producer_epoch != current.producer_epoch:
        # A retry after a lost response gets the same response.
        return _initialized(current, event, now_ms, current)
    if current.epoch_exhausted:
        if fresh_id is None:
            return _needs_producer_id()
        last = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
        rotated = replace(
            current,
            producer_id=fresh_id,
            previous_producer_id=current.producer_id,
            producer_epoch=0,
            last_producer_epoch=last,
        )
        return _initialized(current, event, now_ms, rotated)
    bumped = replace(
        current,
        previous_producer_id=current.producer_id,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else current.producer_epoch,
    )
    return _initialized(current, event, now_ms, bumped)


def _first(event: Init, now_ms: int, fresh_id: int | None) -> TransactionResult:
    """Create a transactional id that is new or had expired.

    The producer id and epoch that the producer may have sent are ignored.
    """
    if fresh_id is None:
        return _needs_producer_id()
    created = TransactionMetadata(event.transactional_id, fresh_id, 0, event.timeout_ms)
    return _initialized(None, event, now_ms, created)


def _may_continue(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Return whether no other producer has been initialized in the meantime (KIP-360)."""
    if expected.producer_id == current.producer_id:
        if expected.producer_epoch == current.producer_epoch:
            return True
        return _is_retry(current, expected.producer_epoch)
    return (
        expected.producer_id == current.previous_producer_id
        and expected.producer_epoch >= EPOCH_EXHAUSTED
        and _is_retry(current, expected.producer_epoch)
    )


def _is_retry(current: TransactionMetadata, epoch: int) -> bool:
    last = current.last_producer_epoch
    return epoch == last and last != NO_PRODUCER_EPOCH and current.state in IDLE


def _initialized(
    current: TransactionMetadata | None, event: Init, now_ms: int, changed: TransactionMetadata
) -> TransactionResult:
    following = replace(
        changed,
        state=_S.EMPTY,
        timeout_ms=event.timeout_ms,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=now_ms,
    )
    return decided(
        ErrorCode.NONE,
        following.producer_id,
        following.producer_epoch,
        next=_to(current, following),
    )


# -- adding partitions -----------------------------------------------------------------------------


def add_partitions(
    current: TransactionMetadata | None,
    identity: Identity,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    client_transaction_version: int,
) -> TransactionResult:
    """Add partitions to the transaction. The first ones begin it (rule T3)."""
    if current is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # This check precedes the identity check. With version 2 the client may have the next id and
    # epoch already, while the coordinator still completes the last transaction (KAFKA-18660).
    if current.pending or current.state in PREPARED:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    code = _identify(current, identity)
    if code is not ErrorCode.NONE:
        return _refuse(code)
    begun = current.state is _S.ONGOING
    if begun and partitions <= current.partitions:
        return decided(ErrorCode.NONE)
    following = replace(
        current,
        state=_S.ONGOING,
        previous_producer_id=current.producer_id,
        partitions=current.partitions | partitions if begun else partitions,
        start_ms=current.start_ms if begun else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=client_transaction_version,
    )
    return decided(ErrorCode.NONE, next=_to(current, following))


def verify_partitions(
    current: TransactionMetadata | None,
    identity: Identity,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return a code for each partition: NONE when it is in the producer's transaction (KIP-890).

    See rule T7.
    """
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current is not None:
        code = _identify(current, identity)
    if current is None or code is not ErrorCode.NONE:
        return dict.fromkeys(partitions, code)
    if current.pending or current.state in PREPARED:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    added = current.partitions if current.state is _S.ONGOING else frozenset()
    return {
        each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def verifiable(
    pending: TransactionMetadata,
    committed: TransactionMetadata | None,
    partitions: frozenset[TopicPartition],
) -> TransactionMetadata:
    """Return the metadata with which partitions are verified while a record is pending.

    Partitions that were added before stay verified while further ones are added. Kafka does not
    check the pending state here.
    """
    if (
        committed is not None
        and pending.state is committed.state is _S.ONGOING
        and partitions <= committed.partitions
    ):
        return committed
    return pending


def _identify(current: TransactionMetadata, identity: Identity) -> ErrorCode:
    if identity.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# -- ending ----------------------------------------------------------------------------------------


def end_transaction(
    current: TransactionMetadata | None,
    identity: Identity,
    committed: bool,
    now_ms: int,
    client_transaction_version: int,
    fresh_id: int | None,
) -> TransactionResult:
    """Decide about EndTxn: Prepare is written now. The markers and Complete follow the response.

    See rule T4, and rule T8 for transaction version 2.
    """
    if current is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_transaction_version >= EPOCH_BUMP_FROM:
        return _end_v2(current, identity, committed, now_ms, fresh_id)
    code = _identify(current, identity)
    if code is not ErrorCode.NONE:
        return _refuse(code)
    if current.pending:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is _S.ONGOING:
        following = replace(
            current,
            state=_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT,
            previous_producer_id=current.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            last_update_ms=now_ms,
            client_transaction_version=0,
        )
        return decided(ErrorCode.NONE, next=_to(current, following))
    if current.state is _S.EMPTY:
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    return _refuse(_again(current.state, committed))


def _again(state: TransactionState, committed: bool) -> ErrorCode:
    """Return the code for an EndTxn of a transaction that has ended already.

    A repeated request succeeds. INVALID_TXN_STATE is for a commit after an abort, or the reverse.
    """
    if committed != (state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)):
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state in PREPARED else ErrorCode.NONE


def _end_v2(
    current: TransactionMetadata,
    identity: Identity,
    committed: bool,
    now_ms: int,
    fresh_id: int | None,
) -> TransactionResult:
    """Decide about EndTxn with version 2, where the epoch distinguishes a retry from a new request.

    A retry has the epoch before the present one, or the last epoch of the previous producer id.
    """
    overflow_retry = (
        current.previous_producer_id == identity.producer_id
        and identity.producer_epoch == EPOCH_EXHAUSTED
        and current.producer_epoch == 0
    )
    same_id = identity.producer_id == current.producer_id
    if current.state in PREPARED and _is_next_identity(current, identity):
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not same_id and not overflow_retry:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    retry = overflow_retry or (same_id and identity.producer_epoch + 1 == current.producer_epoch)
    present = same_id and identity.producer_epoch == current.producer_epoch
    if current.state in (_S.ONGOING, _S.EMPTY):
        retry = False
    if current.state in PREPARED:
        present = False
    if not retry and not present:
        return _refuse(ErrorCode.PRODUCER_FENCED)
    if current.pending:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if retry:
        code = _again(current.state, committed)
        if code is not ErrorCode.NONE:
            return _refuse(code)
        return decided(ErrorCode.NONE, current.producer_id, current.producer_epoch)
    if current.state in IDLE and committed:
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    return _prepare_v2(current, committed, now_ms, fresh_id)


def _is_next_identity(current: TransactionMetadata, identity: Identity) -> bool:
    """Return whether the client already uses the id and epoch for the next transaction.

    The response to that EndTxn has returned them, and its transaction is still being completed. The
    client's request is early, but the client is not fenced.
    """
    if current.next_producer_id != NO_PRODUCER_ID:
        return identity.producer_id == current.next_producer_id and identity.producer_epoch == 0
    return (identity.producer_id, identity.producer_epoch) == (
        current.producer_id,
        current.producer_epoch,
    )


def _prepare_v2(
    current: TransactionMetadata, committed: bool, now_ms: int, fresh_id: int | None
) -> TransactionResult:
    """Prepare with the incremented epoch, which the markers have too.

    When the epochs are exhausted the client gets a new producer id, which takes effect with
    Complete.
    """
    exhausted = current.epoch_exhausted
    if exhausted and fresh_id is None:
        return _needs_producer_id()
    following = replace(
        current,
        state=_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT,
        previous_producer_id=current.producer_id,
        next_producer_id=fresh_id if exhausted and fresh_id is not None else NO_PRODUCER_ID,
        producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=current.producer_epoch,
        # An abort without a transaction begins and ends now.
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=EPOCH_BUMP_FROM,
    )
    producer_id, epoch = _after_completion(following)
    return decided(ErrorCode.NONE, producer_id, epoch, next=_to(current, following))


def fence(
    current: TransactionMetadata, now_ms: int, transaction_version: int, fresh_id: int | None
) -> TransactionResult:
    """Abort an ongoing transaction without a request of its producer.

    The epoch is incremented (once, KAFKA-19367), which fences the producer.
    """
    if transaction_version >= EPOCH_BUMP_FROM:
        return _prepare_v2(current, False, now_ms, fresh_id)
    following = replace(
        current,
        state=_S.PREPARE_ABORT,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )
    return decided(ErrorCode.NONE, next=_to(current, following))


def _after_completion(prepared: TransactionMetadata) -> tuple[int, int]:
    """Return the producer id and epoch of the next transaction."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def complete(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the completed metadata of a prepared transaction whose markers are all written."""
    producer_id, epoch = _after_completion(current)
    return _to(
        current,
        replace(
            current,
            state=_S.COMPLETE_COMMIT if current.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
            producer_id=producer_id,
            previous_producer_id=current.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=epoch,
            partitions=frozenset(),
            last_update_ms=now_ms,
        ),
    )


def pending(metadata: TransactionMetadata) -> TransactionMetadata:
    """Return metadata that is appended and not committed. Requests get CONCURRENT_TRANSACTIONS."""
    return replace(metadata, pending=True)


# -- time ------------------------------------------------------------------------------------------


def is_timed_out(current: TransactionMetadata, now_ms: int) -> bool:
    """Return whether a transaction has been open for longer than its producer's timeout.

    See rule T6.
    """
    return (
        current.state is _S.ONGOING
        and not current.pending
        and current.start_ms + current.timeout_ms < now_ms
    )


def is_expired(current: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Return whether a transactional id was not used for `expiration_ms`.

    An id with an open transaction never expires.
    """
    return (
        current.state in IDLE
        and not current.pending
        and current.last_update_ms <= now_ms - expiration_ms
    )
