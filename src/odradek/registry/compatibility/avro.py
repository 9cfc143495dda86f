"""Whether an Avro schema reads data of another, by the rules of Java's `SchemaCompatibility`. Pure.

The verdicts, the kinds of reasons, their locations and their messages are those of Java's library
1.12. The result of a pair of types is computed once. So a reason's location is that of the first
comparison of its pair, and the branches of unions are compared at a location of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from odradek.registry.recursion import Recursion, run
from odradek.registry.request_budget import Spend, unlimited
from odradek.registry.schemas.avro import ParsedAvro
from odradek.registry.schemas.avro_text import CanonicalText
from odradek.registry.schemas.avro_types import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroKind,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
    DefinedType,
    NamedType,
    alias_names,
    defined,
)

COMPARISONS_MAX = 300_000
"""Maximum number of pairs of types that a check compares. Above it the schemas are incompatible."""

REASONS_MAX = 256
"""Maximum number of reasons that a check returns. Java's library has no limit."""

_PROMOTIONS = {
    AvroKind.LONG: {AvroKind.INT},
    AvroKind.FLOAT: {AvroKind.INT, AvroKind.LONG},
    AvroKind.DOUBLE: {AvroKind.INT, AvroKind.LONG, AvroKind.FLOAT},
    AvroKind.BYTES: {AvroKind.STRING},
    AvroKind.STRING: {AvroKind.BYTES},
}
"""By the kind of a reader: the other kinds of writers whose data it reads."""

_FAILED = "Unexpected exception during compatibility check: "


class ReasonKind(StrEnum):
    """The kinds of reasons, by their names in messages."""

    NAME_MISMATCH = "NAME_MISMATCH"
    FIXED_SIZE_MISMATCH = "FIXED_SIZE_MISMATCH"
    MISSING_ENUM_SYMBOLS = "MISSING_ENUM_SYMBOLS"
    READER_FIELD_MISSING_DEFAULT_VALUE = "READER_FIELD_MISSING_DEFAULT_VALUE"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    MISSING_UNION_BRANCH = "MISSING_UNION_BRANCH"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a reader's type cannot read data of a writer's type.

    Attributes:
        kind: Its kind.
        location: The place in the reader's schema, as a JSON pointer.
        message: The details, whose form depends on the kind.
    """

    kind: ReasonKind
    location: str
    message: str

    def __str__(self) -> str:
        """The message of Confluent's registry, with ``%s`` for the role of each schema."""
        description = self._description()
        return (
            f"{{errorType:'{self.kind.value}', description:'{description}',"
            f" additionalInfo:'{self.message}'}}"
        )

    def _description(self) -> str:
        path = f"path '{self.location}'"
        match self.kind:
            case ReasonKind.FIXED_SIZE_MISMATCH:
                return (
                    f"The size of FIXED type field at {path} in the %s schema does not match with"
                    " the %s schema"
                )
            case ReasonKind.TYPE_MISMATCH:
                return (
                    f"The type ({path}) of a field in the %s schema does not match with the %s"
                    " schema"
                )
            case ReasonKind.NAME_MISMATCH:
                return f"The name of the schema has changed ({path})"
            case ReasonKind.MISSING_ENUM_SYMBOLS:
                return (
                    f"The %s schema is missing enum symbols '{self.message}' at {path} in the %s"
                    " schema"
                )
            case ReasonKind.MISSING_UNION_BRANCH:
                return (
                    f"The %s schema is missing a type inside a union field at {path} in the %s"
                    " schema"
                )
            case ReasonKind.READER_FIELD_MISSING_DEFAULT_VALUE:
                return (
                    f"The field '{self.message}' at {path} in the %s schema has no default value"
                    " and is missing in the %s schema"
                )


class IncomparableSchemas(Exception):
    """The rules give no result for two schemas. The message says why."""


def check(reader: ParsedAvro, writer: ParsedAvro, spend: Spend = unlimited) -> list[str]:
    """Return the reasons why `reader` cannot read data of `writer`. Empty: it can.

    The reasons are messages of Confluent's registry, with ``%s`` for the role of each schema.
    `spend` is called for each pair of types.
    """
    try:
        return [str(reason) for reason in reasons(reader, writer, spend)]
    except IncomparableSchemas as error:
        return [f"{_FAILED}{error}"]


def reasons(reader: ParsedAvro, writer: ParsedAvro, spend: Spend = unlimited) -> list[Reason]:
    """Return the reasons why `reader` cannot read data of `writer`, at most `REASONS_MAX`.

    Raises:
        IncomparableSchemas: A field of the reader has the names of several fields of the writer, or
            the check needs more than `COMPARISONS_MAX` comparisons.
    """
    return list(run(_AvroComparison(spend).compare("", reader.root, writer.root, None)))


_Location: TypeAlias = "tuple[_Location, str] | None"
"""The tokens from the root to a place, as a linked list that ends with the root."""

_Result: TypeAlias = tuple[Reason, ...]

_READABLE: _Result = ()


class _AvroComparison:
    """Compares pairs of types and keeps their results, which also ends recursion."""

    def __init__(self, spend: Spend) -> None:
        self._spend = spend
        self._results: dict[tuple[int, int], _Result] = {}

    def compare(
        self, token: str, reader: AvroType, writer: AvroType, location: _Location
    ) -> Recursion[_Result]:
        """Return the reasons for a pair at `token` below `location`."""
        read, written = defined(reader), defined(writer)
        key = (id(read), id(written))
        if key in self._results:
            return self._results[key]
        if len(self._results) >= COMPARISONS_MAX:
            raise IncomparableSchemas(f"the schemas need more than {COMPARISONS_MAX} comparisons")
        self._spend(1)
        # A pair whose comparison is in progress is readable unless another part proves otherwise.
        self._results[key] = _READABLE
        result: _Result = yield self._compare_here(read, written, (location, token))
        self._results[key] = result
        return result

    def _compare_here(
        self, reader: DefinedType, writer: DefinedType, location: _Location
    ) -> Recursion[_Result]:
        result: _Result
        if isinstance(reader, AvroUnion) and isinstance(writer, AvroUnion):
            result = yield self._compare_unions(reader, writer, location)
        elif isinstance(writer, AvroUnion):
            result = yield self._compare_branches(reader, writer, location)
        elif isinstance(reader, AvroUnion):
            result = yield self._find_branch(reader, writer, location)
        elif reader.kind is writer.kind:
            result = yield self._compare_same_kind(reader, writer, location)
        elif writer.kind in _PROMOTIONS.get(reader.kind, ()):
            result = _READABLE
        else:
            message = (
                f"reader type: {reader.kind.name} not compatible with"
                f" writer type: {writer.kind.name}"
            )
            result = _reason(ReasonKind.TYPE_MISMATCH, location, message)
        return result

    def _compare_same_kind(
        self, reader: DefinedType, writer: DefinedType, location: _Location
    ) -> Recursion[_Result]:
        result = _READABLE
        if isinstance(reader, AvroArray) and isinstance(writer, AvroArray):
            result = yield self.compare("items", reader.items, writer.items, location)
        elif isinstance(reader, AvroMap) and isinstance(writer, AvroMap):
            result = yield self.compare("values", reader.values, writer.values, location)
        elif isinstance(reader, AvroFixed) and isinstance(writer, AvroFixed):
            result = _names(reader, writer, location) + _sizes(reader, writer, location)
        elif isinstance(reader, AvroEnum) and isinstance(writer, AvroEnum):
            result = _names(reader, writer, location) + _symbols(reader, writer, location)
        elif isinstance(reader, AvroRecord) and isinstance(writer, AvroRecord):
            fields: _Result = yield self._compare_fields(reader, writer, (location, "fields"))
            result = _merged(_names(reader, writer, location), fields)
        return result

    def _compare_unions(
        self, reader: AvroUnion, writer: AvroUnion, location: _Location
    ) -> Recursion[_Result]:
        result = _READABLE
        for position, branch in enumerate(writer.branches):
            found: _Result = yield self.compare("", reader, branch, None)
            if found:
                missing = _missing_branch(branch, (location, str(position)))
                result = _merged(result, missing)
        return result

    def _compare_branches(
        self, reader: DefinedType, writer: AvroUnion, location: _Location
    ) -> Recursion[_Result]:
        result = _READABLE
        for position, branch in enumerate(writer.branches):
            found: _Result = yield self.compare(str(position), reader, branch, location)
            result = _merged(result, found)
        return result

    def _find_branch(
        self, reader: AvroUnion, writer: DefinedType, location: _Location
    ) -> Recursion[_Result]:
        for branch in reader.branches:
            found: _Result = yield self.compare("", branch, writer, None)
            if not found:
                return _READABLE
        return _missing_branch(writer, location)

    def _compare_fields(
        self, reader: AvroRecord, writer: AvroRecord, location: _Location
    ) -> Recursion[_Result]:
        result = _READABLE
        for field in reader.fields:
            place = (location, str(field.position))
            found: _Result = yield self._compare_field(field, writer, place)
            result = _merged(result, found)
        return result

    def _compare_field(
        self, field: AvroField, writer: AvroRecord, location: _Location
    ) -> Recursion[_Result]:
        written = _written_field(field, writer)
        result = _READABLE
        if written is not None:
            result = yield self.compare("type", field.type, written.type, location)
        elif not field.has_default:
            type_ = defined(field.type)
            if isinstance(type_, AvroEnum) and type_.default is not None:
                # As Java does: the enum is compared with the writer's record.
                result = yield self.compare("type", type_, writer, location)
            else:
                kind = ReasonKind.READER_FIELD_MISSING_DEFAULT_VALUE
                result = _reason(kind, location, field.name)
        return result


def _written_field(field: AvroField, writer: AvroRecord) -> AvroField | None:
    """The writer's field for a field of the reader, by its name or one of its aliases."""
    found = [
        writer.by_name[name] for name in (field.name, *field.aliases) if name in writer.by_name
    ]
    if len(found) > 1:
        shown = f"{field.name} type:{defined(field.type).kind.name} pos:{field.position}"
        raise IncomparableSchemas(
            f"Reader record field {shown} matches multiple fields in writer record schema"
            f" {CanonicalText().write(writer)}"
        )
    return found[0] if found else None


def _names(reader: NamedType, writer: NamedType, location: _Location) -> _Result:
    full = writer.name.full
    if reader.name.name == writer.name.name or full in alias_names(reader):
        return _READABLE
    return _reason(ReasonKind.NAME_MISMATCH, (location, "name"), f"expected: {full}")


def _sizes(reader: AvroFixed, writer: AvroFixed, location: _Location) -> _Result:
    if reader.size == writer.size:
        return _READABLE
    message = f"expected: {writer.size}, found: {reader.size}"
    return _reason(ReasonKind.FIXED_SIZE_MISMATCH, (location, "size"), message)


def _symbols(reader: AvroEnum, writer: AvroEnum, location: _Location) -> _Result:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return _READABLE
    message = f"[{', '.join(missing)}]"
    return _reason(ReasonKind.MISSING_ENUM_SYMBOLS, (location, "symbols"), message)


def _missing_branch(writer: AvroType, location: _Location) -> _Result:
    message = f"reader union lacking writer type: {defined(writer).kind.name}"
    return _reason(ReasonKind.MISSING_UNION_BRANCH, location, message)


def _merged(first: _Result, second: _Result) -> _Result:
    if not first or not second:
        return first or second
    return (first + second)[:REASONS_MAX]


def _reason(kind: ReasonKind, location: _Location, message: str) -> _Result:
    return (Reason(kind, _pointer(location), message),)


def _pointer(location: _Location) -> str:
    """The JSON pointer of a location, without the root's token."""
    tokens: list[str] = []
    while location is not None:
        location, token = location
        tokens.append(token.replace("~", "~0").replace("/", "~1"))
    return "/" + "/".join(reversed(tokens[:-1]))
