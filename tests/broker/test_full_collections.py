"""Objects that the full collections of a broker's process visit, with a `Collector`.

The tests freeze the objects of the test's process before, and unfreeze them at the end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.collector import (
    COLLECTIONS_POSTPONED,
    OBJECTS_COLLECTED_MAX,
    OBJECTS_FROZEN_MIN,
    OBJECTS_KEPT_MAX,
    OBJECTS_LISTED_MAX,
    YOUNG_COLLECTIONS,
    YOUNG_OBJECTS,
    Collector,
    old_objects,
    postponed_full_collections,
    slice_ended,
)
from odradek.config.broker import BrokerConfig
from odradek.metadata.store.memory import MemoryStore
from odradek.slicing import end_slice
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

PARTITIONS = 300
NEW_OBJECTS = OBJECTS_KEPT_MAX + 1
YOUNG_OBJECTS_MAX = 3_000
"""Objects that the slices between a collection of the middle generation and its check may add."""


class Cycle:
    """An object that only a collection frees."""

    freed = 0

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        Cycle.freed += 1


class Calls:
    """Calls that an event loop would run in time slices of their own."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()

    def run_all(self) -> None:
        """Run the calls, and all calls that these schedule."""
        while self.waiting:
            self.run()


class Visited:
    """The number of objects that each full collection visits."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            self.counts.append(len(gc.get_objects()))


@pytest.fixture(autouse=True)
def other_objects_frozen() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    Cycle.freed = 0
    try:
        yield
    finally:
        gc.unfreeze()


@pytest.fixture
def visited() -> Iterator[Visited]:
    callback = Visited()
    gc.callbacks.append(callback)
    try:
        yield callback
    finally:
        gc.callbacks.remove(callback)


@pytest.fixture
def calls() -> Iterator[Calls]:
    """The calls that a started collector schedules."""
    calls, collector = Calls(), Collector()
    collector.start(calls.call_soon)
    try:
        yield calls
    finally:
        collector.stop()


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generations whose objects are listed."""
    generations: list[int] = []
    get_objects = gc.get_objects

    def counted(generation: int | None = None) -> list[Any]:
        if generation is not None:
            generations.append(generation)
        return get_objects(generation=generation)

    monkeypatch.setattr(gc, "get_objects", counted)
    return generations


def middle_collection() -> None:
    gc.collect(1)


def test_a_check_follows_each_middle_collection_and_no_other(calls: Calls) -> None:
    gc.collect(0)
    gc.collect(2)
    assert not calls.waiting, "few young collections"
    middle_collection()
    middle_collection()
    assert len(calls.waiting) == 1, "a check is scheduled once"
    calls.run()
    middle_collection()
    assert len(calls.waiting) == 1


def test_middle_collections_run_in_slices_of_their_own(calls: Calls) -> None:
    cycles = [Cycle() for _ in range(10)]
    gc.collect(0)
    cycles.clear()
    for _ in range(2):
        for _ in range(YOUNG_COLLECTIONS):
            gc.collect(0)
        assert len(calls.waiting) == 1
        calls.run()
        assert Cycle.freed == 10
        assert len(calls.waiting) == 1, "a check follows"
        calls.run()
        assert not calls.waiting


def test_a_time_slice_ends_with_a_collection_of_the_young_generation(calls: Calls) -> None:
    gc.disable()  # as few collections begin while as many objects are freed as are created
    try:
        for _ in range(10):
            Cycle()
        end_slice().send(None)
        assert Cycle.freed == 10
    finally:
        gc.enable()


def test_a_time_slice_ends_without_a_collection_where_no_collector_runs() -> None:
    collector = Collector()
    collector.start(Calls().call_soon)
    collector.stop()
    gc.disable()
    try:
        Cycle()
        end_slice().send(None)
        assert not Cycle.freed
    finally:
        gc.enable()


def test_ends_of_slices_with_few_objects_cause_no_middle_collection(calls: Calls) -> None:
    gc.collect(0)
    for _ in range(10 * YOUNG_COLLECTIONS):
        slice_ended()
    assert not calls.waiting
    kept = []
    for _ in range(2 * YOUNG_COLLECTIONS):
        kept += [[] for _ in range(YOUNG_OBJECTS // 2)]  # type: ignore[var-annotated]
        slice_ended()
    assert len(calls.waiting) == 1


def test_few_objects_are_neither_collected_nor_frozen(calls: Calls, visited: Visited) -> None:
    frozen = gc.get_freeze_count()
    kept = [Cycle() for _ in range(OBJECTS_KEPT_MAX // 2)]
    middle_collection()
    calls.run_all()
    assert not visited.counts
    assert gc.get_freeze_count() <= frozen
    assert old_objects() >= len(kept)


def test_many_objects_that_live_are_frozen(calls: Calls, visited: Visited) -> None:
    kept = [Cycle() for _ in range(NEW_OBJECTS)]
    middle_collection()
    calls.run_all()
    assert len(visited.counts) == 1
    assert old_objects() < OBJECTS_FROZEN_MIN
    del kept
    gc.collect()
    assert not Cycle.freed, "a frozen object is not visited"


def test_garbage_is_freed_before_the_other_objects_are_frozen(calls: Calls) -> None:
    kept = [[] for _ in range(NEW_OBJECTS)]  # type: ignore[var-annotated]
    cycles = [Cycle() for _ in range(5)]
    middle_collection()
    cycles.clear()
    calls.run_all()
    assert Cycle.freed == 5
    assert old_objects() < OBJECTS_FROZEN_MIN < len(kept)


def test_objects_that_were_garbage_cause_no_freeze(calls: Calls) -> None:
    cycles = [Cycle() for _ in range(NEW_OBJECTS)]
    middle_collection()
    kept, frozen = cycles[: OBJECTS_FROZEN_MIN // 3], gc.get_freeze_count()
    cycles.clear()
    calls.run_all()
    assert Cycle.freed == NEW_OBJECTS - len(kept)
    assert gc.get_freeze_count() <= frozen


def test_very_many_objects_are_frozen_without_a_collection(calls: Calls, visited: Visited) -> None:
    """A loop that was occupied for long, or work in another thread, has created them."""
    kept = [Cycle() for _ in range(NEW_OBJECTS + OBJECTS_COLLECTED_MAX)]
    before = gc.get_stats()[1]["collections"]
    calls.run_all()
    assert gc.get_stats()[1]["collections"] == before
    assert not visited.counts
    assert old_objects() < OBJECTS_FROZEN_MIN < len(kept)


def test_many_old_objects_are_frozen_without_a_collection(calls: Calls, visited: Visited) -> None:
    kept = [Cycle() for _ in range(OBJECTS_COLLECTED_MAX)]
    middle_collection()
    calls.run_all()
    assert not visited.counts
    assert old_objects() < OBJECTS_FROZEN_MIN < len(kept)


def test_objects_of_postponed_collections_are_counted_if_they_are_few(
    calls: Calls, listed: list[int]
) -> None:
    """Most objects of a long request are freed when it has ended."""
    frozen = gc.get_freeze_count()
    with postponed_full_collections():
        kept = [Cycle() for _ in range(OBJECTS_LISTED_MAX // 2)]
        middle_collection()
        calls.run_all()
        for each in kept:
            del each.cycle
        kept.clear()
    listed.clear()
    middle_collection()
    calls.run_all()
    assert 2 in listed
    assert gc.get_freeze_count() <= frozen
    listed.clear()
    middle_collection()
    calls.run_all()
    assert 2 not in listed, "the count is remembered"


def test_objects_that_may_be_very_many_are_frozen_without_a_count(
    calls: Calls, listed: list[int], visited: Visited
) -> None:
    kept = []
    with postponed_full_collections():
        while len(kept) <= OBJECTS_LISTED_MAX:
            kept += [Cycle() for _ in range(OBJECTS_COLLECTED_MAX)]
            middle_collection()
            calls.run_all()
    listed.clear()
    middle_collection()
    calls.run_all()
    assert not set(listed) & {1, 2}
    assert not visited.counts
    assert old_objects() < OBJECTS_FROZEN_MIN < len(kept)


def test_a_middle_generation_that_may_be_very_large_is_frozen_without_a_count(
    calls: Calls, listed: list[int]
) -> None:
    """More objects are freed than are created, so few young collections begin."""
    gc.disable()
    kept = [[] for _ in range(OBJECTS_LISTED_MAX + 1)]  # type: ignore[var-annotated]
    gc.enable()
    listed.clear()
    for _ in range(YOUNG_COLLECTIONS):
        gc.collect(0)
    calls.run_all()
    assert not set(listed) & {1, 2}
    assert old_objects() < OBJECTS_FROZEN_MIN < len(kept)


def test_no_check_collects_while_full_collections_are_postponed(
    calls: Calls, visited: Visited
) -> None:
    kept = [[] for _ in range(NEW_OBJECTS)]  # type: ignore[var-annotated]
    with postponed_full_collections():
        middle_collection()
        calls.run_all()
    assert not visited.counts
    assert old_objects() >= len(kept)
    middle_collection()
    calls.run_all()
    assert len(visited.counts) == 1
    assert old_objects() < OBJECTS_FROZEN_MIN


def test_a_collector_that_is_stopped_leaves_the_interpreter_as_it_was() -> None:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    calls, collector = Calls(), Collector()
    collector.start(calls.call_soon)
    with postponed_full_collections():
        assert gc.get_threshold()[2] == COLLECTIONS_POSTPONED
    assert gc.get_threshold()[2] == COLLECTIONS_POSTPONED, "the collector runs full collections"
    middle_collection()
    collector.stop()
    collector.stop()
    assert (gc.get_threshold(), gc.callbacks) == (thresholds, callbacks)
    frozen, kept = gc.get_freeze_count(), [[] for _ in range(NEW_OBJECTS)]  # type: ignore[var-annotated]
    middle_collection()
    calls.run_all()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == NEW_OBJECTS
    collector = Collector()
    with postponed_full_collections():
        collector.start(calls.call_soon)
        assert gc.get_threshold()[2] == COLLECTIONS_POSTPONED
        collector.stop()
        assert gc.get_threshold()[2] == COLLECTIONS_POSTPONED
    assert gc.get_threshold() == thresholds


def test_a_broker_starts_and_stops_its_collector(tmp_path: Path) -> None:
    async def run() -> None:
        thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        config = BrokerConfig.from_properties(properties)
        server = BrokerServer(config, store=MemoryStore(), collector=Collector())
        await server.start()
        assert len(gc.callbacks) == len(callbacks) + 1
        frozen = gc.get_freeze_count()
        await server.create_topic("t", PARTITIONS)
        assert gc.get_freeze_count() > frozen + 10 * PARTITIONS
        await server.stop()
        assert (gc.get_threshold(), gc.callbacks) == (thresholds, callbacks)

    asyncio.run(run())


def test_changes_of_many_partitions_leave_few_objects_to_a_full_collection(
    tmp_path: Path, patient: None, visited: Visited
) -> None:
    """A leader and then the controller stop and start. One collector serves both brokers."""

    async def test(cluster: ClusterBrokers) -> None:
        collector = Collector()
        collector.start(asyncio.get_running_loop().call_soon_threadsafe)
        try:
            await cluster.create_topic("t", PARTITIONS, 2)
            controller = cluster.controller_id
            other = 3 - controller
            for stopped in (other, controller):
                await cluster.stop(stopped)
                left = 3 - stopped
                await cluster.until(
                    lambda left=left: all(
                        each.leader == left
                        for each in cluster.image(left).topics_by_name["t"].partitions
                    )
                )
                await cluster.start(stopped)
                await cluster.until(
                    lambda left=left: all(
                        len(each.isr) == 2
                        for each in cluster.image(left).topics_by_name["t"].partitions
                    )
                )
        finally:
            collector.stop()

    run_with_cluster(tmp_path, test, count=2)
    assert len(visited.counts) > 5
    assert max(visited.counts) <= OBJECTS_COLLECTED_MAX + YOUNG_OBJECTS_MAX, visited.counts
