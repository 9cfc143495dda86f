"""JSON values with the validation of a JSON Schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from jsonschema.exceptions import SchemaError, best_match
from referencing.exceptions import Unresolvable

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.json_schema_validator import make_validator
from odradek.registry.schemas.parsed import InvalidSchema, ResolvedReference

MESSAGE_MAX = 300
"""Number of characters of a validation error, which repeats the value."""


class JsonDecoder:
    """Conversion of JSON texts to values, without a schema.

    Output is not validated: a record remains readable if it breaks its schema, and if its schema
    uses features that a validator does not have.
    """

    def decode(self, data: bytes) -> object:
        """Return the JSON value of a text.

        Raises:
            UndecodableValue: The text is not JSON, or has a number above the greatest double.
        """
        try:
            value: object = json.loads(data, parse_constant=_refused, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise UndecodableValue(f"the bytes are not JSON: {error}") from None
        return value


class JsonSchemaCodec(JsonDecoder):
    """Conversion of the values of one JSON Schema, whose encoded form is JSON text.

    Args:
        text: The schema.
        references: The texts of its references, by the URI that ``$ref`` uses.

    Raises:
        UnusableSchema: The schema is invalid.
    """

    def __init__(self, text: str, references: Sequence[ResolvedReference] = ()) -> None:
        try:
            self._validator = make_validator(
                json.loads(text), {each.name: json.loads(each.text) for each in references}
            )
        except (SchemaError, InvalidSchema, ValueError, RecursionError) as error:
            reason = error.message if isinstance(error, SchemaError) else str(error)
            raise UnusableSchema(f"the JSON Schema is invalid: {reason}") from None

    def encode(self, value: object) -> bytes:
        """Return the JSON text of a value.

        Raises:
            InvalidValue: The value does not fit the schema, or no JSON text has it.
            UnusableSchema: A reference or an expression of the schema cannot be used.
        """
        text = _json_text(value)
        try:
            error = best_match(self._validator.iter_errors(value))
        except Unresolvable as missing:
            raise UnusableSchema(f"the JSON Schema has a $ref to nothing: {missing}") from None
        except re.error as invalid:
            raise UnusableSchema(f"an expression cannot be used: {invalid}") from None
        except OverflowError as overflow:
            raise InvalidValue(f"a number is too large for the schema: {overflow}") from None
        except RecursionError:
            raise InvalidValue("the value is nested too deeply") from None
        if error is not None:
            message = error.message[:MESSAGE_MAX]
            raise InvalidValue(message, tuple(map(str, error.absolute_path)))
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidValue("a string is not of Unicode characters") from None


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InvalidValue("JSON has no NaN, no infinity and no number that large") from None
    except RecursionError:
        raise InvalidValue("the value is nested too deeply") from None


def _refused(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:MESSAGE_MAX]} is too large")
    return number
