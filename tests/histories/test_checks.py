"""Each anomaly by a hand-made history, and the same history without it."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.histories.analysis import analyse, idle
from conformance.histories.checks import NOTICED_NS_MAX, REQUERY_NS_MAX, Anomaly
from conformance.histories.history import (
    FAIL,
    INFO,
    NEVER,
    OK,
    READ_UNCOMMITTED,
    History,
    Op,
    Read,
    Send,
)


class Book:
    """Operations that do not overlap in time. An operation's number is its index."""

    def __init__(self, *, complete: bool = True) -> None:
        self.history = History(complete=complete)

    def op(self, f: str, process: int = 0, status: str = OK, **fields: Any) -> Op:
        time = 10 * len(self.history.ops)
        ended = NEVER if status == INFO else time + 5
        ended = fields.pop("ended", ended)
        op = Op(process, len(self.history.ops), f, status, time, ended, **fields)
        self.history.ops.append(op)
        return op

    def send(self, *sends: tuple[int, int, int | None], status: str = OK, **fields: Any) -> Op:
        """Plain sends of (key, value, offset)."""
        listed = [Send(k, v, offset, status) for k, v, offset in sends]
        return self.op("send", status=status, sends=listed, **fields)

    def txn(
        self,
        *sends: tuple[int, int, int | None],
        reads: list[tuple[int, int, int]] | None = None,
        **fields: Any,
    ) -> Op:
        """A transaction; reads are (key, offset, value)."""
        listed = [Send(k, v, offset, OK if offset is not None else INFO) for k, v, offset in sends]
        return self.op("txn", sends=listed, reads=[Read(*r) for r in reads or []], **fields)

    def poll(self, *reads: tuple[int, int, int], process: int = 9, **fields: Any) -> Op:
        return self.op("poll", process=process, reads=[Read(*r) for r in reads], **fields)

    def forbidden(self) -> set[str]:
        return analyse(self.history).kinds

    def allowed(self) -> set[str]:
        return {a.kind for a in analyse(self.history).anomalies if a.allowed}

    def all_of(self, kind: str) -> list[Anomaly]:
        return [a for a in analyse(self.history).anomalies if a.kind == kind]


def test_a_clean_history_has_no_anomaly() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.txn((0, 3, 2), (1, 4, 0), reads=[(0, 0, 1), (0, 1, 2)], process=1)
    book.poll((0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 4))
    assert not analyse(book.history).anomalies


def test_a_read_of_an_aborted_transactions_write_is_g1a() -> None:
    book = Book()
    book.txn((0, 1, 0), status=FAIL)
    book.poll((0, 0, 1))
    assert book.forbidden() == {"G1a"}


def test_an_aborted_write_that_only_read_uncommitted_saw_is_fine() -> None:
    book = Book()
    book.txn((0, 1, 0), status=FAIL)
    book.poll((0, 0, 1), isolation=READ_UNCOMMITTED)
    assert not book.forbidden()


def test_a_value_that_no_client_sent_is_a_phantom() -> None:
    book = Book()
    book.poll((0, 0, 77))
    assert book.forbidden() == {"phantom"}


def test_a_transaction_that_reads_its_own_write_is_a_precommitted_read() -> None:
    book = Book()
    book.txn((0, 1, 0), reads=[(0, 0, 1)])
    assert book.forbidden() == {"precommitted-read"}


def test_an_unread_acknowledged_write_below_the_highest_read_is_lost() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 1, 2))
    assert book.forbidden() == {"lost-write"}


def test_an_unknown_write_may_be_missing() -> None:
    book = Book()
    book.send((0, 1, 0), status=INFO)
    book.send((0, 2, 1), process=1)
    book.poll((0, 1, 2))
    assert not book.forbidden()


def test_an_unknown_transaction_counts_as_soon_as_a_part_of_it_was_read() -> None:
    book = Book()
    book.txn((0, 1, 0), (1, 2, 0), status=INFO)
    book.send((1, 3, 1), process=1)
    book.poll((0, 0, 1), (1, 1, 3))
    assert book.forbidden() == {"lost-write", "torn-transaction"}


def test_an_acknowledged_write_that_is_never_read_is_unseen_after_the_final_reads() -> None:
    book = Book()
    book.send((0, 1, 0))
    assert book.forbidden() == {"unseen"}
    book.history.complete = False
    assert not book.forbidden()


def test_a_transaction_of_which_a_part_only_is_there_is_torn() -> None:
    book = Book()
    book.txn((0, 1, 0), (1, 2, None), status=INFO)
    book.poll((0, 0, 1))
    assert "torn-transaction" in book.forbidden()


def test_one_value_at_two_offsets_is_a_duplicate() -> None:
    book = Book()
    book.send((0, 1, 0))
    book.poll((0, 0, 1), (0, 1, 1))
    assert book.forbidden() == {"duplicate"}


def test_a_duplicate_of_a_producer_without_idempotence_is_allowed() -> None:
    book = Book()
    book.send((0, 1, 0), idempotent=False)
    book.poll((0, 0, 1), (0, 1, 1))
    assert not book.forbidden()
    assert book.allowed() == {"duplicate"}


def test_two_values_at_one_offset_are_inconsistent() -> None:
    book = Book()
    book.send((0, 1, 0))
    book.send((0, 2, 0), process=1)
    book.poll((0, 0, 1))
    book.poll((0, 0, 2), process=8)
    assert "inconsistent-offsets" in book.forbidden()


def test_a_poll_that_leaves_out_a_value_inside_one_operation() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1), (0, 3, 2))
    book.poll((0, 0, 1), (0, 1, 2), (0, 2, 3))
    book.poll((0, 0, 1), (0, 2, 3), process=8)
    assert book.forbidden() == {"int-poll-skip"}


def test_a_poll_that_goes_back_inside_one_operation() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1), (0, 1, 2), (0, 0, 1))
    assert book.forbidden() == {"int-nonmonotonic-poll"}


def test_an_aborted_value_between_two_reads_is_not_skipped() -> None:
    book = Book()
    book.send((0, 1, 0))
    book.txn((0, 2, 1), status=FAIL, process=1)
    book.send((0, 3, 3))
    book.poll((0, 0, 1), (0, 3, 3))
    assert not book.forbidden()


def test_the_next_poll_of_a_process_skips() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1), (0, 3, 2))
    book.poll((0, 0, 1), (0, 1, 2), (0, 2, 3))
    book.poll((0, 0, 1), process=8)
    book.poll((0, 2, 3), process=8)
    assert book.forbidden() == {"poll-skip"}


def test_the_next_poll_of_a_process_goes_back() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1), (0, 1, 2))
    book.poll((0, 1, 2))
    assert book.forbidden() == {"nonmonotonic-poll"}


def test_after_a_rebalance_the_expected_position_is_unknown() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1), (0, 1, 2))
    book.poll(moved={0})
    book.poll((0, 0, 1), (0, 1, 2))
    assert not book.forbidden()


def test_a_seek_says_where_the_next_read_must_be() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1), (0, 1, 2))
    book.op("assign", process=9, sought={0: 0})
    book.poll((0, 0, 1))
    assert not book.forbidden()
    book.op("assign", process=9, sought={0: 0})
    book.poll((0, 1, 2))
    assert book.forbidden() == {"poll-skip"}


def test_sends_of_one_operation_against_the_order_of_the_log() -> None:
    book = Book()
    book.txn((0, 1, 5), (0, 2, 3))
    book.poll((0, 3, 2), (0, 5, 1))
    assert book.forbidden() == {"int-nonmonotonic-send"}


def test_other_writes_between_those_of_a_transaction_are_allowed() -> None:
    book = Book()
    book.txn((0, 1, 0), (0, 2, 2), ended=100)
    book.send((0, 3, 1), process=1)
    book.poll((0, 0, 1), (0, 1, 3), (0, 2, 2))
    assert not book.forbidden()
    assert "int-send-skip" in book.allowed()


def test_a_later_send_of_a_producer_before_its_earlier_one() -> None:
    book = Book()
    book.send((0, 1, None), status=INFO)
    book.send((0, 2, 0))
    book.poll((0, 0, 2), (0, 1, 1))
    assert book.forbidden() == {"nonmonotonic-send"}


def test_an_offset_below_one_that_was_acknowledged_before_the_send_began() -> None:
    book = Book()
    book.send((0, 1, 4), process=1)
    book.send((0, 2, 3), process=2)
    book.poll((0, 3, 2), (0, 4, 1))
    assert book.forbidden() == {"realtime-order"}


def test_a_record_that_two_transactions_of_a_group_took() -> None:
    book = Book()
    book.send((0, 1, 0))
    book.txn(reads=[(0, 0, 1)], process=1, group="g", positions={0: 1})
    book.txn(reads=[(0, 0, 1)], process=2, group="g", positions={0: 1}, status=FAIL)
    assert not book.forbidden()
    book.txn(reads=[(0, 0, 1)], process=3, group="g", positions={0: 1})
    assert book.forbidden() == {"reprocessed"}


@pytest.mark.parametrize(
    ("f", "sought", "unaware", "is_allowed"),
    [
        ("assign", {0: 0}, (15, 25), True),
        ("assign", {0: 0}, (15, 19 - NOTICED_NS_MAX), False),  # it has noticed long ago
        ("assign", {0: 0}, (26, 90), False),  # the replacement came later
        ("assign", {0: 1}, (15, 25), False),  # the offset was the newest
        ("subscribe", {0: 0}, (15, 25), False),  # membership protects a group
    ],
)
def test_older_offsets_of_a_replaced_coordinator_are_allowed_while_it_cannot_notice(
    f: str, sought: dict[int, int], unaware: tuple[int, int], *, is_allowed: bool
) -> None:
    book = Book()
    book.send((0, 1, 0))
    book.txn(reads=[(0, 0, 1)], process=1, group="g", positions={0: 1})
    book.op(f, process=1, sought=sought)  # from 20 to 25
    book.txn(reads=[(0, 0, 1)], process=1, group="g", positions={0: 1})
    book.history.unaware.append(unaware)
    assert ("reprocessed" not in book.forbidden()) == is_allowed
    assert ("reprocessed" in book.allowed()) == is_allowed


def test_a_jump_back_is_allowed_only_after_the_library_queried_the_start_offset_again() -> None:
    for requeried, expected in ((set[int](), {"nonmonotonic-poll", "reprocessed"}), ({0}, set())):
        book = Book()
        book.send((0, 1, 0), (0, 2, 1))
        book.txn(reads=[(0, 0, 1)], process=1, group="g", positions={0: 1}, requeried=requeried)
        book.txn(reads=[(0, 1, 2)], process=1, group="g", positions={0: 2})
        book.txn(reads=[(0, 0, 1), (0, 1, 2)], process=1, group="g", positions={0: 2})
        assert book.forbidden() == expected
        assert book.allowed() - {"G-single"} == {"nonmonotonic-poll", "reprocessed"} - expected


def test_a_jump_back_of_another_process_or_key_is_not_allowed() -> None:
    for process, key in ((2, 0), (1, 1)):
        book = Book()
        book.send((0, 1, 0), (0, 2, 1))
        book.poll(process=process, requeried={key})
        book.poll((0, 0, 1), (0, 1, 2), process=1)
        book.poll((0, 0, 1), process=1)
        assert book.forbidden() == {"nonmonotonic-poll"}


def test_a_jump_back_long_after_the_library_queried_the_start_offset_is_not_allowed() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    late = book.poll((0, 0, 1), (0, 1, 2), requeried={0})
    back = book.poll((0, 0, 1))
    back.invoked = late.ended + REQUERY_NS_MAX + 1
    assert book.forbidden() == {"nonmonotonic-poll"}


def test_a_jump_back_inside_an_operation_after_a_repeated_query_is_allowed() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 1, 2), (0, 0, 1), (0, 1, 2), requeried={0})
    assert not book.forbidden()
    assert "int-nonmonotonic-poll" in book.allowed()


def test_a_group_that_committed_past_a_record_that_no_member_read() -> None:
    book = Book()
    book.send((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1), (0, 1, 2))
    book.poll((0, 1, 2), process=1, group="g")
    book.op("commit", process=1, group="g", positions={0: 2})
    assert book.forbidden() == {"group-skip"}
    book.poll((0, 0, 1), process=2, group="g")
    assert not book.forbidden()


def test_a_partition_whose_last_stable_offset_does_not_advance_is_stuck() -> None:
    book = Book()
    book.history.stuck = [
        {"type": "stuck", "key": 0, "last_stable_offset": 3, "high_watermark": 5, "time": 1}
    ]
    assert book.forbidden() == {"hanging-transaction"}
    assert book.all_of("hanging-transaction")[0].detail["key"] == 0


def test_writes_in_opposite_orders_are_g0_and_allowed() -> None:
    book = Book()
    book.txn((0, 1, 0), (1, 2, 1), process=1, ended=100)
    book.txn((0, 3, 1), (1, 4, 0), process=2)
    book.poll((0, 0, 1), (0, 1, 3), (1, 0, 4), (1, 1, 2))
    assert not book.forbidden()
    assert "G0" in book.allowed()


def test_two_transactions_that_read_each_other_are_g1c() -> None:
    book = Book()
    book.txn((0, 1, 0), reads=[(1, 0, 2)], process=1, ended=100)
    book.txn((1, 2, 0), reads=[(0, 0, 1)], process=2)
    assert book.forbidden() == {"G1c"}


def test_a_circle_that_needs_the_order_of_writes_is_allowed() -> None:
    book = Book()
    book.txn((0, 1, 0), reads=[(1, 0, 3)], process=1, ended=100)
    book.txn((0, 2, 1), (1, 3, 0), process=2)
    book.txn((0, 4, 2), process=3)
    book.poll((0, 0, 1), (0, 1, 2), (0, 2, 4))
    assert not book.forbidden()
    assert "G1c-ww" in book.allowed()


def test_a_transaction_with_inconsistent_reads_is_g_single_and_allowed() -> None:
    book = Book()
    book.send((0, 1, 0))
    book.txn((0, 2, 1), (1, 3, 0), process=1)
    book.txn(reads=[(0, 0, 1), (1, 0, 3)], process=2)
    book.poll((0, 0, 1), (0, 1, 2))
    assert not book.forbidden()
    assert "G-single" in book.allowed()


def test_a_poll_that_ends_inside_a_transaction_is_g1b_and_allowed() -> None:
    book = Book()
    book.txn((0, 1, 0), (0, 2, 1))
    book.poll((0, 0, 1))
    book.poll((0, 1, 2))
    assert not book.forbidden()
    assert "G1b" in book.allowed()


def test_a_history_in_which_nothing_of_a_kind_succeeded_shows_nothing_of_it() -> None:
    book = Book()
    book.op("open", status=INFO)
    book.send((0, 1, 0))
    book.poll()
    assert idle(book.history) == ["poll", "txn"]
    book.txn((0, 2, 1), process=1)
    book.poll((0, 0, 1), (0, 1, 2))
    assert idle(book.history) == []


def test_transactions_of_one_protocol_do_not_stand_for_those_of_the_other() -> None:
    book = Book()
    book.op("open", protocol=2)
    book.txn((0, 1, 0), process=1)
    assert idle(book.history) == ["txn-v2"]
    book.txn((0, 2, 1), protocol=2)
    assert idle(book.history) == []


def test_a_late_send_of_a_plain_producer_is_allowed_only_after_a_failed_request() -> None:
    for retried, kinds in ((set(), {"int-nonmonotonic-send"}), ({0}, set()), ({1}, None)):
        book = Book()
        book.send((0, 1, 1), (0, 2, 0), idempotent=False, retried=retried)
        book.poll((0, 0, 2), (0, 1, 1))
        assert book.forbidden() == ({"int-nonmonotonic-send"} if kinds is None else kinds)


def test_a_late_send_of_an_idempotent_producer_is_never_allowed() -> None:
    book = Book()
    book.send((0, 1, 1), (0, 2, 0), retried={0})
    book.poll((0, 0, 2), (0, 1, 1))
    assert book.forbidden() == {"int-nonmonotonic-send"}


def test_operations_of_a_plain_producer_keep_their_order() -> None:
    book = Book()
    book.send((0, 1, None), (0, 2, None), idempotent=False, retried={0})
    book.send((0, 3, None), idempotent=False, retried={0})
    book.poll((0, 0, 2), (0, 1, 3), (0, 2, 1))
    assert book.forbidden() == {"nonmonotonic-send"}


def test_replicas_at_the_end_are_in_sync_and_equal() -> None:
    equal = {"key": 0, "in_sync": [1, 2], "logs": {"1": [1, 80, "a"], "2": [1, 80, "a"]}}
    other = {**equal, "logs": {"1": [1, 80, "a"], "2": [1, 80, "b"]}}
    for event, kinds in (
        (equal, set()),
        (other, {"replicas-differ"}),
        ({**equal, "in_sync": [1]}, {"not-in-sync"}),
        ({**equal, "logs": {}}, {"not-in-sync"}),
    ):
        assert analyse(History(replicas=[event], complete=True)).kinds == kinds
