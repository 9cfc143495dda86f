"""The shards of a group coordinator, by group: which partition holds a group."""

from __future__ import annotations

from collections.abc import Callable, Generator

from odradek.config.broker import BrokerConfig
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.coordinator.group.pending_removals import PendingRemoval
from odradek.coordinator.runtime import CoordinatorRuntime, partition_for
from odradek.coordinator.slice_limits import SliceLimits
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import CONSUMER_OFFSETS


class GroupShards:
    """The shards that one group coordinator serves. Owned by the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        image: Callable[[], MetadataImage],
        runtime: CoordinatorRuntime[GroupShard],
    ) -> None:
        self._config = config
        self.image = image
        self._runtime = runtime
        self.active = False
        # By group, of which each request first completes the removal. So no request sees a part of
        # it, and the group does not change between two time slices.
        self._removals: dict[str, PendingRemoval] = {}
        # The number of partitions that the offsets topic has or will have, and the image from
        # which it was read.
        self._counted: MetadataImage | None = None
        self._count = 0

    def start(self) -> None:
        """Find shards from now on."""
        self.active = True

    def stop(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE from now on."""
        self.active = False

    def existing_partitions(self) -> int:
        return self.image().partition_count(CONSUMER_OFFSETS)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that holds this group."""
        image = self.image()
        if image is not self._counted:
            count = image.partition_count(CONSUMER_OFFSETS)
            self._count = count or self._config.get_int("offsets.topic.num.partitions")
            self._counted = image
        return partition_for(group_id, self._count)

    def require_active(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE before the start and after the stop."""
        if not self.active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def of(self, group_id: str) -> GroupShard:
        """Return the loaded shard of a group. Raise KafkaError with the error for the client."""
        if not self.active:
            self.require_active()
        if self._removals and group_id in self._removals:
            self._removals.pop(group_id).finish()
        return self._runtime.shard(self.partition_of(group_id))

    def removing(
        self, group_id: str, removal: PendingRemoval, limits: SliceLimits
    ) -> Generator[None, None, None]:
        """Write a removal of a group's offsets in time slices.

        A request to the group completes it before. It is also completed when its client is gone.
        """
        self._removals[group_id] = removal
        try:
            yield from removal.writing(limits)
        except GeneratorExit:
            removal.finish()
            raise
        finally:
            if self._removals.get(group_id) is removal:
                del self._removals[group_id]

    def of_members(self, group_id: str) -> GroupShard:
        """Return the shard of a group with members, as `of`.

        Raises:
            KafkaError: INVALID_GROUP_ID for an empty group id, which only groups without members
                may have.
        """
        self.require_active()
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.of(group_id)

    def group_of_members(self, group_id: str) -> tuple[GroupShard, Group]:
        """Return shard and group of a request that only members send.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID when the group does not exist.
        """
        shard = self.of_members(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return shard, group

    def loaded(self) -> list[GroupShard]:
        """Return all shards of this broker.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS when one is not loaded.
        """
        self.require_active()
        return self._runtime.all_shards(self.existing_partitions())
