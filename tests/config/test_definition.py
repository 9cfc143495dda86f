"""Config values: parsed, checked and printed as Kafka does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.definition import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Validator,
    at_least,
    between,
    one_of,
    to_text,
)
from odradek.errors import ErrorCode, KafkaError


def key(kind: ConfigType, valid: Validator | None = None) -> ConfigKey:
    return ConfigKey("a.b", kind, None, Importance.LOW, "", valid)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " 12 ", 12),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "+7", 7),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.LIST, "a , b,c", ["a", "b", "c"]),
        (ConfigType.LIST, " ", []),
        (ConfigType.LIST, "a,", ["a", ""]),
    ],
)
def test_text_is_parsed_as_java_does(kind: ConfigType, text: str, value: ConfigValue) -> None:
    assert key(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "1.0", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "9" * 5000, "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "half", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1_0", "Not a number of type DOUBLE"),
    ],
)
def test_text_of_another_type_is_invalid(kind: ConfigType, text: str, reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        key(kind).parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == f"Invalid value {text} for configuration a.b: {reason}"


@pytest.mark.parametrize(
    ("kind", "valid", "text", "wrong", "reason"),
    [
        (ConfigType.INT, at_least(1), "0", "0", "Value must be at least 1"),
        (ConfigType.DOUBLE, between(0, 1), "1.5", "1.5", "Value must be no more than 1"),
        (ConfigType.STRING, one_of("x", "y"), "z", "z", "String must be one of: x, y"),
        (ConfigType.LIST, one_of("x", "y"), "x,z", "z", "String must be one of: x, y"),
    ],
)
def test_value_out_of_bounds_is_refused_with_kafkas_message(
    kind: ConfigType, valid: Validator, text: str, wrong: str, reason: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        key(kind, valid).parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == f"Invalid value {wrong} for configuration a.b: {reason}"


@given(st.sampled_from(ConfigType), st.text(max_size=30))
def test_any_text_is_a_value_or_invalid_config(kind: ConfigType, text: str) -> None:
    try:
        value = key(kind).parse(text)
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_CONFIG
        return
    assert key(kind).parse(to_text(value)) == value or value != value


def test_table_is_in_the_order_of_names_and_refuses_a_name_twice() -> None:
    one, two = key(ConfigType.INT), ConfigKey("a", ConfigType.INT, 3, Importance.LOW, "")
    assert list(ConfigDef([one, two])) == ["a", "a.b"]
    assert two.default_text() == "3"
    with pytest.raises(AssertionError):
        ConfigDef([one, one])
