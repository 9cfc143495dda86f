"""Short names for JSON Schemas in tables of tests."""

from __future__ import annotations

import json
from typing import Any

from odradek.registry.compatibility.json_schema import check
from odradek.registry.schemas.json_schema import parse
from tests.registry.json_documents import URIS

STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
DEFAULT = {"type": "string", "default": "x"}
SHORT = {"type": "string", "maxLength": 5}
ONE = [STRING]
TWO = [STRING, NUMBER]


def obj(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


def props(*required: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties, **({"required": list(required)} if required else {})}


def closed(**keywords: Any) -> dict[str, Any]:
    return obj(additionalProperties=False, **keywords)


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


def draft_2019(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": URIS[2019], **schema}


OPTIONAL, REQUIRED = obj(**props(a=STRING)), obj(**props("a", a=STRING))
CONTAINS = draft_2019(array(contains=NUMBER))


def reasons(writer: Any, reader: Any) -> list[str]:
    """Return why the reader may reject values of the writer."""
    return check(parse(json.dumps(reader)), parse(json.dumps(writer)))
