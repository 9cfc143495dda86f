"""Check that the topics of an ingest are still those whose records its tables have.

Spark knows a topic by its name. If a topic was deleted and created again, and has grown past the
old offsets, Spark continues in the new topic without an error. The guard compares the ids of
cluster and topics with the ledger: at the start of the job, and before the write of a batch if one
of these holds:

- a planned partition is new in the ledger, or its plan does not begin at the ledger's next offset,
- the plan ends before its start, as in a topic that was created again,
- the last check is `CHECK_INTERVAL_S` ago.

The last rule limits the cost to one request for each interval. A topic that is created again while
the job runs, and passes its old end within the interval, can fill one batch before the check. With
the default interval of batches this cannot happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.ledger.state import LedgerState, PartitionKey, Source
from odradek.pipeline.ledger.verdicts import check_exist, check_sources

CHECK_INTERVAL_S = 10


class TopicMetadata(Protocol):
    """The requests to the cluster (`pipeline.kafka_admin`)."""

    def sources(self, topics: Iterable[str]) -> dict[str, Source]:
        """Return the identities of the topics that exist."""


class SourceGuard:
    """The identities of an ingest's topics, at the last request.

    Args:
        metadata: The requests to the cluster.
        directory: The table directory, for messages.
        clock: Returns seconds, as `time.monotonic`.
    """

    def __init__(self, metadata: TopicMetadata, directory: str, clock: Callable[[], float]) -> None:
        self._metadata = metadata
        self._directory = directory
        self._clock = clock
        self._checked_at: float | None = None
        self._sources: dict[str, Source] = {}

    @property
    def sources(self) -> Mapping[str, Source]:
        return self._sources

    def check(self, topics: Iterable[str], state: LedgerState) -> None:
        """Request the identities of the topics, and compare them with the ledger.

        Raises:
            PipelineError: A topic is not the topic of the ledger, or no longer exists. The cluster
                did not respond.
        """
        topics = tuple(topics)
        existing = self._metadata.sources(topics)
        check_exist(self._directory, state, topics, existing)
        self._sources.update(existing)
        check_sources(self._directory, state, self._sources)
        self._checked_at = self._clock()

    def check_plan(
        self, planned: Iterable[PlannedRange], went_back: bool, state: LedgerState
    ) -> None:
        """Check the topics of a plan if a rule of this module requires it.

        Args:
            planned: The planned offsets of the batch.
            went_back: Whether a partition ends before its start.
            state: The ledger of the table.

        Raises:
            PipelineError: As `check`.
        """
        planned = tuple(planned)
        topics = {one.topic for one in planned} | set(self._sources)
        if went_back or self._is_old() or not all(self._is_known(one, state) for one in planned):
            self.check(sorted(topics), state)

    def _is_old(self) -> bool:
        return self._checked_at is None or self._clock() - self._checked_at >= CHECK_INTERVAL_S

    def _is_known(self, one: PlannedRange, state: LedgerState) -> bool:
        source = state.sources.get(one.topic)
        if source is None or one.topic not in self._sources:
            return False
        key = PartitionKey(source.cluster_id, one.topic, source.topic_id, one.partition)
        partition = state.partitions.get(key)
        return partition is not None and partition.next_offset == one.start_offset
