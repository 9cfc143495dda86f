"""Parquet tables with a directory for each batch, which a repeated batch overwrites.

    table/
      batch_id=0/part-*.parquet     a batch's rows; moved here from _staging by one rename
      batch_id=1/...
      _commits/0.json               the batch's commit (ledger.commits); written after the rename
      _staging/batch_id=2/...       an unfinished batch, which no reader reads

A batch is committed when its commit file exists, and `read` reads only committed batches. A crash
before the rename leaves files in _staging, which the next run of the batch overwrites. A crash
between the rename and the commit file leaves a complete directory without a commit. The next run of
the batch replaces that directory. A committed batch is never changed, so its rows never move for a
reader. On a local file system and on HDFS a rename is atomic, so a reader that globs batch_id=*
also sees only complete batches. On an object store a rename is not atomic: use `read`.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.empty import empty_frame
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.verdicts import check_repeated
from odradek.pipeline.sinks.files import HadoopFiles


class ParquetSink:
    """The Parquet table at `path`. One query writes it: its batch ids are the directories."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark)
        self._newest: int | None = None

    def prepare(self, schema: StructType) -> None:
        if not self.exists():
            self._files.write_text(self._schema_file(), schema.json())

    def exists(self) -> bool:
        return self._files.exists(self._schema_file())

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        stored = self._find_commit(batch.batch_id)
        if stored is not None or batch.batch_id < self._newest_batch_id():
            check_repeated(self._path, stored, batch)
            return
        staging = f"{self._path}/_staging/batch_id={batch.batch_id}"
        target = self._batch_dir(batch.batch_id)
        rows.write.mode("overwrite").parquet(staging)
        self._files.delete(target)
        self._files.rename(staging, target)
        self._files.write_text(self._commit_file(batch.batch_id), batch.to_json())
        self._newest = batch.batch_id

    def _newest_batch_id(self) -> int:
        """Return the newest batch in the table, or -1. Only the first call lists the directory."""
        if self._newest is None:
            self._newest = max(self._committed_ids(), default=-1)
        return self._newest

    def last_commit(self) -> BatchCommit | None:
        ids = self._committed_ids()
        return self._find_commit(ids[-1]) if ids else None

    def commits(self) -> list[BatchCommit]:
        found = (self._find_commit(batch_id) for batch_id in self._committed_ids())
        return [commit for commit in found if commit is not None]

    def read(self) -> DataFrame:
        schema = StructType.fromJson(json.loads(self._files.read_text(self._schema_file())))
        paths = [self._batch_dir(batch_id) for batch_id in self._committed_ids()]
        if not paths:
            return empty_frame(self._spark, schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def _committed_ids(self) -> list[int]:
        names = self._files.list_names(f"{self._path}/_commits")
        return sorted(int(name[:-5]) for name in names if name.endswith(".json"))

    def _find_commit(self, batch_id: int) -> BatchCommit | None:
        path = self._commit_file(batch_id)
        if not self._files.exists(path):
            return None
        return BatchCommit.from_json(self._files.read_text(path))

    def _batch_dir(self, batch_id: int) -> str:
        return f"{self._path}/batch_id={batch_id}"

    def _commit_file(self, batch_id: int) -> str:
        return f"{self._path}/_commits/{batch_id}.json"

    def _schema_file(self) -> str:
        return f"{self._path}/_schema.json"
