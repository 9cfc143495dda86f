"""Reads the definition of a pipeline from a YAML file.

YAML allows a key twice and keeps the last value. Here that is an error, as an unknown key is. A
value under ``kafka``, ``spark`` or ``registry`` may contain ``${NAME}``, which stands for the
environment variable of this name. So passwords need not be in the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from odradek.pipeline.definition.model import PipelineDefinition
from odradek.pipeline.errors import PipelineError

FILE_BYTES_MAX = 1_048_576
"""Largest size of a file. A definition of a thousand tables has half of it."""

NESTING_MAX = 20
"""Deepest nesting of mappings and lists. A definition has six levels."""

SECTIONS_WITH_VARIABLES = ("kafka", "spark", "registry")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ADAPTER: TypeAdapter[PipelineDefinition] = TypeAdapter(PipelineDefinition)


def load_definition(path: Path, environment: Mapping[str, str]) -> PipelineDefinition:
    """Return the definition in a YAML file.

    Args:
        path: The file, in UTF-8.
        environment: The values of ``${NAME}``.

    Raises:
        PipelineError: The file cannot be read, or a value is wrong. The message has one line for
            each wrong value, with the file and the path of the value in it. It never contains the
            value of a variable.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > FILE_BYTES_MAX:
        raise PipelineError(f"{path} has {len(data):,} bytes. A definition has {FILE_BYTES_MAX:,}.")
    return parse_definition(data, str(path), environment)


def parse_definition(data: bytes, name: str, environment: Mapping[str, str]) -> PipelineDefinition:
    """Return the definition in the text of a YAML file. See `load_definition`.

    Args:
        data: The text, in UTF-8.
        name: The name of the file, for messages.
        environment: The values of ``${NAME}``.

    Raises:
        PipelineError: As for `load_definition`.
    """
    try:
        value = _Loader(data).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise PipelineError(f"{where}: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        first_line = str(error).partition("\n")[0]
        raise PipelineError(f"{name} is not YAML in UTF-8: {first_line}.") from error
    except ValueError as error:  # a date such as 2026-13-01
        raise PipelineError(f"{name}: {error}.") from error
    if not isinstance(value, dict):
        raise PipelineError(f"{name} has no fields. A definition begins with `name: NAME`.")
    value = _replaced(value, name, environment)
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        raise PipelineError("\n".join(_lines(name, error))) from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with errors for repeated keys, aliases and deep nesting.

    An alias repeats a part of the file. Aliases of aliases make a short file very large.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="Aliases are not supported", problem_mark=event.start_mark
            )
        self._depth += 1
        if self._depth > NESTING_MAX:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"More than {NESTING_MAX} levels of nesting", problem_mark=event.start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="A key has to be a text", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"The key '{key.value}' is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _replaced(value: dict[str, Any], name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields with the values of the variables in the sections that may have them."""
    found = dict(value)
    for section in SECTIONS_WITH_VARIABLES:
        if section in found:
            found[section] = _with_values(found[section], f"{name}: {section}", environment)
    tables = found.get("tables")
    if isinstance(tables, dict):
        found["tables"] = {
            table: {
                **fields,
                "kafka": _with_values(
                    fields["kafka"], f"{name}: tables.{table}.kafka", environment
                ),
            }
            if isinstance(fields, dict) and "kafka" in fields
            else fields
            for table, fields in tables.items()
        }
    return found


def _with_values(value: Any, where: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_values(one, f"{where}.{key}", environment) for key, one in value.items()}
    if isinstance(value, bool):
        # Clients and Spark expect texts, and YAML reads `true` as a bool.
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        return value

    def value_of(found: re.Match[str]) -> str:
        variable = found[1]
        if variable not in environment:
            raise PipelineError(f"{where}: the environment variable {variable} is not set.")
        return environment[variable]

    return _VARIABLE.sub(value_of, value)


def _lines(name: str, error: ValidationError) -> list[str]:
    """Return one line for each wrong value."""
    lines: list[str] = []
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in one["loc"]) or "the whole file"
        if one["type"] == "unexpected_keyword_argument":
            what = f"unknown field{_suggestion(one['loc'])}"
        elif one["type"] == "missing":
            what = "the field is missing"
        else:
            what = one["msg"].removeprefix("Value error, ")
            what = what[:1].lower() + what[1:]
        lines.append(f"{name}: {where}: {what}.")
    return lines


def _suggestion(location: tuple[int | str, ...]) -> str:
    """Return the field with the most similar name, as the end of a message."""
    close = difflib.get_close_matches(str(location[-1]), FIELD_NAMES, 1)
    return f", did you mean '{close[0]}'" if close else ""


def _field_names(schema: Any) -> set[str]:
    """Return the names of all fields in the JSON Schema of the definition."""
    if isinstance(schema, list):
        return set().union(*map(_field_names, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    names = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return names.union(*map(_field_names, schema.values()))


FIELD_NAMES = sorted(_field_names(_ADAPTER.json_schema()))
"""The names of all fields, for suggestions."""
