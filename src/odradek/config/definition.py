"""Definition of a config: type, default, valid values, how it may be altered, text form.

Parsing and printing follow Kafka's ``ConfigDef`` (``parseType``, ``convertToString``), because
clients see both. An invalid value is a `KafkaError` with INVALID_CONFIG and the message that
Kafka's tools print.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from odradek.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | list[str]


class ConfigType(IntEnum):
    """Type of a config. The numbers are those of DescribeConfigs' ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker config can be altered at run time, and for one or for all brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


def invalid_value(name: str, value: object, reason: str) -> KafkaError:
    """Return the error for a value that is not accepted, worded as Kafka's ``ConfigException``."""
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"Invalid value {value_text(value)} for configuration {name}: {reason}",
    )


def value_text(value: object) -> str:
    """Format a value as Java prints it inside a message: null, true, [a, b], 1.0."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return number_text(value) if isinstance(value, float) else str(value)


def number_text(value: float) -> str:
    """Format a number as Java prints a double: 0.5, 1.0E-5."""
    mantissa, _, exponent = str(value).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


class Validator(Protocol):
    """A check of a parsed value. It raises INVALID_CONFIG for a value that is not valid."""

    def check(self, name: str, value: ConfigValue) -> None: ...


class Range(NamedTuple):
    """A number within bounds, both inclusive. None means no bound."""

    low: float | None = None
    high: float | None = None

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, (int, float))
        if self.low is not None and value < self.low:
            raise invalid_value(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid_value(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        low = "..." if self.low is None else f"{self.low},..."
        return f"[{low}]" if self.high is None else f"[{low},{self.high}]"


class OneOf(NamedTuple):
    """A string, or every string of a list, from a set of choices, possibly in any case."""

    choices: tuple[str, ...]
    any_case: bool = False

    def check(self, name: str, value: ConfigValue) -> None:
        for item in value if isinstance(value, list) else [value]:
            if (str(item).upper() if self.any_case else item) not in self.choices:
                reason = f"String must be one of: {', '.join(self.choices)}"
                raise invalid_value(name, item, reason)

    def __str__(self) -> str:
        listed = f"[{', '.join(self.choices)}]"
        return f"(case insensitive) {listed}" if self.any_case else listed


def at_least(low: float) -> Range:
    return Range(low)


def between(low: float, high: float) -> Range:
    return Range(low, high)


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


class ConfigKey(NamedTuple):
    """One config: the columns of a row in Kafka's documentation."""

    name: str
    type: ConfigType
    default: ConfigValue | None
    importance: Importance
    doc: str
    valid: Validator | None = None
    mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False  # takes effect, but is not shown to clients

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Return the checked value of `text`. An invalid one raises INVALID_CONFIG."""
        value = _PARSERS[self.type](self.name, text.strip())
        if self.valid is not None:
            self.valid.check(self.name, value)
        return value

    def default_text(self) -> str | None:
        return None if self.default is None else to_text(self.default)


class ConfigDef(Mapping[str, ConfigKey]):
    """A table of configs by name, in the order of their names."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys: dict[str, ConfigKey] = {}
        for key in sorted(keys, key=lambda key: key.name):
            assert key.name not in self._keys, f"config defined twice: {key.name}"
            self._keys[key.name] = key

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def to_text(value: ConfigValue) -> str:
    """Format a parsed value as DescribeConfigs shows it (``ConfigDef.convertToString``)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return number_text(value) if isinstance(value, float) else str(value)


def _parse_bool(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise invalid_value(name, text, "Expected value to be either true or false")
    return lowered == "true"


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


def _parse_integer(kind: ConfigType, name: str, text: str) -> int:
    bound = 1 << _BITS[kind]
    # Every 64-bit number fits in 20 characters. Longer texts are not passed to int().
    value = int(text) if len(text) <= 20 and _INTEGER.fullmatch(text) else bound
    if not -bound <= value < bound:
        raise invalid_value(name, text, f"Not a number of type {kind.name}")
    return value


def _parse_double(name: str, text: str) -> float:
    try:
        if "_" in text:
            raise ValueError(text)
        return float(text)
    except ValueError:
        raise invalid_value(name, text, "Not a number of type DOUBLE") from None


def _parse_list(_name: str, text: str) -> list[str]:
    return re.split(r"\s*,\s*", text) if text else []


def _parse_string(_name: str, text: str) -> str:
    return text


_PARSERS: dict[ConfigType, Callable[[str, str], ConfigValue]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: lambda name, text: _parse_integer(ConfigType.INT, name, text),
    ConfigType.SHORT: lambda name, text: _parse_integer(ConfigType.SHORT, name, text),
    ConfigType.LONG: lambda name, text: _parse_integer(ConfigType.LONG, name, text),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_string,
    ConfigType.PASSWORD: _parse_string,
}
