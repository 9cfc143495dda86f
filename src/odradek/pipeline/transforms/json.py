"""JSON records read with a given schema, by Spark's own parser in the JVM.

A record parses when its value is exactly one JSON object in UTF-8 that fits the schema. Fields that
the schema does not name are dropped, fields that are missing are null (unless declared NOT NULL),
and of a key that stands there twice the last one counts. Everything else is quarantined.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from odradek.pipeline.transforms.raw import Parser, first_reason, value_text

_CORRUPT = "_corrupt"


def json_parser(schema: StructType) -> Parser:
    """The parser of JSON objects with `schema`; its top-level NOT NULL fields must be there."""

    def parse(rows: DataFrame) -> DataFrame:
        return parse_json(rows, schema)

    return parse


def parse_json(rows: DataFrame, schema: StructType) -> DataFrame:
    """Adds `parsed` (a struct of `schema`) and `reason` to `rows`."""
    text = value_text(F.col("value"))
    # from_json stops after the first object and would not see what follows it, and its column for
    # corrupt text could clash with a field of the record. Inside a wrapper both are plain: what
    # follows breaks the wrapper. A value made to close the wrapper itself breaks the array, in
    # which it must be the only element.
    wrapper = StructType([StructField("value", schema), StructField(_CORRUPT, StringType())])
    options = {"columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    wrapped = F.from_json(F.concat(F.lit('{"value":'), text, F.lit("}")), wrapper, options)
    elements = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    return (
        rows.withColumns({"_text": text, "_wrapped": wrapped, "_elements": elements})
        .withColumns({"parsed": F.col("_wrapped.value"), "reason": _reason(schema)})
        .drop("_text", "_wrapped", "_elements")
    )


def _reason(schema: StructType) -> Column:
    is_corrupt = F.col(f"_wrapped.{_CORRUPT}").isNotNull()
    is_one_value = F.coalesce(F.col("_elements") == 1, F.lit(False))
    is_object = F.col("_wrapped.value").isNotNull()
    return first_reason(
        (F.col("value").isNull(), "the record has no value"),
        (F.col("_text").isNull(), "the value is not UTF-8"),
        (~is_one_value, "the value is not one JSON value"),
        (is_corrupt | ~is_object, "the value does not fit the schema"),
        *_missing_fields(schema),
    )


def _missing_fields(schema: StructType) -> list[tuple[Column, str]]:
    wrapped = F.col("_wrapped.value")
    return [
        (wrapped.getField(field.name).isNull(), f"the field {field.name} is missing")
        for field in schema.fields
        if not field.nullable
    ]
