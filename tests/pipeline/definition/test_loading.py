"""The definition of a pipeline in a YAML file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.definition.loading import (
    FILE_BYTES_MAX,
    NESTING_MAX,
    load_definition,
    parse_definition,
)
from odradek.pipeline.definition.model import (
    Deduplication,
    Encoding,
    EventTime,
    Expectation,
    Payload,
    PipelineDefinition,
    RegistryAccess,
    Start,
    TableDefinition,
    Unit,
)
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.tables import TableFormat
from odradek.pipeline.transforms.expectations import OnFailure

COMPLETE = """
version: 1
name: shop
directory: /lake/shop
bootstrap_servers: a:9092,b:9092
listen: 127.0.0.1:9400
registry: {url: "http://localhost:8081", user: me, password_file: /run/secrets/registry}
kafka: {security.protocol: PLAINTEXT, enable.metrics.push: false, max.poll.records: 10}
spark: {spark.ui.enabled: true}
tables:
  orders:
    topics: [orders]
    format: iceberg
    start: {time: 2026-01-02T03:04:05Z}
    key: {encoding: registry}
    value: {encoding: registry, schema_id: header}
    columns_of_key: [key.id]
    expectations: [{name: positive, sql: "value.sum > 0", on_failure: drop}]
    rejects_max: 0.01
    interval: 1 minute
    batch_rows: 1000
    kafka: {fetch.max.bytes: 1000}
  clicks:
    pattern: "clicks_(?P<country>[a-z]+)"
    each_topic: true
    value: {encoding: json, schema: "id BIGINT, at TIMESTAMP"}
    start: {offsets: {clicks_de: {0: 7}}}
    event_time: {column: value.at, allowance: 10 minutes, partition_by: day}
    deduplicate: {by: [value.id], within: 1 hour}
"""

MINIMAL = "name: n\ndirectory: d\ntables: {t: {topics: [a]}}\n"


def parse(text: str | bytes, environment: dict[str, str] | None = None) -> PipelineDefinition:
    data = text.encode() if isinstance(text, str) else text
    return parse_definition(data, "p.yaml", environment or {})


def message(text: str | bytes, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(PipelineError) as caught:
        parse(text, environment)
    return str(caught.value)


def test_every_field_of_a_file_is_read() -> None:
    assert parse(COMPLETE) == PipelineDefinition(
        name="shop",
        directory="/lake/shop",
        bootstrap_servers="a:9092,b:9092",
        listen="127.0.0.1:9400",
        registry=RegistryAccess("http://localhost:8081", "me", "/run/secrets/registry"),
        kafka={
            "security.protocol": "PLAINTEXT",
            "enable.metrics.push": "false",
            "max.poll.records": "10",
        },
        spark={"spark.ui.enabled": "true"},
        tables={
            "orders": TableDefinition(
                topics=("orders",),
                format=TableFormat.ICEBERG,
                start=Start(time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
                key=Payload(Encoding.REGISTRY),
                value=Payload(Encoding.REGISTRY, schema_id="header"),  # type: ignore[arg-type]
                columns_of_key=("key.id",),
                expectations=(Expectation("positive", "value.sum > 0", OnFailure.DROP),),
                rejects_max=0.01,
                interval="1 minute",
                batch_rows=1000,
                kafka={"fetch.max.bytes": "1000"},
            ),
            "clicks": TableDefinition(
                pattern="clicks_(?P<country>[a-z]+)",
                each_topic=True,
                value=Payload(Encoding.JSON, "id BIGINT, at TIMESTAMP"),
                start=Start(offsets={"clicks_de": {0: 7}}),
                event_time=EventTime("value.at", timedelta(minutes=10), Unit.DAY),
                deduplicate=Deduplication(("value.id",), timedelta(hours=1)),
            ),
        },
    )


def test_defaults_are_raw_records_from_the_earliest_offset_into_delta() -> None:
    table = parse(MINIMAL).tables["t"]
    assert table == TableDefinition(topics=("a",))
    assert (table.format, table.value.encoding, table.start) == (
        TableFormat.DELTA,
        Encoding.RAW,
        Start(at="earliest"),
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("{}", "tables.t: a table has either topics or a pattern."),
        ("{topics: [a], pattern: b}", "tables.t: a table has either topics or a pattern."),
        ("{pattern: '('}", "tables.t: the pattern is not a regular expression: missing ),"),
        ("{topics: [a], tpoics: [b]}", "tables.t.tpoics: unknown field, did you mean 'topics'."),
        ("{topics: [a], rejects_max: 1.5}", "tables.t.rejects_max: input should be less than or"),
        ("{topics: [a], rejects_max: -1}", "tables.t.rejects_max: input should be greater than"),
        ("{topics: [a], batch_rows: 0}", "tables.t.batch_rows: input should be greater than"),
        ("{topics: [a], format: orc}", "tables.t.format: input should be 'delta', 'iceberg' or"),
        ("{topics: [a], interval: 1 month}", "tables.t.interval: '1 month' is not an interval."),
        ("{topics: [a], value: {encoding: json}}", "tables.t.value: the encoding json needs a"),
        ("{topics: [a], value: {schema: a INT}}", "tables.t.value: the encoding json needs a"),
        ("{topics: [a], start: {}}", "tables.t.start: a start has exactly one of at, offsets"),
        (
            "{topics: [a], start: {at: latest, time: 2026-01-01T00:00:00Z}}",
            "tables.t.start: a start has exactly one of at, offsets and time.",
        ),
        ("{topics: [a], start: {time: 2026-01-01T00:00:00}}", "tables.t.start.time: input should"),
        ("{topics: [a], start: {offsets: {a: {0: -1}}}}", "tables.t.start.offsets.a.0: input"),
        ("{topics: [a], event_time: {column: c, allowance: 1 year}}", "'1 year' is not a time"),
        ("{topics: [a], format: parquet, columns_of_key: [k]}", "a Parquet table has no primary"),
        ("{topics: [a], deduplicate: {by: [a], within: 1 day}}", "a deduplication needs event_"),
        (
            "{topics: [a], key: {encoding: registry}}",
            "p.yaml: the whole file: the table t needs the field",
        ),
        (
            "{topics: [a], expectations: [{name: e, sql: a}, {name: e, sql: b}]}",
            "two expectations have the same name.",
        ),
    ],
)
def test_wrong_value_is_named_with_its_place(table: str, expected: str) -> None:
    assert expected in message(f"name: n\ndirectory: d\ntables: {{t: {table}}}\n")


def test_each_wrong_value_has_a_line() -> None:
    text = "name: n/m\ntables: {t: {topics: [a], batch_rows: 0}}\n"
    lines = message(text).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["name", "directory", "tables.t.batch_rows"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2\n", "p.yaml:2:1: The key 'a' is there twice."),
        ("a: &x 1\nb: *x\n", "p.yaml:2:4: Aliases are not supported."),
        ("a: " + "[" * (NESTING_MAX + 1), "levels of nesting."),
        ("[1]: 2\n", "p.yaml:1:1: A key has to be a text."),
        ("- a\n", "p.yaml has no fields."),
        ("", "p.yaml has no fields."),
        (b"\xff", "p.yaml is not YAML in UTF-8: "),
        ("a: [", "p.yaml:1:5: "),
        ("a: 2026-13-01\n", "p.yaml: "),
        ("a: !!python/object:os.system {}\n", "p.yaml:1:4: "),
    ],
)
def test_what_is_not_a_definition_is_named_with_its_line(text: str | bytes, expected: str) -> None:
    assert message(text).startswith(expected) or expected in message(text)


def test_variables_of_the_environment_are_put_into_client_settings() -> None:
    text = MINIMAL + (
        'kafka: {sasl.jaas.config: "a ${USER_1} b ${PW}"}\n'
        'registry: {url: "http://${HOST}"}\n'
        'spark: {a: "$PW"}\n'
    )
    found = parse(text, {"USER_1": "u", "PW": "p", "HOST": "h"})
    assert found.kafka == {"sasl.jaas.config": "a u b p"}
    assert found.registry == RegistryAccess("http://h")
    assert found.spark == {"a": "$PW"}


def test_variables_are_put_into_the_client_settings_of_a_table_and_nowhere_else() -> None:
    text = 'name: n\ndirectory: "${D}"\ntables: {t: {topics: [a], kafka: {k: "${PW}"}}}\n'
    found = parse(text, {"PW": "p", "D": "d"})
    assert found.tables["t"].kafka == {"k": "p"}
    assert found.directory == "${D}"


def test_missing_variable_is_named_with_its_place() -> None:
    text = MINIMAL + 'kafka: {a: "${NO}"}\n'
    assert message(text) == "p.yaml: kafka.a: the environment variable NO is not set."


def test_message_about_a_wrong_client_setting_does_not_contain_the_secret() -> None:
    text = MINIMAL + 'kafka: {a: ["${PW}"]}\nregistry: {url: [x], user: "${PW}"}\n'
    assert "secret" not in message(text, {"PW": "secret"})


def test_objects_in_python_are_checked_alike_and_do_not_show_values() -> None:
    with pytest.raises(ValueError, match="either topics or a pattern"):
        TableDefinition()
    with pytest.raises(ValueError, match="kafka") as caught:
        TableDefinition(topics=("a",), kafka={"password": ["secret"]})  # type: ignore[dict-item]
    assert "secret" not in str(caught.value)


def test_file_that_is_missing_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        load_definition(tmp_path / "none.yaml", {})
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(PipelineError, match="A definition has"):
        load_definition(large, {})


def test_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(MINIMAL)
    assert load_definition(path, {}) == parse(MINIMAL)


@given(st.binary(max_size=60) | st.text(alphabet="abt:{}[]-&*!'\"\n #|>%@01?,", max_size=60))
def test_any_text_is_a_definition_or_an_error_of_the_pipeline(text: str | bytes) -> None:
    try:
        parse(text)
    except PipelineError:
        return
