"""Fetch sessions by the rules of KIP-227: epochs, remembered partitions and eviction."""

from __future__ import annotations

import itertools

import pytest

from odradek.broker.requests.fetch_sessions import (
    EVICTION_AGE_MS,
    TOPIC_NAME_BYTES_MAX,
    FetchPartition,
    FetchSessionCache,
)
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.protocol.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
)


def requested(*partitions: int, offset: int = 0, topic: str = "t") -> list[FetchPartition]:
    return [FetchPartition(topic, partition, offset, 1024) for partition in partitions]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> FetchSessionCache:
    numbers = itertools.count(1)
    return FetchSessionCache(2, clock, lambda low, high: next(numbers))


def test_only_a_full_request_with_epoch_zero_may_open_a_session(cache: FetchSessionCache) -> None:
    assert cache.context(0, INITIAL_EPOCH, False, requested(0), []).create_session
    assert not cache.context(0, FINAL_EPOCH, False, requested(0), []).create_session


def test_incremental_request_reads_all_partitions_of_the_session(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0, 1, 2), False)
    context = cache.context(session_id, 1, False, requested(1, offset=7), [("t", 2)])
    assert context.error is ErrorCode.NONE
    assert [(each.partition, each.fetch_offset) for each in context.partitions] == [(0, 0), (1, 7)]


def test_epoch_counts_requests_and_wraps_to_one(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0), False)
    assert cache.context(session_id, 1, False, [], []).error is ErrorCode.NONE
    assert cache.context(session_id, 2, False, [], []).epoch == 3
    cache.sessions[session_id].epoch = EPOCH_MAX
    assert cache.context(session_id, EPOCH_MAX, False, [], []).epoch == 1


def test_repeated_or_skipped_epoch_is_an_error(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0), False)
    assert cache.context(session_id, 1, False, [], []).error is ErrorCode.NONE
    for epoch in (1, 3):
        error = cache.context(session_id, epoch, False, [], []).error
        assert error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_unknown_session_is_an_error(cache: FetchSessionCache) -> None:
    assert cache.context(99, 1, False, [], []).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_full_request_closes_the_session_it_names(cache: FetchSessionCache, epoch: int) -> None:
    session_id = cache.create(requested(0), False)
    cache.context(session_id, epoch, False, requested(0), [])
    assert cache.context(session_id, 1, False, [], []).error is (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_session_uses_either_topic_ids_or_names(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0), True)
    assert cache.context(session_id, 1, False, [], []).error is (
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )


def test_session_that_forgets_everything_is_closed(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0), False)
    context = cache.context(session_id, 1, False, [], [("t", 0)])
    assert (context.error, context.partitions, context.session) == (ErrorCode.NONE, [], None)
    assert not cache.sessions


def test_partition_named_twice_is_read_once_with_the_last_offset(cache: FetchSessionCache) -> None:
    context = cache.context(0, FINAL_EPOCH, False, requested(0) + requested(0, offset=5), [])
    assert [each.fetch_offset for each in context.partitions] == [5]


def test_full_cache_refuses_new_sessions_while_all_are_young(cache: FetchSessionCache) -> None:
    assert cache.create(requested(0), False)
    assert cache.create(requested(0), False)
    assert cache.create(requested(0, 1, 2), False) == INVALID_SESSION_ID


def test_session_unused_for_long_is_replaced_first(
    cache: FetchSessionCache, clock: ManualClock
) -> None:
    used = cache.create(requested(0), False)
    unused = cache.create(requested(0, 1, 2), False)
    clock.advance(EVICTION_AGE_MS)
    cache.context(used, 1, False, [], [])
    clock.advance(1)
    new = cache.create(requested(0), False)
    assert new != INVALID_SESSION_ID
    assert set(cache.sessions) == {used, new}
    assert unused not in cache.sessions


def test_larger_session_replaces_the_smallest_old_one(
    cache: FetchSessionCache, clock: ManualClock
) -> None:
    small = cache.create(requested(0, 1), False)
    large = cache.create(requested(0, 1, 2), False)
    clock.advance(EVICTION_AGE_MS)
    for session_id in (small, large):
        cache.context(session_id, 1, False, [], [])
    clock.advance(1)
    assert cache.create(requested(0, 1), False) == INVALID_SESSION_ID
    new = cache.create(requested(0, 1, 2), False)
    assert set(cache.sessions) == {large, new}


def test_no_slots_means_no_sessions(clock: ManualClock) -> None:
    cache = FetchSessionCache(0, clock, lambda low, high: low)
    assert cache.create(requested(0), False) == INVALID_SESSION_ID


def test_partition_that_returned_records_moves_to_the_end(cache: FetchSessionCache) -> None:
    session_id = cache.create(requested(0, 1, 2), False)
    session = cache.context(session_id, 1, False, [], []).session
    assert session is not None
    session.move_to_end(session.partitions["t", 0])
    assert [key[1] for key in session.partitions] == [1, 2, 0]


def test_the_partitions_of_all_sessions_are_limited(
    cache: FetchSessionCache, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.requests.fetch_sessions.PARTITIONS_MAX", 5)
    first = cache.create(requested(0, 1, 2), False)
    assert cache.create(requested(0, 1, 2), False) == INVALID_SESSION_ID
    second = cache.create(requested(0, 1), False)
    assert cache.context(first, 1, False, [], [("t", 0)]).error is ErrorCode.NONE
    assert cache.context(second, 1, False, requested(2), []).error is ErrorCode.NONE
    grown = cache.context(second, 2, False, requested(3), [])
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.partition_count == 2
    clock.advance(EVICTION_AGE_MS + 1)
    assert cache.create(requested(0, 1, 2, 3), False)
    assert cache.partition_count == 4
    cache.context(next(iter(cache.sessions)), FINAL_EPOCH, False, [], [])
    assert cache.partition_count == 0


@pytest.mark.parametrize("name", ["t" * (TOPIC_NAME_BYTES_MAX + 1), "\u00e9"])
def test_too_long_topic_names_get_no_session(cache: FetchSessionCache, name: str) -> None:
    impossible = [FetchPartition(name, 0, 0, 1_000)]
    assert cache.create(impossible, False) == INVALID_SESSION_ID
    session_id = cache.create(requested(0), False)
    named = cache.context(session_id, 1, False, impossible, [])
    assert named.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not cache.sessions
    assert cache.partition_count == 0


def test_the_longest_name_of_a_topic_is_kept(cache: FetchSessionCache) -> None:
    longest = [FetchPartition("t" * TOPIC_NAME_BYTES_MAX, 0, 0, 1_000)]
    assert cache.create(longest, False) != INVALID_SESSION_ID
