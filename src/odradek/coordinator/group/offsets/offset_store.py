"""Committed offsets of a shard: checks of commits, the stored values, and the committed view.

Kafka's rules (``OffsetMetadataManager``, ``ClassicGroup.validateOffsetCommit``). Only
`OffsetStore.replay` and `OffsetStore.end_transaction` change the store, after an append and at load
time. Requests only make records.

Offsets in a transaction are *pending* under the producer id until the marker of the transaction is
in this partition. The marker commits or drops them. A pending offset does not replace a committed
one whose record has a higher offset. The later record wins, also after compaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.group_records import offset_commit_tombstone
from odradek.coordinator.group.offsets.offset_block import OffsetBlock
from odradek.coordinator.uncommitted_changes import UncommittedChanges
from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest

NO_PRODUCER = -1
NO_EXPIRY = -1
# From this version of OffsetCommit on, the error for an unknown group is GROUP_ID_NOT_FOUND
# (KIP-848).
GROUP_ID_NOT_FOUND_FROM = 9
APPLIED_PER_SLICE = 500
"""Offsets of a long commit that are stored in one time slice. They take 0.2 to 0.5 ms."""


class CommittedOffset(NamedTuple):
    """One committed offset with the fields of its record.

    `record_offset` is the offset of the record itself.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY
    record_offset: int = -1


# The function that the constructor of a NamedTuple calls. It saves a call in each commit.
_new = tuple.__new__

PartitionOffsets = dict[int, CommittedOffset]
TopicOffsets = dict[str, PartitionOffsets]
NO_OFFSETS: Mapping[str, Mapping[int, CommittedOffset]] = {}


def validate_commit(
    group: ClassicGroup | ConsumerGroup | None, request: OffsetCommitRequest, version: int
) -> ErrorCode:
    """Return NONE when the sender may commit offsets of this group.

    An administrator, or a consumer that assigns its partitions itself, sends a negative generation.
    It may commit to a group that has no members or does not exist yet.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        if version >= GROUP_ID_NOT_FOUND_FROM:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ConsumerGroup):
        return group.validate_commit(request.member_id, generation_id, version)
    return _validate_classic_commit(group, request, generation_id)


def _validate_classic_commit(
    group: ClassicGroup, request: OffsetCommitRequest, generation_id: int
) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def validate_transactional_commit(
    group: ClassicGroup | ConsumerGroup | None, request: TxnOffsetCommitRequest
) -> ErrorCode:
    """Return NONE when the sender may commit this group's offsets in its transaction (KIP-447).

    From version 3 on the request has the generation and the member of the consumer, which fence it.
    A request without them is accepted in any state, because the transactional id fences it.
    """
    if group is None:
        return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    named = request.member_id or request.group_instance_id is not None
    if isinstance(group, ConsumerGroup):
        if request.generation_id < 0 and not named:
            return ErrorCode.NONE
        code = group.validate_commit(request.member_id, request.generation_id, None)
        # Transactional producers expect the error codes of generations.
        stale = code is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale else code
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation_id < 0 and (group.state is GroupState.EMPTY or not named):
        return ErrorCode.NONE
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code is ErrorCode.NONE and request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return code


class OffsetStore:
    """The committed offsets by group, topic and partition, and the pending offsets by producer id.

    Owned by its shard. `_open` has the producer ids with pending offsets, by group.

    `replay_block` stores nothing itself. `applying` stores the offsets of the group's blocks in
    time slices. Any other access to the group stores the rest first. So the time slices are
    visible to no request.
    """

    __slots__ = ("_by_group", "_changes", "_ending", "_open", "_pending", "_unapplied")

    def __init__(self) -> None:
        self._changes: UncommittedChanges[tuple[str, str, int], CommittedOffset] = (
            UncommittedChanges()
        )
        # The keys that uncommitted markers change. Their offsets are not stable yet.
        self._ending: UncommittedChanges[tuple[str, str, int], CommittedOffset] = (
            UncommittedChanges()
        )
        self._by_group: dict[str, TopicOffsets] = {}
        self._pending: dict[int, dict[str, TopicOffsets]] = {}
        self._open: dict[str, set[int]] = {}
        # The blocks that are not applied yet, by group, in the order of their offsets.
        self._unapplied: dict[str, deque[Iterator[None]]] = {}

    # -- changes -----------------------------------------------------------------------------------

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int = -1,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """Store one committed or pending offset. A tombstone removes both."""
        if self._unapplied:
            self._apply_blocks(key.group)
        if value is None:
            self.forget(key.group, key.topic, key.partition)
            return
        group = key.group
        by_group = self._by_group
        if producer_id != NO_PRODUCER:
            by_group = self._pending.setdefault(producer_id, {})
            self._open.setdefault(group, set()).add(producer_id)
        committed = _new(
            CommittedOffset,
            (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                record_offset,
            ),
        )
        _put(by_group, group, key.topic, key.partition, committed)

    def replay_block(
        self, block: OffsetBlock, first_offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Store all offsets of a block, as `replay` does for each record.

        `applying`, or the next access to the group, stores them.
        """
        group, by_group = block.group_id, self._by_group
        if producer_id != NO_PRODUCER:
            by_group = self._pending.setdefault(producer_id, {})
            self._open.setdefault(group, set()).add(producer_id)
        work = self._applying(block, first_offset, by_group)
        self._unapplied.setdefault(group, deque()).append(work)

    def _applying(
        self, block: OffsetBlock, first_offset: int, by_group: dict[str, TopicOffsets]
    ) -> Iterator[None]:
        """Store the offsets of a block. Yield after each time slice."""
        latest, nothing = self._by_group.get(block.group_id, {}), PartitionOffsets()
        topics = by_group.setdefault(block.group_id, {})
        values = map(_new, repeat(CommittedOffset), block.fields(first_offset))
        before, left = block.before, APPLIED_PER_SLICE
        block.topics.reverse()
        while block.topics:
            # Removed, so that a block of many topics is not freed in one slice.
            topic, indexes = block.topics.pop()
            replaced = latest.get(topic, nothing)
            partitions = topics.get(topic)
            if partitions is None:
                partitions = topics[topic] = {}
            if left <= 0:
                left = APPLIED_PER_SLICE
                yield
            if len(indexes) == 1:  # faster, for commits of many topics
                left -= 1
                index = indexes[0]
                if before is not None:
                    before.append(replaced.get(index))
                partitions[index] = next(values)
                continue
            for first in range(0, len(indexes), APPLIED_PER_SLICE):
                if left <= 0:
                    left = APPLIED_PER_SLICE
                    yield
                piece = indexes[first : first + APPLIED_PER_SLICE]
                left -= len(piece)
                if before is not None:
                    before += map(replaced.get, piece)
                # Takes one value for each index, because the indexes end first.
                partitions.update(zip(piece, values, strict=False))

    def applying(self, group: str) -> Generator[None, None, None]:
        """Apply the blocks of a group in time slices. Another access may apply the rest."""
        while works := self._unapplied.get(group):
            has_ended = next(works[0], True)
            if not has_ended:
                yield
                continue
            works.popleft()
            if not works:
                del self._unapplied[group]

    def _apply_blocks(self, group: str) -> None:
        """Apply the rest of the group's blocks before another access to the group."""
        for work in self._unapplied.pop(group, ()):
            for _ in work:
                pass

    def put(self, group: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store one committed offset."""
        if self._unapplied:
            self._apply_blocks(group)
        _put(self._by_group, group, topic, partition, committed)

    def forget(self, group: str, topic: str, partition: int) -> None:
        """Remove one offset, committed and pending."""
        if self._unapplied:
            self._apply_blocks(group)
        _remove(self._by_group, group, topic, partition)
        for producer_id in self._open.get(group, ()):
            _remove(self._pending.get(producer_id, {}), group, topic, partition)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commit or drop the pending offsets of a transaction, whose marker was appended."""
        self._apply_transaction(producer_id)
        for producers in self._open.values():
            producers.discard(producer_id)
        for group in [group for group, producers in self._open.items() if not producers]:
            del self._open[group]
        pending = self._pending.pop(producer_id, None)
        if pending is None or not committed:
            return
        for group, topics in pending.items():
            for topic, partitions in topics.items():
                self._commit_pending(group, topic, partitions)

    def _apply_transaction(self, producer_id: int) -> None:
        """Apply the blocks of the groups of a transaction.

        `replay_block` opens the transaction for a group, so `_open` has the group.
        """
        for group in list(self._unapplied):
            if producer_id in self._open.get(group, ()):
                self._apply_blocks(group)

    def _commit_pending(self, group: str, topic: str, partitions: PartitionOffsets) -> None:
        """Commit pending offsets, except where a later record has been committed."""
        topics = self._by_group.setdefault(group, {})
        known = topics.get(topic)
        if known is None:
            topics[topic] = partitions
            return
        for partition, value in partitions.items():
            if partition not in known or value.record_offset > known[partition].record_offset:
                known[partition] = value

    # -- the committed view ------------------------------------------------------------------------

    def keep(self, offset: int, group: str, topic: str, partition: int) -> None:
        """Keep the value that the uncommitted record at `offset` replaces."""
        self._changes.keep((group, topic, partition), offset, self.get(group, topic, partition))

    def keep_block(self, offset: int, block: OffsetBlock) -> None:
        """Keep the values that the uncommitted records of a block replace.

        Args:
            offset: The offset of the last record.
            block: The records. They are not replayed yet.
        """
        block.before = []
        self._changes.keep_block(offset, block.keys, block.before)

    def keep_transaction(self, offset: int, producer_id: int) -> None:
        """Keep the values that the producer's uncommitted marker at `offset` may replace."""
        self._apply_transaction(producer_id)
        keys: list[tuple[str, str, int]] = []
        before: list[CommittedOffset | None] = []
        nothing: PartitionOffsets = {}
        for group, topics in self._pending.get(producer_id, {}).items():
            latest = self.of_group(group)
            for topic, partitions in topics.items():
                keys += [(group, topic, partition) for partition in partitions]
                before += map(latest.get(topic, nothing).get, partitions)
        if keys:
            self._changes.keep_all(offset, keys, before)
            self._ending.keep_all(offset, keys, [None] * len(keys))

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""
        self._changes.commit(offset)
        self._ending.commit(offset)

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return one offset in the committed state, as `get`."""
        latest = self.get(group, topic, partition)
        return self._changes.committed((group, topic, partition), latest)

    def committed_of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return all offsets of a group in the committed state, as `of_group`."""
        latest = self.of_group(group_id)
        if not self._changes:
            return latest
        view = {topic: dict(partitions) for topic, partitions in latest.items()}
        for (group, topic, partition), value in self._changes.kept().items():
            if group != group_id:
                continue
            if value is not None:
                view.setdefault(topic, {})[partition] = value
            elif topic in view:
                view[topic].pop(partition, None)
                if not view[topic]:
                    del view[topic]
        return view

    # -- queries -----------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return all offsets of a group by topic and partition."""
        if self._unapplied:
            self._apply_blocks(group_id)
        return self._by_group.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        if self._unapplied:
            self._apply_blocks(group_id)
        topics = self._by_group.get(group_id)
        return None if topics is None else topics.get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction may still change this offset."""
        if self._unapplied:
            self._apply_blocks(group_id)
        if self._ending and (group_id, topic, partition) in self._ending:
            return True
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open or any(key[0] == group_id for key in self._ending)

    # -- records -----------------------------------------------------------------------------------

    def topic_tombstones(
        self, topics: Sequence[str], count: int
    ) -> Iterator[list[CoordinatorRecord]]:
        """Find all offsets, committed and pending, of deleted topics in pieces.

        No offset of these topics is committed between two iterations.

        Args:
            topics: The names of the topics.
            count: Number of groups and offsets that make up a piece.

        Yields:
            The tombstones of a piece, possibly none. They are written before the next iteration.
        """
        for group_id in list(self._unapplied):
            self._apply_blocks(group_id)
        names, records, left = frozenset(topics), list[CoordinatorRecord](), count
        for group_id in dict.fromkeys([*self._by_group, *self._open]):
            left -= 1
            stores = self._stores_of(group_id)
            found = chain.from_iterable(_common(topics, names, store) for store in stores)
            for topic in dict.fromkeys(found):
                partitions = chain.from_iterable(store.get(topic, ()) for store in stores)
                for partition in dict.fromkeys(partitions):
                    if left <= 0:
                        yield records
                        records, left = [], count
                    records.append(offset_commit_tombstone(group_id, topic, partition))
                    left -= 1
        yield records

    def group_tombstones(self, group_id: str, count: int) -> list[CoordinatorRecord]:
        """Return the records that remove `count` offsets, committed and pending, of a group.

        There are fewer records when the group has fewer offsets.
        """
        self._apply_blocks(group_id)
        stored = (
            (topic, partition)
            for store in self._stores_of(group_id)
            for topic, partitions in store.items()
            for partition in partitions
        )
        keys: dict[tuple[str, int], None] = {}
        for key in stored:
            keys[key] = None
            if len(keys) == count:
                break
        return [offset_commit_tombstone(group_id, *key) for key in keys]

    def _stores_of(self, group_id: str) -> list[TopicOffsets]:
        """Return the committed offsets of a group, and the pending ones of each transaction."""
        producers = self._open.get(group_id, ())
        stores = [self._by_group, *(self._pending[each] for each in producers)]
        return [store[group_id] for store in stores if group_id in store]


def _common(topics: Sequence[str], names: frozenset[str], offsets: TopicOffsets) -> list[str]:
    """Return the topics that have offsets. `names` are the same topics."""
    if len(topics) <= len(offsets):
        return [topic for topic in topics if topic in offsets]
    return [topic for topic in offsets if topic in names]


def _put(
    store: dict[str, TopicOffsets], group: str, topic: str, partition: int, value: CommittedOffset
) -> None:
    topics = store.get(group)
    if topics is None:
        topics = store[group] = {}
    partitions = topics.get(topic)
    if partitions is None:
        partitions = topics[topic] = {}
    partitions[partition] = value


def _remove(store: dict[str, TopicOffsets], group: str, topic: str, partition: int) -> None:
    topics = store.get(group)
    if topics is None or topic not in topics:
        return
    topics[topic].pop(partition, None)
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del store[group]
