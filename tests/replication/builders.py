"""Replica managers for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor

from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.ids import BrokerId, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.metadata.image import MetadataImage
from odradek.offloading import WorkRunner
from odradek.replication.partition import Partition
from odradek.replication.replica_manager import ReplicaManager
from odradek.slicing import run_to_completion
from tests.helpers.metadata_deltas import delta_between

NODE = BrokerId(1)


def replica_manager(
    logs: LogManager,
    executor: Executor,
    deletions_finished: Callable[[Collection[Uuid]], None] = lambda _: None,
) -> ReplicaManager:
    """The replica manager of broker `NODE`, on the running event loop."""
    return ReplicaManager(
        NODE,
        logs,
        ManualClock(),
        LoopTimers(),
        executor,
        BrokerConfig({}).log_config,
        asyncio.get_running_loop(),
        WorkRunner(executor, 1, asyncio.Lock()),
        deletions_finished,
    )


def apply(manager: ReplicaManager, old: MetadataImage | None, new: MetadataImage) -> None:
    """Apply an image without ending any time slice."""
    old = old or MetadataImage()
    run_to_completion(manager.apply(delta_between(old, new), old, new))


def has_delayed_operations(partition: Partition) -> bool:
    return bool(partition._fetches or partition._committed_fetches or partition._produces)
