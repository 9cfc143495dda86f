"""The counts of a batch, taken while its rows are written.

Spark computes aggregates of rows that pass through a query (`Observation`), so a batch is read and
parsed once. An observation is also a barrier for the optimizer: without one Spark would parse the
records once for the filter by `reason`, and once more for the rows that remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from odradek.pipeline.ledger.commits import PlannedRange, ReadRange
from odradek.pipeline.sinks.commit import read_ranges
from odradek.pipeline.transforms.expectations import NOT_MET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

PARTITIONS_OBSERVED_MAX = 64
"""Largest number of planned partitions whose records are counted by an observation.

It has four aggregates for each partition, which cost time for each record. The records of a wider
batch are counted by a job of its own, which parses them again.
"""


class ObservedBatch:
    """A parsed batch whose records are counted while they are written.

    Args:
        parsed: The records with `reason`, as a parser returns them.
        planned: The ranges that the checkpoint planned for the batch.
        expectations: The names of expectations whose failures are counted. The records then have
            the column `NOT_MET`.

    Attributes:
        rows: The same records. They are counted when a job reads all of them.
    """

    def __init__(
        self,
        parsed: DataFrame,
        planned: tuple[PlannedRange, ...],
        expectations: Sequence[str] = (),
    ) -> None:
        self._parsed = parsed
        self._planned = planned
        self._observed = Observation()
        # The wide batch keeps the barrier, and counts all records together.
        counted = planned if len(planned) <= PARTITIONS_OBSERVED_MAX else ()
        self._is_wide = len(counted) < len(planned)
        aggregates = [F.count(F.lit(1)).alias("rows")]
        for number, one in enumerate(counted):
            aggregates += _aggregates(number, one)
        self._expectations = expectations
        for number, name in enumerate(expectations):
            fails = F.array_contains(NOT_MET, name)
            aggregates.append(F.count_if(fails).alias(f"failed{number}"))
        self.rows = parsed.observe(self._observed, *aggregates)

    def ranges(self) -> tuple[ReadRange, ...]:
        """Return the ranges of the records, in order. Waits until `rows` has been written.

        Records of a partition that was not planned have a range too, so that the caller sees them.
        """
        if self._is_wide:
            return self.read_ranges()
        counts = self._observed.get
        found = tuple(
            ReadRange(
                one.topic,
                one.partition,
                counts[f"first{number}"],
                counts[f"last{number}"],
                counts[f"rows{number}"],
                counts[f"rejected{number}"],
            )
            for number, one in enumerate(self._planned)
            if counts[f"rows{number}"]
        )
        if sum(one.rows for one in found) < counts["rows"]:
            return self.read_ranges()
        return tuple(sorted(found, key=lambda one: one.topic_partition))

    def failures(self) -> dict[str, int]:
        """Return how many rows did not meet each expectation. Waits as `ranges` does."""
        if not self._expectations:
            return {}
        counts = self._observed.get
        return {name: counts[f"failed{number}"] for number, name in enumerate(self._expectations)}

    def read_ranges(self) -> tuple[ReadRange, ...]:
        """Return the ranges of the records, in order, from a job of its own."""
        return read_ranges(self._parsed)


def _aggregates(number: int, planned: PlannedRange) -> list[Column]:
    is_here = (F.col("topic") == planned.topic) & (F.col("partition") == planned.partition)
    offset = F.when(is_here, F.col("offset"))
    return [
        F.count(offset).alias(f"rows{number}"),
        F.min(offset).alias(f"first{number}"),
        F.max(offset).alias(f"last{number}"),
        F.count(F.when(is_here, F.col("reason"))).alias(f"rejected{number}"),
    ]
