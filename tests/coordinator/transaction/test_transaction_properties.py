"""Invariants of a transactional id under random producers, time and restarts.

A fenced producer stays fenced, no identity is used twice, and every transaction ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.transaction.transaction_metadata import (
    EPOCH_EXHAUSTED,
    IDLE,
    TransactionState,
    from_record,
    to_record,
)
from odradek.errors import ErrorCode
from tests.coordinator.transaction.transaction_machine import TIMEOUT_MS, Machine

E = ErrorCode
PRODUCERS = 3


@dataclass
class Producer:
    """A client with its last producer id and epoch. Without them it can only request them."""

    identity: tuple[int, int] | None = None


@dataclass
class World:
    """Producers of one transactional id, some of them zombies, in transactions of `version`."""

    level: int
    version: int
    machine: Machine = field(init=False)
    producers: list[Producer] = field(init=False)
    allocated: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = Machine(transaction_version=self.level)
        self.producers = [Producer() for _ in range(PRODUCERS)]

    def init(self, who: int) -> None:
        decision = self.machine.init()
        if decision.response.code is E.NONE:
            identity = decision.response[1:]
            assert identity not in self.allocated, "an identity was used twice"
            self.allocated.append(identity)
            self.producers[who].identity = identity
            return
        assert decision.response.code is E.CONCURRENT_TRANSACTIONS

    def bump(self, who: int) -> None:
        """Send InitProducerId with the producer's id and epoch (KIP-360). It may be a retry."""
        identity = self.producers[who].identity
        if identity is None:
            return
        decision = self.machine.init(identity)
        if decision.response.code is E.NONE:
            self.producers[who].identity = (
                decision.response.producer_id,
                decision.response.producer_epoch,
            )

    def add(self, who: int, name: str) -> None:
        identity = self.producers[who].identity
        if identity is None:
            return
        before = self.machine.current
        code = self.machine.add(identity, name, version=self.version)
        assert before is not None
        if code is E.NONE:
            assert identity == self.machine.identity, "a fenced producer has added a partition"
            assert self.machine.verify(identity, name) == [E.NONE]
        else:
            assert self.machine.current is before

    def end(self, who: int, committed: bool) -> None:
        identity = self.producers[who].identity
        if identity is None:
            return
        before = self.machine.current
        assert before is not None
        decision = self.machine.end(identity, committed, self.version)
        if decision.next is not None:
            assert identity == (before.producer_id, before.producer_epoch), "a zombie has ended it"
        if decision.response.code is E.NONE and self.version == 2:
            self.producers[who].identity = (
                decision.response.producer_id,
                decision.response.producer_epoch,
            )
            self.allocated.append(decision.response[1:])

    def settle(self) -> None:
        """End any transaction by time and markers alone."""
        self.machine.finish()
        self.machine.now_ms += TIMEOUT_MS + 1
        self.machine.time_out()
        self.machine.finish()
        assert self.machine.current is None or self.machine.state in IDLE
        response = self.machine.init()
        assert response.response.code is E.NONE
        assert response.response.producer_epoch <= EPOCH_EXHAUSTED


Step = st.one_of(
    st.tuples(st.just("init"), st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just("bump"), st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just("add"), st.integers(0, PRODUCERS - 1), st.sampled_from(["a0", "a1", "b0"])),
    st.tuples(st.just("end"), st.integers(0, PRODUCERS - 1), st.booleans()),
    st.tuples(st.just("finish")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("time"), st.integers(0, TIMEOUT_MS)),
)


def perform(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("finish",):
            world.machine.finish()
        case ("restart",):
            world.machine.restart()
        case ("time", int(delta_ms)):
            world.machine.now_ms += delta_ms
            world.machine.time_out()
        case (str(name), *arguments):
            getattr(world, name)(*arguments)


def check(world: World) -> None:
    current = world.machine.current
    if current is None:
        return
    record = to_record(current, 1)
    durable = replace(current, last_producer_epoch=-1)
    assert from_record(record.key, record.value) == durable
    if current.state is TransactionState.ONGOING:
        assert current.start_ms >= 0
        assert current.partitions


@pytest.mark.parametrize(("level", "version"), [(1, 0), (2, 0), (2, 2)])
@given(
    steps=st.lists(Step, max_size=40),
    epoch=st.sampled_from([0, EPOCH_EXHAUSTED - 3, EPOCH_EXHAUSTED - 1, EPOCH_EXHAUSTED]),
)
def test_any_sequence_keeps_the_rules_and_ends(
    level: int, version: int, steps: list[tuple[object, ...]], epoch: int
) -> None:
    world = World(level, version)
    world.init(0)
    world.machine.set(producer_epoch=epoch)
    world.producers[0].identity = (1, epoch)
    world.allocated = [(1, epoch)]
    for step in steps:
        perform(world, step)
        check(world)
    world.settle()
