"""Iceberg tables, which take each batch once.

The table is a Hadoop table: its metadata files under ``metadata/`` have numbers, and a new one is
created by a rename. Iceberg repeats a plain append on top of a concurrent commit, so two drivers
could both append the same batch. A batch is therefore staged on the branch of the driver's epoch,
which is at the snapshot of ``main`` that the ledger was read from. A fast-forward of ``main`` to
the branch publishes it. Iceberg refuses the fast-forward if ``main`` has another snapshot by then,
or if the metadata has another change since the fast-forward was prepared.

A batch has two snapshots. The first one has the rows. The second one has no rows, and the commit as
a property (`COMMIT`), because the counts of the commit are known only after the rows were written,
and a snapshot never changes. The fast-forward publishes both. Positions of the ledger are sequence
numbers of snapshots. They only increase, also if a table is rolled back.

Each snapshot makes the metadata file longer, and each commit writes that file. `expire` removes old
snapshots after the ledger has saved their commits. The properties of the table say how many stay.
Other programs may expire snapshots too: the branch of the owner keeps the newest
`BRANCH_SNAPSHOTS`, so that no commit is lost before the ledger has saved it.

On HDFS the rename never replaces a file. On a local file system Hadoop looks whether the file
exists, and then renames. A driver that pauses in between, until another one has taken over, can
replace the newest metadata file. The other driver then finds that its batch is missing, and stops.

States after a crash:

- before the branch has the snapshot: data files that no snapshot names. Readers do not see them,
  and Iceberg's `remove_orphan_files` removes them,
- before the fast-forward: a branch ``odradek_EPOCH`` ahead of ``main``. Readers of ``main`` do not
  see it, and the next owner removes it. The restarted query runs the batch again,
- between the commits of table and quarantine: as for Delta, the quarantine takes the batch when the
  query runs it again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.evolution.merged import merged_for, same_types
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import NOTHING, SEGMENT_COMMITS, TableChange, Tail
from odradek.pipeline.sinks.commit import Check, Complete, parse_commit
from odradek.pipeline.sinks.files import HadoopFiles

logger = logging.getLogger(__name__)

COMMIT = "odradek.commit"
"""The property of a snapshot that holds the commit of its batch."""
FENCE = "odradek.fence"
"""The property of the snapshot that fences the commits of a query."""
BRANCH_PREFIX = "odradek_"
MAIN = "main"
SNAPSHOTS_A_BATCH = 2
BRANCH_SNAPSHOTS = 2 * SEGMENT_COMMITS * SNAPSHOTS_A_BATCH
"""Newest snapshots that the owner's branch keeps, so that other programs cannot expire them."""
SNAPSHOTS_KEPT = 2 * SEGMENT_COMMITS * SNAPSHOTS_A_BATCH
"""Newest snapshots that `expire` keeps, unless the properties of the table say otherwise."""
EXPIRE_AT = SNAPSHOTS_KEPT + SEGMENT_COMMITS * SNAPSHOTS_A_BATCH
"""Number of snapshots from which on `expire` removes some."""
SNAPSHOT_AGE_MIN_MS = 300_000
"""Age below which `expire` keeps a snapshot, for the queries that read it."""
METADATA_VERSIONS_MAX = 100
"""Number of earlier metadata files that are kept."""
PROPERTIES = {
    "format-version": "2",
    "history.expire.min-snapshots-to-keep": str(SNAPSHOTS_KEPT),
    "history.expire.max-snapshot-age-ms": str(SNAPSHOT_AGE_MIN_MS),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(METADATA_VERSIONS_MAX),
}
CHANGES = ("overwrite", "delete")
"""Iceberg's operations that change or remove rows. `append` and `replace` (compaction) do not."""
ROLLBACK = "rollback"
CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"


class IcebergSink:
    """The Iceberg table at `path`. One driver at a time writes it, the owner of the directory."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark)
        self._epoch: int | None = None
        self._base: int | None = None
        """The snapshot of ``main`` that `tail` returned last."""

    # -- the table ---------------------------------------------------------------------------------

    def prepare(self, schema: StructType) -> StructType:
        converted = self._convert(schema)
        table = self._load() if self.exists() else self._create(converted)
        if table.currentSnapshot() is None:
            table.newAppend().commit()  # a branch needs a snapshot to begin at
        stored = self.read().schema
        wanted = merged_for(self._path, stored, self._in_spark(converted))
        if same_types(stored, wanted):
            return stored
        try:
            table.updateSchema().unionByNameWith(self._convert(wanted)).commit()
        except IllegalArgumentException as error:  # Iceberg widens fewer types
            why = str(error).partition("\n")[0]
            raise PipelineError(
                f"The rows of this job do not fit the Iceberg table {self._path}: {why}. Use the"
                " parser and the schema of the table, or ingest into another directory."
            ) from error
        return self.read().schema

    def exists(self) -> bool:
        names = self._files.list_names(f"{self._path}/metadata")
        return any(name.endswith(".metadata.json") for name in names)

    def read(self) -> DataFrame:
        return self._spark.read.format("iceberg").load(self._path)

    # -- commits -----------------------------------------------------------------------------------

    def take_over(self, epoch: int, check: Check) -> None:
        """Create the branch of this epoch, and remove the branches of earlier owners.

        This is one commit. It also refuses the fast-forward that an earlier owner has prepared.
        """
        self._epoch = epoch
        table = self._load()
        branches = self.branches()
        update = table.manageSnapshots()
        if self._branch() not in branches:
            update.createBranch(self._branch(), table.currentSnapshot().snapshotId())
            update.setMinSnapshotsToKeep(self._branch(), BRANCH_SNAPSHOTS)
        for name in branches:
            if int(name.removeprefix(BRANCH_PREFIX)) < epoch:
                update.removeBranch(name)
        check()
        update.commit()

    def branches(self) -> list[str]:
        """Return the branches of owners of the directory."""
        return sorted(
            name
            for name in self._load().refs().keySet()
            if name.startswith(BRANCH_PREFIX) and name.removeprefix(BRANCH_PREFIX).isdigit()
        )

    def _branch(self) -> str:
        assert self._epoch is not None, "take_over comes before the first commit"
        return f"{BRANCH_PREFIX}{self._epoch}"

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        def write(branch: str) -> None:
            writer = rows.write.format("iceberg").mode("append").option("branch", branch)
            writer.save(self._path)
            self._add_commit(branch, complete())

        self._publish(write, check)

    def begin(self, commit: BatchCommit, check: Check) -> None:
        """Append the commit of a rebuilt checkpoint, which has no rows."""

        self._publish(lambda branch: self._add_commit(branch, commit), check)

    def _add_commit(self, branch: str, commit: BatchCommit) -> None:
        """Add a snapshot without rows that has the commit as a property."""
        append = self._load().newAppend().toBranch(branch)
        append.set(COMMIT, commit.to_json()).commit()

    def fence(self, query_id: str) -> None:
        """Move ``main``, so that a batch which is being committed cannot be published."""
        self._load().newAppend().set(FENCE, query_id).commit()

    def _publish(self, write: Callable[[str], None], check: Check) -> None:
        """Stage a snapshot on the branch of this epoch, and make it the table's newest one.

        Raises:
            PipelineError: The table has another snapshot since `tail`.
        """
        branch, base = self._branch(), self._base
        assert base is not None, "tail comes before a commit"
        table = self._load()
        staged = table.refs().get(branch)
        if staged is None:
            check()
            raise self._changed()
        if staged.snapshotId() != base:
            table.manageSnapshots().replaceBranch(branch, base).commit()
        write(branch)
        table.refresh()
        try:
            update = table.manageSnapshots().fastForwardBranch(MAIN, branch)
            check()
            update.commit()
        except IllegalArgumentException as error:  # main is not an ancestor of the branch
            raise self._changed() from error
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != CONFLICT:
                raise
            raise self._changed() from error

    def _changed(self) -> PipelineError:
        return PipelineError(
            f"Another program has changed {self._path} while a batch was written to it. Run one"
            " ingest for each directory, and start this one again."
        )

    def expire(self) -> None:
        """Remove old snapshots, as the properties of the table say.

        The table is right without it, so a failure is logged and the ingest continues.
        """
        table = self._load()
        if table.operations().current().snapshots().size() < EXPIRE_AT:
            return
        try:
            table.expireSnapshots().commit()
        except Py4JJavaError as error:
            logger.warning(
                "The old snapshots of %s were not removed: %s. The next removal is after %d"
                " batches.",
                self._path,
                error.java_exception.getMessage(),
                SEGMENT_COMMITS,
            )

    # -- the history -------------------------------------------------------------------------------

    def tail(self, position: int) -> Tail:
        table = self._load()
        table_id, snapshot = str(table.uuid()), table.currentSnapshot()
        self._base = None if snapshot is None else int(snapshot.snapshotId())
        newest = NOTHING if snapshot is None else int(snapshot.sequenceNumber())
        if newest < position <= int(table.operations().current().lastSequenceNumber()):
            return Tail(position, changes=(TableChange(newest, ROLLBACK),), table_id=table_id)
        if newest <= position:
            return Tail(newest, table_id=table_id)
        found: list[Any] = []
        while snapshot is not None and int(snapshot.sequenceNumber()) > position:
            found.append(snapshot)
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        commits: list[BatchCommit] = []
        changes: list[TableChange] = []
        if snapshot is not None and int(snapshot.sequenceNumber()) != position != NOTHING:
            changes.append(TableChange(int(found[-1].sequenceNumber()), ROLLBACK))
        for each in reversed(found):
            number, text = int(each.sequenceNumber()), each.summary().get(COMMIT)
            if text:
                commits.append(parse_commit(text, f"Snapshot {number} of {self._path}"))
                changes = []
            elif each.operation() in CHANGES:
                changes.append(TableChange(number, each.operation()))
        return Tail(newest, tuple(commits), tuple(changes), table_id)

    # -- Iceberg's Java API ------------------------------------------------------------------------

    def _load(self) -> Any:
        return self._tables().load(self._path)

    def _create(self, converted: Any) -> Any:
        unpartitioned = self._iceberg().PartitionSpec.unpartitioned()
        return self._tables().create(converted, unpartitioned, PROPERTIES, self._path)

    def _convert(self, schema: StructType) -> Any:
        """Return a schema in Iceberg's types. Raise PipelineError if it has no such type."""
        session: Any = self._spark._jsparkSession
        try:
            return self._iceberg().spark.SparkSchemaUtil.convert(
                session.parseDataType(schema.json())
            )
        except UnsupportedOperationException as error:
            raise PipelineError(
                f"Iceberg has no type for a field of {schema.simpleString()}:"
                f" {str(error).strip().partition(chr(10))[0]}. Use another type, or another format."
            ) from error

    def _in_spark(self, converted: Any) -> StructType:
        """Return a schema as Spark reads it. For example, a SMALLINT is an INT in Iceberg."""
        text = self._iceberg().spark.SparkSchemaUtil.convert(converted).json()
        return StructType.fromJson(json.loads(text))

    def _tables(self) -> Any:
        context: Any = self._spark.sparkContext
        return self._iceberg().hadoop.HadoopTables(context._jsc.hadoopConfiguration())

    def _iceberg(self) -> Any:
        context: Any = self._spark.sparkContext
        iceberg = context._jvm.org.apache.iceberg
        if isinstance(iceberg.hadoop.HadoopTables, JavaPackage):
            raise PipelineError(
                "The Spark session has no Iceberg. Open it with SessionOptions(iceberg=True)."
            )
        return iceberg
