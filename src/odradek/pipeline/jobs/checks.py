"""Checks of an ingest's options that need no JVM."""

from __future__ import annotations

import json
import re

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.options import IngestOptions

PARSER_NAMES = ("raw", "json", "access-log")
INT64_MAX = 2**63 - 1
_UNITS_US = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_PART = rf"(\d{{1,18}})\s+({'|'.join(_UNITS_US)})s?"
_INTERVAL = re.compile(rf"(?:interval\s+)?{_PART}(?:\s+{_PART})*", re.IGNORECASE | re.ASCII)


def check_options(options: IngestOptions) -> None:
    """Check parser, schema, interval and start of an ingest.

    Raises:
        PipelineError: One of them is invalid.
    """
    check_parser(options.parser, options.schema)
    check_interval(options.interval)
    check_starting(options.starting)


def check_parser(name: str, schema: str | None) -> None:
    """Check the parser's name and whether it needs a schema. Spark checks the schema itself.

    Raises:
        PipelineError: The parser does not exist, or the schema is missing, superfluous or empty.
    """
    if name not in PARSER_NAMES:
        raise PipelineError(f"There is no parser {name!r}. Use one of {', '.join(PARSER_NAMES)}.")
    if (name == "json") != (schema is not None):
        raise PipelineError("The json parser needs --schema, and the other parsers take none.")
    if schema is not None and not schema.strip():
        raise PipelineError("The schema is empty. Set it with --schema.")


def check_interval(text: str) -> None:
    """Check an interval of Spark without fractions.

    A trigger accepts weeks and shorter units (Spark's `IntervalUtils` and `Triggers`).

    Raises:
        PipelineError: The interval is malformed or too long.
    """
    if _INTERVAL.fullmatch(text.strip()):
        parts = re.findall(_PART, text.lower())
        if sum(int(count) * _UNITS_US[unit] for count, unit in parts) <= INT64_MAX:
            return
    raise PipelineError(
        f'{text!r} is not an interval. Use a text such as "10 seconds" or "1 minute 30 seconds".'
        " The longest unit is a week."
    )


def check_starting(text: str) -> None:
    """Check a value of Spark's `startingOffsets`.

    Raises:
        PipelineError: The value is malformed.
    """
    if text.strip().lower() in ("earliest", "latest"):
        return
    try:
        offsets = json.loads(text)
    except (ValueError, RecursionError):
        offsets = None
    if not _is_offsets(offsets):
        raise PipelineError(
            f"{text!r} is not a start. Use earliest, latest, or Spark's JSON of offsets,"
            ' {"TOPIC": {"PARTITION": OFFSET}}, where -2 is the earliest and -1 the latest.'
        )


def _is_offsets(value: object) -> bool:
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(one, dict) and _are_partitions(one) for one in value.values())


def _are_partitions(value: dict[str, object]) -> bool:
    return all(
        re.fullmatch("[0-9]{1,9}", number)
        and isinstance(offset, int)
        and not isinstance(offset, bool)
        and -2 <= offset <= INT64_MAX
        for number, offset in value.items()
    )
