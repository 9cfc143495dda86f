"""Writer of one micro-batch of an ingest: parse, commit the table, commit the quarantine.

Spark calls the writer with the same batch id and the same offsets until the checkpoint records the
batch as done. After a crash in the writer Spark repeats the batch, and each sink skips a batch that
it has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.errors import ExpectationFailed, PipelineError, TooManyRejects
from odradek.pipeline.jobs.observed_batch import ObservedBatch
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.ledger.source_guard import SourceGuard
from odradek.pipeline.ledger.state import lost_ranges
from odradek.pipeline.sinks.commit import CountedBatch
from odradek.pipeline.sinks.ledgered import LedgeredTable
from odradek.pipeline.transforms.expectations import OnFailure
from odradek.pipeline.transforms.quarantine import accepted, rejected
from odradek.pipeline.transforms.raw import Parser, records

logger = logging.getLogger(__name__)

Earliest = Callable[[Iterable[tuple[str, int]]], Mapping[tuple[str, int], int]]


class _TableBatch:
    """The accepted rows of a batch, which are counted while they are written."""

    def __init__(
        self,
        parsed: DataFrame,
        draft: BatchCommit,
        complete: Callable[[BatchCommit, tuple[ReadRange, ...], Mapping[str, int]], BatchCommit],
        expectations: Sequence[str],
    ) -> None:
        assert draft.planned is not None
        self.observed = ObservedBatch(parsed, draft.planned, expectations)
        self.rows = accepted(self.observed.rows)
        self.draft = draft
        self._complete = complete

    def complete(self, draft: BatchCommit) -> BatchCommit:
        return self._complete(draft, self.observed.ranges(), self.observed.failures())

    def count(self, draft: BatchCommit) -> BatchCommit:
        return self._complete(draft, self.observed.read_ranges(), {})


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The rows of one batch."""

    batch_id: int
    accepted: int
    rejected: int


class BatchWriter:
    """The function that Spark calls for each batch (`foreachBatch`).

    Spark calls it from a thread of its own. `take_counts` and `failure` belong to the thread that
    shows progress.

    Args:
        parser: The parser of the records.
        parser_name: Its name, for the quarantine.
        table: The table for records that parse.
        quarantine: The table for the others.
        checkpoint: Spark's checkpoint.
        guard: The check of the topics' identities.
        epoch: The epoch of this driver.
        expectations: What happens to rows that do not meet an expectation, by its name. The
            records of the parser then have the column `NOT_MET`.
        rejects_max: The largest share of rejected records in a batch, from 0 to 1.
        publish_lag: Called with the end offsets of a batch, after its commits.
        earliest: Returns the earliest offsets of partitions, to record lost offsets. None if the
            job fails when offsets are lost.
    """

    def __init__(
        self,
        parser: Parser,
        parser_name: str,
        table: LedgeredTable,
        quarantine: LedgeredTable,
        checkpoint: Checkpoint,
        guard: SourceGuard,
        epoch: int,
        expectations: Mapping[str, OnFailure],
        rejects_max: float,
        publish_lag: Callable[[Mapping[tuple[str, int], int]], None],
        earliest: Earliest | None,
    ) -> None:
        self._parser = parser
        self._parser_name = parser_name
        self._table = table
        self._quarantine = quarantine
        self._checkpoint = checkpoint
        self._guard = guard
        self._epoch = epoch
        self._expectations = expectations
        self._rejects_max = rejects_max
        self._publish_lag = publish_lag
        self._earliest = earliest
        self._lock = threading.Lock()
        self._counts: dict[int, BatchCounts] = {}
        self._failure: PipelineError | None = None

    def __call__(self, source: DataFrame, batch_id: int) -> None:
        try:
            self._write(source, batch_id)
        except PipelineError as error:
            self._failure = error
            raise

    def _write(self, source: DataFrame, batch_id: int) -> None:
        planned, went_back = self._checkpoint.plan(batch_id)
        self._guard.check_plan(planned, went_back, self._table.store.state)
        parsed = self._parser(records(source))
        draft = self._draft(batch_id, planned)
        batch = _TableBatch(parsed, draft, self._complete, tuple(self._expectations))
        if not planned:
            check_read_as_planned(batch_id, planned, batch.observed.read_ranges())
            return
        commit = self._table.commit(batch)
        if commit.rejected:
            rows = rejected(parsed, self._parser_name)
            of_rejected = replace(
                draft,
                rows=commit.rejected,
                ranges=commit.ranges,
                lost=commit.lost,
                not_met=commit.not_met,
            )
            self._quarantine.commit(CountedBatch(rows, of_rejected))
        self._publish_lag({one.topic_partition: one.end_offset for one in planned})
        if commit.ranges:
            with self._lock:
                self._counts[batch_id] = BatchCounts(batch_id, commit.rows, commit.rejected)

    def _draft(self, batch_id: int, planned: tuple[PlannedRange, ...]) -> BatchCommit:
        sources = {one.topic: self._guard.sources.get(one.topic) for one in planned}
        return BatchCommit(
            self._checkpoint.query_id(),
            batch_id,
            0,
            (),
            planned,
            self._epoch,
            next((one.cluster_id for one in sources.values() if one), None),
            {topic: one.topic_id for topic, one in sources.items() if one and one.topic_id},
        )

    def _complete(
        self, draft: BatchCommit, ranges: tuple[ReadRange, ...], not_met: Mapping[str, int]
    ) -> BatchCommit:
        """Return the commit of a batch with the ranges that it read.

        Raises:
            PipelineError: The batch has records that were not planned, or too many rejected ones.
        """
        assert draft.planned is not None
        check_read_as_planned(draft.batch_id, draft.planned, ranges)
        read_count = sum(one.rows for one in ranges)
        rejected_count = sum(one.rejected or 0 for one in ranges)
        self._check_expectations(draft.batch_id, not_met)
        self._check_rejects(draft.batch_id, read_count, rejected_count)
        lost = self._lost(draft.planned, ranges)
        return replace(
            draft, rows=read_count - rejected_count, ranges=ranges, lost=lost, not_met=not_met
        )

    def _check_expectations(self, batch_id: int, not_met: Mapping[str, int]) -> None:
        for name, count in not_met.items():
            if not count:
                continue
            if self._expectations[name] is OnFailure.FAIL:
                raise ExpectationFailed(
                    f"Batch {batch_id} has {count:,} records that do not meet the expectation"
                    f" {name}. Nothing of the batch was committed. Correct the records' producer,"
                    " or let the expectation drop or warn. The next start reads the same records."
                )
            logger.warning(
                "Batch %d has %d records that do not meet the expectation %s.",
                batch_id,
                count,
                name,
            )

    def _check_rejects(self, batch_id: int, read_count: int, rejected_count: int) -> None:
        if rejected_count > self._rejects_max * read_count:
            raise TooManyRejects(
                f"Batch {batch_id} has {rejected_count:,} rejected records of {read_count:,}, and"
                f" the largest share is {self._rejects_max:g}. Nothing of the batch was committed."
                " Correct the parser or its schema, or allow a larger share with --rejects-max. The"
                " next start reads the same records."
            )

    def _lost(
        self, planned: tuple[PlannedRange, ...], ranges: tuple[ReadRange, ...]
    ) -> tuple[PlannedRange, ...]:
        """Return the planned offsets that the topics have removed, if the job may lose them."""
        if self._earliest is None or not planned:
            return ()
        earliest = self._earliest(one.topic_partition for one in planned)
        return lost_ranges(planned, ranges, earliest)

    def take_counts(self, batch_id: int) -> BatchCounts | None:
        """Return the counts of a finished batch once, or None if the batch has no rows."""
        with self._lock:
            return self._counts.pop(batch_id, None)

    @property
    def failure(self) -> PipelineError | None:
        """The error that ended the query, which Spark reports as the text of a traceback."""
        return self._failure


def check_read_as_planned(
    batch_id: int, planned: tuple[PlannedRange, ...], ranges: tuple[ReadRange, ...]
) -> None:
    """Raise PipelineError if a batch has records that the checkpoint did not plan for it."""
    plan = {(one.topic, one.partition): one for one in planned}
    for one in ranges:
        range_planned = plan.get((one.topic, one.partition))
        if range_planned is None or not range_planned.contains(one):
            raise PipelineError(
                f"Batch {batch_id} has records of {one.topic}-{one.partition} with offsets"
                f" {one.first_offset} to {one.last_offset}, which the checkpoint did not plan."
                " Another job may use the checkpoint: stop it, and start this job again."
            )
