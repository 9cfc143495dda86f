"""The rules about coordinators find a successor that loads another state than the log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.runtime import CoordinatorRuntime
from odradek.coordinator.shard_loading import ShardLoader
from odradek.coordinator.transaction.transaction_metadata import TransactionState
from odradek.coordinator.transaction.transaction_shard import TransactionShard
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation import group_members
from tests.simulation.coordinator_model import CoordinatorModel, CoordinatorObserver
from tests.simulation.nemesis import Nemesis
from tests.simulation.planting import Patches
from tests.simulation.scheduler import SECOND
from tests.simulation.simulation import Outcome, Simulation
from tests.simulation.world_settings import INTERNAL_PARTITIONS

RUN_S = 40
TEMPO = 3.0
INTERVAL_S = 3
LEAVE_RATE = 0.3
"""A member that joins again fetches the committed offsets."""
SEEDS = (1, 2, 3)


class Failovers(Nemesis):
    """Every three seconds one coordinator loses its session, and has a successor."""

    def start(self) -> None:
        for second in range(6, RUN_S, INTERVAL_S):
            self._scheduler.after(second * SECOND, self._fail_over, second // INTERVAL_S)

    def _fail_over(self, count: int) -> None:
        if count % 2:
            self._causes["deposed coordinator"](self._machines[0])
            return
        number = count // 2 % INTERNAL_PARTITIONS
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            model = self._simulation.cluster.find(topic, number)
            if model is not None and model.state is not None and model.state.leader > 0:
                self.expire_session(self._machines[model.state.leader - 1])


def run(seed: int) -> Outcome:
    print(f"seed {seed}")
    simulation = Simulation(seed, 3, RUN_S, swarm=False)
    simulation.tempo = TEMPO
    simulation.nemesis = Failovers(simulation)
    try:
        return simulation.run()
    finally:
        simulation.close()


@pytest.fixture
def patches() -> Iterator[Patches]:
    found = Patches()
    found.set(group_members, "LEAVE_RATE", LEAVE_RATE)
    yield found
    found.undo()


def change_loaded(patches: Patches, change: Callable[[Any], None]) -> None:
    """Change each shard at the end of its load."""
    load = ShardLoader.load

    async def loaded(loader: Any, shard: Any, log: Any) -> int:
        end = await load(loader, shard, log)
        change(shard)
        return end

    patches.replace(ShardLoader, "load", loaded)


def found_in(seeds: tuple[int, ...], text: str) -> bool:
    """Return whether the first violation of a seed has the text."""
    for seed in seeds:
        outcome = run(seed)
        if outcome.violations:
            assert text in outcome.violations[0]
            return True
    return False


def test_successors_of_coordinators_keep_all_rules(patches: Patches) -> None:
    outcome = run(SEEDS[0])
    assert not outcome.violations
    for what in (
        "coordinator loads of transactions",
        "coordinator loads of groups",
        "coordinator replays checked",
        "transactions completed by another coordinator",
        "commits checked",
        "fetched offsets checked",
        "outcomes checked",
    ):
        assert outcome.counts[what] > 5, what


def _other_timeout(shard: Any) -> None:
    if isinstance(shard, TransactionShard):
        for name, metadata in shard.transactions.items():
            shard.transactions[name] = replace(metadata, timeout_ms=metadata.timeout_ms + 1)


def _other_generation(shard: Any) -> None:
    if isinstance(shard, GroupShard):
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup) and group.generation_id:
                group.generation_id += 1


def _forget_offsets(shard: Any) -> None:
    if isinstance(shard, GroupShard):
        shard.offsets._by_group.clear()


def _abort_prepared(shard: Any) -> None:
    if isinstance(shard, TransactionShard):
        for name, metadata in shard.transactions.items():
            if metadata.state is TransactionState.PREPARE_COMMIT:
                aborted = replace(metadata, state=TransactionState.PREPARE_ABORT)
                shard.transactions[name] = aborted


@pytest.mark.parametrize("change", [_other_timeout, _other_generation, _forget_offsets])
def test_a_successor_whose_state_is_no_replay_of_its_log_is_found(
    patches: Patches, change: Callable[[Any], None]
) -> None:
    patches.replace(CoordinatorModel, "fetch_sent", lambda *_: None)
    change_loaded(patches, change)
    assert found_in(SEEDS, "a replay of the log has")


def test_an_answered_commit_that_goes_back_is_found_by_the_next_fetch(patches: Patches) -> None:
    patches.replace(CoordinatorObserver, "replay", lambda *_: None)
    change_loaded(patches, _forget_offsets)
    assert found_in(SEEDS, "had been answered before")


def test_an_outcome_that_the_successor_changes_is_found(patches: Patches) -> None:
    patches.replace(CoordinatorObserver, "replay", lambda *_: None)
    change_loaded(patches, _abort_prepared)
    assert found_in(SEEDS, "follows 2")


def test_a_response_before_the_commit_of_its_write_is_found(patches: Patches) -> None:
    wait = CoordinatorRuntime._wait

    def respond(runtime: Any, partition: int, write: Any) -> Any:
        waiting = wait(runtime, partition, write)
        waiting.pending.complete(write._result.response)
        return waiting

    patches.replace(CoordinatorRuntime, "_wait", respond)
    assert found_in(SEEDS, "was answered, but")
