"""Delta Lake tables. Delta itself keeps the promise of once: a commit names its application and
version (txnAppId, txnVersion), and a second commit of a version that the application has reached is
left out. The table and the quarantine are committed one after the other, so each has an application
id of its own; both are made of the streaming query's id, which lives in the checkpoint.

A crash before a commit leaves data files that no commit names: no reader sees them, VACUUM removes
them. A crash between the two commits leaves a batch in the table alone; the restarted query runs
the batch again with the same offsets, the table leaves it out, and the quarantine takes it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.empty import empty_frame
from odradek.pipeline.sinks.commit import BatchCommit


class DeltaSink:
    """The Delta table at `path`; `role` tells the tables of one query apart."""

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
        writer = rows.write.format("delta").mode("append")
        for name, value in self.transaction_options(batch).items():
            writer = writer.option(name, value)
        writer.option("userMetadata", batch.to_json()).save(self._path)

    def transaction_options(self, batch: BatchCommit) -> dict[str, str]:
        return {
            "txnAppId": f"odradek/{self._role}/{batch.query_id}",
            "txnVersion": str(batch.batch_id),
        }

    def last_commit(self) -> BatchCommit | None:
        commits = self._newest_commits(1)
        return commits[0] if commits else None

    def commits(self) -> list[BatchCommit]:
        return self._newest_commits(None)[::-1]

    def _newest_commits(self, count: int | None) -> list[BatchCommit]:
        from delta.tables import DeltaTable

        if not self.exists():
            return []
        history = DeltaTable.forPath(self._spark, self._path).history()
        # OPTIMIZE and its like commit too, without metadata of ours.
        ours = history.where(F.col("userMetadata").startswith('{"query_id":'))
        newest = ours.orderBy(F.col("version").desc()).select("userMetadata")
        rows = newest.collect() if count is None else newest.take(count)
        return [BatchCommit.from_json(row[0]) for row in rows]

    def read(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)
