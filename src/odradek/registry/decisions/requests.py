"""The body of requests that contain a schema. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.errors import bad_request, invalid_rule_set, invalid_schema
from odradek.registry.json_value import JsonFields, JsonValue, WrongType
from odradek.registry.metadata import Metadata
from odradek.registry.records import DEFAULT_KIND
from odradek.registry.references import InvalidReference, decode_references
from odradek.registry.rules import InvalidRule, RuleSet
from odradek.registry.schemas.parsed import Reference

NO_ID = -1
"""The id of a request that does not choose one."""

NEXT_VERSION = 0
"""The version of a request that does not choose one."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The schema of a registration, a look-up or a compatibility check.

    `version` is 0 for the next version, -1 for the latest version, or a number. `text` is empty if
    the request means the text of the previous version.
    """

    text: str
    kind: str = DEFAULT_KIND
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    version: int = NEXT_VERSION
    id: int = NO_ID

    @classmethod
    def from_json(cls, body: JsonValue) -> SchemaRequest:
        """Return the request of a body. Unknown fields are ignored.

        Raises:
            RegistryError: 400, a field has a wrong type. 42201, a reference is incomplete. 42210,
                the rule set is not valid.
        """
        try:
            fields = JsonFields(body, "body")
            version, schema_id = fields.integer("version"), fields.integer("id")
            request = cls(
                text=fields.text("schema") or "",
                kind=fields.text("schemaType") or DEFAULT_KIND,
                references=decode_references(fields),
                metadata=Metadata.from_json(fields.value("metadata")),
                rule_set=RuleSet.from_json(fields.value("ruleSet")),
                version=NEXT_VERSION if version is None else version,
                id=NO_ID if schema_id is None else schema_id,
            )
            if request.rule_set is not None:
                request.rule_set.validate()
        except InvalidReference as error:
            raise invalid_schema(str(error)) from error
        except WrongType as error:
            raise bad_request(str(error)) from error
        except InvalidRule as error:
            raise invalid_rule_set(str(error)) from error
        return request

    @property
    def is_empty(self) -> bool:
        """Whether it has no text."""
        return not self.text.strip()
