"""Anomalies of histories in which key 9 may lose records."""

from __future__ import annotations

import pytest
from conformance.histories.history import without_keys

from tests.histories.test_checks import Book
from tests.simulation.exempt_keys import divide
from tests.simulation.simulation import KNOWN_DEFECTS

RISKY, EXEMPT = 9, frozenset({9})


def kinds(book: Book, exempt: frozenset[int] = EXEMPT) -> tuple[list[str], list[str]]:
    violations, excused = divide(book.history, exempt)
    return [each.kind for each in violations], [each.kind for each in excused]


def cycle(key: int) -> Book:
    """Two transactions of which each has read a record of the other: key 0 and `key`."""
    book = Book()
    book.txn((0, 1, 0), reads=[(key, 0, 2)])
    book.txn((key, 2, 0), reads=[(0, 0, 1)], process=1)
    return book


@pytest.mark.parametrize("exempt", [frozenset(), EXEMPT])
def test_a_cycle_of_safe_keys_is_a_violation(exempt: frozenset[int]) -> None:
    assert "G1c" in kinds(cycle(1), exempt)[0]


def test_a_cycle_through_a_key_that_may_lose_records_is_excused() -> None:
    assert kinds(cycle(RISKY)) == ([], ["G1c"])
    assert kinds(cycle(RISKY), frozenset()) == (["G1c"], [])


def test_a_torn_transaction_of_safe_keys_is_a_violation() -> None:
    for lost, expected in ((1, ["torn-transaction"]), (RISKY, [])):
        book = Book()
        book.txn((0, 1, None), (lost, 2, None), (RISKY, 3, None), status="info")
        book.poll((0, 0, 1), (RISKY, 0, 3))
        violations, excused = kinds(book)
        assert [kind for kind in violations if kind == "torn-transaction"] == expected
        assert "torn-transaction" in excused


def test_an_anomaly_of_a_key_belongs_to_its_key() -> None:
    book = Book()
    for key in (0, RISKY):
        book.send((key, 10 + key, 0))
        book.send((key, 20 + key, 0), process=1)
    assert kinds(book)[0].count("inconsistent-offsets") == 1
    assert kinds(book)[1].count("inconsistent-offsets") == 1


def test_operations_without_a_key_keep_what_concerns_the_others() -> None:
    book = Book()
    book.txn(
        (0, 1, 0),
        (RISKY, 2, 0),
        reads=[(1, 0, 3), (RISKY, 1, 4)],
        moved={0, RISKY},
        sought={0: 1, RISKY: 2},
        requeried={0, RISKY},
        retried={0, RISKY},
        positions={0: 1, RISKY: 2},
        group="g",
    )
    book.history.stuck = [{"key": 0}, {"key": RISKY}]
    book.history.replicas = [{"key": 0}, {"key": RISKY}]
    found = without_keys(book.history, EXEMPT)
    (op,) = found.ops
    assert [send.key for send in op.sends] == [0] and [read.key for read in op.reads] == [1]
    assert op.moved == op.requeried == op.retried == {0}
    assert op.sought == op.positions == {0: 1} and op.group == "g"
    assert found.stuck == found.replicas == [{"key": 0}]
    assert len(book.history.ops[0].sends) == 2


def test_no_defect_of_the_broker_is_known() -> None:
    """A known defect hides the violations that its text matches, so the proof needs none."""
    assert not KNOWN_DEFECTS
