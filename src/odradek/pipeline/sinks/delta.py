"""Delta Lake tables, which take each batch once.

A commit names its application and version (txnAppId, txnVersion). Delta skips a commit of a version
that the application has already reached. It skips without an error, so `sinks.ledgered` first
compares the batch with the table's ledger, and reads the table's log after each commit. The table
and the quarantine are committed one after the other, so each has its own application id. Both ids
contain the streaming query's id, which is stored in the checkpoint.

Of two drivers that commit a batch of one query at the same time, one succeeds. The other one fails,
because Delta compares the application ids of concurrent commits.

A crash before a commit leaves data files that no commit names. Readers do not see them, and VACUUM
removes them. A crash between the two commits leaves a batch in the table alone. The restarted query
runs the batch again with the same offsets. The table skips it, and the quarantine takes it.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.empty import empty_frame
from odradek.pipeline.evolution.merged import has_wider_types, merged_for, same_types
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import TableChange, Tail
from odradek.pipeline.sinks.commit import Check, Complete, parse_commit
from odradek.pipeline.sinks.delta_transaction import DeltaAppend
from odradek.pipeline.sinks.files import HadoopFiles

FENCE_VERSION = 2**62
"""Version of a transaction that is higher than each batch number."""
COMMIT_START = '{"query_id":'
CHANGES = (
    "DELETE",
    "UPDATE",
    "MERGE",
    "TRUNCATE",
    "RESTORE",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE",
)
"""Beginnings of Delta's names of operations that change or remove rows. OPTIMIZE and VACUUM do not.
"""


class DeltaSink:
    """The Delta table at `path`. `role` is "table" or "quarantine"."""

    def __init__(self, spark: SparkSession, path: str, role: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._role = role
        self._files = HadoopFiles(spark)

    def prepare(self, schema: StructType) -> StructType:
        if not self.exists():
            empty = empty_frame(self._spark, schema)
            empty.write.format("delta").mode("ignore").save(self._path)
            return self.read().schema
        stored = self.read().schema
        wanted = merged_for(self._path, stored, schema)
        if same_types(stored, wanted):
            return stored
        if has_wider_types(stored, wanted):  # readers of the table then need Delta 3.2
            self._spark.sql(
                f"ALTER TABLE delta.`{self._path}`"
                " SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
            )
        empty = empty_frame(self._spark, wanted)
        empty.write.format("delta").mode("append").option("mergeSchema", "true").save(self._path)
        return self.read().schema

    def exists(self) -> bool:
        from delta.tables import DeltaTable

        return bool(DeltaTable.isDeltaTable(self._spark, self._path))

    def take_over(self, epoch: int, check: Check) -> None:
        """Do nothing: Delta's conflict check refuses the batches of an earlier owner."""

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        application = self.application_id(draft.query_id)
        append = DeltaAppend(self._spark, self._path, rows, application, draft.batch_id)
        if append.is_done():
            return
        append.write()
        commit = complete()
        check()
        append.commit(commit.to_json())

    def fence(self, query_id: str) -> None:
        """Use up all batch numbers of the query.

        A driver that is committing a batch of the query fails, because the application id is the
        same. Delta skips later batches.
        """
        writer = self._nothing().write.format("delta").mode("append")
        options = {"txnAppId": self.application_id(query_id), "txnVersion": str(FENCE_VERSION)}
        writer.options(**options).save(self._path)

    def begin(self, commit: BatchCommit, check: Check) -> None:
        """Append the commit of a rebuilt checkpoint.

        Delta writes no version for an append without rows, unless it names a transaction.
        """
        writer = self._nothing().write.format("delta").mode("append")
        options = {
            "txnAppId": f"{self.application_id(commit.query_id)}/begin",
            "txnVersion": "0",
        }
        writer = writer.options(**options)
        writer.option("userMetadata", commit.to_json()).save(self._path)

    def expire(self) -> None:
        """Do nothing: Delta removes old files of its log with its own checkpoints."""

    def _nothing(self) -> DataFrame:
        return empty_frame(self._spark, self.read().schema)

    def application_id(self, query_id: str) -> str:
        """Return the application of a query's commits (txnAppId)."""
        return f"odradek/{self._role}/{query_id}"

    def tail(self, position: int) -> Tail:
        snapshot = self._snapshot()
        newest, table_id = int(snapshot.version()), str(snapshot.metadata().id())
        if newest <= position:
            return Tail(newest, table_id=table_id)
        commits: list[BatchCommit] = []
        changes: list[TableChange] = []
        for version in range(self._first_version(position + 1), newest + 1):
            info = self._commit_info(version)
            text = info.get("userMetadata") or ""
            if text.startswith(COMMIT_START):
                commits.append(parse_commit(text, f"Version {version} of {self._path}"))
                changes = []
            elif changes_rows(info):
                changes.append(TableChange(version, info["operation"]))
        return Tail(newest, tuple(commits), tuple(changes), table_id)

    def _snapshot(self) -> Any:
        context: Any = self._spark.sparkContext
        delta_log = context._jvm.org.apache.spark.sql.delta.DeltaLog
        none = context._jvm.scala.Option.empty()
        return delta_log.forTable(self._spark._jsparkSession, self._path).update(False, none, none)

    def _first_version(self, version: int) -> int:
        """Return `version`, or the first later version if Delta has removed it from its log."""
        if self._files.exists(self._log_file(version)):
            return version
        names = self._files.list_names(f"{self._path}/_delta_log")
        numbers = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        kept = [int(one) for one in numbers if one.isdigit() and int(one) > version]
        return min(kept, default=version)

    def _commit_info(self, version: int) -> dict[str, Any]:
        """Return the description of a version. It is empty if the version has none."""
        for line in self._files.read_text(self._log_file(version)).splitlines():
            if line.startswith('{"commitInfo":'):
                info = json.loads(line)["commitInfo"]
                assert isinstance(info, dict)
                return info
        return {}

    def _log_file(self, version: int) -> str:
        return f"{self._path}/_delta_log/{version:020}.json"

    def read(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)


def changes_rows(info: dict[str, Any]) -> bool:
    """Return whether a version of another program changed or removed rows."""
    operation = str(info.get("operation", ""))
    if operation == "WRITE":
        return bool(info.get("operationParameters", {}).get("mode") == "Overwrite")
    return operation.startswith(CHANGES)
