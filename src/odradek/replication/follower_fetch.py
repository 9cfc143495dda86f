"""A follower's fetch: the visit of the partitions with news, and the wait for appends.

The first read changes the positions of the follower. It visits the partitions that the request
names and those with news (`FollowerNews`). A fetch without enough bytes is delayed until an append,
a change of leadership or its timeout. An advance of the high watermark alone does not end the delay
(KAFKA-9952). The last read then visits the same partitions again, and the changed ones. It changes
no position.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Generic, TypeVar

from odradek.errors import KafkaError
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
from odradek.replication.delayed_fetch import (
    LEADER_ERRORS,
    DelayedFetch,
    FetchManager,
    FetchParams,
    LogRead,
    close_regions,
    refuse_replica,
)
from odradek.replication.fetch_data import FetchPartitionData
from odradek.results import PendingResult, Result
from odradek.slicing import Pause, sliced

if TYPE_CHECKING:
    from odradek.log.log_read import LogReadInfo
    from odradek.replication.follower_news import FollowerNews, SessionTarget
    from odradek.replication.partition import Partition

VISITS_PER_SLICE = 50
"""Partitions that are visited in one time slice. A visit costs more than a consumer's read, because
it moves the follower and copies records.
"""

RESPONSE_COPIES_BYTES_MAX = 1_048_576
"""Bytes of a response that are copied, rounded up to whole batches. The next fetch gets the rest.

A byte is copied three times on its path to the socket. For 1 MB this takes 2 to 3 ms when the
memory is new, and for 10 MB more than 15 ms. The first copy of a response has the limits of the
request only, which are 1 MB by default. So have regions, which are not copied.
"""

R = TypeVar("R")

FollowerData = list[tuple["SessionTarget", FetchPartitionData]]
"""The visited targets with their data."""


class FollowerRead(LogRead):
    """One pass over the partitions with news."""

    slice_elements = VISITS_PER_SLICE

    __slots__ = ("_copied_bytes", "_news", "_updates", "targets")

    def __init__(
        self,
        manager: FetchManager,
        params: FetchParams,
        news: FollowerNews,
        targets: list[SessionTarget],
        *,
        updates: bool,
    ) -> None:
        super().__init__(manager, params)
        self._news = news
        self._updates = updates
        self._copied_bytes = 0
        self.targets = targets

    def result(self) -> Result[FollowerData]:
        """Return the data. Partitions with records do not delay the others next time."""
        visited = list(zip(self.targets, self.data, strict=True))
        for target, data in visited:
            if data.region is not None or data.copied:
                self._news.visit_last(target)
        return Result(visited)

    def _read(  # type: ignore[override]  # the targets are those of a session
        self,
        target: SessionTarget,
        cold_result: Callable[[], LogReadInfo] | None = None,
    ) -> FetchPartitionData:
        partition = self._manager.find(target.topic, target.partition)
        news = self._news
        news.watch(target, partition)
        if partition is None:
            self.has_news = True
            news.visit(target)
            return self._missing(target.topic, target.partition)
        limit = min(target.max_bytes, self._params.max_bytes - self.size_bytes)
        if self._copied_bytes and target.fetch_offset >= partition.log.high_watermark:
            limit = min(limit, RESPONSE_COPIES_BYTES_MAX - self._copied_bytes)
        if self.size_bytes and cold_result is None and self._manager.is_out_of_files:
            self.has_news = True
            limit = 0
        try:
            replication = partition.replication
            if replication is None:
                refuse_replica(partition, target.leader_epoch)
            data = replication.fetch(
                news.replica_id,
                news.broker_epoch,
                target,
                limit,
                cold_result,
                updates=self._updates and cold_result is None,
            )
        except KafkaError as error:
            self.has_news = True
            news.visit(target)
            leader = (partition.leader, partition.leader_epoch)
            current_leader = leader if error.code in LEADER_ERRORS else None
            return FetchPartitionData(error=error.code, current_leader=current_leader)
        if data.region is not None:
            self.size_bytes += data.region.length
        else:
            copied_bytes = len(data.copied)
            self.size_bytes += copied_bytes
            self._copied_bytes += copied_bytes
        if data.diverging_epoch != UNDEFINED_EPOCH:
            self.has_news = True
            news.visit(target)
        elif self._has_more(partition, target) or (
            # The last read cannot correct an offset that another session has moved back.
            not self._updates and replication.state.offset_of(news.replica_id) < target.fetch_offset
        ):
            news.visit(target)
        return data

    def _has_more(self, partition: Partition, target: SessionTarget) -> bool:
        """Return whether the next fetch visits the partition even without a further change.

        A follower outside of the ISR may join it when its broker is unfenced, or when a proposal
        for another follower has ended.
        """
        return target.fetch_offset < partition.log.log_end_offset or not partition.is_in_isr(
            self._news.replica_id
        )


class DelayedFollowerFetch(DelayedFetch, Generic[R]):
    """A follower's fetch that waits. The news of the session report to it."""

    __slots__ = ("_first", "_follower_result", "_news", "_respond")

    def __init__(
        self,
        manager: FetchManager,
        params: FetchParams,
        news: FollowerNews,
        first: list[SessionTarget],
        respond: Callable[[FollowerData], Result[R]],
    ) -> None:
        super().__init__(manager, params, [])
        self._news = news
        self._first = first
        self._respond = respond
        self._follower_result: PendingResult[R] = PendingResult(on_cancel=self.cancel)

    def wait_for_news(self, size_bytes: int) -> Result[R]:
        """Return the response to the next read. The first one has found `size_bytes`."""
        news = self._news
        if news.waiting is not None:
            # A second fetch of the session is refused for its epoch. This one has been given up.
            news.waiting.interrupt()
        news.waiting = self
        self.appended(size_bytes + news.unread_bytes)
        if news.is_interrupted:
            self.interrupt()
        return self._follower_result

    def release(self) -> None:
        super().release()
        if self._news.waiting is self:
            self._news.waiting = None

    def on_complete(self) -> None:
        try:
            last_read = sliced(self._read_last())
        except Exception as error:  # noqa: BLE001 - as in `DelayedFetch`
            self._follower_result.fail(error)
        else:
            self._follower_result.follow(last_read.chain(self._respond))

    def _read_last(self) -> Generator[Pause, None, Result[FollowerData]]:
        news = self._news
        targets = list(dict.fromkeys((*self._first, *news.take(len(self._first)))))
        read = FollowerRead(self._manager, self._params, news, targets, updates=False)
        yield from read.in_slices(targets)
        return read.result()


def fetch_for_follower(
    manager: FetchManager,
    params: FetchParams,
    news: FollowerNews,
    respond: Callable[[FollowerData], Result[R]],
) -> Generator[Pause, None, Result[R]]:
    """Visit the partitions with news, in time slices. Wait and visit again without enough data.

    `respond` returns the response to the data of the last visit.
    """
    targets = news.take()
    is_cut = news.is_cut
    read = FollowerRead(manager, params, news, targets, updates=True)
    yield from read.in_slices(targets)
    if read.size_bytes >= params.min_bytes or read.has_news or is_cut or params.max_wait_ms <= 0:
        return read.result().chain(respond)
    close_regions(read.data)
    delayed = DelayedFollowerFetch(manager, params, news, targets, respond)
    manager.fetches.watch(delayed, params.max_wait_ms)
    return delayed.wait_for_news(read.size_bytes)
