"""The group coordinator: the asynchronous shell around the pure machines of this package.

It finds the group of a request, feeds the event to the machine, performs the effects (appends
through the runtime, answers tickets), and arms one timer a group for the earliest deadline that the
machine names. A heartbeat only moves a deadline: the timer fires when it was due before, finds
nothing to do and is armed again.

Requests come as protocol messages and are answered with protocol messages, or with a future of one
when the answer has to wait (for the other members, or for the disk).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import random_uuid
from odradek.coordinator.group.classic import classic_requests as classic
from odradek.coordinator.group.classic.classic_group import NO_MEMBER_ID, ClassicGroup, GroupState
from odradek.coordinator.group.classic.effects import Client, Effects, GroupLimits, Instant, Ticket
from odradek.coordinator.group.classic.rebalance import in_version
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_records import group_tombstones
from odradek.coordinator.group.consumer.consumer_requests import Answer, ConsumerGroups
from odradek.coordinator.group.group_records import encode
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.coordinator.group.offsets.offset_commits import Terms
from odradek.coordinator.group.offsets.offset_requests import GroupOffsets, after
from odradek.coordinator.group.response_codes import response_code
from odradek.coordinator.runtime import Append, CoordinatorRuntime, partition_for
from odradek.environment.clock import Clock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.log.unified_log import UnifiedLog
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

logger = logging.getLogger(__name__)


class _JoinTicket(NamedTuple):
    """A waiting JoinGroup, and the version in which it is to be answered."""

    future: asyncio.Future[JoinGroupResponse]
    version: int


class _Timer(NamedTuple):
    deadline_ms: float
    handle: asyncio.TimerHandle


class GroupCoordinator:
    """Serves the groups whose partition of ``__consumer_offsets`` this broker leads.

    Owned by the event loop; nothing here may be called from elsewhere. `log_of`, `append` and
    `append_marker` are the replica manager's; `new_id` makes the random part of a classic member's
    id, `new_uuid` the id of a consumer that comes without one.
    `start` begins to load what there is; after `stop` every request is answered
    COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        image: Callable[[], MetadataImage],
        log_of: Callable[[TopicPartition], UnifiedLog],
        append: Append,
        executor: Executor,
        new_id: Callable[[], str],
        new_uuid: Callable[[], Uuid] = random_uuid,
        append_marker: Callable[..., Any] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self.image = image
        self.new_id = new_id
        self.new_uuid = new_uuid
        self._active = False
        # How many partitions the offsets topic has or will have, and the image that says so.
        self._counted: MetadataImage | None = None
        self._count = 0
        self._metadata_max = config.get_int("offset.metadata.max.bytes")
        self._timers: dict[str, _Timer] = {}
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            "group",
            new_shard=lambda partition: GroupShard(partition, self._loaded, self._unloaded),
            log_of=log_of,
            append=append,
            clock=clock,
            executor=executor,
            compression=Compression(config.get_int("offsets.topic.compression.codec")),
            encode=encode,
        )
        self.consumers = ConsumerGroups(self, config, clock)
        self.offsets = GroupOffsets(
            self, self.runtime, self._terms, self._retention_ms, append_marker
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Serves from now on; shards that have a log begin to load."""
        self._loop = asyncio.get_running_loop()
        self._active = True
        self.runtime.load_all(self._existing_partitions())

    def stop(self) -> None:
        """Answers whoever waits, at once, and serves nothing more."""
        self._active = False
        self.runtime.unload_all(ErrorCode.NOT_COORDINATOR)

    def on_metadata(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follows the metadata: the offsets topic may be made anew, and topics may be deleted.

        To be called when the logs of `new` exist already.
        """
        if not self._active or old is None:
            return
        self.runtime.follow(old, new)
        deleted = [
            topic.name
            for topic in old.topics_by_name.values()
            if topic.topic_id not in new.topics_by_id
        ]
        if deleted and CONSUMER_OFFSETS in new.topics_by_name:
            self.offsets.forget_topics(deleted)

    def _existing_partitions(self) -> int:
        return self.image().partition_count(CONSUMER_OFFSETS)

    def partition_of(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that holds this group."""
        image = self.image()
        if image is not self._counted:
            count = image.partition_count(CONSUMER_OFFSETS)
            self._count = count or self._config.get_int("offsets.topic.num.partitions")
            self._counted = image
        return partition_for(group_id, self._count)

    def require_active(self) -> None:
        """Raises COORDINATOR_NOT_AVAILABLE before the start and after the stop."""
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def shard_of(self, group_id: str) -> GroupShard:
        """The loaded shard of a group. Raises KafkaError with what a client is to be told."""
        if not self._active:
            self.require_active()
        return self.runtime.shard(self.partition_of(group_id))

    def uncommitted(self, group_id: str) -> asyncio.Future[None] | None:
        """What ends when the group's shard, as it is now, is committed (see the runtime's)."""
        return self.runtime.uncommitted(self.partition_of(group_id))

    def loaded_shards(self) -> list[GroupShard]:
        """All shards of this broker. Raises COORDINATOR_LOAD_IN_PROGRESS when one is not loaded."""
        self.require_active()
        return self.runtime.all_shards(self._existing_partitions())

    # -- membership --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: Client, version: int
    ) -> Answer[JoinGroupResponse]:
        """JoinGroup: waits until the group's members have joined."""
        limits = self.limits()
        try:
            shard = self.shard_of_members(request.group_id)
            timeout_ms = request.session_timeout_ms
            if not limits.min_session_timeout_ms <= timeout_ms <= limits.max_session_timeout_ms:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = shard.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                if group.members:
                    return self.consumers.join(request, client, version)
                self.runtime.write(shard.partition, group_tombstones(group))
                group = None
            if group is None and request.member_id != NO_MEMBER_ID:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        except KafkaError as error:
            code = response_code(error.code)
            answer = JoinGroupResponse(error_code=code, member_id=request.member_id)
            return in_version(answer, version)
        if group is None:
            now = self._clock.time_ms()
            group = ClassicGroup(group_id=request.group_id, state_timestamp_ms=now)
            shard.groups[request.group_id] = group
        instance = request.group_instance_id
        prefix = client.client_id if instance is None else instance
        event = classic.Join(request, client, version, f"{prefix}-{self.new_id()}")
        future: asyncio.Future[JoinGroupResponse] = self._loop.create_future()
        ticket = _JoinTicket(future, version)
        self.perform(shard, group, classic.join(group, event, ticket, limits, self.now()))
        self._drop_if_unused(shard, group)
        return future.result() if future.done() else future

    def sync(
        self, request: SyncGroupRequest
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        """SyncGroup: waits for the leader's assignment to be stored."""
        try:
            shard, group = self._group_of_members(request.group_id)
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)
        if isinstance(group, ConsumerGroup):
            return self.consumers.sync(group, request)
        ticket: asyncio.Future[SyncGroupResponse] = self._loop.create_future()
        effects = classic.sync(group, request, ticket, self.limits(), self.now())
        self.perform(shard, group, effects)
        return ticket.result() if ticket.done() else ticket

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat. While the shard loads, members are told that all is well."""
        try:
            _, group = self._group_of_members(request.group_id)
        except KafkaError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else error.code
        if isinstance(group, ConsumerGroup):
            return self.consumers.classic_heartbeat(group, request)
        code = classic.heartbeat(group, request, self.now())
        self._arm_for_member(group, request.member_id)
        return code

    def leave(
        self, group_id: str, members: list[MemberIdentity]
    ) -> LeaveGroupResponse | asyncio.Future[LeaveGroupResponse]:
        """LeaveGroup, answered per member; waits for the record of a group that became empty."""
        try:
            shard, group = self._group_of_members(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=error.code)
            return LeaveGroupResponse(members=[_unknown(identity) for identity in members])
        if isinstance(group, ConsumerGroup):
            return self.consumers.leave(shard, group, members)
        responses, effects = classic.leave(group, members, self.limits(), self.now())
        response = LeaveGroupResponse(members=responses)
        committed = self.perform(shard, group, effects)
        if committed is None:
            return response
        return after(committed, lambda code: response)

    def keep_session(self, group: Group | None, member_id: str) -> None:
        """A member's commit counts as a sign of life, in the classic protocol."""
        if not isinstance(group, ClassicGroup) or group.state not in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            return
        member = group.members.get(member_id)
        if member is not None:
            member.deadline_ms = self._clock.monotonic_ms() + member.session_timeout_ms
            self._arm_for_member(group, member_id)

    # -- offsets -----------------------------------------------------------------------------------

    def offsets_partition(self, partition: int) -> TopicPartition:
        return TopicPartition(CONSUMER_OFFSETS, partition)

    def _terms(self) -> Terms:
        return Terms(
            self.image(),
            self._clock.time_ms(),
            self._metadata_max,
        )

    def _retention_ms(self) -> int:
        return self._config.get_int("offsets.retention.minutes") * 60_000

    # -- performing --------------------------------------------------------------------------------

    def perform(
        self, shard: GroupShard, group: ClassicGroup, effects: Effects
    ) -> asyncio.Future[None] | None:
        """Performs effects. The returned future, if any, ends when the records are committed."""
        self.give(effects)
        committed = None
        if effects.records:
            committed = self._store(shard, group, effects)
        if group.state is not GroupState.DEAD:
            self.arm(group.group_id, group.next_deadline_ms())
        return committed

    def give(self, effects: Effects) -> None:
        """Answers whoever is to be answered."""
        for ticket, answer in effects.answers:
            _answer(ticket, answer)

    def _store(
        self, shard: GroupShard, group: ClassicGroup, effects: Effects
    ) -> asyncio.Future[None] | None:
        code = ErrorCode.NONE
        committed = None
        try:
            committed = self.runtime.write(shard.partition, effects.records)
        except KafkaError as error:
            logger.error("group %s cannot be stored: %s", group.group_id, error)
            code = response_code(error.code)
        on_stored = effects.on_stored
        if on_stored is None:
            return committed

        def stored(code: ErrorCode) -> None:
            self.perform(shard, group, on_stored(code, self.now()))

        if committed is None:
            stored(code)
            return None
        return after(committed, stored)

    def _group_of_members(self, group_id: str) -> tuple[GroupShard, Group]:
        """The group of a request that only members send; UNKNOWN_MEMBER_ID when there is none."""
        shard = self.shard_of_members(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return shard, group

    def shard_of_members(self, group_id: str) -> GroupShard:
        """As `shard_of`; membership needs a group id, offsets alone may have an empty one."""
        self.require_active()
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.shard_of(group_id)

    def limits(self) -> GroupLimits:
        get = self._config.get_int
        return GroupLimits(
            min_session_timeout_ms=get("group.min.session.timeout.ms"),
            max_session_timeout_ms=get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=get("group.initial.rebalance.delay.ms"),
            max_size=get("group.max.size"),
        )

    def now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.time_ms())

    # -- timers ------------------------------------------------------------------------------------

    def run_due(self) -> None:
        """Runs the timers that are due by the injected clock: for tests, which move that clock."""
        now_ms = self._clock.monotonic_ms()
        for group_id, timer in list(self._timers.items()):
            if timer.deadline_ms <= now_ms:
                timer.handle.cancel()
                self._fire(group_id)

    def _arm_for_member(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            timer = self._timers.get(group.group_id)
            if timer is None or member.deadline_ms < timer.deadline_ms:
                self.arm(group.group_id, member.deadline_ms)

    def arm(self, group_id: str, deadline_ms: float) -> None:
        """Sees that the group's timer fires no later than `deadline_ms` (monotonic; may be
        infinite)."""
        timer = self._timers.get(group_id)
        if timer is not None:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.handle.cancel()
            del self._timers[group_id]
        if deadline_ms == float("inf"):
            return
        delay_s = max(deadline_ms - self._clock.monotonic_ms(), 0.0) / 1000.0
        handle = self._loop.call_later(delay_s, self._fire, group_id)
        self._timers[group_id] = _Timer(deadline_ms, handle)

    def _fire(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        try:
            shard = self.shard_of(group_id)
        except KafkaError:
            return
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self.consumers.expire(shard, group)
        elif group is not None:
            self.perform(shard, group, classic.expire(group, self.limits(), self.now()))
            self._drop_if_unused(shard, group)

    def _drop_if_unused(self, shard: GroupShard, group: ClassicGroup) -> None:
        """Forgets a group that never had a member or an offset: nothing of it is in the log."""
        if (
            group.state is GroupState.EMPTY
            and group.protocol_type is None
            and not group.pending_joins
            and not shard.offsets.of_group(group.group_id)
            and not shard.offsets.has_open_transactions(group.group_id)
        ):
            del shard.groups[group.group_id]

    def _loaded(self, shard: GroupShard) -> None:
        """A shard has been read from its log: its members' sessions begin."""
        for group in list(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                self.consumers.loaded(group)
            else:
                self.perform(shard, group, classic.loaded(group, self.limits(), self.now()))
        if shard.groups:
            logger.info(
                "%s-%d: %d groups loaded", CONSUMER_OFFSETS, shard.partition, len(shard.groups)
            )

    def _unloaded(self, shard: GroupShard, code: ErrorCode) -> None:
        """A shard goes: its timers end, and whoever waits is told to look for the coordinator."""
        for group in shard.groups.values():
            timer = self._timers.pop(group.group_id, None)
            if timer is not None:
                timer.handle.cancel()
            if isinstance(group, ClassicGroup):
                self.give(classic.unload(group, code, self.now()))


def _answer(ticket: Ticket, answer: JoinGroupResponse | SyncGroupResponse) -> None:
    """Completes a waiting request, unless its connection has gone."""
    if isinstance(ticket, _JoinTicket):
        assert isinstance(answer, JoinGroupResponse)
        answer = in_version(answer, ticket.version)
        ticket = ticket.future
    assert isinstance(ticket, asyncio.Future)
    if not ticket.done():
        ticket.set_result(answer)


def _unknown(identity: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
