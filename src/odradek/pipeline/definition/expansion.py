"""The ingests of a definition: one for each table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.definition.model import Encoding
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.tables import TableDir
from odradek.pipeline.transforms.expectations import Condition

if TYPE_CHECKING:
    from odradek.pipeline.definition.model import PipelineDefinition, TableDefinition


def ingests_of(definition: PipelineDefinition, *, once: bool) -> dict[str, IngestOptions]:
    """Return the options of each table's ingest, by the table's name.

    Args:
        definition: The definition.
        once: Whether the ingests end after the records that exist at their start.

    Raises:
        PipelineError: A table uses a field that this version cannot run.
    """
    return {
        name: _options(definition, name, table, once=once)
        for name, table in definition.tables.items()
    }


def _options(
    definition: PipelineDefinition, name: str, table: TableDefinition, *, once: bool
) -> IngestOptions:
    missing = _not_built(table)
    if missing:
        raise PipelineError(
            f"Table {name} uses {', '.join(missing)}, which this version cannot run yet."
        )
    start = table.start
    unknown = sorted(set(start.offsets) - set(table.topics))
    if unknown:
        raise PipelineError(
            f"Table {name} starts at offsets of {unknown[0]}, which is none of its topics."
        )
    return IngestOptions(
        bootstrap_servers=definition.bootstrap_servers,
        topics=table.topics,
        tables=TableDir(f"{_absolute(definition.directory)}/{name}", table.format),
        parser=table.value.encoding.value,
        schema=table.value.schema,
        starting=start.at or "earliest",
        starting_offsets=start.offsets,
        starting_time_ms=None if start.time is None else int(start.time.timestamp() * 1000),
        once=once,
        interval=table.interval,
        offsets_per_trigger_max=table.batch_rows,
        rejects_max=table.rejects_max,
        expectations=tuple(
            Condition(one.name, one.sql, one.on_failure) for one in table.expectations
        ),
        group=f"odradek.{definition.name}.{name}",
        kafka={**definition.kafka, **table.kafka},
    )


def _absolute(directory: str) -> str:
    """Return the directory as Spark needs it, whose JVM may have another current directory."""
    directory = directory.rstrip("/") or "/"
    return directory if "://" in directory else str(Path(directory).absolute())


def _not_built(table: TableDefinition) -> list[str]:
    used = {
        "pattern": table.pattern is not None,
        "each_topic": table.each_topic,
        "key": table.key.encoding is not Encoding.RAW,
        "the encoding registry": table.value.encoding is Encoding.REGISTRY,
        "columns_of_key": bool(table.columns_of_key),
        "deduplicate": table.deduplicate is not None,
        "event_time": table.event_time is not None,
    }
    return [name for name, is_used in used.items() if is_used]
