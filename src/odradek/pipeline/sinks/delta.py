"""Delta Lake tables, which take each batch once.

A commit names its application and version (txnAppId, txnVersion). Delta skips a commit of a version
that the application has already reached. It skips without an error, so the sink first compares the
batch with the commit in the table. The table and the quarantine are committed one after the other,
so each has its own application id. Both ids contain the streaming query's id, which is stored in
the checkpoint.

A crash before a commit leaves data files that no commit names. Readers do not see them, and VACUUM
removes them. A crash between the two commits leaves a batch in the table alone. The restarted query
runs the batch again with the same offsets. The table skips it, and the quarantine takes it.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.empty import empty_frame
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.verdicts import check_repeated


class DeltaSink:
    """The Delta table at `path`. `role` is "table" or "quarantine"."""

    def __init__(self, spark: SparkSession, path: str, role: str) -> None:
        self._spark = spark
        self._path = path
        self._role = role

    def prepare(self, schema: StructType) -> None:
        empty = empty_frame(self._spark, schema)
        empty.write.format("delta").mode("ignore").save(self._path)

    def exists(self) -> bool:
        from delta.tables import DeltaTable

        return bool(DeltaTable.isDeltaTable(self._spark, self._path))

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        if batch.batch_id <= self._newest_batch_id(batch.query_id):
            check_repeated(self._path, self._find_commit(batch), batch)
            return
        writer = rows.write.format("delta").mode("append")
        for name, value in self.transaction_options(batch).items():
            writer = writer.option(name, value)
        writer.option("userMetadata", batch.to_json()).save(self._path)

    def transaction_options(self, batch: BatchCommit) -> dict[str, str]:
        return {
            "txnAppId": self._application_id(batch.query_id),
            "txnVersion": str(batch.batch_id),
        }

    def _application_id(self, query_id: str) -> str:
        return f"odradek/{self._role}/{query_id}"

    def _newest_batch_id(self, query_id: str) -> int:
        """Return the newest batch of the query, or -1: Delta skips batches up to this one.

        Delta keeps the number in the table's state. The history is not sufficient, because Delta
        removes its entries after 30 days.
        """
        context: Any = self._spark.sparkContext
        delta_log = context._jvm.org.apache.spark.sql.delta.DeltaLog
        none = context._jvm.scala.Option.empty()
        state = delta_log.forTable(self._spark._jsparkSession, self._path).update(False, none, none)
        version = state.transactions().get(self._application_id(query_id))
        return int(version.get()) if version.isDefined() else -1

    def last_commit(self) -> BatchCommit | None:
        if not self.exists():
            return None
        newest = self._commit_history().orderBy(F.col("version").desc()).take(1)
        return BatchCommit.from_json(newest[0]["userMetadata"]) if newest else None

    def commits(self) -> list[BatchCommit]:
        if not self.exists():
            return []
        rows = self._commit_history().orderBy("version").collect()
        return [BatchCommit.from_json(row["userMetadata"]) for row in rows]

    def _find_commit(self, batch: BatchCommit) -> BatchCommit | None:
        """Return the commit of the batch's number, or None if the history does not have it."""
        head = f'{{"query_id":{json.dumps(batch.query_id)},"batch_id":{batch.batch_id},'
        found = self._commit_history().where(F.col("userMetadata").startswith(head)).take(1)
        return BatchCommit.from_json(found[0]["userMetadata"]) if found else None

    def _commit_history(self) -> DataFrame:
        """Return the rows of the history that this sink wrote (OPTIMIZE also writes rows)."""
        from delta.tables import DeltaTable

        history = DeltaTable.forPath(self._spark, self._path).history()
        return history.where(F.col("userMetadata").startswith('{"query_id":'))

    def read(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)
