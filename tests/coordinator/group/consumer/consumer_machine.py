"""A shard with one consumer group for tests, without disk, network or time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from odradek.coordinator.coordinator_result import Timestamp
from odradek.coordinator.group.consumer import consumer_heartbeat as heartbeat
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, TimerKind
from odradek.coordinator.group.consumer.consumer_heartbeat import (
    ConsumerContext,
    ConsumerGroupResult,
    ConsumerSettings,
)
from odradek.coordinator.group.consumer.consumer_member import read_assignment
from odradek.coordinator.group.consumer.pattern_matches import PatternsNeeded
from odradek.coordinator.group.consumer.topic_patterns import TopicPatterns
from odradek.coordinator.group.group_client import GroupClient
from odradek.coordinator.group.group_shard import GroupShard
from odradek.environment.clock import ManualClock
from odradek.ids import Uuid
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.slicing import run_to_completion
from tests.coordinator.group.group_machine import EPOCH_MS, through_bytes
from tests.coordinator.group.on_disk import image_of, topic

CLIENT = GroupClient("client", "/127.0.0.1")
Held = dict[str, set[int]]


def id_of(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"-"))


def topics(**counts: int) -> MetadataImage:
    """Return the metadata of these topics, with their numbers of partitions."""
    return image_of(*(topic(name, id_of(name), count) for name, count in counts.items()))


@dataclass
class ConsumerMachine:
    """Driver of the group "g". Records are encoded and decoded, as on a disk."""

    image: MetadataImage = field(default_factory=lambda: topics(t=4))
    settings: ConsumerSettings = field(default_factory=ConsumerSettings)
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        self.patterns = TopicPatterns(ManualClock())
        self.shard = GroupShard(0)
        self.log: list[Any] = []

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.groups.get("g", ConsumerGroup("g"))
        assert isinstance(found, ConsumerGroup)
        return found

    def context(self, version: int = 1) -> ConsumerContext:
        now = Timestamp(self.now_ms, EPOCH_MS + int(self.now_ms))
        return ConsumerContext(CLIENT, version, self.settings, self.image, now, "made-up")

    def set_topics(self, **counts: int) -> None:
        offset = self.image.offset + 1
        self.image = replace(topics(**counts), offset=offset, topics_offset=offset)

    # -- events ------------------------------------------------------------------------------------

    def beat(
        self, member_id: str, epoch: int, owned: Held | None = None, version: int = 1, **more: Any
    ) -> Any:
        """Send a heartbeat. Return the response, or raise KafkaError."""
        held = None
        if owned is not None:
            held = [TopicPartitions(id_of(name), sorted(each)) for name, each in owned.items()]
        more.setdefault("group_id", "g")
        request = ConsumerGroupHeartbeatRequest(
            member_id=member_id, member_epoch=epoch, topic_partitions=held, **more
        )
        heartbeat.validate(request, version, self.settings)
        decide = heartbeat.leave if epoch < 0 else heartbeat.heartbeat
        context = self.context(version)
        while True:
            try:
                outcome = decide(self.group, request, context)
                break
            except PatternsNeeded as needed:
                names = context.image.topics_by_name
                work = self.patterns.match(needed.patterns, names, context.matches)
                context = context._replace(matches=run_to_completion(work))
        self.apply(outcome)
        return outcome.response

    def join(self, member_id: str, *names: str, **more: Any) -> Any:
        more.setdefault("subscribed_topic_names", list(names or ("t",)))
        more.setdefault("rebalance_timeout_ms", 60_000)
        return self.beat(member_id, 0, {}, **more)

    def fence(self, *member_ids: str) -> None:
        gone = [self.group.members[each] for each in member_ids]
        self.apply(heartbeat.fence(self.group, gone, self.context(), None))

    def apply(self, outcome: ConsumerGroupResult[Any]) -> None:
        self.replay(outcome.records)
        group = self.shard.groups.get("g")
        if isinstance(group, ConsumerGroup):
            group.seen_metadata = outcome.seen_metadata
            for kind, member_id, deadline in outcome.member_timers:
                group.deadlines.pop((kind, member_id), None)
                if deadline is not None and member_id in group.members:
                    group.deadlines[kind, member_id] = deadline

    def replay(self, records: list[Any]) -> None:
        for record in records:
            self.log.append(record)
            self.shard.replay(len(self.log), *through_bytes(record))

    # -- state -------------------------------------------------------------------------------------

    def held(self, member_id: str) -> Held:
        """Return the partitions that the coordinator has assigned to the member."""
        names = {each.topic_id: each.name for each in self.image.topics_by_id.values()}
        member = self.group.members[member_id]
        return {names[each]: set(parts) for each, parts in member.assigned.items()}

    def deadline(self, kind: TimerKind, member_id: str) -> float | None:
        found = self.group.deadlines.get((kind, member_id))
        return None if found is None else found.at_ms

    def restarted(self) -> ConsumerMachine:
        other = ConsumerMachine(self.image, self.settings, self.now_ms)
        other.replay(self.log)
        return other


def assignment_in(response: Any) -> Held | None:
    """Return the assignment in a response, or None when the response has none."""
    if response.assignment is None:
        return None
    found = read_assignment(response.assignment.topic_partitions)
    return {bytes(each).decode().rstrip("-"): set(parts) for each, parts in found.items()}
