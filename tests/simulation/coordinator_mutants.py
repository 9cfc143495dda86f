"""Planted bugs of the coordinators of a cluster: loads, markers, verification, failed writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from tests.simulation.planting import Mutant, Patches

BROKERS = 3
CANCEL_S = 10.0
"""Time for which a deposed coordinator with `markers-with-newest-epoch` goes on with markers."""


def _served_before_commit(patches: Patches) -> None:
    from odradek.coordinator.shard_lifecycle import NO_ACTIONS, Actions, Phase, ShardLifecycle

    def serve(lifecycle: Any, load: int, log_end_offset: int) -> Any:
        if not lifecycle._is_loading(load):
            return NO_ACTIONS
        lifecycle.phase = Phase.SERVING
        lifecycle._log_end_offset = log_end_offset
        return Actions(serve=True)

    patches.replace(ShardLifecycle, "loaded", serve)


def _markers_with_newest_epoch(patches: Patches) -> None:
    from odradek.coordinator.transaction.completion import Completions
    from odradek.metadata.topics import TRANSACTION_STATE

    marked, cancelling = Completions._marked, Completions.cancelling

    async def mark(completions: Any, shard: Any, prepared: Any, partitions: Any) -> Any:
        newest = completions._image().partition(TRANSACTION_STATE, shard.partition)
        stamped: Any = SimpleNamespace(leader_epoch=newest.leader_epoch)
        return await marked(completions, stamped, prepared, partitions)

    def cancel_late(completions: Any, shard: Any) -> Any:
        """The epoch protects a coordinator that has not noticed its successor."""
        completions._timers.call_later(CANCEL_S, list, cancelling(completions, shard))
        return iter(())

    patches.replace(Completions, "_marked", mark)
    patches.replace(Completions, "cancelling", cancel_late)


def _no_verification_guard(patches: Patches) -> None:
    from odradek.log.state.verification import Verifications

    patches.replace(Verifications, "passes", lambda *_: True)


def _failed_write_ends_shard(patches: Patches) -> None:
    from odradek.coordinator.runtime import CoordinatorRuntime

    not_appended, follow = CoordinatorRuntime._not_appended, CoordinatorRuntime.follow
    failed: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()

    def fail(runtime: Any, partition: int, *others: Any) -> Any:
        failed.setdefault(runtime, set()).add(partition)
        asyncio.get_running_loop().call_soon(runtime.unload, partition)
        return not_appended(runtime, partition, *others)

    def follow_others(runtime: Any, partition: int) -> None:
        if partition not in failed.get(runtime, ()):
            follow(runtime, partition)

    patches.replace(CoordinatorRuntime, "_not_appended", fail)
    patches.replace(CoordinatorRuntime, "follow", follow_others)


COORDINATOR_MUTANTS = tuple(
    Mutant(name, what, apply, BROKERS)
    for name, what, apply in (
        (
            "served-before-commit",
            "a coordinator serves when it has loaded its log, before all of it is committed",
            _served_before_commit,
        ),
        (
            "markers-with-newest-epoch",
            "markers have the newest epoch of the coordinator's partition, not that of the load",
            _markers_with_newest_epoch,
        ),
        (
            "no-verification-guard",
            "a late verification opens a transaction that has ended (KIP-890)",
            _no_verification_guard,
        ),
        (
            "failed-write-ends-shard",
            "after a failed write a coordinator refuses its partition until the process ends",
            _failed_write_ends_shard,
        ),
    )
)
