"""Leader epochs, compared with a list of (offset, epoch)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.state.leader_epochs import LeaderEpochFileCache

entries = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12)


def build(steps: list[tuple[int, int]]) -> tuple[LeaderEpochFileCache, list[int]]:
    """(epoch increment, records) -> the epochs, and the epoch of each offset."""
    epochs, written, epoch = LeaderEpochFileCache(), [], 0
    for increment, count in steps:
        epoch += increment
        epochs.assign(epoch, len(written))
        written += [epoch] * count
    return epochs, written


@given(entries, st.integers(-1, 40))
def test_f3_l10_end_offset_is_where_the_next_larger_epoch_begins(
    steps: list[tuple[int, int]], asked: int
) -> None:
    epochs, written = build(steps)
    end = len(written)
    found = epochs.end_offset_for(asked, end)
    if not written or asked < 0 or asked > written[-1]:
        assert found == (-1, -1)
        return
    at_or_below = [epoch for epoch in written if epoch <= asked]
    floor = at_or_below[-1] if at_or_below else asked
    assert found == (floor, next((at for at, e in enumerate(written) if e > asked), end))


@given(entries, st.data())
def test_truncation_at_either_end_keeps_the_epochs_of_remaining_records(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    epochs, written = build(steps)
    end = data.draw(st.integers(0, len(written)))
    start = data.draw(st.integers(0, end))
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    for offset in range(start, end):
        assert epochs.epoch_for(offset) == written[offset]
    if start < end:
        assert epochs.entries()[0] == (written[start], start)
        assert epochs.latest == written[end - 1]


def test_a_contradicting_epoch_replaces_the_others() -> None:
    epochs = LeaderEpochFileCache([(1, 0), (3, 10), (5, 20)])
    assert epochs.assign(4, 20)
    assert epochs.entries() == [(1, 0), (3, 10), (4, 20)]
    assert epochs.assign(6, 5)
    assert epochs.entries() == [(1, 0), (6, 5)]
    assert not epochs.assign(6, 9)
    assert epochs.assign(6, 4), "as in Kafka, a lower start offset moves the start of the epoch"
    assert epochs.entries() == [(1, 0), (6, 4)]
    assert not epochs.assign(-1, 9)


def test_empty_later_epoch_does_not_move_the_start_of_the_epoch_before_it() -> None:
    """A leader of epoch 1 had no record and follows the leader of epoch 2, which still has records
    of epoch 0.
    """
    epochs = LeaderEpochFileCache([(0, 0), (1, 5)])
    assert epochs.assign(0, 5)
    assert epochs.entries() == [(0, 0)]
    assert epochs.end_offset_for(0, 8) == (0, 8)
