"""The queue of transactions for one other broker: bounded requests, each partition once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.transactions.peer_queue import (
    LIMITS,
    PARTITION_BYTES,
    Entry,
    Part,
    PeerQueue,
    QueueLimits,
)
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.slicing import ELEMENTS_UNSLICED_MAX

E = ErrorCode


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in range(count)]


def entry(key: object, count: int, topic: str = "t", header_bytes: int = 10) -> Entry:
    return Entry(key, partitions(topic, count), header_bytes)


def answered(queue: PeerQueue[Entry], parts: Sequence[Part[Entry]]) -> list[Entry]:
    codes = {part.entry.key: dict.fromkeys(part.partitions, E.NONE) for part in parts}
    return queue.responded(parts, codes, E.UNKNOWN_SERVER_ERROR)


def shape(parts: Sequence[Part[Entry]]) -> list[tuple[Any, int]]:
    return [(part.entry.key, len(part.partitions)) for part in parts]


def test_entries_that_wait_share_the_next_request() -> None:
    queue: PeerQueue[Entry] = PeerQueue()
    assert queue.add(entry("a", 1))
    first = queue.take()
    for key in "bcd":
        queue.add(entry(key, 2))
        assert not queue.take(), "one request in flight"
    assert answered(queue, first) == [first[0].entry]
    assert shape(queue.take()) == [("b", 2), ("c", 2), ("d", 2)]


def test_large_transaction_is_divided_over_requests() -> None:
    queue: PeerQueue[Entry] = PeerQueue(QueueLimits(partitions_max=4))
    large, small = entry("a", 9), entry("b", 1)
    queue.add(large)
    queue.add(small)
    sizes, done = [], []
    while parts := queue.take():
        sizes.append(shape(parts))
        done.append(answered(queue, parts))
    assert sizes == [[("a", 4)], [("a", 4)], [("a", 1), ("b", 1)]]
    assert done == [[], [], [large, small]]
    assert queue.is_idle


def test_no_request_is_long_enough_for_slices() -> None:
    assert LIMITS.partitions_max + LIMITS.parts_max <= ELEMENTS_UNSLICED_MAX


def test_bytes_of_a_request_are_bounded_but_its_first_partition_always_has_room() -> None:
    queue: PeerQueue[Entry] = PeerQueue(QueueLimits(bytes_max=10 + 3 + 3 * PARTITION_BYTES))
    queue.add(entry("a", 5, "abc"))
    queue.add(entry("b", 2, "x" * 249))
    assert shape(queue.take()) == [("a", 3)]
    queue.responded([], {}, E.NONE)
    assert shape(queue.take()) == [("a", 2)]
    queue.responded([], {}, E.NONE)
    assert shape(queue.take()) == [("b", 1)]


def test_a_request_names_a_key_once() -> None:
    """The response would not tell the codes of two transactions with the same key apart."""
    queue: PeerQueue[Entry] = PeerQueue()
    for key in ("a", "b", "a", "c"):
        queue.add(entry(key, 1))
    assert shape(queue.take()) == [("a", 1), ("b", 1)]
    queue.responded([], {}, E.NONE)
    assert shape(queue.take()) == [("a", 1), ("c", 1)]


def test_a_cancelled_entry_is_neither_sent_nor_done() -> None:
    queue: PeerQueue[Entry] = PeerQueue()
    in_flight, waiting, other = entry("a", 1), entry("b", 1), entry("c", 1)
    queue.add(in_flight)
    parts = queue.take()
    queue.add(waiting)
    queue.add(other)
    in_flight.is_cancelled = waiting.is_cancelled = True
    assert answered(queue, parts) == []
    assert shape(queue.take()) == [("c", 1)]


def test_partitions_that_a_response_lacks_have_the_other_code() -> None:
    queue: PeerQueue[Entry] = PeerQueue()
    asked = entry("a", 3)
    queue.add(asked)
    first, second, third = asked.partitions
    codes = {"a": {first: E.NONE, third: E.NOT_LEADER_OR_FOLLOWER}, "b": {second: E.NONE}}
    assert queue.responded(queue.take(), codes, E.NETWORK_EXCEPTION) == [asked]
    assert asked.codes == {
        first: E.NONE,
        second: E.NETWORK_EXCEPTION,
        third: E.NOT_LEADER_OR_FOLLOWER,
    }


def test_entries_that_wait_are_bounded_and_cancelled_ones_do_not_count() -> None:
    queue: PeerQueue[Entry] = PeerQueue(QueueLimits(waiting_max=2))
    first = entry("a", 1)
    assert queue.add(first)
    assert queue.add(entry("b", 1))
    assert not queue.add(entry("c", 1))
    first.is_cancelled = True
    assert queue.add(entry("d", 1))
    assert shape(queue.take()) == [("b", 1), ("d", 1)]


class Searched(Entry):
    """An entry that counts how often the queue looks whether it is cancelled."""

    __slots__ = ("looks",)

    @property  # type: ignore[override]
    def is_cancelled(self) -> bool:
        self.looks += 1
        return False

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        self.looks = 0


def test_full_queue_is_not_searched_for_each_entry_that_it_refuses() -> None:
    queue: PeerQueue[Entry] = PeerQueue(QueueLimits(waiting_max=100))
    entries = [Searched(number, partitions("t", 1), 10) for number in range(100)]
    assert all(map(queue.add, entries))
    refused = [queue.add(entry(number, 1)) for number in range(1_000, 1_100)]
    assert not any(refused)
    assert max(each.looks for each in entries) <= 10


class Run:
    """A queue with requests in flight, and what was sent and done."""

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.queue: PeerQueue[Entry] = PeerQueue(limits)
        self.entries: list[Entry] = []
        self.in_flight: list[list[Part[Entry]]] = []
        self.sent: Counter[tuple[int, TopicPartition]] = Counter()
        self.done: list[Entry] = []

    def add(self, key: int, count: int) -> None:
        added = entry(key, count)
        if self.queue.add(added):
            self.entries.append(added)

    def cancel(self, number: int, _: int) -> None:
        if self.entries:
            self.entries[number % len(self.entries)].is_cancelled = True

    def take(self, *_: int) -> None:
        parts = self.queue.take()
        if not parts:
            return
        self.in_flight.append(parts)
        assert len(self.in_flight) <= self.limits.in_flight_max
        keys = [part.entry.key for part in parts]
        assert len(set(keys)) == len(keys) <= self.limits.parts_max
        assert 0 < sum(len(part.partitions) for part in parts) <= self.limits.partitions_max
        for part in parts:
            assert not part.entry.is_cancelled
            self.sent.update((id(part.entry), each) for each in part.partitions)

    def respond(self, *_: int) -> None:
        if self.in_flight:
            self.done += answered(self.queue, self.in_flight.pop(0))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "cancel", "take", "respond"]),
            st.integers(0, 3),
            st.integers(1, 12),
        ),
        max_size=60,
    ),
    st.builds(
        QueueLimits,
        parts_max=st.integers(1, 3),
        partitions_max=st.integers(1, 6),
        bytes_max=st.integers(1, 200),
        in_flight_max=st.integers(1, 3),
        waiting_max=st.integers(1, 6),
    ),
)
def test_each_partition_is_sent_once_within_the_limits_and_every_entry_is_done(
    steps: list[Any], limits: QueueLimits
) -> None:
    run = Run(limits)
    for name, first, second in steps:
        getattr(run, name)(first, second)
    while not run.queue.is_idle:
        run.take()
        run.respond()
    assert max(run.sent.values(), default=1) == 1
    ended = {id(each) for each in run.done}
    assert len(ended) == len(run.done)
    needed = [each for each in run.entries if not each.is_cancelled]
    assert {id(each) for each in needed} <= ended
    assert all(set(each.codes) == set(each.partitions) for each in needed)
