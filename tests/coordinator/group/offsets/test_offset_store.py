"""Committed offsets compared with a dictionary: a restart restores all written offsets."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.group_records import offset_commit_record, offset_commit_tombstone
from odradek.coordinator.group.offsets.offset_store import CommittedOffset, OffsetStore
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.coordinator.group.group_machine import through_bytes

CommitKey = tuple[str, str, int]

names = st.sampled_from(["a", "b", "grüße", ""])
commit_keys = st.tuples(names, names, st.integers(0, 3))
values = st.builds(
    OffsetCommitValue,
    offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 100),
    metadata=st.text(max_size=8),
    commit_timestamp=st.integers(0, 2**41),
    expire_timestamp=st.sampled_from([-1, -1, 5]),
)
histories = st.lists(st.tuples(commit_keys, st.none() | values), max_size=60)


def record(commit_key: CommitKey, value: OffsetCommitValue | None) -> CoordinatorRecord:
    if value is None:
        return offset_commit_tombstone(*commit_key)
    group, topic, partition = commit_key
    return offset_commit_record(
        OffsetCommitKey(group=group, topic=topic, partition=partition), value
    )


def contents(store: OffsetStore, groups: set[str]) -> dict[CommitKey, CommittedOffset]:
    return {
        (group, topic, partition): value
        for group in groups
        for topic, partitions in store.of_group(group).items()
        for partition, value in partitions.items()
    }


def _facts(value: OffsetCommitValue) -> tuple[object, ...]:
    return (
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


@given(histories)
def test_store_has_the_last_commit_of_each_partition(
    history: list[tuple[CommitKey, OffsetCommitValue | None]],
) -> None:
    live, restarted = OffsetStore(), OffsetStore()
    model: dict[CommitKey, OffsetCommitValue] = {}
    for commit_key, value in history:
        written = record(commit_key, value)
        live.replay(written.key, written.value)
        restarted.replay(*through_bytes(written))
        model.pop(commit_key, None)
        if value is not None:
            model[commit_key] = value
    groups = {group for (group, _, _), _ in history}
    assert {commit_key: value[:5] for commit_key, value in contents(live, groups).items()} == {
        commit_key: _facts(value) for commit_key, value in model.items()
    }
    for commit_key, value in contents(restarted, groups).items():
        known = model.pop(commit_key)
        # The version with an expire timestamp has no field for the leader epoch, as in Kafka.
        epoch = -1 if known.expire_timestamp != -1 else known.leader_epoch
        assert (value.offset, value.metadata) == (known.offset, known.metadata)
        assert (value.leader_epoch, value.expire_timestamp) == (epoch, known.expire_timestamp)
    assert model == {}


@given(histories, st.sets(names))
def test_topic_tombstones_remove_only_the_offsets_of_the_topic(
    history: list[tuple[CommitKey, OffsetCommitValue | None]], topics: set[str]
) -> None:
    store = OffsetStore()
    for commit_key, value in history:
        store.replay(record(commit_key, value).key, value)
    groups = {group for (group, _, _), _ in history}
    kept = {p: v for p, v in contents(store, groups).items() if p[1] not in topics}
    for tombstones in store.topic_tombstones(sorted(topics), count=2):
        assert len(tombstones) <= 2
        for tombstone in tombstones:
            store.replay(tombstone.key, tombstone.value)
    assert contents(store, groups) == kept
    assert all(store.of_group(group) for group in {p[0] for p in kept})


class Event(NamedTuple):
    """A commit (pending if it has a producer), a tombstone, or the end of a transaction."""

    commit_key: CommitKey
    producer: int = -1
    tombstone: bool = False
    ends: bool | None = None


producers = st.integers(1, 3)
events = st.one_of(
    st.builds(lambda commit_key: Event(commit_key), commit_keys),
    st.builds(lambda commit_key, producer: Event(commit_key, producer), commit_keys, producers),
    st.builds(lambda commit_key: Event(commit_key, tombstone=True), commit_keys),
    st.builds(
        lambda producer, ends: Event(("", "", 0), producer, ends=ends), producers, st.booleans()
    ),
)


class Model:
    """A model of the rules: committed and pending offsets, by the offsets of their records."""

    def __init__(self) -> None:
        self.committed: dict[CommitKey, int] = {}
        self.pending: dict[int, dict[CommitKey, int]] = {}

    def apply(self, number: int, event: Event) -> None:
        if event.tombstone:
            for store in (self.committed, *self.pending.values()):
                store.pop(event.commit_key, None)
        elif event.ends is not None:
            ended = self.pending.pop(event.producer, {})
            for commit_key, at in ended.items() if event.ends else ():
                self.committed[commit_key] = max(at, self.committed.get(commit_key, -1))
        elif event.producer == -1:
            self.committed[event.commit_key] = number
        else:
            self.pending.setdefault(event.producer, {})[event.commit_key] = number


def replay(store: OffsetStore, number: int, event: Event) -> None:
    if event.ends is not None:
        store.end_transaction(event.producer, event.ends)
        return
    value = None if event.tombstone else OffsetCommitValue(offset=number, metadata="")
    store.replay(record(event.commit_key, value).key, value, number, event.producer)


@given(st.lists(events, max_size=40))
def test_pending_offsets_are_committed_by_their_marker_and_never_hide_a_later_commit(
    history: list[Event],
) -> None:
    store, model = OffsetStore(), Model()
    for number, event in enumerate(history):
        replay(store, number, event)
        model.apply(number, event)
    groups = {event.commit_key[0] for event in history}
    found = {
        commit_key: value.record_offset for commit_key, value in contents(store, groups).items()
    }
    assert found == model.committed
    pending = {commit_key for each in model.pending.values() for commit_key in each}
    for commit_key in {event.commit_key for event in history}:
        assert store.is_pending(*commit_key) == (commit_key in pending)
    open_groups = {commit_key[0] for commit_key in pending}
    assert all(store.has_open_transactions(group) for group in open_groups)


@given(st.lists(events, max_size=40), names)
def test_group_tombstones_remove_committed_and_pending_offsets(
    history: list[Event], group: str
) -> None:
    store, model = OffsetStore(), Model()
    for number, event in enumerate(history):
        replay(store, number, event)
        model.apply(number, event)
    commit_keys = []
    while tombstones := store.group_tombstones(group, count=2):
        assert len(tombstones) <= 2
        for each in tombstones:
            commit_keys.append((each.key.group, each.key.topic, each.key.partition))
            store.replay(each.key, each.value)
    stored = {
        *model.committed,
        *(commit_key for each in model.pending.values() for commit_key in each),
    }
    assert sorted(commit_keys) == sorted(
        commit_key for commit_key in stored if commit_key[0] == group
    )
