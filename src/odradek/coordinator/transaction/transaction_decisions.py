"""The transaction coordinator as a pure machine: (metadata, event, time) -> `TransactionResult`.

A result has the response, given when `next`, the new metadata, is committed to the log. Nothing
here appends, waits or asks the time; the shell (`transaction_coordinator`) does.

Rules are those of Kafka's ``TransactionCoordinator`` and ``TransactionMetadata`` (KIP-98, KIP-360,
KIP-890). A producer id that must be replaced is asked for by `needs_producer_id`: the shell decides
again with a fresh one. ``transaction.version`` 2 bumps the epoch with every EndTxn, so that what a
client sent in an earlier transaction can no longer reach a later one.

Two steps of Kafka are safer here (docs/deviations.md): an InitProducerId with an old epoch is
fenced before it aborts the transaction of the producer that replaced it, and an EndTxn that already
carries the epoch of the EndTxn before it is told to come back while that one is being completed.
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
# The level from which an EndTxn bumps the epoch (KIP-890 part 2).
EPOCH_BUMP_FROM = 2


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


class Identity(NamedTuple):
    """Who sends a request of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Init(NamedTuple):
    """InitProducerId; `expected` is the producer's id and epoch, if it has one (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


class TransactionResponse(NamedTuple):
    """The response to a request of a transaction's producer."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class TransactionResult(CoordinatorResult[TransactionResponse]):
    """A decision about one transactional id.

    Attributes:
        next: The metadata to commit before the response, or None.
        needs_producer_id: Nothing is decided. Decide again with a fresh producer id.
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
    """A result with this response, after `next` is committed."""
    response = TransactionResponse(code, producer_id, producer_epoch)
    return TransactionResult([], response, next=next)


def _needs_producer_id() -> TransactionResult:
    return TransactionResult([], TransactionResponse(ErrorCode.NONE), needs_producer_id=True)


def _refuse(code: ErrorCode) -> TransactionResult:
    return decided(code)


def _to(current: TransactionMetadata | None, following: TransactionMetadata) -> TransactionMetadata:
    """Checks a transition against the table: a step that it does not have is a bug of ours."""
    before = None if current is None else current.state
    assert before in VALID_PREVIOUS[following.state], f"{before} -> {following.state}"
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
    """InitProducerId: the producer's id, and an epoch that fences the one before it."""
    if current is None:
        return _first(event, now_ms, fresh_id)
    if current.pending or current.state in PREPARED:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    expected = event.expected
    if expected is not None and not _may_continue(current, expected):
        return _refuse(ErrorCode.PRODUCER_FENCED)
    if current.state is _S.ONGOING:
        # The epoch of the abort is given to nobody: the client asks again, and is given the next.
        aborted = fence(current, now_ms, transaction_version, fresh_id)
        if aborted.response.code is ErrorCode.NONE and not aborted.needs_producer_id:
            return decided(ErrorCode.CONCURRENT_TRANSACTIONS, next=aborted.next)
        return aborted
    if expected is not None and expected.producer_epoch != current.producer_epoch:
        # A retry of the bump whose answer was lost: the same answer.
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
    """A transactional id that is new, or that had expired: whatever the producer believes to be,
    it starts afresh."""
    if fresh_id is None:
        return _needs_producer_id()
    created = TransactionMetadata(event.transactional_id, fresh_id, 0, event.timeout_ms)
    return _initialized(None, event, now_ms, created)


def _may_continue(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether no other producer has been initialized since (KIP-360)."""
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
    """Add partitions to the transaction, which begins with the first of them."""
    if current is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Before the identity: with version 2 the client may have the next id and epoch already, while
    # the coordinator still completes the last transaction (KAFKA-18660).
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
    """KIP-890: which partitions the producer may write to in its transaction."""
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
    """EndTxn: Prepare is written now, the markers and Complete follow the answer."""
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
    """The answer to an EndTxn that has been decided before: the same result, or a mistake."""
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
    """Every EndTxn bumps the epoch, so the epoch tells a retry from the next transaction's end.

    Retry: the epoch before the present one, or the last epoch of the producer id before this one.
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
    """What the client was given by the EndTxn that is being completed: not a zombie, but early."""
    if current.next_producer_id != NO_PRODUCER_ID:
        return identity.producer_id == current.next_producer_id and identity.producer_epoch == 0
    return (identity.producer_id, identity.producer_epoch) == (
        current.producer_id,
        current.producer_epoch,
    )


def _prepare_v2(
    current: TransactionMetadata, committed: bool, now_ms: int, fresh_id: int | None
) -> TransactionResult:
    """Prepare with the bumped epoch, which the markers carry. When the epochs are exhausted the
    client goes on with a new producer id, which takes effect with Complete."""
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
        # An abort of nothing begins and ends now.
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=EPOCH_BUMP_FROM,
    )
    producer_id, epoch = _after_completion(following)
    return decided(ErrorCode.NONE, producer_id, epoch, next=_to(current, following))


def fence(
    current: TransactionMetadata, now_ms: int, transaction_version: int, fresh_id: int | None
) -> TransactionResult:
    """Aborts an ongoing transaction on the coordinator's own account: its epoch is bumped (once,
    KAFKA-19367), so the producer that has it can do no more."""
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
    """The producer id and epoch of the next transaction."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def complete(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written: what is to be appended for a prepared transaction."""
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
    """Appended, but not committed: every request has to come back."""
    return replace(metadata, pending=True)


# -- time ------------------------------------------------------------------------------------------


def is_timed_out(current: TransactionMetadata, now_ms: int) -> bool:
    """Return whether a transaction has been open for longer than its producer's time-out."""
    return (
        current.state is _S.ONGOING
        and not current.pending
        and current.start_ms + current.timeout_ms < now_ms
    )


def is_expired(current: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """A transactional id that nobody has used for `expiration_ms`; never one with a transaction."""
    return (
        current.state in IDLE
        and not current.pending
        and current.last_update_ms <= now_ms - expiration_ms
    )
