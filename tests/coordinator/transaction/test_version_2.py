"""transaction.version 2 (KIP-890 part 2): the table, overflow, and bugs that Kafka had."""

from __future__ import annotations

import pytest

from odradek.coordinator.transaction.transaction_metadata import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    TransactionState,
)
from odradek.errors import ErrorCode
from tests.coordinator.transaction.transaction_machine import TIMEOUT_MS, Machine, begun

E = ErrorCode
S = TransactionState
LAST = EPOCH_EXHAUSTED


def response_of(decision: object) -> tuple[ErrorCode, int, int]:
    return decision.response.code, decision.response.producer_id, decision.response.producer_epoch  # type: ignore[attr-defined]


def ended(committed: bool, *, finish: bool = True) -> Machine:
    """Return a machine whose first transaction was ended with epoch 0. The producer has epoch 1."""
    machine, identity = begun(version=2, level=2)
    assert response_of(machine.end(identity, committed, 2)) == (E.NONE, 1, 1)
    if finish:
        machine.finish()
    return machine


@pytest.mark.parametrize("committed", [True, False])
def test_every_end_increments_the_epoch_of_the_markers(committed: bool) -> None:
    machine = ended(committed, finish=False)
    assert machine.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    assert machine.identity == (1, 1)
    machine.finish()
    assert machine.identity == (1, 1)
    assert machine.add((1, 0), "a0", version=2) is E.PRODUCER_FENCED
    assert machine.add((1, 1), "a0", version=2) is E.NONE


def bump(code: ErrorCode = E.NONE) -> tuple[ErrorCode, int, int]:
    return (code, 1, 2)


def no(code: ErrorCode) -> tuple[ErrorCode, int, int]:
    return (code, -1, -1)


# The state after an end with epoch 0 -> the codes of (abort retry, abort, commit retry, commit). A
# retry has epoch 0 and the others have epoch 1.
SAME = (E.NONE, 1, 1)
END_V2 = {
    S.EMPTY: (no(E.PRODUCER_FENCED), bump(), no(E.PRODUCER_FENCED), no(E.INVALID_TXN_STATE)),
    S.COMPLETE_ABORT: (SAME, bump(), no(E.INVALID_TXN_STATE), no(E.INVALID_TXN_STATE)),
    S.COMPLETE_COMMIT: (no(E.INVALID_TXN_STATE), bump(), SAME, no(E.INVALID_TXN_STATE)),
    S.PREPARE_ABORT: (
        no(E.CONCURRENT_TRANSACTIONS),
        no(E.CONCURRENT_TRANSACTIONS),
        no(E.INVALID_TXN_STATE),
        no(E.CONCURRENT_TRANSACTIONS),
    ),
    S.PREPARE_COMMIT: (
        no(E.INVALID_TXN_STATE),
        no(E.CONCURRENT_TRANSACTIONS),
        no(E.CONCURRENT_TRANSACTIONS),
        no(E.CONCURRENT_TRANSACTIONS),
    ),
    S.ONGOING: (no(E.PRODUCER_FENCED), bump(), no(E.PRODUCER_FENCED), bump()),
}


@pytest.mark.parametrize("before", END_V2, ids=lambda each: each.name)
@pytest.mark.parametrize("column", range(4), ids=["abort-0", "abort-1", "commit-0", "commit-1"])
def test_end_in_every_state(before: TransactionState, column: int) -> None:
    machine = ended(True)
    machine.set(state=before)
    decision = machine.end((1, column % 2), column >= 2, 2)
    expected = END_V2[before][column]
    assert response_of(decision) == expected
    changed = expected == bump()
    assert (decision.next is not None) is changed
    if changed:
        assert decision.next.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
        assert machine.state is (S.PREPARE_COMMIT if column >= 2 else S.PREPARE_ABORT)


@pytest.mark.parametrize("epoch", [-1, 2, 3, EPOCH_MAX])
@pytest.mark.parametrize("before", END_V2, ids=lambda each: each.name)
def test_any_other_epoch_is_fenced(before: TransactionState, epoch: int) -> None:
    machine = ended(True)
    machine.set(state=before)
    assert machine.end((1, epoch), False, 2).response.code is E.PRODUCER_FENCED
    assert machine.end((9, epoch), False, 2).response.code is E.INVALID_PRODUCER_ID_MAPPING


def test_delayed_end_does_not_end_the_next_transaction() -> None:
    """With version 1 this committed the second one (KAFKA-17754, Jepsen's torn transactions)."""
    machine = ended(True)
    machine.add((1, 1), "a0", version=2)
    assert machine.end((1, 0), True, 2).response.code is E.PRODUCER_FENCED
    assert machine.end((1, 0), True, 0).response.code is E.PRODUCER_FENCED
    assert machine.state is S.ONGOING


def test_abort_without_a_transaction_has_a_start_time() -> None:
    machine = Machine(transaction_version=2)
    machine.init()
    machine.now_ms += 3
    assert response_of(machine.end((1, 0), False, 2)) == (E.NONE, 1, 1)
    assert machine.current is not None
    assert machine.current.start_ms == machine.now_ms
    machine.finish()
    assert machine.state is S.COMPLETE_ABORT


def test_end_that_precedes_the_completion_gets_concurrent_transactions() -> None:
    """The client has epoch 1 from the first end. Kafka fences it here."""
    machine = ended(True, finish=False)
    assert machine.end((1, 1), False, 2).response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    assert response_of(machine.end((1, 1), False, 2)) == (E.NONE, 1, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_overflow_changes_the_producer_id_with_complete(committed: bool) -> None:
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=LAST)
    assert response_of(machine.end((1, LAST), committed, 2)) == (E.NONE, 2, 0)
    assert machine.identity == (1, EPOCH_MAX), "the markers carry the old id and the last epoch"
    assert machine.end((1, LAST), committed, 2).response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    assert machine.identity == (2, 0)
    assert response_of(machine.end((1, LAST), committed, 2)) == (E.NONE, 2, 0)
    assert machine.end((1, LAST), not committed, 2).response.code is E.INVALID_TXN_STATE


def test_overflow_continues_after_a_restart() -> None:
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=LAST)
    machine.end((1, LAST), True, 2)
    machine.restart()
    machine.finish()
    machine.restart()
    assert machine.identity == (2, 0)
    assert response_of(machine.end((1, LAST), True, 2)) == (E.NONE, 2, 0)


def test_kafka_18660_next_transaction_after_an_overflow_does_not_fence_itself() -> None:
    """The client knows its new id before the coordinator has completed the old transaction."""
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=LAST)
    machine.end((1, LAST), True, 2)
    assert machine.add((2, 0), "a0", version=2) is E.CONCURRENT_TRANSACTIONS
    assert machine.end((2, 0), False, 2).response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    assert machine.add((2, 0), "a0", version=2) is E.NONE
    assert machine.end((1, LAST), True, 2).response.code is E.INVALID_PRODUCER_ID_MAPPING


def test_kafka_18575_new_transaction_waits_for_the_completion() -> None:
    """An implicit add of the next transaction waits until the last one is complete."""
    machine = ended(True, finish=False)
    before = machine.current
    assert machine.add((1, 1), "a0", version=2) is E.CONCURRENT_TRANSACTIONS
    assert machine.current is before
    machine.finish()
    assert machine.add((1, 1), "a0", version=2) is E.NONE
    assert machine.current is not None
    assert machine.current.start_ms == machine.now_ms


@pytest.mark.parametrize("epoch", [0, LAST - 1, LAST])
def test_kafka_19367_fencing_bumps_once(epoch: int) -> None:
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=epoch)
    assert machine.init().response.code is E.CONCURRENT_TRANSACTIONS
    assert machine.identity == (1, epoch + 1)
    machine.finish()
    assert machine.init().response.code is E.NONE


def test_kafka_20090_exhausted_epoch_does_not_leave_a_transaction_open_for_ever() -> None:
    """A timeout at the last epoch takes a new id. The late abort of the old producer gets the new
    id, not an epoch that could never end a transaction."""
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=LAST)
    machine.now_ms += TIMEOUT_MS + 1
    assert machine.time_out()
    assert machine.identity == (1, EPOCH_MAX)
    assert machine.end((1, LAST), False, 2).response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    assert response_of(machine.end((1, LAST), False, 2)) == (E.NONE, 2, 0)
    assert machine.add((2, 0), "a0", version=2) is E.NONE
    assert response_of(machine.end((2, 0), True, 2)) == (E.NONE, 2, 1)


def test_kafka_20090_transaction_stuck_by_an_older_broker_is_freed() -> None:
    machine, _ = begun(version=2, level=2)
    machine.set(producer_epoch=EPOCH_MAX)
    machine.now_ms += TIMEOUT_MS + 1
    assert machine.time_out()
    machine.finish()
    assert machine.identity == (2, 0)


def test_kafka_17898_an_epoch_of_the_next_transaction_is_no_retry_of_this_one() -> None:
    """An abort with the present epoch in Complete is a new, empty transaction, and bumps again."""
    machine = ended(False)
    assert response_of(machine.end((1, 1), False, 2)) == (E.NONE, 1, 2)
    machine.finish()
    assert response_of(machine.end((1, 2), False, 2)) == (E.NONE, 1, 3)
    assert response_of(machine.end((1, 2), False, 2)) == no(E.CONCURRENT_TRANSACTIONS)


def test_retry_of_an_end_across_a_restart_has_the_same_response() -> None:
    machine = ended(True, finish=False)
    machine.restart()
    assert machine.end((1, 0), True, 2).response.code is E.CONCURRENT_TRANSACTIONS
    machine.finish()
    machine.restart()
    assert response_of(machine.end((1, 0), True, 2)) == SAME


def test_client_of_version_1_works_beside_the_finalized_level_2() -> None:
    machine, identity = begun(version=0, level=2)
    assert response_of(machine.end(identity, True, 0)) == no(E.NONE)
    machine.finish()
    assert machine.identity == identity
    assert machine.add(identity, "a0") is E.NONE


def test_upgrade_between_two_transactions() -> None:
    """The last epoch of version 1 is the first epoch of version 2 (KAFKA-18227)."""
    machine, identity = begun(version=0, level=1)
    machine.end(identity, True, 0)
    machine.finish()
    machine.transaction_version = 2
    assert machine.add(identity, "a0", version=2) is E.NONE
    assert response_of(machine.end(identity, True, 2)) == (E.NONE, 1, 1)


def test_init_after_an_end_whose_response_was_lost_returns_the_incremented_epoch() -> None:
    machine = ended(True)
    assert response_of(machine.init((1, 0))) == SAME
    assert response_of(machine.init((1, 1))) == (E.NONE, 1, 2)
