"""Committed offsets against a dictionary: whatever is written, a restart finds the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.offsets import OffsetStore
from odradek.coordinator.group.records import offset_commit_record, offset_commit_tombstone
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.coordinator.group_machine import through_bytes

Place = tuple[str, str, int]

names = st.sampled_from(["a", "b", "grüße", ""])
places = st.tuples(names, names, st.integers(0, 3))
values = st.builds(
    OffsetCommitValue,
    offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 100),
    metadata=st.text(max_size=8),
    commit_timestamp=st.integers(0, 2**41),
    expire_timestamp=st.sampled_from([-1, -1, 5]),
)
histories = st.lists(st.tuples(places, st.none() | values), max_size=60)


def record(place: Place, value: OffsetCommitValue | None) -> CoordinatorRecord:
    if value is None:
        return offset_commit_tombstone(*place)
    group, topic, partition = place
    return offset_commit_record(
        OffsetCommitKey(group=group, topic=topic, partition=partition), value
    )


def contents(store: OffsetStore, groups: set[str]) -> dict[Place, OffsetCommitValue]:
    return {
        (group, topic, partition): value
        for group in groups
        for topic, partitions in store.of_group(group).items()
        for partition, value in partitions.items()
    }


@given(histories)
def test_store_holds_the_last_of_each(
    history: list[tuple[Place, OffsetCommitValue | None]],
) -> None:
    live, restarted = OffsetStore(), OffsetStore()
    model: dict[Place, OffsetCommitValue] = {}
    for place, value in history:
        written = record(place, value)
        live.replay(written.key, written.value)
        restarted.replay(*through_bytes(written))
        model.pop(place, None)
        if value is not None:
            model[place] = value
    groups = {group for (group, _, _), _ in history}
    assert contents(live, groups) == model
    for place, value in contents(restarted, groups).items():
        known = model.pop(place)
        # The version with an expire timestamp has no place for the leader's epoch, as in Kafka.
        epoch = -1 if known.expire_timestamp != -1 else known.leader_epoch
        assert (value.offset, value.metadata) == (known.offset, known.metadata)
        assert (value.leader_epoch, value.expire_timestamp) == (epoch, known.expire_timestamp)
    assert model == {}


@given(histories, st.sets(names))
def test_tombstones_forget_whole_topics_and_nothing_else(
    history: list[tuple[Place, OffsetCommitValue | None]], topics: set[str]
) -> None:
    store = OffsetStore()
    for place, value in history:
        store.replay(record(place, value).key, value)
    groups = {group for (group, _, _), _ in history}
    kept = {p: v for p, v in contents(store, groups).items() if p[1] not in topics}
    for tombstone in store.tombstones(topics):
        store.replay(tombstone.key, tombstone.value)
    assert contents(store, groups) == kept
    assert all(store.of_group(group) for group in {p[0] for p in kept})
