"""Parquet tables with a directory for each batch (`sinks.batch_directories` has the files).

    table/_schemas/N.json    the schemas of the table. The one with the highest number is valid

`read` reads only committed batches. On a local file system and on HDFS a rename is atomic, so a
reader that globs batch_id=* sees only complete batches, and at times a batch without its commit.
On an object store a rename is not atomic: use `read`.

The commit of a batch has the number `first_number + batch_id`. The first number is 0 until a
checkpoint was rebuilt.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.empty import empty_frame
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.evolution.merged import merged_for, same_types
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import NOTHING, Tail
from odradek.pipeline.sinks.batch_directories import BatchDirectories
from odradek.pipeline.sinks.commit import Check, Complete
from odradek.pipeline.sinks.files import HadoopFiles


class ParquetSink:
    """The Parquet table at `path`. One driver at a time writes it, the owner of the directory."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark)
        self._directories = BatchDirectories(self._files, self._path)
        self._epoch: int | None = None
        self._own: list[BatchCommit] = []
        self._newest: int | None = None
        self._count = 0

    def prepare(self, schema: StructType) -> StructType:
        stored = self._schema()
        wanted = schema if stored is None else merged_for(self._path, stored, schema)
        if stored is None or not same_types(stored, wanted):
            self._files.make_directory(f"{self._path}/_schemas")
            number = max(self._schema_numbers(), default=-1) + 1
            self._files.create_text(self._schema_file(number), wanted.json())
            return wanted
        return stored

    def exists(self) -> bool:
        return self._schema() is not None

    def take_over(self, epoch: int, check: Check) -> None:
        self._directories.take_over(epoch, check)
        self._epoch = epoch
        self._newest = None

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        assert self._epoch is not None, "take_over comes before append"
        number = draft.number
        rows.write.mode("overwrite").parquet(self._directories.staging(self._epoch, number))
        commit = complete()
        self._directories.publish(self._epoch, number, commit.to_json(), check)
        self._own.append(commit)

    def fence(self, query_id: str) -> None:
        """Do nothing: earlier owners are fenced since `take_over`."""

    def begin(self, commit: BatchCommit, check: Check) -> None:
        """Commit an empty directory."""
        assert self._epoch is not None, "take_over comes before begin"
        self._files.make_directory(self._directories.staging(self._epoch, commit.number))
        self._directories.publish(self._epoch, commit.number, commit.to_json(), check)
        self._own.append(commit)

    def expire(self) -> None:
        """Do nothing: the table has no versions."""

    def tail(self, position: int) -> Tail:
        """Return the commits after a position.

        The owner lists the directory once. After that no other driver can commit.
        """
        if self._epoch is None or self._newest is None:
            numbers = self._directories.committed()
            commits = [self._read_commit(one) for one in numbers if one > position]
            self._newest = max(numbers, default=NOTHING)
            self._count = len(numbers)
            self._own = []
        else:
            commits, self._own = self._own, []
            self._newest = max([self._newest, *(one.number for one in commits)])
            self._count += len(commits)
        return Tail(self._newest, tuple(commits), count=self._count)

    def _read_commit(self, number: int) -> BatchCommit:
        path = self._directories.commit_file(number)
        try:
            return BatchCommit.from_json(self._files.read_text(path))
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(
                f"The commit {path} cannot be read: {error}. Use the version that wrote it, or"
                " bring a copy of the file back."
            ) from error

    def read(self) -> DataFrame:
        schema = self._schema()
        assert schema is not None, f"{self._path} is not a table"
        paths = [self._directories.directory(one) for one in self._directories.committed()]
        if not paths:
            return empty_frame(self._spark, schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def _schema(self) -> StructType | None:
        """Return the newest schema of the table, also where an older version wrote it."""
        numbers = self._schema_numbers()
        path = self._schema_file(max(numbers)) if numbers else f"{self._path}/_schema.json"
        if not numbers and not self._files.exists(path):
            return None
        return StructType.fromJson(json.loads(self._files.read_text(path)))

    def _schema_numbers(self) -> list[int]:
        names = self._files.list_names(f"{self._path}/_schemas")
        numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return [int(one) for one in numbers if one.isdigit()]

    def _schema_file(self, number: int) -> str:
        return f"{self._path}/_schemas/{number}.json"
