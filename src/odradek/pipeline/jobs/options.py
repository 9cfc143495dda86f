"""The options of an ingest. `jobs.checks` checks them before Spark's JVM is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from odradek.pipeline.tables import TableDir
from odradek.pipeline.transforms.expectations import Condition

EARLIEST_IN_SPARK = -2
"""Spark's number for the earliest offset of a partition."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The topics of an ingest, its parser and its table directory.

    `starting` applies only to the first start: "earliest", "latest", or Spark's JSON of offsets by
    topic and partition. `starting_offsets` and `starting_time_ms` (since 1970) replace it. The
    former begins at the offsets of some partitions, and at the earliest ones of the others. The
    latter begins at the first record that is not earlier, and at the end of a partition that has
    none. Later starts continue from the checkpoint, and new partitions are read from their
    beginning. With `once` the job ingests the records that exist at its start and ends.
    Otherwise a batch starts every `interval`. `offsets_per_trigger_max` limits a batch, over all
    partitions. A batch in which the share of rejected records is above `rejects_max` is not
    committed, and stops the job. With `accept_loss` the job skips records that the topic deleted
    before they were read, continues after another program changed a table, and writes both into the
    ledger. With `rebuild_checkpoint` a new checkpoint begins at the end of the ledger.
    After each batch its end offsets are committed to `group`, so that any tool of Kafka shows the
    lag. The job never reads them.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    tables: TableDir
    parser: str = "raw"
    schema: str | None = None
    starting: str = "earliest"
    starting_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    starting_time_ms: int | None = None
    once: bool = False
    interval: str = "10 seconds"
    offsets_per_trigger_max: int = 500_000
    rejects_max: float = 1.0
    accept_loss: bool = False
    rebuild_checkpoint: bool = False
    group: str | None = None
    expectations: tuple[Condition, ...] = ()
    kafka: Mapping[str, str] = field(default_factory=dict)

    def source_options(self, partitions: Callable[[str], Iterable[int]]) -> dict[str, str]:
        """Return the options of Spark's Kafka source.

        Args:
            partitions: Returns the partitions of a topic. It is called for `starting_offsets`.
        """
        kafka = {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {
            "kafka.isolation.level": "read_committed",
            **kafka,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": ",".join(self.topics),
            **self._start(partitions),
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.accept_loss).lower(),
            "maxOffsetsPerTrigger": str(self.offsets_per_trigger_max),
            "groupIdPrefix": "odradek-ingest",
        }

    def _start(self, partitions: Callable[[str], Iterable[int]]) -> dict[str, str]:
        if self.starting_time_ms is not None:
            return {
                "startingTimestamp": str(self.starting_time_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        if not self.starting_offsets:
            return {"startingOffsets": self.starting}
        offsets = {
            topic: {
                str(number): self.starting_offsets.get(topic, {}).get(number, EARLIEST_IN_SPARK)
                for number in partitions(topic)
            }
            for topic in self.topics
        }
        return {"startingOffsets": json.dumps(offsets)}
