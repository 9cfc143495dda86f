"""Decisions of a follower: truncation, responses, out-of-range offsets. Rules F10 to F12."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.replication.follower_decisions import (
    FetchPosition,
    Restart,
    Truncation,
    accepts_response,
    begins_inside_batch,
    restart_for,
    truncation_for,
)


def cache_of(log: list[int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache()
    for offset, epoch in enumerate(log):
        cache.assign(epoch, offset)
    return cache


def test_f10_follower_truncates_to_the_leaders_end_of_a_shared_epoch() -> None:
    follower = cache_of([1, 1, 1, 1])
    assert truncation_for(follower, 4, 1, 2) == Truncation(2, complete=True)


def test_f10_follower_truncates_to_its_own_end_of_a_shared_epoch() -> None:
    follower = cache_of([1, 1, 2, 2])
    assert truncation_for(follower, 4, 1, 3) == Truncation(2, complete=True)


def test_f10_follower_without_the_epoch_truncates_to_a_smaller_one_and_asks_again() -> None:
    """KIP-279: both logs have an epoch that the other one lacks."""
    follower = cache_of([0, 2, 2])
    assert truncation_for(follower, 3, 1, 4) == Truncation(1, complete=False)


def test_f10_follower_whose_epochs_are_all_larger_removes_them() -> None:
    follower = cache_of([3, 3])
    assert truncation_for(follower, 2, 1, 1) == Truncation(0, complete=True)


def test_f10_follower_without_epochs_truncates_to_the_leaders_end() -> None:
    assert truncation_for(LeaderEpochFileCache(), 5, 1, 3) == Truncation(3, complete=True)


epochs = st.lists(st.integers(0, 5), max_size=8).map(sorted)


@given(shared=epochs, data=st.data())
def test_f4_f10_truncation_ends_at_the_common_prefix(
    shared: list[int], data: st.DataObject
) -> None:
    """Two logs with a common prefix, after which no epoch is in both, in the follower's fetches."""
    last = shared[-1] if shared else 0
    after = st.lists(st.integers(last + 1, 12), max_size=5).map(sorted)
    leader_tail = data.draw(after)
    follower_tail = [each for each in data.draw(after) if each not in leader_tail]
    leader, follower = [*shared, *leader_tail, 13], [*shared, *follower_tail]
    rounds = 0
    while follower:
        found, end = cache_of(leader).end_offset_for(follower[-1], len(leader))
        if found == follower[-1] and end >= len(follower):
            break
        cut = truncation_for(cache_of(follower), len(follower), found, end)
        assert cut.offset < len(follower), "each round makes the log shorter"
        assert cut.offset >= len(shared), "no record of the common prefix is removed"
        follower = follower[: cut.offset]
        rounds += 1
    assert follower == shared[: len(follower)]
    assert len(follower) >= len(shared)
    assert rounds <= len(set(follower_tail)) + 1


def test_f5_f11_response_to_an_earlier_state_is_dropped() -> None:
    sent = FetchPosition(leader_epoch=4, fetch_offset=10, last_fetched_epoch=3)
    assert accepts_response(sent, FetchPosition(4, 10, 3))
    assert not accepts_response(sent, FetchPosition(5, 10, 3))
    assert not accepts_response(sent, FetchPosition(4, 12, 3))
    assert not accepts_response(sent, FetchPosition(4, 10, 2))


def test_f5_f12_follower_above_the_leaders_end_truncates_to_it() -> None:
    assert restart_for(10, 2, 7) == Restart(7, truncate_fully=False)


def test_f12_follower_below_the_leaders_start_begins_again_there() -> None:
    assert restart_for(3, 5, 20) == Restart(5, truncate_fully=True)


def test_f12_follower_inside_the_leaders_log_fetches_from_its_end() -> None:
    assert restart_for(10, 5, 20) == Restart(10, truncate_fully=False)
    assert restart_for(5, 5, 20) == Restart(5, truncate_fully=False)


def test_f12_log_is_emptied_for_a_batch_of_the_leader_only_if_no_record_is_lost() -> None:
    assert begins_inside_batch(5, 5, 0)
    assert begins_inside_batch(0, 5, 5)
    assert begins_inside_batch(0, 5, 6)
    assert not begins_inside_batch(0, 5, 4)
    assert not begins_inside_batch(4, 5, 4)
