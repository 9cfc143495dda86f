"""Fetches of followers: the partitions that a fetch visits, its order, and its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.log.follower_read import read_for_follower
from odradek.log.residency import NotResident
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.replication import follower_fetch, follower_news
from odradek.replication.delayed_fetch import FetchParams
from odradek.replication.fetch_data import FetchIsolation, FetchPartitionData
from odradek.replication.follower_fetch import DelayedFollowerFetch
from odradek.replication.follower_news import FollowerNews
from odradek.replication.purgatory import Purgatory
from odradek.replication.replication_state import ReplicationState
from odradek.result_tasks import wait
from odradek.results import Result
from tests.helpers.call_count import count_calls
from tests.replication.builders import apply
from tests.replication.cluster_fakes import (
    ALL,
    EPOCH,
    LAG_MS,
    LEADER,
    TOPIC_ID,
    A,
    B,
    Target,
    replication_of,
)
from tests.replication.leader_broker import Broker, Test, run_leader

LONG_MS = 60_000
# An append, and the visit of its partition that reads and copies the records.
FETCH_CALLS_MAX = 126


async def soon(
    result: Result[list[tuple[Target, FetchPartitionData]]],
) -> list[tuple[Target, FetchPartitionData]]:
    """Return the data of a fetch that does not wait for its timeout."""
    for _ in range(200):
        if result.done:
            return result.get()
        await asyncio.sleep(0)
    raise AssertionError("the fetch still waits")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    return partial(run_leader, tmp_path)


def test_partitions_without_news_are_not_visited(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        assert broker.visited(news) == [0, 1, 2]
        assert broker.visited(news) == []
        broker.append(1)
        assert broker.visited(news) == [1]
        assert broker.visited(news) == [1]  # until the follower has the records
        broker.follow(news, 1)
        assert broker.visited(news) == []

    run(test)


def test_high_watermark_and_log_start_are_news(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.fetch(a)
        broker.fetch(b)
        broker.append(2)
        broker.follow(a, 2)
        assert broker.visited(a) == []
        broker.follow(b, 2)
        ((target, data),) = broker.fetch(a).get()
        assert (target.partition, data.high_watermark) == (2, 1)
        broker.manager.delete_records(TopicPartition("t", 2), 1, 0)
        ((target, data),) = broker.fetch(a).get()
        assert (target.partition, data.log_start_offset) == (2, 1)
        assert broker.visited(a) == []

    run(test)


def test_follower_outside_of_the_isr_is_visited_until_it_joins(run: Callable[[Test], None]) -> None:
    """It could not join at its last visit, because its broker was fenced then."""

    async def test(broker: Broker) -> None:
        topic = broker.image.topics_by_id[TOPIC_ID]
        images = [replace(each, isr=(LEADER, B), partition_epoch=2) for each in topic.partitions]
        broker.set_topic(TopicImage(topic.name, TOPIC_ID, images))
        broker.cluster.change_broker(A, fenced=True)
        news = broker.news(A)
        broker.fetch(news)
        assert broker.cluster.proposals.sent == []
        broker.cluster.change_broker(A, fenced=False)
        assert broker.visited(news) == [0, 1, 2]
        assert len(broker.cluster.proposals.sent) == 3
        images = [replace(each, isr=ALL, partition_epoch=3) for each in topic.partitions]
        broker.set_topic(TopicImage(topic.name, TOPIC_ID, images))
        broker.fetch(news)
        assert broker.visited(news) == []

    run(test)


def test_visit_moves_the_position_before_it_reads(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.append()
        broker.targets[0].fetch_offset = 1
        b = broker.manager.partition("t", 0)
        replication_of(b).fetch(B, EPOCH, Target(1), 100, updates=True)
        ((_, data), *_) = broker.fetch(news).get()
        assert data.high_watermark == 1

    run(test)


def test_fetch_waits_for_an_append(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        result = broker.fetch(news, LONG_MS)
        assert not result.done
        broker.append(1)
        ((target, data),) = await soon(result)
        assert target.partition == 1
        assert data.copied

    run(test)


def test_high_watermark_alone_does_not_end_the_wait(run: Callable[[Test], None]) -> None:
    """Kafka tried it, and followers then sent twice as many fetches (KAFKA-9952)."""

    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.fetch(a)
        broker.fetch(b)
        broker.append()
        broker.follow(a)
        result = broker.fetch(a, LONG_MS)
        broker.follow(b)
        assert broker.manager.partition("t", 0).log.high_watermark == 1
        await asyncio.sleep(0)
        assert not result.done
        broker.append(1)
        visited = [target.partition for target, _ in await soon(result)]
        assert visited == [0, 1]

    run(test)


def test_news_of_the_first_read_are_in_the_response_of_the_last(
    run: Callable[[Test], None],
) -> None:
    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.fetch(a)
        broker.fetch(b)
        broker.append()
        broker.follow(a)
        broker.follow(b)
        result = broker.fetch(a, LONG_MS)
        assert not result.done
        broker.append(1)
        data = {target.partition: data for target, data in await soon(result)}
        assert data[0].high_watermark == 1
        assert data[1].copied

    run(test)


def test_delayed_read_moves_no_position(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.fetch(b)
        result = broker.fetch(a, LONG_MS)
        partition = broker.manager.partition("t", 0)
        state = replication_of(partition).state
        follower = state.followers[0]
        before = follower.last_fetch_ms
        broker.cluster.clock.advance(5)
        broker.append()
        await soon(result)
        assert follower.last_fetch_ms == before

    run(test)


def test_new_leader_epoch_ends_the_wait_with_an_error(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        result = broker.fetch(news, LONG_MS)
        broker.elect(6)
        codes = {data.error for _, data in await soon(result)}
        assert codes == {ErrorCode.FENCED_LEADER_EPOCH}

    run(test)


def test_append_during_the_first_read_is_not_missed(run: Callable[[Test], None]) -> None:
    """The first read takes several time slices, and a partition of the first one gets records."""

    async def test(broker: Broker) -> None:
        news = broker.news()
        result = broker.fetch(news, LONG_MS)
        assert not result.executed
        broker.append(0)
        data = {target.partition: data for target, data in await soon(result)}
        assert data[0].copied

    run(test, partitions=250)  # type: ignore[call-arg]


def test_deleted_topic_is_reported_and_no_longer_watched(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        result = broker.fetch(news, LONG_MS)
        partition = broker.manager.partition("t", 0)
        apply(broker.manager, broker.image, MetadataImage(offset=9))
        codes = {data.error for _, data in await soon(result)}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_ID}
        assert not partition.followers

    run(test)


def test_closed_session_of_many_partitions_stops_watching_in_slices(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_news, "ENDS_PER_SLICE", 4)

    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        news.close()

        def watched() -> int:
            found = (broker.manager.partition("t", number) for number in range(10))
            return sum(len(each.followers) for each in found)

        counts = [watched()]
        broker.append(9)  # a report between two slices changes nothing
        while counts[-1]:
            await asyncio.sleep(0)
            counts.append(watched())
        assert list(dict.fromkeys(counts)) == [6, 2, 0]

    run(test, partitions=10)


def test_closed_session_ends_its_wait_and_watches_nothing(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        news.visit(broker.targets[0])
        result = broker.fetch(news, LONG_MS)
        news.close()
        await soon(result)
        assert not broker.manager.partition("t", 0).followers

    run(test)


def test_max_bytes_is_shared_and_the_rest_is_visited_next(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        for partition in range(3):
            broker.append(partition)
        params = FetchParams(FetchIsolation.LOG_END, A, 1, 1, 0)
        data = broker.manager.fetch_for_follower(params, news, Result).get()
        assert [bool(each.copied) for _, each in data] == [True, False, False]
        assert broker.visited(news) == [1, 2, 0]

    run(test)


def test_copied_bytes_have_a_limit_and_the_rest_is_visited_next(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        for partition in range(3):
            broker.append(partition)
        first = broker.fetch(news).get()
        size = len(first[0][1].copied)
        assert [len(each.copied) for _, each in first] == [size] * 3
        monkeypatch.setattr(follower_fetch, "RESPONSE_COPIES_BYTES_MAX", 2 * size)
        for target in broker.targets:
            news.visit(target)
        data = broker.fetch(news).get()
        assert [(target.partition, len(each.copied)) for target, each in data] == [
            (0, size),
            (1, size),
            (2, 0),
        ]
        assert broker.visited(news) == [2, 0, 1]

    run(test)


def test_regions_after_a_copy_are_not_limited_as_copies_are(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.append()
        for _ in range(3):
            broker.append(1)
        broker.append(2)
        size = len(broker.fetch(a).get()[0][1].copied)
        for news in (a, b):
            broker.follow(news, 1)
        broker.targets[1].fetch_offset = 0  # the follower has lost the records
        monkeypatch.setattr(follower_fetch, "RESPONSE_COPIES_BYTES_MAX", size)
        news = broker.news(A)
        (_, first), (_, second), (_, third) = broker.fetch(news).get()
        assert (len(first.copied), len(third.copied)) == (size, 0)
        assert second.region is not None and second.region.length == 3 * size
        second.region.close()

    run(test)


def test_fetch_of_an_old_process_counts_for_no_partition(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news(A, EPOCH - 1)
        codes = {data.error for _, data in broker.fetch(news).get()}
        assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert news.last_fetch_ms < 0

    run(test)


def test_follower_of_idle_partitions_stays_in_the_isr(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        for _ in range(10):
            broker.fetch(a)
            broker.fetch(b)
            broker.cluster.clock.advance(LAG_MS)
        broker.append()
        replication_of(broker.manager.partition("t", 0)).check_followers()
        assert broker.cluster.proposals.sent == []
        broker.cluster.clock.advance(LAG_MS)
        broker.fetch(a)
        replication_of(broker.manager.partition("t", 0)).check_followers()
        (_, proposal) = broker.cluster.proposals.sent[0]
        assert [broker for broker, _ in proposal.isr] == [LEADER]

    run(test)


@pytest.mark.parametrize("idle", [3, 2_000])
def test_calls_of_a_fetch_do_not_depend_on_idle_partitions(
    run: Callable[..., None], idle: int
) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        await wait(broker.fetch(news))

        def fetch() -> None:
            broker.append(1)
            assert broker.visited(news) == [1]

        fetch()
        assert count_calls(fetch).total <= FETCH_CALLS_MAX

    run(test, partitions=idle)


def test_partition_with_many_records_does_not_starve_the_others(
    run: Callable[[Test], None],
) -> None:
    async def test(broker: Broker) -> None:
        news, served = broker.news(), []
        for partition in (0, 1, 2) * 2:
            broker.append(partition)
        params = FetchParams(FetchIsolation.LOG_END, A, 1, 1, 0)
        for _ in range(6):
            for target, data in broker.manager.fetch_for_follower(params, news, Result).get():
                if data.copied:
                    served.append(target.partition)
                    broker.targets[target.partition].fetch_offset += 1
                    news.visit(target)
        assert served == [0, 1, 2, 0, 1, 2]

    run(test)


def test_errors_and_divergences_are_reported_until_they_end(run: Callable[[Test], None]) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.append(1)
        broker.fetch(news)
        broker.elect(6)
        for _ in range(2):
            codes = [data.error for _, data in broker.fetch(news).get()]
            assert codes == [ErrorCode.FENCED_LEADER_EPOCH] * 3
        for target in broker.targets:
            target.leader_epoch = 6
        broker.targets[1].fetch_offset, broker.targets[1].last_fetched_epoch = 2, 5
        assert sorted(broker.visited(news)) == [0, 1, 2]
        for _ in range(2):
            ((_, data),) = broker.fetch(news).get()
            assert (data.diverging_epoch, data.diverging_end_offset) == (5, 1)

    run(test)


def test_partition_that_fails_during_the_first_read_ends_the_wait(
    run: Callable[..., None],
) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        result = broker.fetch(news, LONG_MS)
        assert not result.executed
        broker.manager.partition("t", 0).storage_failed()
        data = {target.partition: data for target, data in await soon(result)}
        assert data[0].error is ErrorCode.KAFKA_STORAGE_ERROR

    run(test, partitions=250)


def test_cold_read_moves_the_follower_once(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.append()
        state = replication_of(broker.manager.partition("t", 0)).state
        moved = []

        def follower_fetched(*arguments: Any) -> Any:
            moved.append(arguments[0])
            return fetched(*arguments)

        def read(*arguments: Any, wait: bool) -> Any:
            if not wait:
                raise NotResident
            return read_for_follower(*arguments, wait=True)

        fetched = ReplicationState.follower_fetched
        monkeypatch.setattr(ReplicationState, "follower_fetched", follower_fetched)
        monkeypatch.setattr("odradek.replication.leader_replication.read_for_follower", read)
        data = {target.partition: data for target, data in await wait(broker.fetch(news))}
        assert data[0].copied
        assert moved.count(state) == 1

    run(test)


def test_fetch_visits_a_limited_number_of_changed_partitions(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are visited next, and none of them is starved."""
    monkeypatch.setattr(follower_news, "CHANGES_A_FETCH_MAX", 4)

    async def test(broker: Broker) -> None:
        news = broker.news()
        assert broker.visited(news) == list(range(10)), "a full fetch returns all partitions"
        for number in range(10):
            broker.append(number)
        found = broker.fetch(news, wait_ms=LONG_MS)
        assert [target.partition for target, _ in found.get()] == [0, 1, 2, 3]
        broker.append(0)
        assert broker.visited(news) == [4, 5, 6, 7]
        assert broker.visited(news) == [8, 9, 0, 1]

    run(test, partitions=10)


def test_fetch_that_leaves_changed_partitions_does_not_wait(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_news, "CHANGES_A_FETCH_MAX", 2)

    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        for number in range(3):
            broker.manager.partition("t", number)
            news.visit(broker.targets[number])
        assert broker.fetch(news, wait_ms=LONG_MS).done
        waiting = broker.fetch(news, wait_ms=LONG_MS)
        assert not waiting.done, "all were visited, and no record came"
        waiting.cancel()

    run(test, partitions=3)


def test_last_read_of_a_fetch_visits_a_limited_number_of_partitions(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_news, "CHANGES_A_FETCH_MAX", 3)

    async def test(broker: Broker) -> None:
        news = broker.news()
        broker.fetch(news)
        for number in range(2):
            news.visit(broker.targets[number])
        waiting = broker.fetch(news, wait_ms=LONG_MS)
        for number in range(2, 6):
            broker.append(number)
        assert [target.partition for target, _ in await soon(waiting)] == [0, 1, 2]
        assert [target.partition for target, _ in broker.fetch(news).get()] == [3, 4, 5]

    run(test, partitions=6)


def visit_late(broker: Broker) -> None:
    """Have another session of A visit the partition with an old offset."""
    news = FollowerNews(A, EPOCH)
    news.visit(Target(0, 5))
    broker.fetch(news)
    assert replication_of(broker.manager.partition("t", 0)).state.offset_of(A) == 0


def test_i3_offset_that_a_late_fetch_of_another_session_moved_back_is_corrected(
    run: Callable[..., None],
) -> None:
    """The session of the newer offset has no other reason to visit the partition."""

    async def test(broker: Broker) -> None:
        a, b = broker.news(A), broker.news(B)
        broker.fetch(a)
        broker.fetch(b)
        broker.append()
        broker.follow(a)
        visit_late(broker)
        assert broker.visited(a) == [0]
        broker.follow(b)
        assert broker.manager.partition("t", 0).log.high_watermark == 1
        broker.fetch(a)
        broker.fetch(b)
        assert (broker.visited(a), broker.visited(b)) == ([], [])

    run(test)


def test_late_fetch_of_another_session_ends_the_wait_of_the_session_with_the_newer_offset(
    run: Callable[..., None],
) -> None:
    async def test(broker: Broker) -> None:
        a = broker.news(A)
        broker.fetch(a)
        broker.append()
        broker.follow(a)
        result = broker.fetch(a, LONG_MS)
        assert not result.done
        visit_late(broker)
        await soon(result)
        assert broker.visited(a) == [0]
        assert replication_of(broker.manager.partition("t", 0)).state.offset_of(A) == 1
        assert broker.visited(a) == []

    run(test)


def test_follower_that_has_lost_records_moves_back_in_its_session(run: Callable[..., None]) -> None:
    async def test(broker: Broker) -> None:
        a = broker.news(A)
        broker.fetch(a)
        broker.append()
        broker.follow(a)
        broker.targets[0].fetch_offset = 0
        a.visit(broker.targets[0])
        waiting = broker.fetch(a, LONG_MS)
        assert waiting.get()[0][1].copied
        state = replication_of(broker.manager.partition("t", 0)).state
        assert state.offset_of(A) == 0
        broker.follow(a)
        assert state.offset_of(A) == 1
        assert broker.visited(a) == []

    run(test)


class UnreadableManager:
    """A manager whose partitions cannot be read, for lack of memory."""

    clock = ManualClock()
    is_out_of_files = False

    def __init__(self) -> None:
        self.fetches = Purgatory(asyncio.get_running_loop(), LoopTimers())

    def find(self, topic: str, partition: int) -> None:
        raise MemoryError("no memory")


def test_delayed_fetch_whose_last_read_fails_ends_with_the_error() -> None:
    async def main() -> None:
        manager: Any = UnreadableManager()
        params = FetchParams(FetchIsolation.LOG_END, A, 1, 1 << 20, LONG_MS)
        news = FollowerNews(A, EPOCH)
        delayed = DelayedFollowerFetch(manager, params, news, [Target(0)], Result)
        manager.fetches.watch(delayed, LONG_MS)
        result = delayed.wait_for_news(0)
        delayed.appended(1)
        await asyncio.sleep(0)
        with pytest.raises(MemoryError):
            result.get()
        assert news.waiting is None and not manager.fetches.waiting

    asyncio.run(main())
