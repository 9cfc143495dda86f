"""What a sink is asked to commit, and the offset ranges that every commit carries.

As JSON, in a Delta commit's userMetadata or a Parquet batch's commit file:

    {"query_id": "...", "batch_id": 7, "rows": 1000, "ranges": [
        {"topic": "t", "partition": 0, "first_offset": 40, "last_offset": 1041, "rows": 1002}]}

`ranges` says, per partition, which offsets of the topic the batch covers and how many records it
read there (fewer than last - first + 1 where the log has gaps: transaction markers, compaction);
`rows` says how many of all those records are in this table, the others being in its quarantine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition in one batch; both offsets are inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One batch of one streaming query, as one table commits it."""

    query_id: str
    batch_id: int
    rows: int
    ranges: tuple[OffsetRange, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchCommit:
        """Reads what `to_json` wrote. Errors: ValueError, KeyError or TypeError if it is not."""
        fields = json.loads(text)
        fields["ranges"] = tuple(OffsetRange(**one) for one in fields["ranges"])
        return cls(**fields)


class Sink(Protocol):
    """One table at one place. A commit of a (query_id, batch_id) that is there changes nothing."""

    def prepare(self, schema: StructType) -> None:
        """Creates the empty table where there is none."""

    def exists(self) -> bool:
        """Whether `prepare` was ever called on this place."""

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        """Appends `rows` as `batch`, whole or not at all, once however often it is called."""

    def last_commit(self) -> BatchCommit | None:
        """The newest commit, None when the table is not there or was never written to."""

    def commits(self) -> list[BatchCommit]:
        """All commits, oldest first, as far as the table's history goes back."""

    def read(self) -> DataFrame:
        """The committed rows. Errors: AnalysisException when there is no table."""


def offset_ranges(parsed: DataFrame) -> tuple[tuple[OffsetRange, ...], int]:
    """The ranges of a parsed batch, in order, and how many of its rows did not parse."""
    counted = parsed.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.count("reason").alias("rejected"),
    )
    rows = counted.orderBy("topic", "partition").collect()
    ranges = tuple(
        OffsetRange(row["topic"], row["partition"], row["first"], row["last"], row["rows"])
        for row in rows
    )
    return ranges, sum(row["rejected"] for row in rows)
