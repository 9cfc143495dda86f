"""The definition of a pipeline: any number of tables, and what they have in common.

`loading` reads it from YAML, and Python code makes it with the same classes. The values are checked
alone here (a share is between 0 and 1), and together in `checks` (a Parquet table has no key).
`docs/pipeline-file.md` describes each field for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from odradek.pipeline.tables import TableFormat

VERSION = 1
"""The version of the file's fields."""
BATCH_ROWS = 500_000
"""Default of the largest number of offsets in a batch."""
INTERVAL = "10 seconds"
"""Default of the time between the starts of two batches."""


class Encoding(StrEnum):
    """How the bytes of a key or a value are read."""

    RAW = "raw"
    JSON = "json"
    ACCESS_LOG = "access-log"
    REGISTRY = "registry"


class SchemaIdPlace(StrEnum):
    """Where a record has the id of its schema."""

    PREFIX = "prefix"
    HEADER = "header"


class OnFailure(StrEnum):
    """What happens to a row that does not meet an expectation."""

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"


class Unit(StrEnum):
    """The length of a partition of the table by event time."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Payload:
    """The key or the value of the records.

    Attributes:
        encoding: How the bytes are read. ``registry`` decodes Avro, JSON Schema and Protobuf by the
            id of the record.
        schema: Spark DDL, for ``json`` only.
        schema_id: Where the id is, for ``registry`` only.
    """

    encoding: Encoding = Encoding.RAW
    schema: str | None = None
    schema_id: SchemaIdPlace = SchemaIdPlace.PREFIX


@dataclass(frozen=True, slots=True)
class Start:
    """Where a table begins to read a topic. Exactly one field is set.

    Attributes:
        at: "earliest" or "latest".
        offsets: The first offset by topic and partition. Other partitions begin at the earliest.
        time: The first record whose timestamp is not earlier.
    """

    at: str | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    time: datetime | None = None


EARLIEST = Start(at="earliest")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in SQL on the columns of the table, and what happens to rows that fail it.

    A condition that is null fails. ``drop`` moves the row to the quarantine, and ``fail`` stops the
    job before the batch is committed.
    """

    name: str
    sql: str
    on_failure: OnFailure = OnFailure.WARN


@dataclass(frozen=True, slots=True)
class EventTime:
    """The time of an event, by which the table is partitioned.

    A row is late if its time is earlier than the newest event of earlier commits minus the
    allowance.

    Attributes:
        column: The column, such as ``value.at``.
        allowance: How much older than the newest event a row may be.
        partition_by: The length of a partition, or None for a table without partitions.
    """

    column: str
    allowance: timedelta = timedelta(0)
    partition_by: Unit | None = None


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Rows with the same values of these columns are one row, if they are so close in time."""

    by: tuple[str, ...]
    within: timedelta


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table and its quarantine. It is a streaming query of its own.

    Attributes:
        topics: The topics by name. Not together with `pattern`.
        pattern: A regular expression of Python for the whole name of a topic. Its named groups
            become columns.
        each_topic: Whether each topic has a table of its own, ``NAME/TOPIC``.
        columns_of_key: Columns of the primary key. The row of the last offset wins, and a record
            without a value deletes the row. Empty: rows are appended.
        rejects_max: The largest share of rejected rows in a batch, from 0 to 1.
        batch_rows: The largest number of offsets in a batch.
        kafka: Client settings of this table alone.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    each_topic: bool = False
    format: TableFormat = TableFormat.DELTA
    start: Start = EARLIEST
    key: Payload = Payload()
    value: Payload = Payload()
    columns_of_key: tuple[str, ...] = ()
    deduplicate: Deduplication | None = None
    event_time: EventTime | None = None
    expectations: tuple[Expectation, ...] = ()
    rejects_max: float = 1.0
    interval: str = INTERVAL
    batch_rows: int = BATCH_ROWS
    kafka: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """A schema registry. The password is read from the file when the job starts.

    It is never written to a log, a ledger or a table.
    """

    url: str
    user: str | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """All tables of one driver.

    Attributes:
        name: The name of the pipeline. The lag of table T is in the group ``odradek.NAME.T``.
        directory: Table T is in ``DIRECTORY/T``.
        bootstrap_servers: The brokers.
        kafka: Settings of Kafka's Java client, such as ``security.protocol``.
        spark: Settings of Spark.
    """

    name: str
    directory: str
    tables: Mapping[str, TableDefinition]
    bootstrap_servers: str = "localhost:9092"
    registry: RegistryAccess | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION
