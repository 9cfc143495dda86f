"""The group coordinator: classic groups, consumer groups and committed offsets of one broker.

It finds the group of a request and passes the event to the group's state machine. The runtime
performs the result. Each group has one timer for its earliest deadline. A heartbeat only moves a
deadline: the timer fires at the earlier deadline, finds nothing to do and is armed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor

from odradek.config.broker import BrokerConfig
from odradek.coordinator.coordinator_result import CoordinatorResult, response_code
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import (
    NO_MEMBER_ID,
    ClassicSettings,
    GroupState,
    JoinEvent,
    in_version,
    join_error,
)
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_records import group_tombstones
from odradek.coordinator.group.consumer_requests import ConsumerRequests
from odradek.coordinator.group.group_client import GroupClient
from odradek.coordinator.group.group_records import encode
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.coordinator.group.group_shards import GroupShards
from odradek.coordinator.group.offset_requests import OffsetRequests
from odradek.coordinator.led_partitions import MarkedPartitions
from odradek.coordinator.runtime import CoordinatorRuntime, complete_tickets
from odradek.coordinator.shard_lifecycle import Transition
from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.records.batch import Compression
from odradek.results import PendingResult, Result

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """The coordinator of the groups whose partition of ``__consumer_offsets`` this broker leads.

    Owned by the event loop. `start` begins to load the existing shards. After `stop` every request
    gets COORDINATOR_NOT_AVAILABLE.

    Args:
        config: The configuration of the broker.
        clock: The clock of deadlines and records.
        timers: The timers of the event loop.
        image: Returns the present metadata.
        partitions: The partitions of ``__consumer_offsets`` that this broker leads.
        executor: Threads that read logs at load time.
        new_id: Returns the random part of a classic member's id.
        new_uuid: Returns the id of a consumer that has sent none.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        image: Callable[[], MetadataImage],
        partitions: MarkedPartitions,
        executor: Executor,
        new_id: Callable[[], str],
        new_uuid: Callable[[], Uuid],
    ) -> None:
        self._config = config
        self._clock = clock
        self._new_id = new_id
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            "group",
            new_shard=self._new_shard,
            partitions=partitions,
            clock=clock,
            timers=timers,
            executor=executor,
            compression=Compression(config.get_int("offsets.topic.compression.codec")),
            commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            encode=encode,
        )
        self.shards = GroupShards(config, image, self.runtime)
        self.consumers = ConsumerRequests(
            self.shards, self.runtime, config, clock, new_uuid, self.classic_settings
        )
        # Partitions whose leader epoch here has changed since the last call of `on_metadata`.
        self._elected: set[int] = set()
        self.offsets = OffsetRequests(
            self.shards, self.runtime, config, clock, self.keep_session, partitions
        )

    def _new_shard(self, partition: int, _leader_epoch: int) -> GroupShard:
        return GroupShard(partition, self._starting, self._loaded, self._unloading, self._due)

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve requests, and to load the shards of the partitions that are led here."""
        self.shards.start()
        self.runtime.follow_all(self.shards.existing_partitions())

    def stop(self) -> None:
        """Complete the waiting requests with NOT_COORDINATOR, and stop serving."""
        self.shards.stop()
        self.runtime.unload_all()

    def leadership_changed(self, partition: int) -> None:
        """Load or drop the shard of a partition that this broker begins or ends to lead."""
        before = self.runtime.leader_epoch(partition)
        self.runtime.follow(partition)
        if self.runtime.leader_epoch(partition) != before:
            self._elected.add(partition)
        if self.runtime.refusal(partition) is ErrorCode.NOT_COORDINATOR:
            self.offsets.dropped(partition)

    def on_metadata(self, delta: MetadataDelta, new: MetadataImage) -> None:
        """Apply new metadata: remove the offsets of deleted topics.

        The caller creates the logs of `new` first.
        """
        elected, self._elected = self._elected, set()
        if not self.shards.active:
            return
        # A topic that is absent for another reason may come back, and keeps its offsets.
        deleted = [
            topic.name
            for topic_id, topic in delta.topics.removed.items()
            if topic_id in new.deletions or topic.name in new.topics_by_name
        ]
        if deleted and CONSUMER_OFFSETS in new.topics_by_name:
            self.offsets.forget_topics(deleted, elected)
        self.offsets.finish_forgetting(new)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that holds this group."""
        return self.shards.partition_of(group_id)

    def offsets_partition(self, partition: int) -> TopicPartition:
        return TopicPartition(CONSUMER_OFFSETS, partition)

    # -- membership --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: GroupClient, version: int
    ) -> Result[JoinGroupResponse]:
        """Handle JoinGroup. The result is done when the members of the group have joined."""
        settings = self.classic_settings()
        try:
            shard = self.shards.of_members(request.group_id)
            timeout_ms = request.session_timeout_ms
            if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = shard.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                if group.members:
                    return self.consumers.join(request, client, version)
                self._remove(shard, group)
                group = None
            if group is None and request.member_id != NO_MEMBER_ID:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        except KafkaError as error:
            refused = join_error(response_code(error.code), request.member_id)
            return Result(in_version(refused, version))
        if group is None:
            now = self._clock.time_ms()
            group = ClassicGroup(group_id=request.group_id, state_timestamp_ms=now)
            shard.put_group(group)
        instance = request.group_instance_id
        prefix = client.client_id if instance is None else instance
        ticket: PendingResult[JoinGroupResponse] = PendingResult()
        event = JoinEvent(request, client, version, f"{prefix}-{self._new_id()}", ticket)
        self._perform(shard, group.join(event, settings, self.runtime.now()))
        self._drop_if_unused(shard, group)
        return ticket.then(lambda response: in_version(response, version))

    def _remove(self, shard: GroupShard, group: ConsumerGroup) -> None:
        """Remove a consumer group without members, so that a classic group can replace it."""
        tombstones = CoordinatorResult(group_tombstones(group), ErrorCode.NONE)
        removed = self.runtime.write(shard.partition, tombstones, lambda code: code)
        if removed.completed and removed.value is not ErrorCode.NONE:
            raise KafkaError(removed.value)

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Handle SyncGroup. The result is done when the leader's assignment is committed."""
        try:
            shard, group = self.shards.group_of_members(request.group_id)
        except KafkaError as error:
            return Result(SyncGroupResponse(error_code=error.code))
        if isinstance(group, ConsumerGroup):
            return Result(self.consumers.sync(shard, group, request))
        ticket: PendingResult[SyncGroupResponse] = PendingResult()
        settings = self.classic_settings()
        self._perform(shard, group.sync(request, ticket, settings, self.runtime.now()))
        return ticket

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Handle Heartbeat. While the shard is loading, every member's session counts as alive."""
        try:
            shard, group = self.shards.group_of_members(request.group_id)
        except KafkaError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else error.code
        if isinstance(group, ConsumerGroup):
            return self.consumers.classic_heartbeat(shard, group, request)
        code = group.heartbeat(request, self.runtime.now())
        self._arm_for_member(shard, group, request.member_id)
        return code

    def leave(self, group_id: str, members: list[MemberIdentity]) -> Result[LeaveGroupResponse]:
        """Handle LeaveGroup, with a code for each member.

        The result is done when the record of a group that became empty is committed.
        """
        try:
            shard, group = self.shards.group_of_members(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                return Result(LeaveGroupResponse(error_code=error.code))
            unknown = [_unknown(identity) for identity in members]
            return Result(LeaveGroupResponse(members=unknown))
        if isinstance(group, ConsumerGroup):
            return self.consumers.leave(shard, group, members)
        result = group.leave(members, self.classic_settings(), self.runtime.now())
        return self.runtime.write(
            shard.partition, result, lambda code: LeaveGroupResponse(error_code=code)
        )

    def keep_session(self, shard: GroupShard, group: Group | None, member_id: str) -> None:
        """Restart the session of a classic member, because it has committed offsets."""
        if isinstance(group, ClassicGroup):
            deadline_ms = group.keep_session(member_id, self._clock.monotonic_ms())
            self.runtime.arm(shard.partition, group.group_id, deadline_ms)

    def classic_settings(self) -> ClassicSettings:
        get = self._config.get_int
        return ClassicSettings(
            min_session_timeout_ms=get("group.min.session.timeout.ms"),
            max_session_timeout_ms=get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=get("group.initial.rebalance.delay.ms"),
            max_size=get("group.max.size"),
        )

    # -- groups ------------------------------------------------------------------------------------

    def _perform(self, shard: GroupShard, result: CoordinatorResult[None]) -> None:
        self.runtime.write(shard.partition, result, lambda code: None)

    def _arm_for_member(self, shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self.runtime.arm(shard.partition, group.group_id, member.deadline_ms)

    def _due(self, shard: GroupShard, group_id: str) -> None:
        """Handle the timer of a group."""
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self.consumers.expire(shard, group)
        elif group is not None:
            result = group.expire(self.classic_settings(), self.runtime.now())
            self._perform(shard, result)
            self._drop_if_unused(shard, group)

    def _drop_if_unused(self, shard: GroupShard, group: ClassicGroup) -> None:
        """Drop a group that never had a member or an offset. The log has no record of it."""
        if (
            group.state is GroupState.EMPTY
            and group.protocol_type is None
            and not group.pending_joins
            and not shard.offsets.of_group(group.group_id)
            and not shard.offsets.has_open_transactions(group.group_id)
            and shard.groups.get(group.group_id) is group
        ):
            shard.drop_group(group)

    def _starting(self, shard: GroupShard) -> Transition:
        """Restart the sessions of all members of a shard that was loaded."""
        settings = self.classic_settings()
        for group in list(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                self.consumers.loaded(shard, group)
            else:
                result = group.loaded(settings, self.runtime.now())
                for key, deadline_ms in result.timers:
                    self.runtime.arm(shard.partition, key, deadline_ms)
            yield 1 + len(group.members)

    def _loaded(self, shard: GroupShard) -> None:
        self.offsets.loaded(shard)
        if shard.groups:
            logger.info(
                "%s-%d: %d groups loaded", CONSUMER_OFFSETS, shard.partition, len(shard.groups)
            )

    def _unloading(self, shard: GroupShard, code: ErrorCode) -> Transition:
        """Complete the waiting requests of a shard that is dropped.

        Their clients then look for the coordinator again.
        """
        for group in list(shard.groups.values()):
            if isinstance(group, ClassicGroup):
                complete_tickets(group.unload(code, self.runtime.now()).completed)
            yield 1 + len(group.members)


def _unknown(identity: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
