"""A shard of the group coordinator: groups and offsets of one ``__consumer_offsets`` partition.

Records become state only through `GroupShard.replay`, after an append and at load time. In an
existing group it changes the fields that the record has. It leaves the other protocols of the
members and the tickets of waiting requests as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, GroupRecordKey
from odradek.coordinator.group.offsets.offset_block import OffsetBlock
from odradek.coordinator.group.offsets.offset_loading import OffsetLoader
from odradek.coordinator.group.offsets.offset_store import NO_PRODUCER, CommittedOffset, OffsetStore
from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.uncommitted_changes import UncommittedChanges
from odradek.errors import ErrorCode
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

# A group of the classic or of the consumer protocol.
Group = ClassicGroup | ConsumerGroup

logger = logging.getLogger(__name__)


class GroupShard:
    """The state of one partition. Owned by its loading task, then by the event loop.

    `groups` and `offsets` are the latest state. Reads use the committed view: `committed_group`,
    `committed_groups`, and the same of `offsets`.

    Args:
        partition: The partition of ``__consumer_offsets``.
        on_starting: Begins the sessions of the members that were loaded, in time slices.
        on_loaded: Called when the shard begins to serve.
        on_unload: Completes the waiting requests when the shard is dropped, in time slices.
        on_timer: Handles the timer of a group.
    """

    __slots__ = (
        "_changes",
        "_on_loaded",
        "_on_starting",
        "_on_timer",
        "_on_unload",
        "_skipped",
        "groups",
        "offsets",
        "partition",
    )

    def __init__(
        self,
        partition: int,
        on_starting: Callable[[GroupShard], Transition] = lambda shard: iter(()),
        on_loaded: Callable[[GroupShard], None] = lambda shard: None,
        on_unload: Callable[[GroupShard, ErrorCode], Transition] = lambda shard, code: iter(()),
        on_timer: Callable[[GroupShard, str], None] = lambda shard, group_id: None,
    ) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._changes: UncommittedChanges[str, Group] = UncommittedChanges()
        self._on_timer = on_timer
        self._on_starting = on_starting
        self._on_loaded = on_loaded
        self._on_unload = on_unload
        self._skipped: set[str] = set()

    def replay(self, offset: int, key: Message, value: Message | None) -> None:
        """Apply one record. Skip unknown kinds of records, with one warning for each kind."""
        if type(key) is OffsetCommitKey:
            assert value is None or type(value) is OffsetCommitValue
            # The same as `replay_offset`, without the call: its cost is pinned.
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(group_id=key.group)
            self.offsets.replay(key, value, offset)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.replay_group(key, value)
        elif isinstance(key, GroupRecordKey):
            self.replay_consumer_group(key, value)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self._replay_legacy_offset(offset, key, value)
        elif type(key).__name__ not in self._skipped:
            self._skipped.add(type(key).__name__)
            logger.warning(
                "__consumer_offsets-%d: %s records are skipped, first at offset %d",
                self.partition,
                type(key).__name__,
                offset,
            )

    def replay_transactional(
        self, offset: int, producer_id: int, key: Message, value: Message | None
    ) -> None:
        """Apply one record of a transaction. Only committed offsets are written in transactions."""
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.replay_offset(key, value, offset, producer_id)
        else:
            self.replay(offset, key, value)

    def put_offset(self, group: str, topic: str, partition: int, value: CommittedOffset) -> None:
        """Apply one committed offset, as `replay_offset`, from a decoded value."""
        if group not in self.groups:
            self.groups[group] = ClassicGroup(group_id=group)
        self.offsets.put(group, topic, partition, value)

    def bulk(self, data: bytes) -> OffsetLoader:
        """Return the loader of the simple batches in one piece of the log."""
        return OffsetLoader(self, data)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the marker of a transaction: commit or drop its pending offsets."""
        self.offsets.end_transaction(producer_id, committed)

    def replay_offset(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        offset: int = -1,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """Apply one committed offset.

        An unknown group is created as a "simple" one: a classic group without members and protocol
        type.
        """
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(group_id=key.group)
        self.offsets.replay(key, value, offset, producer_id)

    def replay_block(
        self, block: OffsetBlock, first_offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply all records of a block, as `replay_offset` does for each."""
        if block.group_id not in self.groups:
            self.groups[block.group_id] = ClassicGroup(group_id=block.group_id)
        self.offsets.replay_block(block, first_offset, producer_id)

    def _replay_legacy_offset(
        self, offset: int, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
    ) -> None:
        """Apply a commit in the format of brokers before 0.9: the same fields under another key."""
        current = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
        if value is None:
            self.replay_offset(current, None, offset)
            return
        self.replay_offset(
            current,
            OffsetCommitValue(
                offset=value.offset,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp,
            ),
            offset,
        )

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Replay a record of `GroupMembership.metadata_record`, or the tombstone of the group."""
        group = self.groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[key.group]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[key.group] = ClassicGroup(group_id=key.group)
        group.replay(value)

    def replay_consumer_group(self, key: GroupRecordKey, value: Message | None) -> None:
        """Apply a record of a consumer group.

        The first record creates the group, and the tombstone of its epoch removes it.
        """
        group = self.groups.get(key.group_id)
        if value is None and (
            not isinstance(group, ConsumerGroup) or isinstance(key, ConsumerGroupMetadataKey)
        ):
            if isinstance(group, ConsumerGroup):
                del self.groups[key.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        group.replay(key, value)

    # -- changes of groups that are in no record ---------------------------------------------------

    def put_group(self, group: Group) -> None:
        """Add a new group, or replace the group with its id."""
        self.groups[group.group_id] = group

    def drop_group(self, group: Group) -> None:
        """Drop a group of which the log has no record."""
        del self.groups[group.group_id]

    # -- the committed view ------------------------------------------------------------------------

    def keep(self, offset: int, key: Message) -> None:
        """Keep the values that the uncommitted record at `offset` replaces."""
        group_id: str
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            self.offsets.keep(offset, key.group, key.topic, key.partition)
            group_id = key.group
            if group_id in self.groups:
                return
        elif isinstance(key, GroupMetadataKey):
            group_id = key.group
        elif isinstance(key, GroupRecordKey):
            group_id = key.group_id
        else:
            return
        group = self.groups.get(group_id)
        self._changes.keep(group_id, offset, None if group is None else group.committed_copy())

    def keep_block(self, offset: int, block: OffsetBlock) -> None:
        """Keep the values that the uncommitted records of a block, up to `offset`, replace."""
        self.offsets.keep_block(offset, block)
        if block.group_id not in self.groups:
            self._changes.keep(block.group_id, offset, None)

    def keep_transaction(self, offset: int, producer_id: int) -> None:
        """Keep the offsets that the producer's marker at `offset` may replace."""
        self.offsets.keep_transaction(offset, producer_id)

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""
        self._changes.commit(offset)
        self.offsets.commit(offset)

    def committed_group(self, group_id: str) -> Group | None:
        """Return the committed state of a group."""
        return self._changes.committed(group_id, self.groups.get(group_id))

    def committed_groups(self) -> list[Group]:
        """Return the committed state of all groups."""
        if not self._changes:
            return list(self.groups.values())
        group_ids = dict.fromkeys([*self.groups, *self._changes])
        found = map(self.committed_group, group_ids)
        return [group for group in found if group is not None]

    # -- start and end -----------------------------------------------------------------------------

    def starting(self) -> Transition:
        return self._on_starting(self)

    def loaded(self) -> None:
        self._on_loaded(self)

    def on_timer(self, key: str) -> None:
        self._on_timer(self, key)

    def unloading(self, code: ErrorCode) -> Transition:
        return self._on_unload(self, code)
