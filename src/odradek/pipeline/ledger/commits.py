"""The commit of a batch: its offsets and their source, which every sink stores with the rows.

As JSON, in a Delta commit's userMetadata or a Parquet batch's commit file:

    {"query_id": "...", "batch_id": 7, "rows": 1000,
     "ranges": [{"topic": "t", "partition": 0, "first_offset": 40, "last_offset": 1041,
                 "rows": 1002, "rejected": 2}],
     "planned": [{"topic": "t", "partition": 0, "start_offset": 40, "end_offset": 1043}],
     "format": 2, "epoch": 3, "cluster_id": "...", "topic_ids": {"t": "..."}, "lost": [],
     "accepted_changes": [], "first_number": 0, "replaces": null, "not_met": {}}

`planned` has the offsets that the checkpoint planned for the batch, the end exclusive. `ranges` has
the records that the batch read there, both offsets inclusive. `rows` of a range is lower than the
number of its offsets where the log has gaps (transaction markers, compaction), and a partition
without records has no range. `rows` of the commit counts the records in this table. The others are
in its quarantine. `lost` has the planned offsets that the topic had removed before the batch read
them, if the operator accepted the loss. `accepted_changes` names the changes of a Delta table by
other programs since the commit before, which the operator accepted in the same way.

The commits of a table are numbered: batch N of a query has the number `first_number` + N. A rebuilt
checkpoint is a new query. It begins with a commit of batch -1, without rows, whose number follows
on the newest commit. `replaces` is the query id of the checkpoint before it.

`not_met` has the number of records that did not meet an expectation, by its name.

Format 1 ends with `planned`. The first versions did not write `planned` either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

FORMAT = 2
REBUILT_BATCH_ID = -1
"""Batch id of the commit with which a rebuilt checkpoint begins."""


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
    """The records of one partition that one batch read; both offsets are inclusive.

    `rows` includes the rejected records. `rejected` is None in a commit of format 1.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    rejected: int | None = None

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition

    def contains(self, other: ReadRange) -> bool:
        return self.first_offset <= other.first_offset and other.last_offset <= self.last_offset


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One batch of one streaming query, as one table commits it.

    `planned` is None in a commit of a version that did not store the planned ranges. `epoch` is the
    number of the owner that wrote the commit, None in format 1. `cluster_id` and the ids of
    `topic_ids` are missing in format 1, and if the broker has none (Apache Kafka before 2.8).
    """

    query_id: str
    batch_id: int
    rows: int
    ranges: tuple[ReadRange, ...]
    planned: tuple[PlannedRange, ...] | None
    epoch: int | None = None
    cluster_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[PlannedRange, ...] = ()
    accepted_changes: tuple[str, ...] = ()
    first_number: int = 0
    replaces: str | None = None
    not_met: Mapping[str, int] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """The number of records of the batch that are in the other table."""
        return sum(one.rows for one in self.ranges) - self.rows

    @property
    def number(self) -> int:
        """The number of the commit in its table."""
        return self.first_number + self.batch_id

    @property
    def is_rebuild(self) -> bool:
        return self.batch_id == REBUILT_BATCH_ID

    def to_json(self) -> str:
        fields = asdict(self)
        written = {name: fields[name] for name in ("query_id", "batch_id", "rows", "ranges")}
        return json.dumps(
            {**written, "planned": fields["planned"], "format": FORMAT, **fields},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> BatchCommit:
        """Return the commit that `to_json` wrote, in this version or an older one.

        Raises:
            ValueError, KeyError, TypeError: The text is not such a commit.
        """
        fields = json.loads(text)
        if fields.get("format", 1) > FORMAT:
            raise ValueError(f"format {fields['format']} is newer than {FORMAT}")
        planned = fields.get("planned")
        return cls(
            fields["query_id"],
            fields["batch_id"],
            fields["rows"],
            tuple(ReadRange(**one) for one in fields["ranges"]),
            None if planned is None else _ranges(planned),
            fields.get("epoch"),
            fields.get("cluster_id"),
            dict(fields.get("topic_ids", {})),
            _ranges(fields.get("lost", ())),
            tuple(fields.get("accepted_changes", ())),
            fields.get("first_number", 0),
            fields.get("replaces"),
            dict(fields.get("not_met", {})),
        )


def _ranges(fields: list[dict[str, object]]) -> tuple[PlannedRange, ...]:
    return tuple(PlannedRange(**one) for one in fields)  # type: ignore[arg-type]
