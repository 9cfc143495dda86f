"""Writer of one micro-batch of an ingest: parse, commit the table, commit the quarantine.

Spark calls the writer with the same batch id and the same offsets until the checkpoint records the
batch as done. After a crash in the writer Spark repeats the batch, and each sink skips a batch that
it has.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.sinks.commit import Sink, read_ranges
from odradek.pipeline.transforms.quarantine import accepted, rejected
from odradek.pipeline.transforms.raw import Parser, records


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
    """

    def __init__(
        self,
        parser: Parser,
        parser_name: str,
        table: Sink,
        quarantine: Sink,
        checkpoint: Checkpoint,
    ) -> None:
        self._parser = parser
        self._parser_name = parser_name
        self._table = table
        self._quarantine = quarantine
        self._checkpoint = checkpoint
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
        planned = self._checkpoint.planned_ranges(batch_id)
        parsed = self._parser(records(source)).persist()
        try:
            ranges, rejected_count = read_ranges(parsed)
            check_read_as_planned(batch_id, planned, ranges)
            if planned:
                self._commit(parsed, batch_id, planned, ranges, rejected_count)
        finally:
            parsed.unpersist()

    def _commit(
        self,
        parsed: DataFrame,
        batch_id: int,
        planned: tuple[PlannedRange, ...],
        ranges: tuple[ReadRange, ...],
        rejected_count: int,
    ) -> None:
        query_id = self._checkpoint.query_id()
        accepted_count = sum(one.rows for one in ranges) - rejected_count
        commit = BatchCommit(query_id, batch_id, accepted_count, ranges, planned)
        self._table.commit(accepted(parsed), commit)
        if rejected_count:
            commit = replace(commit, rows=rejected_count)
            self._quarantine.commit(rejected(parsed, self._parser_name), commit)
        if ranges:
            with self._lock:
                self._counts[batch_id] = BatchCounts(batch_id, accepted_count, rejected_count)

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
