"""Rows with the columns of their table, and nulls for fields that they do not have."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def conformed(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows with exactly the columns of `schema`.

    Args:
        rows: Rows whose schema `schema` contains (`merged.merged`).
        schema: The schema of the table.
    """
    have = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(
        *(
            _field(F.col(f"`{field.name}`"), have.get(field.name), field.dataType).alias(field.name)
            for field in schema.fields
        )
    )


def _field(column: Column, have: DataType | None, want: DataType) -> Column:
    return F.lit(None).cast(want) if have is None else _conformed(column, have, want)


def _conformed(column: Column, have: DataType, want: DataType) -> Column:
    if have.simpleString() == want.simpleString():  # they may differ in what may be null
        return column
    if isinstance(have, StructType) and isinstance(want, StructType):
        types = {field.name: field.dataType for field in have.fields}
        fields = (
            _field(column.getField(field.name), types.get(field.name), field.dataType).alias(
                field.name
            )
            for field in want.fields
        )
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        elements = have.elementType, want.elementType
        return F.transform(column, lambda element: _conformed(element, *elements))
    if isinstance(have, MapType) and isinstance(want, MapType):
        keys, values = (have.keyType, want.keyType), (have.valueType, want.valueType)
        column = F.transform_keys(column, lambda key, _: _conformed(key, *keys))
        return F.transform_values(column, lambda _, value: _conformed(value, *values))
    return column.cast(want)
