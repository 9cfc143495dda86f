"""Why a record is in the quarantine: a code for programs, and a text for people."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

REASON_TYPE = "struct<code: string, text: string>"
"""The type of the column `reason` of parsed records. It is null for a record that parsed."""


class Code(StrEnum):
    """The codes of the quarantine. Their values are stored, and never change."""

    NO_VALUE = "no_value"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    DOES_NOT_FIT = "does_not_fit_the_schema"
    MISSING_FIELD = "missing_field"
    NOT_AN_ACCESS_LOG = "not_an_access_log"
    NO_SUCH_TIME = "no_such_time"
    EXPECTATION = "expectation"


Check = tuple[Column, Code, str]
"""A condition that is true for a record that fails, the code, and the text. Null is false."""


def first_reason(*checks: Check) -> Column:
    """Return the reason of the first check that fails, or null."""
    return F.coalesce(
        *(
            F.when(fails, F.struct(F.lit(code.value).alias("code"), F.lit(text).alias("text")))
            for fails, code, text in checks
        )
    )


def no_reason() -> Column:
    """Return the column of records that all parsed."""
    return F.lit(None).cast(REASON_TYPE)
