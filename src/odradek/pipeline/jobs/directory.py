"""The table directory of a running ingest: its owner, tables, ledgers, and topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka_admin import KafkaAdmin
from odradek.pipeline.ledger.owner import Heartbeat, Processes, claim
from odradek.pipeline.ledger.source_guard import SourceGuard
from odradek.pipeline.ledger.verdicts import check_not_older, check_removed, next_starts
from odradek.pipeline.sinks.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.checkpoint import Checkpoint
    from odradek.pipeline.jobs.options import IngestOptions

ADVICE = "Bring it back, or ingest into another directory."
REBUILD_ADVICE = "Bring it back, or continue from the table with --rebuild-checkpoint."


class OwnedDirectory:
    """The directory of one ingest, from the claim to `close`.

    The constructor claims the directory and starts the heartbeat. Call `open` next.

    Raises:
        PipelineError: Another driver owns the directory.
    """

    def __init__(self, spark: SparkSession, options: IngestOptions, processes: Processes) -> None:
        self._options = options
        tables = options.tables
        root = tables.root.rstrip("/")
        self.owner = claim(HadoopFiles(spark), root, processes, time.sleep)
        self._heartbeat = Heartbeat(self.owner, failures=(OSError, Py4JJavaError))
        self._heartbeat.start()
        self.admin = KafkaAdmin(spark, options.bootstrap_servers, options.kafka)
        self.guard = SourceGuard(self.admin, root, time.monotonic)
        self.table, self.quarantine = (
            tables.ledgered(spark, role, self.owner.check, accept_changes=options.accept_loss)
            for role in ("table", "quarantine")
        )

    def close(self) -> None:
        """Close the admin client, and release the directory."""
        self.admin.close()
        self._heartbeat.stop()

    def open(
        self,
        checkpoint: Checkpoint,
        prepare: Callable[[], None],
        rebuild_checkpoint: Callable[[], None] | None,
    ) -> None:
        """Check that everything belongs together, and load the ledgers.

        Args:
            checkpoint: Spark's checkpoint of the directory.
            prepare: Creates the tables that do not exist.
            rebuild_checkpoint: Replaces the checkpoint, if the operator has requested it.

        Raises:
            PipelineError: A table or the checkpoint is lost, or belongs to another query. A topic
                is not the topic of the ledger. Another program changed a table.
        """
        self._check_tables_exist(checkpoint)
        prepare()
        for table in (self.table, self.quarantine):
            table.open(self.owner.epoch)
        self.guard.check(self._options.topics, self.table.store.state)
        if rebuild_checkpoint is not None:
            rebuild_checkpoint()
        self._check_checkpoint(checkpoint)
        self._check_removed(checkpoint)

    def check_topics(self, checkpoint: Checkpoint) -> None:
        """Raise PipelineError if a topic is not the topic of the ledger, or lacks offsets.

        Spark fails with an error of its own if a topic that was created again is shorter than
        before, and if a topic has removed offsets before they were loaded.
        """
        self.guard.check(self._options.topics, self.table.store.state)
        self._check_removed(checkpoint)

    def _check_removed(self, checkpoint: Checkpoint) -> None:
        if self._options.accept_loss:
            return
        partitions = [
            (topic, number)
            for topic in self._options.topics
            if topic in self.guard.sources
            for number in self.admin.partitions(topic)
        ]
        loaded = self.table.store.state.next_offsets()
        starts = next_starts(loaded, checkpoint.known_offsets(), partitions)
        if starts:
            check_removed(self._options.tables.root, starts, self.admin.earliest(partitions))

    def _check_tables_exist(self, checkpoint: Checkpoint) -> None:
        """Raise PipelineError if a table is lost. The job would leave a gap."""
        tables = self._options.tables
        done = checkpoint.has_finished_batch()
        for name, table in (("table", self.table), ("quarantine", self.quarantine)):
            if done and not table.exists():
                raise PipelineError(
                    f"The checkpoint {tables.checkpoint} has finished batches, but"
                    f" {tables.path(name)} is missing. Its rows would not be written again."
                    f" {ADVICE}"
                )

    def _check_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Raise PipelineError if the checkpoint is lost, or belongs to another query.

        Without its checkpoint the job would write every record twice.
        """
        tables = self._options.tables
        query_id = self.table.store.state.query_id
        if not checkpoint.exists() and (query_id is not None or self.table.has_rows()):
            raise PipelineError(
                f"{tables.path('table')} has rows, but its checkpoint {tables.checkpoint} is"
                f" missing. Without it each record would be ingested twice. {REBUILD_ADVICE}"
            )
        if query_id is not None and query_id != checkpoint.query_id():
            raise PipelineError(
                f"{tables.checkpoint} is not the checkpoint of {tables.path('table')}."
                f" {REBUILD_ADVICE}"
            )
        checkpoint.check_plans_exist()
        checkpoint.check_newest_files()
        finished = checkpoint.finished_offsets()
        check_not_older(tables.path("table"), self.table.store.state, finished)
        self._check_quarantine_is_not_older(checkpoint)

    def _check_quarantine_is_not_older(self, checkpoint: Checkpoint) -> None:
        """Raise PipelineError if the quarantine lacks the newest rejected records of the table.

        A crash between the two commits of a batch leaves it in the table alone. The checkpoint has
        not finished that batch.
        """
        newest = self.table.store.state.newest_rejected
        if newest is None or self.quarantine.store.find(*newest) is not None:
            return
        query_id, batch_id = newest
        if query_id == checkpoint.query_id() and batch_id > checkpoint.newest_finished():
            return
        raise PipelineError(
            f"{self._options.tables.path('quarantine')} lacks the rejected records of batch"
            f" {batch_id}, which the table has: the quarantine is an older copy. Bring the newest"
            " copy of the whole directory back, or ingest into another directory."
        )
