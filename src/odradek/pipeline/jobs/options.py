"""The options of an ingest. `jobs.checks` checks them before Spark's JVM is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.pipeline.tables import TableDir


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The topics of an ingest, its parser and its table directory.

    `starting` applies only to the first start: "earliest", "latest", or Spark's JSON of offsets by
    topic and partition. Later starts continue from the checkpoint, and new partitions are read from
    their beginning. With `once` the job ingests the records that exist at its start and ends.
    Otherwise a batch starts every `interval`. `offsets_per_trigger_max` limits a batch, over all
    partitions. A batch in which the share of rejected records is above `rejects_max` is not
    committed, and stops the job. With `accept_loss` the job skips records that the topic deleted
    before they were read, continues after another program changed a table, and writes both into the
    ledger. With `rebuild_checkpoint` a new checkpoint begins at the end of the ledger.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    tables: TableDir
    parser: str = "raw"
    schema: str | None = None
    starting: str = "earliest"
    once: bool = False
    interval: str = "10 seconds"
    offsets_per_trigger_max: int = 500_000
    rejects_max: float = 1.0
    accept_loss: bool = False
    rebuild_checkpoint: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)

    def source_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        kafka = {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {
            "kafka.isolation.level": "read_committed",
            **kafka,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": ",".join(self.topics),
            "startingOffsets": self.starting,
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.accept_loss).lower(),
            "maxOffsetsPerTrigger": str(self.offsets_per_trigger_max),
            "groupIdPrefix": "odradek-ingest",
        }
