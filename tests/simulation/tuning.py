"""Constants of the product that each seed may make small, and counts of the paths behind them.

A simulated broker has few partitions and small batches. With the constants of the product, requests
are never executed in several time slices, regions are always copied, and responses are appended in
one run. The seed chooses a smaller value for some of the constants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek.broker.handlers import offset_commit, txn_offset_commit
from odradek.broker.requests import repeated_produce
from odradek.coordinator import uncommitted_changes
from odradek.coordinator.transaction import completion
from odradek.log import truncation
from odradek.net import sender
from odradek.protocol import codec
from odradek.replication import (
    delayed_fetch,
    fetch_plan,
    isr_proposals,
    record_append,
    replica_fetcher,
)
from odradek.replication.follower_fetch import FollowerRead
from odradek.replication.record_append import RecordAppend
from odradek.replication.replica_fetcher import ReplicaFetcher
from tests.simulation.files import SimulatedFiles
from tests.simulation.planting import Patches

SMALL_RATE = 0.5
"""Rate of seeds that make one constant small."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """Constants that change together, each with its owner and name, and their small values."""

    owners: tuple[tuple[Any, str], ...]
    values: tuple[int, ...]


CONSTANTS = (
    _Constant(((record_append, "ELEMENTS_PER_SLICE"),), (1, 2)),
    _Constant(
        (
            (delayed_fetch, "ELEMENTS_PER_SLICE"),
            (delayed_fetch.LogRead, "slice_elements"),
            (FollowerRead, "slice_elements"),
        ),
        (1, 2),
    ),
    _Constant(((replica_fetcher, "SLICE_COST_MAX"),), (1, 40)),
    _Constant(((replica_fetcher, "RUN_BYTES_MAX"),), (100, 1_000)),
    _Constant(((fetch_plan, "CATCH_UP_BYTES_MAX"),), (500, 5_000)),
    _Constant(((sender, "SMALL_REGION_BYTES"),), (64, 500)),
    _Constant(((truncation, "LOGS_SYNCED_ALONE_MAX"),), (0, 1)),
    # The clock does not move during a callback. With -1 it ends each slice at its next reading.
    _Constant(
        (
            (delayed_fetch, "SLICE_MS"),
            (isr_proposals, "SLICE_MS"),
            (record_append, "SLICE_MS"),
            (repeated_produce, "SLICE_MS"),
            (replica_fetcher, "SLICE_MS"),
        ),
        (-1,),
    ),
    _Constant(((delayed_fetch, "UNTIMED_MAX"),), (1, 2)),
    _Constant(((isr_proposals, "OUTCOMES_WITH_RESPONSE_MAX"),), (0, 1)),
    _Constant(((replica_fetcher, "REMOVED_PER_SLICE"),), (1, 2)),
    _Constant(((replica_fetcher, "WOKEN_PER_SLICE"),), (1, 2)),
    _Constant(((replica_fetcher, "PARTITIONS_WITH_DECODING_MAX"),), (0, 1)),
    _Constant(
        (
            (offset_commit, "SHORT_MAX"),
            (offset_commit, "COMMITS_UNSLICED_MAX"),
            (txn_offset_commit, "COMMITS_UNSLICED_MAX"),
        ),
        (0,),
    ),
    _Constant(((uncommitted_changes, "BLOCK_KEYS_MIN"),), (1, 2)),
    _Constant(((completion, "ELEMENTS_PER_SLICE"),), (1, 2)),
)
PATHS: dict[str, tuple[Any, str]] = {
    "appends in slices": (RecordAppend, "in_slices"),
    "batches opened in several slices": (RecordAppend, "_append_later"),
    "responses appended in several runs": (ReplicaFetcher, "_append_rest"),
    "regions sent by sendfile": (SimulatedFiles, "sendfile"),
    "directories synced as a whole": (SimulatedFiles, "sync"),
}
"""The functions of the paths, by the names of their counts."""


def tune(patches: Patches, rng: random.Random, count: Callable[[str], None]) -> None:
    """Make some constants small, and count the calls of the paths.

    The codecs that end time slices are compiled again. Otherwise the trace of a seed would depend
    on the runs before it in the same interpreter.
    """
    unsliced = {key: function for key, function in codec._functions.items() if not key[-1]}
    patches.set(codec, "_functions", unsliced)
    for constant in CONSTANTS:
        value = rng.choice(constant.values)
        if rng.random() < SMALL_RATE:
            for owner, name in constant.owners:
                patches.set(owner, name, value)
    for what, (owner, name) in PATHS.items():
        patches.set(owner, name, _counted(vars(owner)[name], what, count))


def _counted(
    function: Callable[..., Any], what: str, count: Callable[[str], None]
) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        count(what)
        return function(*arguments, **named)

    return counted
