"""The guard of an ingest's topics: its requests, and the topics that it refuses."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.ledger.source_guard import CHECK_INTERVAL_S, SourceGuard
from odradek.pipeline.ledger.state import LedgerState, Source, fold
from tests.pipeline.table_ledger.test_state import SOURCE, commit

STATE = fold([commit(0, 0, 10)])
NEXT = PlannedRange("t", 0, 10, 20)


class Cluster:
    """A cluster with topics, which counts the requests."""

    def __init__(self, topics: dict[str, Source]) -> None:
        self.topics = topics
        self.requests = 0

    def sources(self, topics: Iterable[str]) -> dict[str, Source]:
        self.requests += 1
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def started(state: LedgerState = STATE) -> tuple[SourceGuard, Cluster, Clock]:
    cluster, clock = Cluster({"t": SOURCE}), Clock()
    guard = SourceGuard(cluster, "/lake", clock)
    guard.check(["t"], state)
    assert guard.sources == {"t": SOURCE}
    return guard, cluster, clock


def test_batch_that_continues_costs_no_request() -> None:
    guard, cluster, clock = started()
    clock.now += CHECK_INTERVAL_S - 1
    guard.check_plan([NEXT], False, STATE)
    assert cluster.requests == 1


@pytest.mark.parametrize(
    ("planned", "went_back"),
    [
        ([PlannedRange("t", 0, 9, 20)], False),
        ([PlannedRange("t", 0, 11, 20)], False),
        ([NEXT, PlannedRange("t", 1, 0, 5)], False),
        ([NEXT, PlannedRange("u", 0, 0, 5)], False),
        ([], True),
    ],
    ids=["before the end", "after the end", "new partition", "new topic", "end before start"],
)
def test_unusual_plan_requests_the_ids(planned: list[PlannedRange], went_back: bool) -> None:
    guard, cluster, _ = started()
    guard.check_plan(planned, went_back, STATE)
    assert cluster.requests == 2


def test_ids_are_requested_once_in_each_interval() -> None:
    guard, cluster, clock = started()
    for _ in range(3):
        clock.now += CHECK_INTERVAL_S
        guard.check_plan([NEXT], False, STATE)
        guard.check_plan([NEXT], False, STATE)
    assert cluster.requests == 4


def test_topic_that_is_created_again_while_the_job_runs_is_refused() -> None:
    guard, cluster, clock = started()
    cluster.topics["t"] = Source("c", "new")
    guard.check_plan([NEXT], False, STATE)
    clock.now += CHECK_INTERVAL_S
    with pytest.raises(PipelineError, match="'t' was deleted and created again"):
        guard.check_plan([NEXT], False, STATE)


def test_topic_of_another_cluster_is_refused_at_the_start() -> None:
    guard = SourceGuard(Cluster({"t": Source("other", "x")}), "/lake", Clock())
    with pytest.raises(PipelineError, match="is in cluster other"):
        guard.check(["t"], STATE)


def test_topic_of_the_ledger_that_does_not_exist_is_refused() -> None:
    guard = SourceGuard(Cluster({}), "/lake", Clock())
    with pytest.raises(PipelineError, match="'t' does not exist, and /lake has 10 records of it"):
        guard.check(["t"], STATE)


def test_topic_that_is_deleted_while_the_job_runs_is_refused() -> None:
    guard, cluster, clock = started()
    del cluster.topics["t"]
    clock.now += CHECK_INTERVAL_S
    with pytest.raises(PipelineError, match="'t' does not exist"):
        guard.check_plan([], False, STATE)


def test_missing_topic_and_new_directory_have_no_conflict() -> None:
    guard = SourceGuard(Cluster({}), "/lake", Clock())
    guard.check(["t"], LedgerState())
    assert guard.sources == {}


def test_topic_without_ids_continues() -> None:
    guard = SourceGuard(Cluster({"t": Source("c", None)}), "/lake", Clock())
    guard.check(["t"], STATE)
    guard.check_plan([NEXT], False, STATE)
    assert guard.sources == {"t": Source("c", None)}
