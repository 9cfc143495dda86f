"""The JSON parser: accepted objects, and the reasons of rejected values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.ingest import make_parser
from odradek.pipeline.transforms.quarantine import rejected
from odradek.pipeline.transforms.raw import records
from tests.pipeline.source_rows import parse, source_rows

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA = (
    "id INT NOT NULL, name STRING, at TIMESTAMP, inner STRUCT<x: INT>, list ARRAY<INT>,"
    " _corrupt STRING"
)
NO_VALUE = "the record has no value"
NOT_UTF8 = "the value is not UTF-8"
NOT_ONE = "the value is not one JSON value"
NO_FIT = "the value does not fit the schema"
MISSING = "the field id is missing"
CODES = {
    NO_VALUE: "no_value",
    NOT_UTF8: "not_utf8",
    NOT_ONE: "not_json",
    NO_FIT: "does_not_fit_the_schema",
    MISSING: "missing_field",
}

GOOD: dict[bytes, dict[str, object]] = {
    b'{"id":1,"name":"x"}': {"id": 1, "name": "x"},
    b' {"id":1}\r\n': {"id": 1},
    b'{"id":1,"unknown":[{}]}': {"id": 1, "name": None},
    b'{"id":1,"id":2}': {"id": 2},
    b'{"id":1,"name":null}': {"id": 1, "name": None},
    b'{"id":1,"name":{"c":1}}': {"name": '{"c":1}'},
    b'{"id":1,"_corrupt":"a field like any other"}': {"_corrupt": "a field like any other"},
    '{"id":1,"name":"Žižkov 🎈"}'.encode(): {"name": "Žižkov 🎈"},
}
BAD: dict[bytes | None, str] = {
    None: NO_VALUE,
    b"": NOT_ONE,
    b"   ": NOT_ONE,
    b'{"id":1': NOT_ONE,
    b'{"id":1} and more': NOT_ONE,
    b'{"id":1}{"id":2}': NOT_ONE,
    b'{"id":1},{"id":2}': NOT_ONE,
    b'{"id":1},"x":2': NOT_ONE,
    b'{"id":1},': NOT_ONE,
    b'{"id":1}} closes the wrapper': NOT_ONE,
    b'{"id":1}] closes the array': NO_FIT,
    b'{"id":1}/* comment */': NOT_ONE,
    b'\xef\xbb\xbf{"id":1}': NOT_ONE,
    b'{"id":NaN}': NOT_ONE,
    b'{"id":1,"name":"\xff"}': NOT_UTF8,
    b'[{"id":1}]': NO_FIT,
    b"[]": NO_FIT,
    b"42": NO_FIT,
    b"null": NO_FIT,
    b'"text"': NO_FIT,
    b"{'id':1}": NO_FIT,
    b'{"id":"one"}': NO_FIT,
    b'{"id":1.5}': NO_FIT,
    b'{"id":99999999999999}': NO_FIT,
    b'{"id":1,"at":"tomorrow"}': NO_FIT,
    b'{"id":1,"inner":{"x":"no"}}': NO_FIT,
    b'{"id":1,"list":[1,"2"]}': NO_FIT,
    b'{"id":1,"name":"\x00"}': NO_FIT,
    b"{}": MISSING,
    b'{"id":null}': MISSING,
    b'{"name":' + b"[" * 100_000: NOT_ONE,
    b'{"' + b"k" * 60_000 + b'":1}': NOT_ONE,
    b'{"id":1' + b"0" * 2_000 + b"}": NOT_ONE,
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[bytes | None, Row]:
    values = [*GOOD, *BAD]
    parsed = parse(spark, make_parser("json", SCHEMA), values)
    return dict(zip(values, parsed, strict=True))


@pytest.mark.parametrize("value", GOOD, ids=lambda value: value[:40].decode())
def test_object_that_fits_is_accepted(rows: dict[bytes | None, Row], value: bytes) -> None:
    row = rows[value]
    assert row.reason is None
    assert {name: row.parsed[name] for name in GOOD[value]} == GOOD[value]


@pytest.mark.parametrize("value", BAD, ids=lambda value: repr(value)[:40])
def test_anything_else_is_rejected_with_its_reason(
    rows: dict[bytes | None, Row], value: bytes | None
) -> None:
    assert rows[value].reason.text == BAD[value]
    assert rows[value].reason.code == CODES[BAD[value]]


def test_quarantine_keeps_the_raw_bytes(spark: SparkSession) -> None:
    parser = make_parser("json", SCHEMA)
    parsed = parser(records(source_rows(spark, [b"\xff\x00", b'{"id":1}'])))
    (row,) = rejected(parsed, "json").collect()
    assert (row.offset, bytes(row.value)) == (0, b"\xff\x00")
    assert (row.parser, row.reason, row.code) == ("json", NOT_UTF8, "not_utf8")


def test_time_of_a_record_is_read_with_its_zone(spark: SparkSession) -> None:
    value = b'{"id":1,"at":"2026-01-02T03:04:05.678+02:00"}'
    (row,) = parse(spark, make_parser("json", SCHEMA), [value])
    assert row.parsed.at.timestamp() == 1767315845.678


@pytest.mark.parametrize(
    ("parser", "schema"),
    [("json", None), ("raw", "id INT"), ("json", "id NONSENSE"), ("json", "INT"), ("xml", None)],
)
def test_wrong_parser_or_schema_is_one_clear_error(
    spark: SparkSession, parser: str, schema: str | None
) -> None:
    with pytest.raises(PipelineError) as refused:
        make_parser(parser, schema)
    assert "\n" not in str(refused.value)
