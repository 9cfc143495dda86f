"""The schema of a table after the rows have changed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.pipeline.evolution.merged import IncompatibleSchemas, merged

SIMPLE: list[DataType] = [
    BinaryType(),
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
    DecimalType(10, 2),
    DecimalType(12, 4),
]

types = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(MapType, st.sampled_from([StringType(), IntegerType()]), inner, st.booleans()),
        st.deferred(lambda: structs(inner)),
    ),
    max_leaves=6,
)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    names = st.sampled_from("abcd")
    fields = st.builds(StructField, names, inner, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name).map(
        StructType
    )


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, one) for name, one in fields.items()])


def test_new_field_is_added_at_the_end_and_may_be_null() -> None:
    new = StructType([StructField("b", StringType(), False), StructField("a", LongType())])
    assert merged(struct(a=LongType()), new) == struct(a=LongType(), b=StringType())


def test_dropped_field_stays_and_may_be_null() -> None:
    stored = StructType([StructField("a", LongType(), False), StructField("b", LongType(), False)])
    assert merged(stored, struct(b=LongType())) == struct(a=LongType(), b=LongType())


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (ByteType(), ShortType()),
        (ShortType(), LongType()),
        (IntegerType(), LongType()),
        (IntegerType(), DoubleType()),
        (FloatType(), DoubleType()),
        (DateType(), TimestampNTZType()),
        (DecimalType(10, 2), DecimalType(12, 2)),
        (DecimalType(10, 2), DecimalType(12, 4)),
    ],
)
def test_type_becomes_the_wider_one_in_either_order(narrow: DataType, wide: DataType) -> None:
    assert merged(struct(a=narrow), struct(a=wide)) == struct(a=wide)
    assert merged(struct(a=wide), struct(a=narrow)) == struct(a=wide)


def test_decimal_is_wide_enough_for_the_digits_of_both() -> None:
    found = merged(struct(a=DecimalType(10, 0)), struct(a=DecimalType(6, 4)))
    assert found == struct(a=DecimalType(14, 4))


@pytest.mark.parametrize(
    ("stored", "new", "path"),
    [
        (StringType(), LongType(), "a"),
        (LongType(), DoubleType(), "a"),
        (LongType(), FloatType(), "a"),
        (TimestampType(), TimestampNTZType(), "a"),
        (struct(b=StringType()), ArrayType(StringType()), "a"),
        (struct(b=StringType()), struct(b=LongType()), "a.b"),
        (ArrayType(StringType()), ArrayType(BinaryType()), "a.element"),
        (MapType(StringType(), LongType()), MapType(LongType(), LongType()), "a.key"),
        (MapType(StringType(), LongType()), MapType(StringType(), StringType()), "a.value"),
        (DecimalType(38, 0), DecimalType(38, 38), "a"),
    ],
)
def test_other_change_is_named_with_its_field(stored: DataType, new: DataType, path: str) -> None:
    with pytest.raises(IncompatibleSchemas) as caught:
        merged(struct(a=stored), struct(a=new))
    assert caught.value.path == path
    assert f"The field {path} is " in str(caught.value)


def test_fields_inside_of_arrays_and_maps_are_merged() -> None:
    stored = struct(
        a=ArrayType(struct(x=IntegerType()), False),
        m=MapType(StringType(), struct(x=IntegerType())),
    )
    new = struct(a=ArrayType(struct(y=StringType())), m=MapType(StringType(), struct(x=LongType())))
    assert merged(stored, new) == struct(
        a=ArrayType(struct(x=IntegerType(), y=StringType())),
        m=MapType(StringType(), struct(x=LongType())),
    )


@given(structs(types))
def test_schema_merged_with_itself_is_itself(schema: StructType) -> None:
    assert merged(schema, schema) == schema


@given(structs(types), structs(types))
def test_merged_schema_takes_both_again_without_a_change(
    stored: StructType, new: StructType
) -> None:
    try:
        found = merged(stored, new)
    except IncompatibleSchemas:
        assume(False)
    assert merged(found, new) == found
    assert merged(found, stored) == found
    assert found.names[: len(stored.names)] == stored.names
    assert set(found.names) == {*stored.names, *new.names}


@given(structs(types), structs(types))
def test_order_decides_neither_verdict_nor_types(stored: StructType, new: StructType) -> None:
    def outcome(first: StructType, second: StructType) -> object:
        try:
            found = merged(first, second)
        except IncompatibleSchemas:
            return None
        return canonical(found)

    assert outcome(stored, new) == outcome(new, stored)


def canonical(data_type: DataType) -> object:
    """Return a type without the order of fields."""
    if isinstance(data_type, StructType):
        return {
            field.name: (canonical(field.dataType), field.nullable) for field in data_type.fields
        }
    if isinstance(data_type, ArrayType):
        return ("array", canonical(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, MapType):
        value = canonical(data_type.valueType)
        return ("map", canonical(data_type.keyType), value, data_type.valueContainsNull)
    return data_type
