"""Parser for JSON records with a schema, by Spark's own parser in the JVM.

A record parses if its value is exactly one JSON object in UTF-8 that fits the schema. Fields that
the schema does not name are dropped. Missing fields are null, unless they are declared NOT NULL. If
a key occurs twice, its last value is used. All other records go to the quarantine.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from odradek.pipeline.transforms.raw import Parser, value_text
from odradek.pipeline.transforms.reasons import Check, Code, first_reason

_CORRUPT = "_corrupt"


def json_parser(schema: StructType) -> Parser:
    """Return a parser of JSON objects with `schema`. Top-level NOT NULL fields are required."""

    def parse(rows: DataFrame) -> DataFrame:
        return parse_json(rows, schema)

    return parse


def parse_json(rows: DataFrame, schema: StructType) -> DataFrame:
    """Add the columns `parsed` (a struct of `schema`) and `reason` to `rows`."""
    text = value_text(F.col("value"))
    # from_json ignores all text after the first object, and its column for corrupt text could have
    # the name of a field of the record. Inside a wrapper both are detected, because additional text
    # makes the wrapper invalid JSON. A value that closes the wrapper itself is detected by the
    # array, in which it must be the only element.
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
        (F.col("value").isNull(), Code.NO_VALUE, "the record has no value"),
        (F.col("_text").isNull(), Code.NOT_UTF8, "the value is not UTF-8"),
        (~is_one_value, Code.NOT_JSON, "the value is not one JSON value"),
        (is_corrupt | ~is_object, Code.DOES_NOT_FIT, "the value does not fit the schema"),
        *_missing_fields(schema),
    )


def _missing_fields(schema: StructType) -> list[Check]:
    wrapped = F.col("_wrapped.value")
    return [
        (
            wrapped.getField(field.name).isNull(),
            Code.MISSING_FIELD,
            f"the field {field.name} is missing",
        )
        for field in schema.fields
        if not field.nullable
    ]
