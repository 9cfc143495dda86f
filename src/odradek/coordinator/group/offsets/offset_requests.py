"""The requests that concern a group's offsets, and deletion by age, topic or administrator.

The shell around `offsets`, `commits` and `removal`: it finds the shard, asks the pure functions for
records and a response, appends through the runtime, and answers when that is committed. Owned by
the event loop, as the coordinator that made it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.coordinator.futures import mapped_done
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.group.offsets import offset_removal as removal
from odradek.coordinator.group.offsets.offset_commits import (
    Commit,
    Terms,
    plain_commit,
    transactional_commit,
)
from odradek.coordinator.group.offsets.offset_store import (
    validate_commit,
    validate_transactional_commit,
)
from odradek.coordinator.group.response_codes import response_code
from odradek.coordinator.runtime import CoordinatorRecord, CoordinatorRuntime, Producer
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

if TYPE_CHECKING:
    from odradek.coordinator.group.group_coordinator import GroupCoordinator

logger = logging.getLogger(__name__)

T = TypeVar("T")
C = TypeVar("C", OffsetCommitResponse, TxnOffsetCommitResponse)
# One record batch holds so many tombstones; a million offsets may expire at once.
TOMBSTONES_MAX = 1_000
# So many groups are looked at for expired offsets before others are served.
GROUPS_AT_ONCE_MAX = 100


class GroupOffsets:
    """Serves what concerns offsets for one group coordinator.

    `terms` says what a commit is judged by now; `retention_ms` how long offsets are kept.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        runtime: CoordinatorRuntime[GroupShard],
        terms: Callable[[], Terms],
        retention_ms: Callable[[], int],
        append_marker: Callable[..., Any] | None,
    ) -> None:
        self._coordinator = coordinator
        self._runtime = runtime
        self._terms = terms
        self._retention_ms = retention_ms
        self._append_marker = append_marker

    # -- commits -----------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, version: int
    ) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
        """OffsetCommit: answered when the offsets are committed to the log."""
        shard = group = None
        try:
            shard = self._coordinator.shard_of(request.group_id)
            group = shard.groups.get(request.group_id)
            code = validate_commit(group, request, version)
        except KafkaError as error:
            code = response_code(error.code)
        commit = plain_commit(request, code, self._terms())
        if shard is None or code is not ErrorCode.NONE or not commit.records:
            return commit.response
        if request.member_id:
            self._coordinator.keep_session(group, request.member_id)
        return self._store(shard, commit, None)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, guard: int
    ) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
        """TxnOffsetCommit, its transaction being verified with `guard`: the offsets are pending
        when this is answered, and count from the transaction's marker on."""
        shard = None
        try:
            shard = self._coordinator.shard_of_members(request.group_id)
            code = validate_transactional_commit(shard.groups.get(request.group_id), request)
        except KafkaError as error:
            code = response_code(error.code)
        commit = transactional_commit(request, code, self._terms())
        if shard is None or code is not ErrorCode.NONE or not commit.records:
            return commit.response
        producer = Producer(request.producer_id, request.producer_epoch, guard)
        return self._store(shard, commit, producer)

    def refuse_transactional(
        self, request: TxnOffsetCommitRequest, code: ErrorCode
    ) -> TxnOffsetCommitResponse:
        """The answer when the transaction does not take part with this group, because of `code`."""
        return transactional_commit(request, code, self._terms()).response

    def _store(
        self, shard: GroupShard, commit: Commit[C], producer: Producer | None
    ) -> C | asyncio.Future[C]:
        try:
            committed = self._runtime.write(shard.partition, commit.records, producer)
        except KafkaError as error:
            return commit.failed(response_code(error.code))
        return commit.response if committed is None else after(committed, commit.failed)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
    ) -> asyncio.Future[None] | None:
        """Appends a transaction's marker to a partition of ``__consumer_offsets``, and lets its
        pending offsets count, or forgets them. None says that the marker is committed; the future
        ends when it is. Raises KafkaError when it was not appended."""
        self._coordinator.require_active()
        append = self._append_marker
        assert append is not None, "this coordinator serves no transactions"
        place = self._coordinator.offsets_partition(partition)
        return self._runtime.end_transaction(
            partition,
            producer_id,
            committed,
            lambda: append(place, producer_id, producer_epoch, coordinator_epoch, committed),
        )

    # -- removal -----------------------------------------------------------------------------------

    def delete(
        self, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse | asyncio.Future[OffsetDeleteResponse]:
        """OffsetDelete: answered when the offsets are forgotten for good."""
        try:
            shard = self._coordinator.shard_of_members(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=response_code(error.code))
        response, records = removal.delete_offsets(shard, request)
        return self._remove(
            shard,
            records,
            lambda code: OffsetDeleteResponse(error_code=code) if code else response,
        )

    def delete_group(
        self, group_id: str
    ) -> DeletableGroupResult | asyncio.Future[DeletableGroupResult]:
        """DeleteGroups for one group: answered when it is gone for good."""
        try:
            shard = self._coordinator.shard_of(group_id)
        except KafkaError as error:
            return DeletableGroupResult(group_id, response_code(error.code))
        code, records = removal.delete_group(shard, group_id)
        if code is not ErrorCode.NONE:
            return DeletableGroupResult(group_id, code)
        logger.info("group %s is deleted with %d records", group_id, len(records))
        return self._remove(shard, records, lambda code: DeletableGroupResult(group_id, code))

    def _remove(
        self, shard: GroupShard, records: list[CoordinatorRecord], then: Callable[[ErrorCode], T]
    ) -> T | asyncio.Future[T]:
        """Appends tombstones; `then` answers with how that ended."""
        try:
            committed = self._write_all(shard, records)
        except KafkaError as error:
            return then(response_code(error.code))
        return then(ErrorCode.NONE) if committed is None else after(committed, then)

    def _write_all(
        self, shard: GroupShard, records: list[CoordinatorRecord]
    ) -> asyncio.Future[None] | None:
        """Appends tombstones in batches; what is committed last is committed with all before."""
        committed = None
        for first in range(0, len(records), TOMBSTONES_MAX):
            part = records[first : first + TOMBSTONES_MAX]
            committed = self._runtime.write(shard.partition, part)
        return committed

    def forget_topics(self, topics: Sequence[str]) -> None:
        """Deleted topics leave no committed offsets behind: a new topic of that name starts
        afresh."""
        for shard in self._runtime.shards():
            records = shard.offsets.tombstones(topics)
            try:
                self._write_all(shard, records)
            except KafkaError as error:
                logger.error("cannot forget the offsets of %s: %s", topics, error)

    async def expire(self) -> None:
        """Removes what is past ``offsets.retention.minutes``: some groups at a time, so that
        requests are served in between."""
        for shard in self._runtime.shards():
            group_ids = list(shard.groups)
            for first in range(0, len(group_ids), GROUPS_AT_ONCE_MAX):
                self._expire_some(shard, group_ids[first : first + GROUPS_AT_ONCE_MAX])
                await asyncio.sleep(0)

    def _expire_some(self, shard: GroupShard, group_ids: list[str]) -> None:
        now_ms = self._terms().now_ms
        records = removal.expire(shard, group_ids, now_ms, self._retention_ms())
        try:
            if records and self._runtime.serves(shard.partition, shard):
                self._write_all(shard, records)
                logger.info("shard %d: %d offsets, groups expired", shard.partition, len(records))
        except KafkaError as error:
            logger.error("shard %d: offsets cannot expire: %s", shard.partition, error)


def after(committed: asyncio.Future[None], then: Callable[[ErrorCode], T]) -> asyncio.Future[T]:
    """A future of `then(code)`, where `code` says how the commit ended."""

    def finish(done: asyncio.Future[None]) -> T:
        error = ErrorCode.NOT_COORDINATOR if done.cancelled() else ErrorCode.NONE
        if not done.cancelled() and isinstance(failure := done.exception(), KafkaError):
            error = response_code(failure.code)
        return then(error)

    return mapped_done(committed, finish)
