"""Requests about the offsets of groups, and deletion by age, topic or administrator.

`OffsetRequests` finds the shard of a request. The pure functions of `offsets` and `offset_removal`
return a result, and the runtime performs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from odradek.config.broker import BrokerConfig
from odradek.coordinator.coordinator_result import (
    CoordinatorResult,
    TransactionalProducer,
    response_code,
)
from odradek.coordinator.group import offset_removal as removal
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.coordinator.group.group_shards import GroupShards
from odradek.coordinator.group.offsets.offset_block import OffsetBlock
from odradek.coordinator.group.offsets.offset_commits import (
    CommitContext,
    commit_failed,
    comparing_topics,
    making_commit,
    plain_commit,
    transactional_commit,
)
from odradek.coordinator.group.offsets.offset_store import (
    validate_commit,
    validate_transactional_commit,
)
from odradek.coordinator.group.pending_removals import PendingRemoval
from odradek.coordinator.led_partitions import MarkedPartitions
from odradek.coordinator.runtime import CoordinatorRuntime
from odradek.coordinator.shard_lifecycle import NOT_LED
from odradek.coordinator.slice_limits import SliceLimits
from odradek.environment.clock import Clock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.results import Result
from odradek.slicing import begin, in_slices, run_to_completion, sliced

logger = logging.getLogger(__name__)

Q = TypeVar("Q", OffsetCommitRequest, TxnOffsetCommitRequest)
R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)
# Comparisons of a commit's topics with newer metadata in time slices. The next one is not divided.
COMPARISONS_MAX = 5


class OffsetRequests:
    """The requests about offsets of one group coordinator. Owned by the event loop.

    `keep_session` begins the session of a member again when it commits.
    """

    def __init__(
        self,
        shards: GroupShards,
        runtime: CoordinatorRuntime[GroupShard],
        config: BrokerConfig,
        clock: Clock,
        keep_session: Callable[[GroupShard, Group | None, str], None],
        partitions: MarkedPartitions,
    ) -> None:
        self._shards = shards
        self._runtime = runtime
        self._config = config
        self._clock = clock
        self._keep_session = keep_session
        self._partitions = partitions
        self._metadata_max = config.get_int("offset.metadata.max.bytes")
        # By partition that is still loading: the topics that were deleted in the meantime, and the
        # leader epoch in which this broker coordinated the partition then.
        self._deleted_topics: dict[int, dict[str, int]] = {}
        # The deleted topics whose offsets are being removed, and the work that removes them.
        self._forgotten: list[tuple[Sequence[str], Generator[None, None, None]]] = []
        # The image with which `_forgotten` was compared last.
        self._compared: MetadataImage | None = None

    def _context(self) -> CommitContext:
        return CommitContext(self._shards.image(), self._clock.time_ms(), self._metadata_max)

    # -- commits -----------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, version: int) -> Result[OffsetCommitResponse]:
        """Handle OffsetCommit. The result is done when the records are committed."""
        if self._forgotten:
            self._finish_before_commit()
        shard = group = None
        try:
            shard = self._shards.of(request.group_id)
            group = shard.groups.get(request.group_id)
            code = validate_commit(group, request, version)
        except KafkaError as error:
            code = response_code(error.code)
        # Not by a call of `_context`: the calls of a commit are pinned.
        context = CommitContext(self._shards.image(), self._clock.time_ms(), self._metadata_max)
        result = plain_commit(request, code, context)
        if shard is None or code is not ErrorCode.NONE or not result.records:
            return Result(result.response)
        if request.member_id:
            self._keep_session(shard, group, request.member_id)
        return self._runtime.write(shard.partition, result, partial(commit_failed, result.response))

    def commit_in_slices(
        self, request: OffsetCommitRequest, version: int
    ) -> Result[OffsetCommitResponse]:
        """Handle an OffsetCommit of many partitions, as `commit`, in time slices."""

        def validate() -> ErrorCode:
            group = self._shards.of(request.group_id).groups.get(request.group_id)
            return validate_commit(group, request, version)

        def write(
            block: OffsetBlock, response: OffsetCommitResponse
        ) -> Result[OffsetCommitResponse]:
            shard = self._shards.of(request.group_id)
            if request.member_id:
                group = shard.groups.get(request.group_id)
                self._keep_session(shard, group, request.member_id)
            failed = partial(commit_failed, response)
            return self._runtime.write_block(shard.partition, block, response, failed)

        unsliced = partial(self.commit, request, version)
        return sliced(self._committing(request, plain_commit, validate, write, unsliced))

    def _committing(
        self,
        request: Q,
        decide: Callable[[Q, ErrorCode, CommitContext], CoordinatorResult[R]],
        validate: Callable[[], ErrorCode],
        write: Callable[[OffsetBlock, R], Result[R]],
        unsliced: Callable[[], Result[R]],
    ) -> Generator[None, None, Result[R]]:
        """Make the records of a long commit in time slices, then write them as one batch.

        Group, member and topics may change between two slices, so they are checked again in the
        slice of the write.

        Args:
            request: The commit.
            decide: Makes the records of a part of the request.
            validate: Returns the group's code for the request.
            write: Writes the records. The response is sent when they are committed.
            unsliced: Handles the request in one slice.
        """
        code, context = _code_of(validate), self._context()
        block, response = yield from making_commit(request, code, context, decide)
        if code is not ErrorCode.NONE or not block:
            return Result(response)
        has_same_topics = yield from self._comparing_topics(request, context.image)
        code = _code_of(validate)
        if code is not ErrorCode.NONE:
            _, response = yield from making_commit(request, code, context, decide)
            return Result(response)
        if not has_same_topics:
            # Rare, so it may take one long slice: the offsets of a deleted topic must not return.
            return unsliced()
        if self._forgotten:
            self._finish_before_commit()
        offsets = self._shards.of(request.group_id).offsets
        written = write(block, response)
        yield from offsets.applying(request.group_id)
        return written

    def _comparing_topics(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, image: MetadataImage
    ) -> Generator[None, None, bool]:
        """Return whether the request's topics are the same in `image` and in the newest image.

        The last comparison reads the newest image in the last time slice.
        """
        for _ in range(COMPARISONS_MAX):
            newest = self._shards.image()
            if newest is image:
                return True
            if not (yield from comparing_topics(request, image, newest)):
                return False
            image = newest
        return run_to_completion(comparing_topics(request, image, self._shards.image()))

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, guard: int
    ) -> Result[TxnOffsetCommitResponse]:
        """Handle TxnOffsetCommit, whose transaction was verified with `guard`.

        The offsets are pending when the result is done. The marker of the transaction commits them.
        """
        if self._forgotten:
            self._finish_before_commit()
        shard = None
        try:
            shard = self._shards.of_members(request.group_id)
            code = validate_transactional_commit(shard.groups.get(request.group_id), request)
        except KafkaError as error:
            code = response_code(error.code)
        result = transactional_commit(request, code, self._context())
        if shard is None or code is not ErrorCode.NONE or not result.records:
            return Result(result.response)
        producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
        failed = partial(commit_failed, result.response)
        return self._runtime.write(shard.partition, result, failed, producer)

    def commit_transactional_in_slices(
        self, request: TxnOffsetCommitRequest, guard: int
    ) -> Result[TxnOffsetCommitResponse]:
        """Handle a TxnOffsetCommit of many partitions, as `commit_transactional`, in time slices.

        The log checks the guard in the slice of the write. The transaction may have ended.
        """

        def validate() -> ErrorCode:
            shard = self._shards.of_members(request.group_id)
            return validate_transactional_commit(shard.groups.get(request.group_id), request)

        def write(
            block: OffsetBlock, response: TxnOffsetCommitResponse
        ) -> Result[TxnOffsetCommitResponse]:
            shard = self._shards.of_members(request.group_id)
            producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
            failed = partial(commit_failed, response)
            return self._runtime.write_block(shard.partition, block, response, failed, producer)

        unsliced = partial(self.commit_transactional, request, guard)
        return sliced(self._committing(request, transactional_commit, validate, write, unsliced))

    def refuse_transactional(
        self, request: TxnOffsetCommitRequest, code: ErrorCode
    ) -> TxnOffsetCommitResponse:
        """Return the response for a transaction that must not write to this group.

        `code` is the reason.
        """
        return transactional_commit(request, code, self._context()).response

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int = 1,
    ) -> Result[ErrorCode]:
        """Append a transaction's marker to a partition of ``__consumer_offsets``.

        It commits or drops the pending offsets.

        Returns:
            NONE when the marker is committed, or the error when it is not committed in time.

        Raises:
            KafkaError: The marker was not appended.
        """
        self._shards.require_active()
        topic_partition = TopicPartition(CONSUMER_OFFSETS, partition)
        return self._runtime.end_transaction(
            partition,
            producer_id,
            committed,
            lambda leader_epoch: self._partitions.append_marker(
                topic_partition,
                producer_id,
                producer_epoch,
                coordinator_epoch,
                committed,
                transaction_version=transaction_version,
                leader_epoch=leader_epoch,
            ),
        )

    def all_committed(self, group_id: str) -> Result[ErrorCode]:
        """Return a result that waits for all present writes to the group's shard.

        It is done when they are committed, or have timed out.
        """
        try:
            shard = self._shards.of(group_id)
        except KafkaError:
            return Result(ErrorCode.NONE)  # the read returns the error
        nothing = CoordinatorResult([], ErrorCode.NONE)
        return self._runtime.write(shard.partition, nothing, lambda code: code)

    # -- removal -----------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
        """Handle OffsetDelete. The result is done when the tombstones are committed."""
        return sliced(self._deleting(request))

    def _deleting(
        self, request: OffsetDeleteRequest
    ) -> Generator[None, None, Result[OffsetDeleteResponse]]:
        try:
            shard = self._shards.of_members(request.group_id)
        except KafkaError as error:
            return Result(OffsetDeleteResponse(error_code=response_code(error.code)))
        response, pieces = removal.delete_offsets(shard, request)
        removed = PendingRemoval(self._runtime, shard, pieces)
        yield from self._shards.removing(request.group_id, removed, SliceLimits(self._clock))
        return removed.written.then(
            lambda code: OffsetDeleteResponse(error_code=code) if code else response
        )

    def delete_groups(
        self, group_ids: Iterable[str]
    ) -> Result[Sequence[Result[DeletableGroupResult]]]:
        """Handle DeleteGroups, one group after the other.

        The result of each group is done when the tombstones are committed.
        """
        return sliced(self._deleting_groups(group_ids))

    def _deleting_groups(
        self, group_ids: Iterable[str]
    ) -> Generator[None, None, Result[Sequence[Result[DeletableGroupResult]]]]:
        results, limits = [], SliceLimits(self._clock)
        for group_id in group_ids:
            code = yield from self._deleting_group(group_id, limits)
            results.append(code.then(partial(DeletableGroupResult, group_id)))
            yield from limits.spend(1)
        return Result(results)

    def _deleting_group(
        self, group_id: str, limits: SliceLimits
    ) -> Generator[None, None, Result[ErrorCode]]:
        try:
            shard = self._shards.of(group_id)
        except KafkaError as error:
            return Result(response_code(error.code))
        code, pieces = removal.delete_group(shard, group_id)
        if code is not ErrorCode.NONE:
            return Result(code)
        removed = PendingRemoval(self._runtime, shard, pieces)
        yield from self._shards.removing(group_id, removed, limits)
        if not removed.has_failed:
            logger.info("group %s: deleted by a request, %d tombstones", group_id, removed.count)
        return removed.written

    def forget_topics(self, topics: Sequence[str], elected: Collection[int] = ()) -> None:
        """Begin to remove the committed offsets of deleted topics, in time slices.

        Otherwise a later topic with the same name would inherit them. The offsets in a shard that
        is still loading are removed when it is loaded.

        Args:
            topics: The topics.
            elected: Partitions that this broker coordinates since the metadata without the topics.
        """
        count = self._shards.existing_partitions()
        epochs = {
            partition: self._runtime.leader_epoch(partition)
            for partition in range(count)
            if partition not in elected
        }
        work = self._forgetting(topics, epochs)
        forgotten = (topics, work)

        def forgetting() -> Generator[None, None, None]:
            self._forgotten.append(forgotten)
            try:
                yield from work  # or `finish_forgetting` runs it
            finally:
                self._forgotten.remove(forgotten)

        begin(forgetting(), "the removal of a deleted topic's offsets")

    def finish_forgetting(self, image: MetadataImage) -> None:
        """Complete the removal of a deleted topic's offsets when the topic exists again.

        Offsets of the new topic may be committed from now on.
        """
        self._compared = image
        for topics, work in list(self._forgotten):
            if any(topic in image.topics_by_name for topic in topics):
                run_to_completion(work)

    def _finish_before_commit(self) -> None:
        """Do so before a commit, which may precede the call for the image that it uses."""
        image = self._shards.image()
        if image is not self._compared:
            self.finish_forgetting(image)

    def _forgetting(
        self, topics: Sequence[str], epochs: Mapping[int, int]
    ) -> Generator[None, None, None]:
        limits = SliceLimits(self._clock)
        for partition in range(self._shards.existing_partitions()):
            is_complete = False
            while not is_complete and self._shards.active:
                epoch = epochs.get(partition, NOT_LED)
                is_complete = yield from self._forgetting_in(partition, topics, epoch, limits)
            yield from limits.spend(1)

    def _forgetting_in(
        self, partition: int, topics: Sequence[str], leader_epoch: int, limits: SliceLimits
    ) -> Generator[None, None, bool]:
        """Remove the offsets in one shard. Return False when it was dropped in the meantime."""
        try:
            shard = self._runtime.shard(partition)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                deleted = self._deleted_topics.setdefault(partition, {})
                deleted.update(dict.fromkeys(topics, leader_epoch))
            else:  # another broker leads it, or its log is damaged
                self._deleted_topics.pop(partition, None)
            return True
        yield from self._forgetting_topics(shard, topics).writing(limits)
        return self._runtime.serves(partition, shard)

    def _forgetting_topics(self, shard: GroupShard, topics: Sequence[str]) -> PendingRemoval:
        pieces = shard.offsets.topic_tombstones(topics, removal.OFFSETS_PER_PIECE)
        return PendingRemoval(self._runtime, shard, pieces)

    def dropped(self, partition: int) -> None:
        """Forget the topics that were deleted while a shard was loading.

        The next coordinator loads the shard. A topic may exist again when this broker does.
        """
        self._deleted_topics.pop(partition, None)

    def loaded(self, shard: GroupShard) -> None:
        """Remove the offsets of the topics that were deleted while the shard was loading.

        Such a topic may exist again, so this takes one slice. If the shard has another leader epoch
        than at the deletion, the former coordinator may have committed offsets of the new topic.
        They stay.
        """
        deleted = self._deleted_topics.pop(shard.partition, None)
        if deleted:
            existing = self._shards.image().topics_by_name
            leader_epoch = self._runtime.leader_epoch(shard.partition)
            topics = [
                topic
                for topic, epoch in sorted(deleted.items())
                if epoch == leader_epoch or topic not in existing
            ]
            self._forgetting_topics(shard, topics).finish()

    async def expire(self) -> None:
        """Remove expired offsets and groups, in time slices.

        Offsets expire after ``offsets.retention.minutes``.
        """
        for shard in self._runtime.shards():
            removed = await in_slices(self._expiring(shard))
            if removed:
                logger.info(
                    "%s-%d: %d offsets and groups have expired",
                    CONSUMER_OFFSETS,
                    shard.partition,
                    removed,
                )

    def _expiring(self, shard: GroupShard) -> Generator[None, None, int]:
        """Remove the expired offsets and groups of a shard. Return their number."""
        retention_ms = self._config.get_int("offsets.retention.minutes") * 60_000
        removed, limits = 0, SliceLimits(self._clock)
        for group_id in list(shard.groups):
            pieces = removal.expiring(shard, group_id, self._clock.time_ms(), retention_ms)
            expired = PendingRemoval(self._runtime, shard, pieces)
            yield from expired.writing(limits)
            removed += expired.count
            if expired.has_failed:
                break  # the next pass removes the others
            yield from limits.spend(1)
        return removed


def _code_of(validate: Callable[[], ErrorCode]) -> ErrorCode:
    """Return the code of a validation, or the code of the error that it raises."""
    try:
        return validate()
    except KafkaError as error:
        return response_code(error.code)
