"""Iceberg tables, which take each batch once.

The table is a Hadoop table: its metadata files under ``metadata/`` have numbers, and a new one is
created by a rename that never replaces another. Iceberg's append would be repeated on top of a
concurrent commit, so it cannot tell that another driver has written the same batch. A batch is
therefore staged on a branch of the driver's epoch. The branch begins at the snapshot that the
ledger was read from. A fast-forward of ``main`` to the branch publishes it. Iceberg refuses the
fast-forward if ``main`` has another snapshot by then.

The commit of a batch is a property of its snapshot (`COMMIT`). Positions of the ledger are sequence
numbers of snapshots. They only increase, also if a table is rolled back.

States after a crash:

- before the branch has the snapshot: data files that no snapshot names. Readers do not see them,
  and Iceberg's `remove_orphan_files` removes them,
- before the fast-forward: a branch ``odradek_EPOCH``. Readers of ``main`` do not see it, and the
  next owner removes it. The restarted query runs the batch again,
- between the commits of table and quarantine: as for Delta, the quarantine takes the batch when the
  query runs it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import NOTHING, TableChange, Tail
from odradek.pipeline.sinks.commit import Check
from odradek.pipeline.sinks.files import HadoopFiles

COMMIT = "odradek.commit"
"""The property of a snapshot that holds the commit of its batch."""
FENCE = "odradek.fence"
"""The property of the snapshot that fences the commits of a query."""
BRANCH_PREFIX = "odradek_"
MAIN = "main"
METADATA_VERSIONS_MAX = 100
"""Number of earlier metadata files that are kept."""
PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(METADATA_VERSIONS_MAX),
}
CHANGES = ("overwrite", "delete")
"""Iceberg's operations that change or remove rows. `append` and `replace` (compaction) do not."""


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

    def prepare(self, schema: StructType) -> None:
        table = self._load() if self.exists() else self._create(schema)
        if table.currentSnapshot() is None:
            table.newAppend().commit()  # a branch needs a snapshot to begin at
        stored = self.read().schema
        if _shape(stored) != _shape(schema):
            raise PipelineError(
                f"{self._path} has the schema {stored.simpleString()}, and the rows of this job"
                f" have {schema.simpleString()}. Use the parser and the schema of the table, or"
                " ingest into another directory."
            )

    def exists(self) -> bool:
        names = self._files.list_names(f"{self._path}/metadata")
        return any(name.endswith(".metadata.json") for name in names)

    def read(self) -> DataFrame:
        return self._spark.read.format("iceberg").load(self._path)

    # -- commits -----------------------------------------------------------------------------------

    def take_over(self, epoch: int, check: Check) -> None:
        """Remove the branches of earlier owners."""
        self._epoch = epoch
        for name in self.branches():
            if int(name.removeprefix(BRANCH_PREFIX)) < epoch:
                check()
                self._load().manageSnapshots().removeBranch(name).commit()

    def branches(self) -> list[str]:
        """Return the branches of owners of the directory."""
        names = list(self._load().refs().keySet()) if self.exists() else []
        return sorted(
            name
            for name in names
            if name.startswith(BRANCH_PREFIX) and name.removeprefix(BRANCH_PREFIX).isdigit()
        )

    def append(self, rows: DataFrame, commit: BatchCommit, check: Check) -> None:
        def write(branch: str) -> None:
            writer = rows.write.format("iceberg").mode("append").option("branch", branch)
            writer.option(f"snapshot-property.{COMMIT}", commit.to_json()).save(self._path)

        self._publish(write, check)

    def begin(self, commit: BatchCommit, check: Check) -> None:
        """Append the commit of a rebuilt checkpoint, which has no rows."""

        def write(branch: str) -> None:
            append = self._load().newAppend().toBranch(branch)
            append.set(COMMIT, commit.to_json()).commit()

        self._publish(write, check)

    def fence(self, query_id: str) -> None:
        """Move ``main``, so that a batch which is being committed cannot be published."""
        self._load().newAppend().set(FENCE, query_id).commit()

    def _publish(self, write: Callable[[str], None], check: Check) -> None:
        """Stage a snapshot on the branch of this epoch, and make it the table's newest one.

        Raises:
            PipelineError: The table has another snapshot since `tail`.
        """
        assert self._epoch is not None, "take_over comes before the first commit"
        branch = f"{BRANCH_PREFIX}{self._epoch}"
        base = self._base
        assert base is not None, "tail comes before a commit"
        table = self._load()
        staged = table.refs().get(branch)
        snapshots = table.manageSnapshots()
        if staged is None:
            snapshots.createBranch(branch, base).commit()
        elif staged.snapshotId() != base:
            snapshots.replaceBranch(branch, base).commit()
        write(branch)
        check()
        table.refresh()
        try:
            table.manageSnapshots().fastForwardBranch(MAIN, branch).commit()
        except Py4JJavaError as error:
            raise PipelineError(
                f"Another program has changed {self._path} while a batch was written to it. Run one"
                " ingest for each directory, and start this one again."
            ) from error

    # -- the history -------------------------------------------------------------------------------

    def tail(self, position: int) -> Tail:
        table = self._load()
        table_id, snapshot = str(table.uuid()), table.currentSnapshot()
        self._base = None if snapshot is None else int(snapshot.snapshotId())
        newest = NOTHING if snapshot is None else int(snapshot.sequenceNumber())
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
            changes.append(TableChange(int(found[-1].sequenceNumber()), "rollback"))
        for each in reversed(found):
            number, text = int(each.sequenceNumber()), each.summary().get(COMMIT)
            if text:
                commits.append(self._parse(text, number))
                changes = []
            elif each.operation() in CHANGES:
                changes.append(TableChange(number, each.operation()))
        return Tail(newest, tuple(commits), tuple(changes), table_id)

    def _parse(self, text: str, number: int) -> BatchCommit:
        try:
            return BatchCommit.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(
                f"Snapshot {number} of {self._path} has a commit that this version of Odradek"
                f" cannot read: {error}. Use the version that wrote it."
            ) from error

    # -- Iceberg's Java API ------------------------------------------------------------------------

    def _load(self) -> Any:
        return self._tables().load(self._path)

    def _create(self, schema: StructType) -> Any:
        context: Any = self._spark.sparkContext
        iceberg = context._jvm.org.apache.iceberg
        session: Any = self._spark._jsparkSession
        converted = iceberg.spark.SparkSchemaUtil.convert(session.parseDataType(schema.json()))
        unpartitioned = iceberg.PartitionSpec.unpartitioned()
        return self._tables().create(converted, unpartitioned, PROPERTIES, self._path)

    def _tables(self) -> Any:
        context: Any = self._spark.sparkContext
        conf = context._jsc.hadoopConfiguration()
        return context._jvm.org.apache.iceberg.hadoop.HadoopTables(conf)


def _shape(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types. Iceberg does not keep whether an array's elements may be null."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
