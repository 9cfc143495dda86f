"""Starts and ends of shards: all of them share the time slices of one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from odradek.coordinator.shard_transitions import ShardTransitions
from odradek.environment.clock import ManualClock
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.helpers.event_loop import on_loop


def steps(visited: list[str], name: str, count: int, elements: int = 1) -> Iterator[int]:
    for _ in range(count):
        visited.append(name)
        yield elements


@on_loop
async def test_transition_without_elements_runs_immediately() -> None:
    transitions, done = ShardTransitions("t", ManualClock()), []

    def empty(number: int) -> Iterator[int]:
        done.append(number)
        return
        yield

    for number in range(1_000):
        transitions.add(empty(number))
    assert done == list(range(1_000))


@on_loop
async def test_transitions_of_one_iteration_share_a_time_slice() -> None:
    transitions, visited = ShardTransitions("t", ManualClock()), list[str]()
    most = ELEMENTS_PER_SLICE - 1
    for name in "abc":
        transitions.add(steps(visited, name, most))
    assert visited == ["a"] * most
    slices = []
    while len(visited) < 3 * most:
        before = len(visited)
        await asyncio.sleep(0)
        slices.append(len(visited) - before)
    assert max(slices) <= ELEMENTS_PER_SLICE
    assert visited == [name for name in "abc" for _ in range(most)]
    await asyncio.sleep(0)
    transitions.add(steps(visited, "d", 1))
    assert visited[-1] == "d", "the queue is empty again"


@on_loop
async def test_large_elements_end_the_slice() -> None:
    transitions, visited = ShardTransitions("t", ManualClock()), list[str]()
    transitions.add(steps(visited, "a", 3, elements=ELEMENTS_PER_SLICE))
    assert visited == ["a"]


@on_loop
async def test_slow_elements_end_the_slice() -> None:
    clock = ManualClock()
    transitions, visited = ShardTransitions("t", clock), list[str]()

    def slow() -> Iterator[int]:
        for _ in range(3):
            clock.advance(2)
            visited.append("slow")
            yield 1

    transitions.add(slow())
    assert visited == ["slow"]


@on_loop
async def test_defect_of_one_shard_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transitions, visited = ShardTransitions("t", ManualClock()), list[str]()

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("a defect")

    transitions.add(broken())
    transitions.add(steps(visited, "next", 2))
    for _ in range(3):
        await asyncio.sleep(0)
    assert visited == ["next", "next"]
    assert "bug in the start or end of a shard of t" in caplog.text
