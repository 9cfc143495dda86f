"""Invariants of consumer groups under random members, topics and assignors."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from odradek.coordinator.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroupState
from odradek.errors import ErrorCode, KafkaError
from tests.coordinator.group.consumer.consumer_machine import (
    ConsumerMachine,
    Held,
    assignment_in,
    id_of,
)

TOPICS = ("t", "u", "v")


@dataclass
class Client:
    """A consumer that revokes partitions when it has to, and reports the revocation."""

    member_id: str
    names: list[str]
    epoch: int = 0
    owned: Held = field(default_factory=dict)
    # A response was lost. The next heartbeat is a full one and gets a full response.
    full: bool = False


class Consumers(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.machine = ConsumerMachine()
        self.counts = {"t": 4}
        self.live: dict[str, Client] = {}
        self.made = 0

    @rule(
        target=clients,
        names=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, names, assignor):
        self.made += 1
        client = Client(f"m{self.made}", names)
        self.live[client.member_id] = client
        response = self.machine.join(client.member_id, *names, server_assignor=assignor)
        self._hear(client, response)
        return client

    @rule(client=clients, says=st.booleans(), lost=st.booleans())
    def beat(self, client, says, lost):
        if client.member_id not in self.live:
            return
        response = self._send(client, client.owned if says else None)
        if lost:
            client.full = True
        else:
            self._hear(client, response)

    @rule(client=clients)
    def subscribe(self, client):
        if client.member_id in self.live:
            client.names = [random.choice(TOPICS)]
            more = {"subscribed_topic_names": client.names}
            self._hear(client, self._send(client, client.owned, **more))

    @rule(client=clients, fenced=st.booleans())
    def leave(self, client, fenced):
        if self.live.pop(client.member_id, None) is not None:
            if fenced:
                self.machine.fence(client.member_id)
            else:
                self.machine.beat(client.member_id, -1)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def change_topics(self, name, count):
        self.counts[name] = count
        self.machine.set_topics(**{each: n for each, n in self.counts.items() if n})

    def _send(self, client, owned, **more):
        if client.full:
            owned = client.owned
            more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": client.names}
        client.full = False
        try:
            return self.machine.beat(client.member_id, client.epoch, owned, **more)
        except KafkaError as error:
            # A response was lost. The member does not know its epoch, and joins again.
            assert error.code is ErrorCode.FENCED_MEMBER_EPOCH
            client.owned = {}
            return self.machine.join(client.member_id, *client.names)

    def _hear(self, client, response):
        client.epoch = response.member_epoch
        assigned = assignment_in(response)
        if assigned is not None:
            client.owned = assigned

    @invariant()
    def no_two_members_own_one_partition(self):
        seen: dict[tuple[str, int], str] = {}
        for client in self.live.values():
            for name, partitions in client.owned.items():
                for partition in partitions:
                    assert seen.setdefault((name, partition), client.member_id) == client.member_id

    @invariant()
    def restart_knows_what_was_known(self):
        live, loaded = self.machine.group, self.machine.restarted().group
        for name in (
            "epoch",
            "metadata_hash",
            "target_epoch",
            "members",
            "targets",
            "regexes",
            "static_members",
            "partition_epochs",
        ):
            assert getattr(live, name) == getattr(loaded, name), name

    def teardown(self):
        """All members reach the target assignment, which has each partition once."""
        for _ in range(8):
            for client in self.live.values():
                self._hear(client, self._send(client, client.owned))
        if not self.live:
            return
        assert self.machine.group.state is ConsumerGroupState.STABLE
        subscribed = {
            (name, partition)
            for client in self.live.values()
            for name in client.names
            for partition in range(self.counts.get(name, 0))
        }
        held = [
            (name, partition)
            for client in self.live.values()
            for name, partitions in client.owned.items()
            for partition in partitions
        ]
        assert sorted(held) == sorted(subscribed)


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)
sizes = st.fixed_dictionaries({name: st.integers(0, 12) for name in TOPICS})


def assign(name, subscribed, counts, targets=None):
    subscribers = [
        Subscriber(
            f"m{number}", None, frozenset(map(id_of, names)), (targets or {}).get(f"m{number}", {})
        )
        for number, names in enumerate(subscribed)
    ]
    return ASSIGNORS[name](subscribers, {id_of(each): n for each, n in counts.items()})


def partitions_of(assignment):
    """Return the partitions of an assignment."""
    return [(topic_id, each) for topic_id, numbers in assignment.items() for each in numbers]


@given(st.sampled_from(list(ASSIGNORS)), subscriptions, sizes)
def test_every_partition_is_assigned_to_one_subscriber(name, subscribed, counts):
    targets = assign(name, subscribed, counts)
    held = [partition for target in targets.values() for partition in partitions_of(target)]
    read = frozenset().union(*subscribed)
    assert sorted(held) == sorted((id_of(t), p) for t in read for p in range(counts[t]))
    for number, names in enumerate(subscribed):
        assert set(targets[f"m{number}"]) <= {id_of(each) for each in names}


@given(subscriptions, sizes)
def test_uniform_cannot_be_made_more_even_by_moving_one(subscribed, counts):
    targets = assign("uniform", subscribed, counts)
    size = {member: len(partitions_of(target)) for member, target in targets.items()}
    for number, names in enumerate(subscribed):
        for topic in names:
            for other, target in targets.items():
                if id_of(topic) in target:
                    assert size[other] <= size[f"m{number}"] + 1


@given(subscriptions, sizes, st.integers(0, 5))
def test_uniform_moves_no_partition_without_a_change(subscribed, counts, leaves):
    before = assign("uniform", subscribed, counts)
    assert assign("uniform", subscribed, counts, before) == before
    same = [subscribed[0]] * len(subscribed)
    first = assign("uniform", same, counts)
    kept = same[: max(1, len(same) - leaves)]
    after = assign("uniform", kept, counts, first)
    for number in range(len(kept)):
        member = f"m{number}"
        assert set(partitions_of(first[member])) <= set(partitions_of(after[member]))


@given(st.integers(1, 6), st.integers(0, 20))
def test_range_gives_the_same_range_of_equal_topics(members, count):
    targets = assign("range", [{"t", "u"}] * members, {"t": count, "u": count})
    for target in targets.values():
        ranges = [sorted(partitions) for partitions in target.values()]
        assert all(each == ranges[0] for each in ranges)
        for each in ranges:
            assert each == list(range(each[0], each[0] + len(each)))
