"""Requests of consumer groups (KIP-848): the caller of the pure functions of `consumer`.

`ConsumerRequests` finds the group of a request. It converts a classic group to a consumer group, or
back, when members of the other protocol join. The runtime performs the result. Owned by the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from odradek.coordinator.coordinator_result import (
    CoordinatorRecord,
    CoordinatorResult,
    response_code,
)
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import ClassicSettings, in_version, join_error
from odradek.coordinator.group.consumer import classic_members
from odradek.coordinator.group.consumer import consumer_heartbeat as heartbeat
from odradek.coordinator.group.consumer import consumer_records as write
from odradek.coordinator.group.consumer.assignors import ASSIGNORS
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, Deadline, TimerKind
from odradek.coordinator.group.consumer.consumer_heartbeat import (
    ConsumerContext,
    ConsumerGroupResult,
    ConsumerSettings,
    HeartbeatResult,
    MemberTimer,
)
from odradek.coordinator.group.consumer.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    MemberState,
)
from odradek.coordinator.group.consumer.migration import to_consumer
from odradek.coordinator.group.consumer.pattern_matches import PatternMatches, PatternsNeeded
from odradek.coordinator.group.consumer.topic_patterns import TopicPatterns
from odradek.coordinator.group.group_client import GroupClient
from odradek.coordinator.group.group_records import group_metadata_tombstone
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.group.group_shards import GroupShards
from odradek.coordinator.runtime import CoordinatorRuntime, complete_tickets
from odradek.environment.clock import Clock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid, uuid_to_string
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.result_tasks import run
from odradek.results import Result
from odradek.slicing import end_slice, in_slices

logger = logging.getLogger(__name__)

T = TypeVar("T")
NO_CLIENT = GroupClient("", "")
# The configuration may name an assignor of Kafka by its class.
KAFKA_CLASSES = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
    for name in ASSIGNORS
}
# Pause after which late members are removed again, when the records could not be appended.
RETRY_MS = 1_000


class GroupTime(NamedTuple):
    """The configs of one duration of a group.

    These are the group's own config, the broker's default, and the broker's bounds of both.
    """

    own: str
    name: str
    low: str
    high: str


SESSION = GroupTime(
    SESSION_TIMEOUT,
    "group.consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
INTERVAL = GroupTime(
    HEARTBEAT_INTERVAL,
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)


class ConsumerRequests:
    """The requests of consumer groups for one group coordinator. Each request reads `config`.

    Raises:
        KafkaError: INVALID_CONFIG for an assignor that does not exist.
    """

    def __init__(
        self,
        shards: GroupShards,
        runtime: CoordinatorRuntime[GroupShard],
        config: BrokerConfig,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
        classic_settings: Callable[[], ClassicSettings],
    ) -> None:
        self._shards = shards
        self._runtime = runtime
        self._config = config
        self._new_uuid = new_uuid
        self._classic_settings = classic_settings
        self._assignors = _assignors(config.get_list("group.consumer.assignors"))
        self._patterns = TopicPatterns(clock)
        # After the first time slice, the expressions of one request at a time are matched.
        self._matching = asyncio.Lock()

    def settings(self, group_id: str) -> ConsumerSettings:
        """Return the present ``group.consumer.*``. A group's own config overrides the broker's."""
        get = self._config.get_int
        policy = self._config.get_str("group.consumer.migration.policy").lower()
        own = self._shards.image().group_configs.get(group_id, {})
        return ConsumerSettings(
            session_timeout_ms=self._bounded(SESSION, own),
            heartbeat_interval_ms=self._bounded(INTERVAL, own),
            max_size=get("group.consumer.max.size"),
            assignors=self._assignors,
            upgrade=policy in ("bidirectional", "upgrade"),
            downgrade=policy in ("bidirectional", "downgrade"),
            classic_max_size=get("group.max.size"),
        )

    def _bounded(self, time: GroupTime, own: Mapping[str, str]) -> int:
        """Return a duration of the group, within the bounds of the broker's configuration."""
        get = self._config.get_int
        value = int(own[time.own]) if time.own in own else get(time.name)
        return min(max(value, get(time.low)), get(time.high))

    def _context(
        self, group_id: str, client: GroupClient = NO_CLIENT, version: int = 0
    ) -> ConsumerContext:
        return ConsumerContext(
            client,
            version,
            self.settings(group_id),
            self._shards.image(),
            self._runtime.now(),
            uuid_to_string(self._new_uuid()),
        )

    # -- the consumer protocol ---------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: GroupClient, version: int
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat. The result is done when its records are committed."""
        context = self._context(request.group_id, client, version)
        return self._with_patterns(context, partial(self._heartbeat, request, version))

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, context: ConsumerContext
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        try:
            heartbeat.validate(request, version, context.settings)
            shard = self._shards.of_members(request.group_id)
            result = self._beat(shard, request, context)
        except KafkaError as error:
            return Result(_refused(error))
        return self._write(shard, request.group_id, result, lambda code: _refused(KafkaError(code)))

    def _beat(
        self, shard: GroupShard, request: ConsumerGroupHeartbeatRequest, context: ConsumerContext
    ) -> HeartbeatResult:
        if request.member_epoch < JOIN_EPOCH:
            return heartbeat.leave(_consumer_group(shard, request.group_id), request, context)
        if request.member_epoch > JOIN_EPOCH:
            return heartbeat.heartbeat(_consumer_group(shard, request.group_id), request, context)
        group, before, timers = _group_to_join(shard, request.group_id, context)
        result = heartbeat.heartbeat(group, request, context)
        result.records[:0] = before
        result.member_timers[:0] = timers
        former = shard.groups.get(request.group_id)
        result.upgraded = former if isinstance(former, ClassicGroup) else None
        return result

    def _with_patterns(
        self, context: ConsumerContext, decide: Callable[[ConsumerContext], Result[T]]
    ) -> Result[T]:
        """Decide. When the decision needs topics of an expression, match them and decide again.

        When matching takes more than one time slice, the result is executed after the last slice.
        """
        while True:
            try:
                return decide(context)
            except PatternsNeeded as needed:
                work = self._match(context, needed)
            try:
                next(work)
            except StopIteration as ended:
                context = context._replace(matches=ended.value)
            else:
                return run(self._when_matched(work, context, decide))

    def _match(
        self, context: ConsumerContext, needed: PatternsNeeded
    ) -> Generator[None, None, PatternMatches]:
        names = context.image.topics_by_name
        return self._patterns.match(needed.patterns, names, context.matches)

    async def _when_matched(
        self,
        work: Generator[None, None, PatternMatches],
        context: ConsumerContext,
        decide: Callable[[ConsumerContext], Result[T]],
    ) -> Result[T]:
        async with self._matching:
            await end_slice()
            while True:
                context = context._replace(matches=await in_slices(work))
                try:
                    return decide(context)
                except PatternsNeeded as needed:
                    work = self._match(context, needed)

    # -- members of the classic protocol -----------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: GroupClient, version: int
    ) -> Result[JoinGroupResponse]:
        """Handle JoinGroup to a consumer group with members.

        The result is done when its records are committed.
        """
        context = self._context(request.group_id, client, version)
        return self._with_patterns(context, partial(self._join, request))

    def _join(
        self, request: JoinGroupRequest, context: ConsumerContext
    ) -> Result[JoinGroupResponse]:
        try:
            shard = self._shards.of_members(request.group_id)
            group = shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                # It was a consumer group before the expressions were matched.
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
            result = classic_members.join(group, request, context)
        except KafkaError as error:
            refused = join_error(error.code, request.member_id)
            return Result(in_version(refused, context.version))
        result.response = in_version(result.response, context.version)
        return self._write(
            shard,
            group.group_id,
            result,
            lambda code: in_version(join_error(code), context.version),
        )

    def sync(
        self, shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest
    ) -> SyncGroupResponse:
        """Return the assignment of a classic member (SyncGroup)."""
        try:
            response, timers = classic_members.sync(group, request, self._context(group.group_id))
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)
        self._set(shard, group, timers)
        return response

    def classic_heartbeat(
        self, shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest
    ) -> ErrorCode:
        """Handle the Heartbeat of a classic member."""
        try:
            code, timers = classic_members.heartbeat(group, request, self._context(group.group_id))
        except KafkaError as error:
            return error.code
        self._set(shard, group, timers)
        return code

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, identities: list[MemberIdentity]
    ) -> Result[LeaveGroupResponse]:
        """Handle LeaveGroup of classic members, or of static members by an administrator."""
        result = classic_members.leave(group, identities, self._context(group.group_id))
        return self._write(
            shard, group.group_id, result, lambda code: LeaveGroupResponse(error_code=code)
        )

    # -- time --------------------------------------------------------------------------------------

    def expire(self, shard: GroupShard, group: ConsumerGroup) -> None:
        """Remove the members whose deadlines have passed.

        Try again after `RETRY_MS` when the records cannot be appended.
        """
        now_ms = self._runtime.now().monotonic_ms
        late: dict[str, ConsumerMember] = {}
        for (kind, member_id), deadline in list(group.deadlines.items()):
            if deadline.at_ms > now_ms:
                continue
            member = group.members.get(member_id)
            if member is None or (0 <= deadline.member_epoch != member.member_epoch):
                group.set_deadline(kind, member_id, None)
                continue
            logger.info(
                "group %s: the %s timeout of %s has passed", group.group_id, kind.value, member_id
            )
            retry = deadline._replace(at_ms=now_ms + RETRY_MS)
            group.set_deadline(kind, member_id, retry)
            late[member_id] = member
        if late:
            context = self._context(group.group_id)
            result = heartbeat.fence(group, list(late.values()), context, None)
            self._write(shard, group.group_id, result, lambda code: None)
        if shard.groups.get(group.group_id) is group:
            self._runtime.arm(shard.partition, group.group_id, group.next_deadline_ms())

    def loaded(self, shard: GroupShard, group: ConsumerGroup) -> None:
        """Restart the sessions of all members after the group was loaded.

        Restart the rebalance timeouts of the members that have to revoke partitions, too.
        """
        now_ms = self._runtime.now().monotonic_ms
        session_ms = self.settings(group.group_id).session_timeout_ms
        timers = []
        for member in group.members.values():
            length_ms = session_ms
            if member.classic is not None:
                length_ms = member.classic.session_timeout_ms
            deadline = Deadline(now_ms + length_ms)
            timers.append(MemberTimer(TimerKind.SESSION, member.member_id, deadline))
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                late = Deadline(now_ms + member.rebalance_timeout_ms, member.member_epoch)
                timers.append(MemberTimer(TimerKind.REBALANCE, member.member_id, late))
        self._set(shard, group, timers)

    # -- performing --------------------------------------------------------------------------------

    def _write(
        self,
        shard: GroupShard,
        group_id: str,
        result: ConsumerGroupResult[T],
        failed: Callable[[ErrorCode], T],
    ) -> Result[T]:
        result.after_replay = partial(self._replayed, shard, group_id, result)
        return self._runtime.write(shard.partition, result, failed)

    def _replayed(self, shard: GroupShard, group_id: str, result: ConsumerGroupResult[T]) -> None:
        """Change the state that is not in records."""
        if result.upgraded is not None:
            complete_tickets(_join_again(result.upgraded).completed)
        group = shard.groups.get(group_id)
        if result.downgraded is not None:
            self._downgraded(shard, result.downgraded, result.settled)
        elif isinstance(group, ConsumerGroup):
            group.set_seen_metadata(result.seen_metadata)
            self._set(shard, group, result.member_timers)

    def _set(self, shard: GroupShard, group: ConsumerGroup, timers: list[MemberTimer]) -> None:
        for kind, member_id, deadline in timers:
            group.set_deadline(kind, member_id, deadline)
            if deadline is not None and member_id in group.members:
                self._runtime.arm(shard.partition, group.group_id, deadline.at_ms)

    def _downgraded(self, shard: GroupShard, classic: ClassicGroup, settled: bool) -> None:
        """Replace the group by a classic group. Unless it is settled, a rebalance begins."""
        logger.info("group %s: downgraded to the classic protocol", classic.group_id)
        shard.put_group(classic)
        result = classic.downgraded(settled, self._classic_settings(), self._runtime.now())
        self._runtime.write(shard.partition, result, lambda code: None)


def _assignors(names: list[str]) -> tuple[str, ...]:
    """Return the short names of the configured assignors. Raise INVALID_CONFIG for others."""
    found = tuple(KAFKA_CLASSES.get(name, name) for name in names)
    for name in found:
        if name not in ASSIGNORS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"group.consumer.assignors: {name} does not exist. Use {' or '.join(ASSIGNORS)}",
            )
    return found or tuple(ASSIGNORS)


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=response_code(error.code), error_message=error.message or None
    )


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Consumer group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group.",
        )
    return group


def _group_to_join(
    shard: GroupShard, group_id: str, context: ConsumerContext
) -> tuple[ConsumerGroup, list[CoordinatorRecord], list[MemberTimer]]:
    """Return the group that a new member joins.

    The group is the existing consumer group, a new one, or the upgrade of a classic group. The
    result also has the records that create the group and the timers of its members.
    """
    group = shard.groups.get(group_id)
    if group is None:
        return ConsumerGroup(group_id), [], []
    if isinstance(group, ConsumerGroup):
        return group, [], []
    if not group.members:
        return ConsumerGroup(group_id), [group_metadata_tombstone(group_id)], []
    upgraded = None
    if (
        context.settings.upgrade
        and group.uses_consumer_protocol
        and len(group.members) <= context.settings.max_size
    ):
        upgraded = to_consumer(group, context.image)
    if upgraded is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    logger.info("group %s: upgraded to the consumer protocol", group_id)
    now_ms = context.now.monotonic_ms
    timers = [
        MemberTimer(
            TimerKind.SESSION, member.member_id, Deadline(now_ms + member.session_timeout_ms)
        )
        for member in group.members.values()
    ]
    records = [group_metadata_tombstone(group_id), *write.creation_records(upgraded)]
    return upgraded, records, timers


def _join_again(group: ClassicGroup) -> CoordinatorResult[None]:
    """Return the completions for the waiting members of a classic group that was upgraded."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    result: CoordinatorResult[None] = CoordinatorResult([], None)
    for member in group.members.values():
        group.respond_to_join(member, join_error(code, member.member_id), result)
        group.respond_to_sync(member, SyncGroupResponse(error_code=code), result)
    return result
