"""Serves consumer groups (KIP-848): the shell around the pure functions of this package.

It finds the group, turns a classic group into a consumer group and back where members of the other
protocol come, appends the records, sets the timers, and answers when the records are committed.
Owned by the event loop, as the coordinator that made it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from odradek.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from odradek.coordinator.group.classic import rebalance
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.effects import Client, Effects
from odradek.coordinator.group.consumer import classic_members
from odradek.coordinator.group.consumer import consumer_heartbeat as heartbeat
from odradek.coordinator.group.consumer import consumer_records as write
from odradek.coordinator.group.consumer.assignors import ASSIGNORS
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, Deadline, TimerKind
from odradek.coordinator.group.consumer.consumer_heartbeat import Outcome, Scene, Settings, Timer
from odradek.coordinator.group.consumer.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    MemberState,
)
from odradek.coordinator.group.consumer.migration import to_consumer
from odradek.coordinator.group.consumer.topic_patterns import (
    PatternMatches,
    PatternsNeeded,
    TopicPatterns,
)
from odradek.coordinator.group.group_records import group_metadata_tombstone
from odradek.coordinator.group.offsets.offset_requests import after
from odradek.coordinator.group.response_codes import response_code
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import uuid_to_string
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
from odradek.slicing import end_slice, in_slices

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig
    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.group.group_shard import GroupShard
    from odradek.environment.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")
Answer: TypeAlias = T | asyncio.Future[T] | Coroutine[Any, Any, T | asyncio.Future[T]]
NOBODY = Client("", "")
# Kafka's own assignors may be named by their classes, too.
KAFKA_CLASSES = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
    for name in ASSIGNORS
}
# When the removal of a late member could not be written down, it is tried again after this.
RETRY_MS = 1_000


class GroupTime(NamedTuple):
    """The configs of a time: a group's own, the broker's, and the broker's bounds of both."""

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


class ConsumerGroups:
    """Serves consumer groups for one group coordinator; `config` is read at each request.

    Raises INVALID_CONFIG for assignors that are not there.
    """

    def __init__(self, coordinator: GroupCoordinator, config: BrokerConfig, clock: Clock) -> None:
        self._coordinator = coordinator
        self._config = config
        self._assignors = _assignors(config.get_list("group.consumer.assignors"))
        self._patterns = TopicPatterns(clock)
        # Expressions of one request at a time are matched beyond their first time slice.
        self._matching = asyncio.Lock()

    def settings(self, group_id: str) -> Settings:
        """``group.consumer.*`` as it is now, with the group's own configs before the broker's."""
        get = self._config.get_int
        policy = self._config.get_str("group.consumer.migration.policy").lower()
        own = self._coordinator.image().group_configs.get(group_id, {})
        return Settings(
            session_timeout_ms=self._bounded(SESSION, own),
            heartbeat_interval_ms=self._bounded(INTERVAL, own),
            max_size=get("group.consumer.max.size"),
            assignors=self._assignors,
            upgrade=policy in ("bidirectional", "upgrade"),
            downgrade=policy in ("bidirectional", "downgrade"),
            classic_max_size=get("group.max.size"),
        )

    def _bounded(self, time: GroupTime, own: Mapping[str, str]) -> int:
        """A time of the group's, within the bounds that the broker's configuration sets."""
        get = self._config.get_int
        value = int(own[time.own]) if time.own in own else get(time.name)
        return min(max(value, get(time.low)), get(time.high))

    def _scene(self, group_id: str, client: Client = NOBODY, version: int = 0) -> Scene:
        coordinator = self._coordinator
        return Scene(
            client,
            version,
            self.settings(group_id),
            coordinator.image(),
            coordinator.now(),
            uuid_to_string(coordinator.new_uuid()),
        )

    # -- the consumer protocol ---------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, version: int
    ) -> Answer[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat: answered when what it changes is committed."""
        scene = self._scene(request.group_id, client, version)
        return self._with_patterns(scene, lambda scene: self._heartbeat(request, version, scene))

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, scene: Scene
    ) -> ConsumerGroupHeartbeatResponse | asyncio.Future[ConsumerGroupHeartbeatResponse]:
        try:
            heartbeat.validate(request, version, scene.settings)
            shard = self._coordinator.shard_of_members(request.group_id)
            outcome = self._beat(shard, request, scene)
        except KafkaError as error:
            return _refused(error)
        response = outcome.response
        assert response is not None

        def respond(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
            return _refused(KafkaError(code)) if code is not ErrorCode.NONE else response

        return self._perform(shard, request.group_id, outcome, respond)

    def _beat(
        self, shard: GroupShard, request: ConsumerGroupHeartbeatRequest, scene: Scene
    ) -> Outcome:
        if request.member_epoch < JOIN_EPOCH:
            return heartbeat.leave(_consumer_group(shard, request.group_id), request, scene)
        if request.member_epoch > JOIN_EPOCH:
            return heartbeat.heartbeat(_consumer_group(shard, request.group_id), request, scene)
        group, before, timers = _group_to_join(shard, request.group_id, scene)
        outcome = heartbeat.heartbeat(group, request, scene)
        outcome.records[:0] = before
        outcome.timers[:0] = timers
        former = shard.groups.get(request.group_id)
        outcome.upgraded = former if isinstance(former, ClassicGroup) else None
        return outcome

    def _with_patterns(
        self, scene: Scene, decide: Callable[[Scene], T | asyncio.Future[T]]
    ) -> Answer[T]:
        """Decide, and decide again when the topics are matched that a decision needs.

        Returns a coroutine if matching takes more than one time slice.
        """
        while True:
            try:
                return decide(scene)
            except PatternsNeeded as needed:
                work = self._match(scene, needed)
            try:
                next(work)
            except StopIteration as ended:
                scene = scene._replace(matches=ended.value)
            else:
                return self._when_matched(work, scene, decide)

    def _match(self, scene: Scene, needed: PatternsNeeded) -> Generator[None, None, PatternMatches]:
        return self._patterns.match(needed.patterns, scene.image.topics_by_name, scene.matches)

    async def _when_matched(
        self,
        work: Generator[None, None, PatternMatches],
        scene: Scene,
        decide: Callable[[Scene], T | asyncio.Future[T]],
    ) -> T | asyncio.Future[T]:
        async with self._matching:
            await end_slice()
            while True:
                scene = scene._replace(matches=await in_slices(work))
                try:
                    return decide(scene)
                except PatternsNeeded as needed:
                    work = self._match(scene, needed)

    # -- members of the classic protocol -----------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: Client, version: int
    ) -> Answer[JoinGroupResponse]:
        """JoinGroup to a consumer group with members: answered when what it changes is
        committed."""
        scene = self._scene(request.group_id, client, version)
        return self._with_patterns(scene, lambda scene: self._join(request, scene))

    def _join(
        self, request: JoinGroupRequest, scene: Scene
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        try:
            shard = self._coordinator.shard_of_members(request.group_id)
            group = shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                # It was one before expressions were matched.
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
            joined = classic_members.join(group, request, scene)
        except KafkaError as error:
            refused = rebalance.join_error(error.code, request.member_id)
            return rebalance.in_version(refused, scene.version)
        if joined.outcome is None:
            return rebalance.in_version(joined.response, scene.version)

        def respond(code: ErrorCode) -> JoinGroupResponse:
            response = rebalance.join_error(code) if code else joined.response
            return rebalance.in_version(response, scene.version)

        return self._perform(shard, group.group_id, joined.outcome, respond)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup of a classic member: what it holds."""
        try:
            response, timers = classic_members.sync(group, request, self._scene(group.group_id))
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)
        self._set(group, timers)
        return response

    def classic_heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat of a classic member."""
        try:
            code, timers = classic_members.heartbeat(group, request, self._scene(group.group_id))
        except KafkaError as error:
            return error.code
        self._set(group, timers)
        return code

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, identities: list[MemberIdentity]
    ) -> LeaveGroupResponse | asyncio.Future[LeaveGroupResponse]:
        """LeaveGroup: of classic members, and of static ones by an administrator."""
        members, outcome = classic_members.leave(group, identities, self._scene(group.group_id))
        response = LeaveGroupResponse(members=members)
        if outcome is None:
            return response

        def respond(code: ErrorCode) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=code) if code else response

        return self._perform(shard, group.group_id, outcome, respond)

    # -- time --------------------------------------------------------------------------------------

    def expire(self, shard: GroupShard, group: ConsumerGroup) -> None:
        """Removes the members that are late, all at once; what cannot be written down is tried
        again."""
        now_ms = self._coordinator.now().monotonic_ms
        late: dict[str, ConsumerMember] = {}
        for (kind, member_id), deadline in list(group.deadlines.items()):
            if deadline.at_ms > now_ms:
                continue
            member = group.members.get(member_id)
            if member is None or (0 <= deadline.member_epoch != member.member_epoch):
                del group.deadlines[kind, member_id]
                continue
            logger.info("group %s: %s is late (%s)", group.group_id, member_id, kind.value)
            group.deadlines[kind, member_id] = deadline._replace(at_ms=now_ms + RETRY_MS)
            late[member_id] = member
        if late:
            outcome = heartbeat.fence(group, list(late.values()), self._scene(group.group_id))
            self._perform(shard, group.group_id, outcome, lambda code: code)
        if shard.groups.get(group.group_id) is group:
            self._coordinator.arm(group.group_id, group.next_deadline_ms())

    def loaded(self, group: ConsumerGroup) -> None:
        """The group has been read from the log: all members' sessions begin anew, and the
        time-outs of those that have to let go of partitions."""
        now_ms = self._coordinator.now().monotonic_ms
        session_ms = self.settings(group.group_id).session_timeout_ms
        timers = []
        for member in group.members.values():
            length_ms = session_ms
            if member.classic is not None:
                length_ms = member.classic.session_timeout_ms
            deadline = Deadline(now_ms + length_ms)
            timers.append(Timer(TimerKind.SESSION, member.member_id, deadline))
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                late = Deadline(now_ms + member.rebalance_timeout_ms, member.member_epoch)
                timers.append(Timer(TimerKind.REBALANCE, member.member_id, late))
        self._set(group, timers)

    # -- performing --------------------------------------------------------------------------------

    def _perform(
        self,
        shard: GroupShard,
        group_id: str,
        outcome: Outcome,
        respond: Callable[[ErrorCode], T],
    ) -> T | asyncio.Future[T]:
        committed = None
        if outcome.records:
            try:
                committed = self._coordinator.runtime.write(shard.partition, outcome.records)
            except KafkaError as error:
                return respond(response_code(error.code))
        if outcome.upgraded is not None:
            self._coordinator.give(_join_again(outcome.upgraded))
        group = shard.groups.get(group_id)
        if outcome.downgraded is not None:
            self._downgraded(shard, outcome.downgraded, outcome.settled)
        elif isinstance(group, ConsumerGroup):
            group.seen_metadata = outcome.seen_metadata
            self._set(group, outcome.timers)
        return respond(ErrorCode.NONE) if committed is None else after(committed, respond)

    def _set(self, group: ConsumerGroup, timers: list[Timer]) -> None:
        for kind, member_id, deadline in timers:
            if deadline is None:
                group.deadlines.pop((kind, member_id), None)
            elif member_id in group.members:
                group.deadlines[kind, member_id] = deadline
                self._coordinator.arm(group.group_id, deadline.at_ms)

    def _downgraded(self, shard: GroupShard, classic: ClassicGroup, settled: bool) -> None:
        """The group is a classic one from now on: its members hear of it by a rebalance, if it is
        not settled."""
        logger.info("group %s speaks the classic protocol again", classic.group_id)
        shard.groups[classic.group_id] = classic
        effects = Effects()
        now = self._coordinator.now()
        for member in classic.members.values():
            rebalance.refresh_session(member, now)
        if not settled:
            limits = self._coordinator.limits()
            rebalance.prepare_rebalance(classic, limits, "downgrade", effects, now)
        self._coordinator.perform(shard, classic, effects)


def _assignors(names: list[str]) -> tuple[str, ...]:
    """The configured assignors, by their short names."""
    found = tuple(KAFKA_CLASSES.get(name, name) for name in names)
    for name in found:
        if name not in ASSIGNORS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"group.consumer.assignors: {name} is none of {', '.join(ASSIGNORS)}",
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
    shard: GroupShard, group_id: str, scene: Scene
) -> tuple[ConsumerGroup, list[CoordinatorRecord], list[Timer]]:
    """The group that a new member joins: the one that there is, a new one, or what becomes of a
    classic group; with the records that make it, and its members' timers."""
    group = shard.groups.get(group_id)
    if group is None:
        return ConsumerGroup(group_id), [], []
    if isinstance(group, ConsumerGroup):
        return group, [], []
    if not group.members:
        return ConsumerGroup(group_id), [group_metadata_tombstone(group_id)], []
    upgraded = None
    if (
        scene.settings.upgrade
        and group.uses_consumer_protocol
        and len(group.members) <= scene.settings.max_size
    ):
        upgraded = to_consumer(group, scene.image)
    if upgraded is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    logger.info("group %s speaks the consumer protocol from now on", group_id)
    now_ms = scene.now.monotonic_ms
    timers = [
        Timer(TimerKind.SESSION, member.member_id, Deadline(now_ms + member.session_timeout_ms))
        for member in group.members.values()
    ]
    records = [group_metadata_tombstone(group_id), *write.creation_records(upgraded)]
    return upgraded, records, timers


def _join_again(group: ClassicGroup) -> Effects:
    """The responses to the waiting members of a classic group that has become a consumer group."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    effects = Effects()
    for member in group.members.values():
        group.answer_join(member, rebalance.join_error(code, member.member_id), effects)
        group.answer_sync(member, SyncGroupResponse(error_code=code), effects)
    return effects
