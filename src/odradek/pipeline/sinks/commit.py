"""The commit of a batch: its offsets, which every sink stores with the rows.

As JSON, in a Delta commit's userMetadata or a Parquet batch's commit file:

    {"query_id": "...", "batch_id": 7, "rows": 1000,
     "ranges": [
        {"topic": "t", "partition": 0, "first_offset": 40, "last_offset": 1041, "rows": 1002}],
     "planned": [{"topic": "t", "partition": 0, "start_offset": 40, "end_offset": 1043}]}

`planned` has the offsets that the checkpoint planned for the batch, the end exclusive. `ranges` has
the records that the batch read there, both offsets inclusive. `rows` of a range is lower than the
number of its offsets where the log has gaps (transaction markers, compaction), and a partition
without records has no range. `rows` of the commit counts the records in this table. The others are
in its quarantine. Commits of older versions have no `planned`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The offsets that the checkpoint planned for one partition in one batch, end exclusive."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition

    def contains(self, read: ReadRange) -> bool:
        return self.start_offset <= read.first_offset and read.last_offset < self.end_offset


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The records of one partition that one batch read; both offsets are inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition

    def contains(self, other: ReadRange) -> bool:
        return self.first_offset <= other.first_offset and other.last_offset <= self.last_offset


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One batch of one streaming query, as one table commits it.

    `planned` is None in a commit of a version that did not store the planned ranges.
    """

    query_id: str
    batch_id: int
    rows: int
    ranges: tuple[ReadRange, ...]
    planned: tuple[PlannedRange, ...] | None

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchCommit:
        """Return the commit that `to_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: The text is not such a commit.
        """
        fields = json.loads(text)
        planned = fields.get("planned")
        return cls(
            fields["query_id"],
            fields["batch_id"],
            fields["rows"],
            tuple(ReadRange(**one) for one in fields["ranges"]),
            None if planned is None else tuple(PlannedRange(**one) for one in planned),
        )


class Sink(Protocol):
    """One table at one path. It takes each (query_id, batch_id) once."""

    def prepare(self, schema: StructType) -> None:
        """Create the empty table if it does not exist."""

    def exists(self) -> bool:
        """Return whether `prepare` was ever called on this path."""

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        """Append `rows` as `batch`, whole or not at all. Skip a batch that the table already has.

        Raises:
            PipelineError: The table has a batch of that number with other planned offsets.
        """

    def last_commit(self) -> BatchCommit | None:
        """Return the newest commit, or None if the table does not exist or has none."""

    def commits(self) -> list[BatchCommit]:
        """Return all commits, oldest first, as far as the table's history goes back."""

    def read(self) -> DataFrame:
        """Return the committed rows. Raise AnalysisException if the table does not exist."""


def read_ranges(parsed: DataFrame) -> tuple[tuple[ReadRange, ...], int]:
    """Return the ranges of a parsed batch, in order, and how many of its rows did not parse."""
    counted = parsed.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.count("reason").alias("rejected"),
    )
    rows = counted.orderBy("topic", "partition").collect()
    ranges = tuple(
        ReadRange(row["topic"], row["partition"], row["first"], row["last"], row["rows"])
        for row in rows
    )
    return ranges, sum(row["rejected"] for row in rows)
