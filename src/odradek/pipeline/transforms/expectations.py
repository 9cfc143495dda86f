"""Conditions in SQL that each row of a table should meet.

A condition sees the columns of the table: those of the record, and the parser's result as `value`.
A condition that is null is not met. A row that fails a dropping expectation goes to the quarantine,
with the code of its first such expectation. `NOT_MET` has the names of all that a row fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.transforms.reasons import Code, first_reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NOT_MET = "_not_met"
"""The column with the names of the expectations that an accepted or dropped row does not meet."""
_RAW = "_raw_value"


class OnFailure(StrEnum):
    """What happens to a row that does not meet an expectation."""

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Condition:
    """One expectation: its name, its SQL, and what happens to rows that do not meet it."""

    name: str
    sql: str
    on_failure: OnFailure


def with_expectations(parsed: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    """Return parsed records with `NOT_MET`, and with reasons for the rows to drop.

    Args:
        parsed: The records, as a parser returns them.
        conditions: The expectations, in their order.

    Raises:
        PipelineError: A condition is not SQL on the columns of the table, or no condition.
    """
    # The table calls the parser's result `value`, and so do the conditions.
    rows = parsed.withColumnsRenamed({"value": _RAW, "parsed": "value"})
    is_accepted = F.col("reason").isNull()
    failures = {one.name: is_accepted & ~_is_met(rows, one) for one in conditions}
    not_met = F.filter(
        F.array(*(F.when(fails, F.lit(name)) for name, fails in failures.items())),
        lambda name: name.isNotNull(),
    )
    drops = [
        (
            F.array_contains(NOT_MET, one.name),
            Code.EXPECTATION,
            f"the expectation {one.name} is not met",
        )
        for one in conditions
        if one.on_failure is OnFailure.DROP
    ]
    rows = rows.withColumn(NOT_MET, not_met)
    if drops:
        rows = rows.withColumn("reason", F.coalesce(F.col("reason"), first_reason(*drops)))
    return rows.withColumnsRenamed({"value": "parsed", _RAW: "value"})


def _is_met(rows: DataFrame, condition: Condition) -> Column:
    column = F.expr(condition.sql)
    try:
        [field] = rows.select(column).schema.fields
    except (AnalysisException, ParseException) as error:
        why = str(error).strip().partition("\n")[0]
        raise PipelineError(
            f"The expectation {condition.name} is not SQL on the columns of the table: {why}"
        ) from error
    if field.dataType.simpleString() != "boolean":
        raise PipelineError(
            f"The expectation {condition.name} is {field.dataType.simpleString()}, and not true or"
            f" false: {condition.sql}."
        )
    return F.coalesce(column, F.lit(False))
