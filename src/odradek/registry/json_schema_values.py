"""JSON values with the validation of a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import Draft7Validator, validator_for
from jsonschema_specifications import REGISTRY
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.schemas.parsed import ResolvedReference

MESSAGE_MAX = 300
"""Number of characters of a validation error, which repeats the value."""


class JsonSchemaCodec:
    """Conversion of the values of one JSON Schema, whose encoded form is JSON text.

    Input is validated. Output is not: a record remains readable if it breaks its schema.

    Args:
        text: The schema.
        references: The texts of its references, by the URI that ``$ref`` uses.

    Raises:
        UnusableSchema: The schema is invalid.
    """

    def __init__(self, text: str, references: Sequence[ResolvedReference] = ()) -> None:
        try:
            schema = json.loads(text)
            resources = [
                (each.name, Resource.from_contents(json.loads(each.text), DRAFT7))
                for each in references
            ]
            kind = validator_for(schema, default=Draft7Validator)
            kind.check_schema(schema)
        except (SchemaError, ValueError, RecursionError) as error:
            reason = error.message if isinstance(error, SchemaError) else str(error)
            raise UnusableSchema(f"the JSON Schema is invalid: {reason}") from None
        # This registry of schemas never requests a URL.
        self._validator: Validator = kind(schema, registry=REGISTRY.with_resources(resources))

    def decode(self, data: bytes) -> object:
        """Return the JSON value of a text.

        Raises:
            UndecodableValue: The text is not JSON.
        """
        try:
            value: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UndecodableValue(f"the bytes are not JSON: {error}") from None
        return value

    def encode(self, value: object) -> bytes:
        """Return the JSON text of a value.

        Raises:
            InvalidValue: The value does not fit the schema.
        """
        try:
            error = best_match(self._validator.iter_errors(value))
        except Unresolvable as missing:
            raise UnusableSchema(f"the JSON Schema has a $ref to nothing: {missing}") from None
        except RecursionError:
            raise InvalidValue("the value is nested too deeply") from None
        if error is not None:
            message = error.message[:MESSAGE_MAX]
            raise InvalidValue(message, tuple(map(str, error.absolute_path)))
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            raise InvalidValue("a string is not of Unicode characters") from None
