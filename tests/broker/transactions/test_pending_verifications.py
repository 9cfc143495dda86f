"""Verifications that wait for a coordinator: one for each transactional id, by Kafka's rules."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.transactions.peer_queue import Part, QueueLimits
from odradek.broker.transactions.pending_verifications import PendingVerifications, Verification
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition

E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Pending = PendingVerifications[Verification]


def verification(name: str = "x", epoch: int = 0, *partitions: TopicPartition) -> Verification:
    return Verification(name, 1, epoch, list(partitions or (T0,)), add=False)


def blocked(limits: QueueLimits | None = None) -> Pending:
    """Return verifications behind a request in flight."""
    pending = Pending(limits or QueueLimits())
    assert pending.add(verification("first")) is None
    assert pending.take()
    return pending


def names(pending: Pending) -> list[tuple[str, int]]:
    pending.responded([], {}, E.NONE)
    return [(part.entry.transactional_id, part.entry.producer_epoch) for part in pending.take()]


def test_a_higher_epoch_fences_the_verification_that_waits() -> None:
    pending = blocked()
    old, new = verification(epoch=0), verification("x", 1, T1)
    assert pending.add(old) is None
    assert pending.add(new) is old
    assert old.codes == {T0: E.INVALID_PRODUCER_EPOCH}
    assert names(pending) == [("x", 1)]


def test_the_same_epoch_means_that_the_producer_has_connected_again() -> None:
    pending = blocked()
    old, new = verification("x", 3, T0, T1), verification("x", 3, T1)
    pending.add(old)
    assert pending.add(new) is old
    assert old.codes == {T0: E.NETWORK_EXCEPTION, T1: E.NETWORK_EXCEPTION}
    assert names(pending) == [("x", 3)]


def test_a_lower_epoch_is_fenced_itself() -> None:
    pending = blocked()
    new, old = verification(epoch=2), verification(epoch=1)
    pending.add(new)
    assert pending.add(old) is old
    assert old.codes == {T0: E.INVALID_PRODUCER_EPOCH}
    assert names(pending) == [("x", 2)]


def test_a_verification_in_flight_stays() -> None:
    pending = Pending()
    sent = verification(epoch=0)
    pending.add(sent)
    parts = pending.take()
    assert pending.add(verification(epoch=1)) is None
    assert pending.responded(parts, {"x": {T0: E.NONE}}, E.NETWORK_EXCEPTION) == [sent]
    assert sent.codes == {T0: E.NONE}


def test_a_verification_of_which_a_part_is_in_flight_is_replaced() -> None:
    pending = Pending(QueueLimits(partitions_max=1))
    old, new = verification("x", 0, T0, T1), verification("x", 0, T0)
    pending.add(old)
    parts = pending.take()
    assert pending.add(new) is old
    assert pending.responded(parts, {"x": {T0: E.NONE}}, E.NONE) == []
    assert old.codes == {T0: E.NETWORK_EXCEPTION, T1: E.NETWORK_EXCEPTION}
    assert [part.entry for part in pending.take()] == [new]


def test_a_cancelled_verification_is_replaced_without_a_code() -> None:
    pending = blocked()
    old, new = verification(), verification()
    pending.add(old)
    pending.cancel(old)
    assert pending.add(new) is None
    assert names(pending) == [("x", 0)]


def test_too_many_verifications_get_an_error_that_is_tried_again() -> None:
    pending = blocked(QueueLimits(waiting_max=1))
    assert pending.add(verification("x")) is None
    late = verification("y")
    assert pending.add(late) is late
    assert late.codes == {T0: E.NETWORK_EXCEPTION}


class Run:
    """Verifications with requests in flight, and what was added and ended."""

    def __init__(self) -> None:
        self.pending = Pending(QueueLimits(partitions_max=3))
        self.in_flight: list[list[Part[Verification]]] = []
        self.added: list[Verification] = []
        self.ended: list[Verification] = []

    def add(self, name: str, epoch: int) -> None:
        each = verification(name, epoch, T0, T1)
        self.added.append(each)
        if (failed := self.pending.add(each)) is not None:
            self.ended.append(failed)

    def take(self, *_: object) -> None:
        if parts := self.pending.take():
            ids = [part.entry.transactional_id for part in parts]
            assert len(ids) == len(set(ids))
            self.in_flight.append(parts)

    def respond(self, *_: object) -> None:
        if self.in_flight:
            parts = self.in_flight.pop()
            codes = {part.entry.key: dict.fromkeys(part.partitions, E.NONE) for part in parts}
            self.ended += self.pending.responded(parts, codes, E.NETWORK_EXCEPTION)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "take", "respond"]), st.sampled_from("xyz"), st.integers(0, 3)
        ),
        max_size=40,
    )
)
def test_each_verification_ends_once_and_no_request_names_an_id_twice(steps: list[Any]) -> None:
    run = Run()
    for name, transactional_id, epoch in steps:
        getattr(run, name)(transactional_id, epoch)
    while not run.pending.is_idle:
        run.take()
        run.respond()
    assert sorted(map(id, run.ended)) == sorted(map(id, run.added))
    assert all(set(each.codes) == {T0, T1} for each in run.added)
