"""The schema of a table after the rows of a job have changed. Pure functions.

A table never loses a column and never narrows a type, so rows that it has stay readable:

- A new field is added at the end, and is null in earlier rows.
- A field that the rows no longer have stays, and is null in new rows.
- A type becomes the wider one of both (`WIDER`).
- A field that may be null in one of both may be null in the table.

Everything else is incompatible: a number that becomes a text, or a struct that becomes an array.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from odradek.pipeline.errors import PipelineError

DECIMAL_DIGITS_MAX = 38
"""Digits of Spark's widest decimal."""

WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}
"""The types to which a table can widen a type in place (Delta's type widening)."""


class IncompatibleSchemas(PipelineError):
    """A field has types in table and rows of which neither is the wider one.

    Attributes:
        path: The field, such as ``value.tags.element``.
    """

    def __init__(self, path: str, stored: DataType, new: DataType) -> None:
        super().__init__(
            f"The field {path} is {stored.simpleString()} in the table and {new.simpleString()} in"
            " the rows, and neither contains the other."
        )
        self.path = path


def same_types(one: StructType, other: StructType) -> bool:
    """Return whether both have the same fields in the same order. They may differ in nulls."""
    return one.simpleString() == other.simpleString()


def has_wider_types(stored: DataType, wanted: DataType) -> bool:
    """Return whether a field of `stored` has another type in `wanted`, which contains it."""
    if isinstance(stored, StructType) and isinstance(wanted, StructType):
        types = {field.name: field.dataType for field in wanted.fields}
        return any(has_wider_types(field.dataType, types[field.name]) for field in stored.fields)
    if isinstance(stored, ArrayType) and isinstance(wanted, ArrayType):
        return has_wider_types(stored.elementType, wanted.elementType)
    if isinstance(stored, MapType) and isinstance(wanted, MapType):
        return has_wider_types(stored.keyType, wanted.keyType) or has_wider_types(
            stored.valueType, wanted.valueType
        )
    return stored != wanted


def merged_for(path: str, stored: StructType, new: StructType) -> StructType:
    """Return `merged` schemas of the table at a path.

    Raises:
        PipelineError: The rows do not fit, in a line for the operator.
    """
    try:
        return merged(stored, new)
    except IncompatibleSchemas as error:
        raise PipelineError(
            f"The rows of this job do not fit {path}. {error} Use the parser and the schema of the"
            " table, or ingest into another directory."
        ) from error


def merged(stored: StructType, new: StructType) -> StructType:
    """Return the schema of a table that takes rows of another schema.

    Names are compared exactly. It equals `stored` if the table need not change.

    Args:
        stored: The schema of the table.
        new: The schema of the rows.

    Raises:
        IncompatibleSchemas: The rows do not fit, with any change that a table allows.
    """
    return _merged_struct(stored, new, "")


def _merged_struct(stored: StructType, new: StructType, path: str) -> StructType:
    fields = {field.name: field for field in new.fields}
    found = []
    for field in stored.fields:
        other = fields.pop(field.name, None)
        if other is None:
            found.append(_nullable(field, field.dataType))
            continue
        data_type = _merged_type(field.dataType, other.dataType, f"{path}{field.name}")
        nullable = field.nullable or other.nullable
        found.append(StructField(field.name, data_type, nullable, field.metadata))
    return StructType([*found, *(_nullable(field, field.dataType) for field in fields.values())])


def _nullable(field: StructField, data_type: DataType) -> StructField:
    return StructField(field.name, data_type, True, field.metadata)


def _merged_type(stored: DataType, new: DataType, path: str) -> DataType:
    if isinstance(stored, StructType) and isinstance(new, StructType):
        return _merged_struct(stored, new, f"{path}.")
    if isinstance(stored, ArrayType) and isinstance(new, ArrayType):
        element = _merged_type(stored.elementType, new.elementType, f"{path}.element")
        return ArrayType(element, stored.containsNull or new.containsNull)
    if isinstance(stored, MapType) and isinstance(new, MapType):
        return MapType(
            _merged_type(stored.keyType, new.keyType, f"{path}.key"),
            _merged_type(stored.valueType, new.valueType, f"{path}.value"),
            stored.valueContainsNull or new.valueContainsNull,
        )
    if isinstance(stored, DecimalType) and isinstance(new, DecimalType):
        return _merged_decimal(stored, new, path)
    if stored == new or type(stored) in WIDER.get(type(new), ()):
        return stored
    if type(new) in WIDER.get(type(stored), ()):
        return new
    raise IncompatibleSchemas(path, stored, new)


def _merged_decimal(stored: DecimalType, new: DecimalType, path: str) -> DecimalType:
    scale = max(stored.scale, new.scale)
    whole = max(stored.precision - stored.scale, new.precision - new.scale)
    if whole + scale > DECIMAL_DIGITS_MAX:
        raise IncompatibleSchemas(path, stored, new)
    return DecimalType(whole + scale, scale)
