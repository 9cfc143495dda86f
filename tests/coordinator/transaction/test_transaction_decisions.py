"""Tables of decisions: InitProducerId, adding, verifying, ending, time (version 1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.coordinator.transaction import transaction_decisions as state
from odradek.coordinator.transaction.transaction_metadata import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    IDLE,
    STATES_BY_NAME,
    VALID_PREVIOUS,
    TransactionMetadata,
    TransactionState,
    from_record,
    to_record,
)
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.protocol import record_codec
from odradek.protocol.messages.transaction_log_value import TransactionLogValue
from tests.coordinator.transaction.transaction_machine import (
    START_MS,
    TIMEOUT_MS,
    Machine,
    begun,
    partitions,
)

E = ErrorCode
S = TransactionState


def response_of(decision: state.TransactionResult) -> tuple[ErrorCode, int, int]:
    return decision.response.code, decision.response.producer_id, decision.response.producer_epoch


# -- InitProducerId --------------------------------------------------------------------------------


def test_first_init_gives_a_fresh_id_and_epoch_zero() -> None:
    machine = Machine()
    assert response_of(machine.init()) == (E.NONE, 1, 0)
    assert machine.state is S.EMPTY


def test_each_init_fences_the_earlier_producer() -> None:
    machine = Machine()
    machine.init()
    assert response_of(machine.init()) == (E.NONE, 1, 1)
    assert machine.add((1, 0), "a0") is E.PRODUCER_FENCED
    assert machine.add((1, 1), "a0") is E.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_init_after_a_transaction_bumps_the_epoch(committed: bool) -> None:
    machine, identity = begun()
    machine.end(identity, committed)
    machine.finish()
    assert response_of(machine.init()) == (E.NONE, 1, 1)


def test_new_timeout_is_kept() -> None:
    machine = Machine()
    machine.init()
    machine.init(timeout_ms=5)
    assert machine.current is not None
    assert machine.current.timeout_ms == 5


def test_init_in_a_transaction_fences_aborts_and_asks_to_come_back() -> None:
    machine, identity = begun()
    assert response_of(machine.init()) == (E.CONCURRENT_TRANSACTIONS, -1, -1)
    assert (machine.state, machine.identity) == (S.PREPARE_ABORT, (1, 1))
    assert machine.end(identity, True).response.code is E.PRODUCER_FENCED
    assert machine.init().response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    assert response_of(machine.init()) == (E.NONE, 1, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_init_waits_for_a_prepared_transaction(committed: bool) -> None:
    machine, identity = begun()
    machine.end(identity, committed)
    prepared = machine.current
    assert machine.init().response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.init((9, 9)).response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.current == prepared


def test_exhausted_epoch_gives_a_new_id() -> None:
    machine = Machine()
    machine.init()
    machine.set(producer_epoch=EPOCH_EXHAUSTED)
    assert response_of(machine.init()) == (E.NONE, 2, 0)
    assert machine.add((1, EPOCH_EXHAUSTED), "a0") is E.INVALID_PRODUCER_ID_MAPPING


def test_last_but_one_epoch_is_still_used() -> None:
    machine = Machine()
    machine.init()
    machine.set(producer_epoch=EPOCH_EXHAUSTED - 1)
    assert response_of(machine.init()) == (E.NONE, 1, EPOCH_EXHAUSTED)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_fencing_has_an_epoch_left_when_clients_have_none(level: int) -> None:
    machine, _ = begun(level=level)
    machine.set(producer_epoch=EPOCH_EXHAUSTED)
    assert machine.init().response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.identity == (1, EPOCH_MAX)
    machine.finish()
    code, producer_id, epoch = response_of(machine.init())
    assert code is E.NONE
    assert producer_id != 1
    assert epoch == (1 if level == 2 else 0)


# -- InitProducerId with an id and an epoch (KIP-360) ----------------------------------------------


def test_known_epoch_is_incremented_and_a_retry_gets_the_same_response() -> None:
    machine = Machine()
    machine.init()
    assert response_of(machine.init((1, 0))) == (E.NONE, 1, 1)
    assert response_of(machine.init((1, 0))) == (E.NONE, 1, 1)
    assert response_of(machine.init((1, 0))) == (E.NONE, 1, 1)
    assert response_of(machine.init((1, 1))) == (E.NONE, 1, 2)


@pytest.mark.parametrize("expected", [(1, 0), (1, 2), (7, 1), (-7, 1)])
def test_unknown_identity_is_fenced(expected: tuple[int, int]) -> None:
    machine = Machine()
    machine.init()
    machine.init()
    before = machine.current
    assert response_of(machine.init(expected)) == (E.PRODUCER_FENCED, -1, -1)
    assert machine.current == before


def test_second_producer_ends_the_retries_of_the_first() -> None:
    machine = Machine()
    machine.init()
    machine.init((1, 0))
    machine.init()
    assert machine.init((1, 0)).response.code is E.PRODUCER_FENCED
    assert machine.init((1, 1)).response.code is E.PRODUCER_FENCED


def test_zombie_does_not_abort_the_transaction_of_its_successor() -> None:
    machine = Machine()
    machine.init()
    machine.init()
    machine.add((1, 1), "a0")
    assert machine.init((1, 0)).response.code is E.PRODUCER_FENCED
    assert (machine.state, machine.identity) == (S.ONGOING, (1, 1))


def test_producer_aborts_its_own_open_transaction() -> None:
    machine, identity = begun()
    assert machine.init(identity).response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.state is S.PREPARE_ABORT
    machine.finish()
    assert machine.init(identity).response.code is E.PRODUCER_FENCED


def test_exhausted_known_epoch_gives_a_new_id_and_its_retry_the_same() -> None:
    machine = Machine()
    machine.init()
    machine.set(producer_epoch=EPOCH_EXHAUSTED)
    for _ in range(3):
        assert response_of(machine.init((1, EPOCH_EXHAUSTED))) == (E.NONE, 2, 0)
    assert response_of(machine.init((2, 0))) == (E.NONE, 2, 1)


def test_producer_whose_exhausted_id_was_changed_by_another_is_fenced() -> None:
    """It must not get the identity of the other producer, as if it had repeated its own change."""
    machine = Machine()
    machine.init()
    machine.set(producer_epoch=EPOCH_EXHAUSTED)
    assert response_of(machine.init()) == (E.NONE, 2, 0)
    assert machine.init((1, EPOCH_EXHAUSTED)).response.code is E.PRODUCER_FENCED


def test_producer_that_changed_its_exhausted_id_is_fenced_by_the_next_one() -> None:
    machine = Machine()
    machine.init()
    machine.set(producer_epoch=EPOCH_EXHAUSTED)
    machine.init((1, EPOCH_EXHAUSTED))
    assert response_of(machine.init()) == (E.NONE, 2, 1)
    assert machine.init((1, EPOCH_EXHAUSTED)).response.code is E.PRODUCER_FENCED
    assert machine.init((2, 0)).response.code is E.PRODUCER_FENCED


def test_unknown_id_with_an_identity_gets_a_new_identity() -> None:
    """The id had expired, so no other producer can have it."""
    assert response_of(Machine().init((5, 3))) == (E.NONE, 1, 0)


def test_retry_across_a_restart_is_fenced() -> None:
    """The last epoch is not in the log, as in Kafka."""
    machine = Machine()
    machine.init()
    machine.init((1, 0))
    machine.restart()
    assert machine.init((1, 0)).response.code is E.PRODUCER_FENCED


# -- adding partitions -----------------------------------------------------------------------------


def test_first_partition_begins_the_transaction_and_its_time() -> None:
    machine = Machine()
    machine.init()
    machine.now_ms += 7
    assert machine.add((1, 0), "a0") is E.NONE
    machine.now_ms += 7
    assert machine.add((1, 0), "b1") is E.NONE
    assert machine.current is not None
    assert machine.current.partitions == partitions("a0", "b1")
    assert machine.current.start_ms == START_MS + 7
    assert machine.current.last_update_ms == START_MS + 14


def test_existing_partitions_write_no_record() -> None:
    machine, identity = begun()
    before = machine.current
    assert machine.add(identity, "a1") is E.NONE
    assert machine.current is before


@pytest.mark.parametrize(
    ("identity", "code"),
    [
        ((1, 1), E.PRODUCER_FENCED),
        ((1, -1), E.PRODUCER_FENCED),
        ((2, 0), E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_only_the_producer_itself_adds_and_ends(identity: tuple[int, int], code: ErrorCode) -> None:
    machine, _ = begun()
    assert machine.add(identity, "b0") is code
    assert machine.end(identity, True).response.code is code
    assert machine.verify(identity, "a0") == [code]


def test_unknown_transactional_id() -> None:
    machine = Machine()
    assert machine.add((1, 0), "a0") is E.INVALID_PRODUCER_ID_MAPPING
    assert machine.verify((1, 0), "a0") == [E.INVALID_PRODUCER_ID_MAPPING]
    for version in (0, 2):
        assert machine.end((1, 0), True, version).response.code is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("committed", [True, False])
def test_next_transaction_begins_when_the_last_is_complete(committed: bool) -> None:
    machine, identity = begun()
    machine.end(identity, committed)
    assert machine.add(identity, "b0") is E.CONCURRENT_TRANSACTIONS
    assert machine.verify(identity, "a0") == [E.CONCURRENT_TRANSACTIONS]
    machine.now_ms += 5
    machine.finish()
    assert machine.add(identity, "b0") is E.NONE
    assert machine.current is not None
    assert machine.current.partitions == partitions("b0")
    assert machine.current.start_ms == START_MS + 5


def test_pending_is_checked_before_the_identity() -> None:
    """KAFKA-18660: the client may be ahead of the coordinator."""
    machine, _ = begun()
    machine.set(pending=True)
    assert machine.add((2, 0), "a0") is E.CONCURRENT_TRANSACTIONS


def test_pending_record_makes_all_requests_concurrent() -> None:
    machine, identity = begun()
    machine.set(pending=True)
    before = machine.current
    assert machine.init().response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.add(identity, "c0") is E.CONCURRENT_TRANSACTIONS
    assert machine.verify(identity, "a0") == [E.CONCURRENT_TRANSACTIONS]
    for version in (0, 2):
        assert machine.end(identity, True, version).response.code is E.CONCURRENT_TRANSACTIONS
    machine.now_ms += TIMEOUT_MS + 1
    assert not machine.time_out()
    assert machine.current is before


# -- verifying -------------------------------------------------------------------------------------


def test_only_partitions_of_the_transaction_are_verified() -> None:
    machine, identity = begun()
    assert machine.verify(identity, "a0", "a1", "b0") == [
        E.NONE,
        E.NONE,
        E.TRANSACTION_ABORTABLE,
    ]


def test_late_write_after_the_end_is_not_verified() -> None:
    """It would open a transaction that is never ended (KAFKA-12671)."""
    machine, identity = begun()
    machine.end(identity, False)
    machine.finish()
    assert machine.verify(identity, "a0") == [E.TRANSACTION_ABORTABLE]


# -- ending ----------------------------------------------------------------------------------------

# state -> (commit, abort): the code, and the next state if it changes.
END_V1 = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (S.PREPARE_COMMIT, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}


@pytest.mark.parametrize("before", END_V1, ids=lambda each: each.name)
@pytest.mark.parametrize("committed", [True, False])
def test_end_in_every_state(before: TransactionState, committed: bool) -> None:
    machine, identity = begun()
    machine.set(state=before)
    expected = END_V1[before][0 if committed else 1]
    decision = machine.end(identity, committed)
    if isinstance(expected, TransactionState):
        assert response_of(decision) == (E.NONE, -1, -1)
        assert decision.next.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
        assert (machine.state, machine.identity) == (expected, identity)
    else:
        assert response_of(decision) == (expected, -1, -1)
        assert decision.next is None
        assert machine.state is before


@pytest.mark.parametrize("committed", [True, False])
def test_complete_empties_the_transaction_and_keeps_the_producer(committed: bool) -> None:
    machine, identity = begun()
    machine.end(identity, committed)
    machine.finish()
    assert machine.current is not None
    assert machine.state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
    assert machine.current.partitions == frozenset()
    assert machine.identity == identity


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transaction_times_out_after_its_timeout_not_at_it(level: int) -> None:
    machine, identity = begun(level=level)
    machine.now_ms += TIMEOUT_MS
    assert not machine.time_out()
    machine.now_ms += 1
    assert machine.time_out()
    assert (machine.state, machine.identity) == (S.PREPARE_ABORT, (1, 1))
    assert machine.end(identity, True).response.code is E.PRODUCER_FENCED
    machine.finish()
    assert machine.add(identity, "a0") is E.PRODUCER_FENCED


def test_adding_partitions_does_not_prolong_a_transaction() -> None:
    machine, identity = begun()
    machine.now_ms += TIMEOUT_MS
    machine.add(identity, "b0")
    machine.now_ms += 1
    assert machine.time_out()


@pytest.mark.parametrize("which", [each for each in END_V1 if each is not S.ONGOING])
def test_only_open_transactions_time_out(which: TransactionState) -> None:
    machine, _ = begun()
    machine.set(state=which)
    machine.now_ms += 10 * TIMEOUT_MS
    assert not machine.time_out()


@pytest.mark.parametrize(
    ("which", "expires"),
    [
        (S.EMPTY, True),
        (S.ONGOING, False),
        (S.PREPARE_COMMIT, False),
        (S.PREPARE_ABORT, False),
        (S.COMPLETE_COMMIT, True),
        (S.COMPLETE_ABORT, True),
    ],
)
def test_ids_without_a_transaction_expire(which: TransactionState, expires: bool) -> None:
    machine, _ = begun()
    machine.set(state=which)
    assert machine.current is not None
    assert not state.is_expired(machine.current, START_MS + 99, 100)
    assert state.is_expired(machine.current, START_MS + 100, 100) is expires
    assert not state.is_expired(replace(machine.current, pending=True), START_MS + 100, 100)


# -- records ---------------------------------------------------------------------------------------

EVERYTHING = TransactionMetadata(
    transactional_id="x",
    producer_id=5,
    producer_epoch=7,
    timeout_ms=60_000,
    state=S.PREPARE_COMMIT,
    previous_producer_id=5,
    next_producer_id=6,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)}),
    start_ms=10,
    last_update_ms=11,
    client_transaction_version=2,
)


def through_bytes(metadata: TransactionMetadata, level: int) -> tuple[int, TransactionMetadata]:
    record = to_record(metadata, level)
    value = record_codec.encode_value(record.value, record.value_version)
    key = record_codec.decode_key("transaction", record_codec.encode_key(record.key))
    assert key == record.key
    decoded = record_codec.decode_value(TransactionLogValue, value)
    return int.from_bytes(value[:2], "big"), from_record(record.key, decoded)


def test_version_1_keeps_all_fields() -> None:
    for level in (1, 2):
        assert through_bytes(EVERYTHING, level) == (1, EVERYTHING)


def test_version_0_has_no_other_producer_ids() -> None:
    plain = replace(
        EVERYTHING, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0
    )
    assert through_bytes(EVERYTHING, 0) == (0, plain)


def test_empty_has_null_partitions() -> None:
    empty = replace(EVERYTHING, state=S.EMPTY, partitions=frozenset())
    assert to_record(empty, 1).value.transaction_partitions is None
    assert through_bytes(empty, 1) == (1, empty)


def test_partitions_are_written_by_topic_in_order() -> None:
    topics = to_record(EVERYTHING, 1).value.transaction_partitions
    assert [(each.topic, each.partition_ids) for each in topics] == [("a", [2]), ("b", [0, 1])]


def test_states_have_kafkas_names() -> None:
    assert list(STATES_BY_NAME) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# Kafka's table (``TransactionState.validPreviousStates`` with KIP-890): state -> previous states.
BETWEEN = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
KAFKA_PREVIOUS = {
    S.EMPTY: BETWEEN,
    S.ONGOING: {S.ONGOING, *BETWEEN},
    S.PREPARE_COMMIT: {S.ONGOING},
    # From a state between transactions: version 2 aborts unknown transactions (KIP-890).
    S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, *BETWEEN},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.DEAD: BETWEEN,
    S.PREPARE_EPOCH_FENCE: {S.ONGOING},
}


@pytest.mark.parametrize("following", S, ids=lambda each: each.name)
def test_transitions_are_those_of_kafka(following: TransactionState) -> None:
    """Dead and PrepareEpochFence are steps within one decision. Dead is the tombstone of an expired
    id. PrepareEpochFence is a part of the step from Ongoing to PrepareAbort."""
    if following is S.DEAD:
        assert following not in VALID_PREVIOUS
        assert KAFKA_PREVIOUS[following] == IDLE
    elif following is S.PREPARE_EPOCH_FENCE:
        assert following not in VALID_PREVIOUS
        assert KAFKA_PREVIOUS[following] <= VALID_PREVIOUS[S.PREPARE_ABORT]
    else:
        new = {None} if following is S.EMPTY else set()
        expected = KAFKA_PREVIOUS[following] - {S.PREPARE_EPOCH_FENCE}
        assert VALID_PREVIOUS[following] == expected | new


def test_impossible_transition_is_an_assertion_error() -> None:
    machine, _ = begun()
    assert machine.current is not None
    with pytest.raises(AssertionError, match="EMPTY"):
        state.complete(replace(machine.current, state=S.EMPTY), START_MS)
