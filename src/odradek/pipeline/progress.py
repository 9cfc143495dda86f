"""The progress of an ingest: rows, rate and lag of each batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished batch. `lag` is the number of records left in the topics, None if unknown."""

    batch_id: int
    accepted: int
    rejected: int
    duration_ms: int
    lag: int | None

    @property
    def rows(self) -> int:
        return self.accepted + self.rejected

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / self.duration_ms if self.duration_ms else 0.0

    def text(self) -> str:
        parts = [f"batch {self.batch_id}: {self.rows:,} rows in {self.duration_ms / 1000:.1f} s"]
        parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.rejected:
            parts.append(f"{self.rejected:,} to the quarantine")
        parts.append("lag unknown" if self.lag is None else f"lag {self.lag:,}")
        return ", ".join(parts)


class TriggerProgress(Protocol):
    """One of Spark's progress reports (`StreamingQueryProgress` of PySpark)."""

    @property
    def durationMs(self) -> Mapping[str, int]: ...


def ran_a_batch(progress: TriggerProgress) -> bool:
    """Return whether the report is of a batch.

    Spark also reports on an idle query. Such a report has the number of the next batch.
    """
    return "addBatch" in progress.durationMs


Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition. The partition is a string, as in Spark's JSON."""


class SourceOffsets(Protocol):
    """The offsets of a source in Spark's progress report, as JSON (`SourceProgress` of PySpark)."""

    @property
    def endOffset(self) -> str | None: ...

    @property
    def latestOffset(self) -> str | None: ...


def total_lag(sources: Iterable[SourceOffsets]) -> int | None:
    """Return the number of records between the sources' end offsets and their topics' ends."""
    lags = [_source_lag(_offsets(one.endOffset), _offsets(one.latestOffset)) for one in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _offsets(value: str | None) -> Offsets | None:
    # A failed batch has the text "None" for offsets that it did not reach.
    if value is None or not value.startswith("{"):
        return None
    found: Offsets = json.loads(value)
    return found


def _source_lag(end: Offsets | None, latest: Offsets | None) -> int | None:
    if end is None or latest is None:
        return None
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )
