"""The definition of a pipeline: any number of tables, and what they have in common.

`loading` reads it from YAML, and Python code makes it with the same classes. Each class checks its
values when it is made, and raises a ValueError (pydantic's ValidationError) that names the fields.
`docs/pipeline-file.md` describes each field for users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.checks import check_interval
from odradek.pipeline.tables import TableFormat
from odradek.pipeline.transforms.expectations import OnFailure

VERSION: Literal[1] = 1
"""The version of the file's fields."""
BATCH_ROWS = 500_000
"""Default of the largest number of offsets in a batch."""
INTERVAL = "10 seconds"
"""Default of the time between the starts of two batches."""
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
"""Unknown fields are errors, and messages do not contain values, which may be passwords."""

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DURATION = re.compile(rf"(\d{{1,9}}) *({'|'.join(_UNITS)})s?", re.ASCII)
_ADDRESS = r"^(\S+):(\d{1,5})$"
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"


def parse_duration(value: object) -> object:
    """Return the time span of a text such as "10 minutes". Other values are returned unchanged.

    Raises:
        ValueError: The text is not a time span.
    """
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError(
            f"{value!r} is not a time span. Use a text such as '10 minutes', with seconds, minutes,"
            " hours, days or weeks"
        )
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _checked_interval(text: object) -> object:
    if isinstance(text, str):
        try:
            check_interval(text)
        except PipelineError as error:
            raise ValueError(str(error).rstrip(".")) from error
    return text


Duration = Annotated[timedelta, BeforeValidator(parse_duration), Field(ge=timedelta(0))]
Interval = Annotated[str, BeforeValidator(_checked_interval)]
Name = Annotated[str, Field(pattern=_NAME)]
Offset = Annotated[int, Field(ge=0, lt=2**63)]
Partition = Annotated[int, Field(ge=0, lt=2**31)]


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


class Unit(StrEnum):
    """The length of a partition of the table by event time."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True, config=STRICT)
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

    @model_validator(mode="after")
    def _has_a_schema_for_json(self) -> Self:
        if (self.encoding is Encoding.JSON) != (self.schema is not None):
            raise ValueError("the encoding json needs a schema, and the other ones take none")
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class Start:
    """Where a table begins to read a topic. Exactly one field is set.

    Attributes:
        at: "earliest" or "latest".
        offsets: The first offset by topic and partition. Other partitions begin at the earliest.
        time: The first record whose timestamp is not earlier.
    """

    at: Literal["earliest", "latest"] | None = None
    offsets: Mapping[str, Mapping[Partition, Offset]] = field(default_factory=dict)
    time: AwareDatetime | None = None

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if [self.at is None, not self.offsets, self.time is None].count(False) != 1:
            raise ValueError("a start has exactly one of at, offsets and time")
        return self


EARLIEST = Start(at="earliest")


@dataclass(frozen=True, slots=True, config=STRICT)
class Expectation:
    """A condition in SQL on the columns of the table, and what happens to rows that fail it.

    A condition that is null fails. ``drop`` moves the row to the quarantine, and ``fail`` stops the
    job before the batch is committed.
    """

    name: Name
    sql: Annotated[str, Field(min_length=1)]
    on_failure: OnFailure = OnFailure.WARN


@dataclass(frozen=True, slots=True, config=STRICT)
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
    allowance: Duration = timedelta(0)
    partition_by: Unit | None = None


@dataclass(frozen=True, slots=True, config=STRICT)
class Deduplication:
    """Rows with the same values of these columns are one row, if they are so close in time."""

    by: Annotated[tuple[str, ...], Field(min_length=1)]
    within: Duration


@dataclass(frozen=True, slots=True, config=STRICT)
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
    rejects_max: Annotated[float, Field(ge=0, le=1)] = 1.0
    interval: Interval = INTERVAL
    batch_rows: Annotated[int, Field(ge=1)] = BATCH_ROWS
    kafka: Mapping[str, str] = field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("a table has either topics or a pattern")
        if self.pattern is not None:
            _check_pattern(self.pattern)
        if self.format is TableFormat.PARQUET and self.columns_of_key:
            raise ValueError("a Parquet table has no primary key, use delta or iceberg")
        if self.columns_of_key and self.deduplicate is not None:
            raise ValueError("a table with a primary key needs no deduplication")
        if self.deduplicate is not None and self.event_time is None:
            raise ValueError("a deduplication needs event_time, in which it looks for duplicates")
        names = [one.name for one in self.expectations]
        if len(set(names)) < len(names):
            raise ValueError("two expectations have the same name")
        return self

    @property
    def uses_registry(self) -> bool:
        return Encoding.REGISTRY in (self.key.encoding, self.value.encoding)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern is not a regular expression: {error}") from error


@dataclass(frozen=True, slots=True, config=STRICT)
class RegistryAccess:
    """A schema registry. The password is read from the file when the job starts.

    It is never written to a log, a ledger or a table.
    """

    url: str
    user: str | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True, config=STRICT)
class PipelineDefinition:
    """All tables of one driver.

    Attributes:
        name: The name of the pipeline. The lag of table T is in the group ``odradek.NAME.T``.
        directory: Table T is in ``DIRECTORY/T``.
        bootstrap_servers: The brokers.
        listen: HOST:PORT of ``/metrics`` and ``/health``. None: they are not served.
        kafka: Settings of Kafka's Java client, such as ``security.protocol``.
        spark: Settings of Spark.
    """

    name: Name
    directory: Annotated[str, Field(min_length=1)]
    tables: Annotated[Mapping[Name, TableDefinition], Field(min_length=1)]
    bootstrap_servers: str = "localhost:9092"
    registry: RegistryAccess | None = None
    listen: Annotated[str, Field(pattern=_ADDRESS)] | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    version: Literal[1] = VERSION

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """The host and the port of `listen`."""
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @model_validator(mode="after")
    def _has_a_registry_if_a_table_uses_it(self) -> Self:
        users = [name for name, table in self.tables.items() if table.uses_registry]
        if users and self.registry is None:
            raise ValueError(f"the table {users[0]} needs the field registry")
        return self
