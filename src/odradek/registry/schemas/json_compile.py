"""Compiles the value of a JSON Schema and of its references into a graph of nodes. Pure.

References are resolved by the library ``referencing`` from the registered texts and from the
metaschemas of the library. Nothing is read from the network or from files, so a reference to a URL
must be registered as a reference of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import urljoin, urlsplit

import jsonschema.validators
import referencing.exceptions
import referencing.jsonschema
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource, Specification
from referencing._core import Resolver

from odradek.registry.schemas.json_drafts import Draft, draft_of, subschemas, without_subschemas
from odradek.registry.schemas.json_evaluated import with_evaluated
from odradek.registry.schemas.json_groups import form_of
from odradek.registry.schemas.json_model import (
    EmptyForm,
    FalseForm,
    Form,
    Node,
    UnevaluatedForm,
    in_place,
)
from odradek.registry.schemas.json_patterns import EXPRESSIONS_OF_SCHEMA_MAX, require_expression
from odradek.registry.schemas.json_text import Json
from odradek.registry.schemas.parsed import InvalidSchema

SCHEMAS_MAX = 10_000
"""Maximum number of schemas in a document and its references together."""

ERROR_CHARACTERS_MAX = 200
"""A longer message of a library is truncated."""

_Resolver: TypeAlias = "Resolver[Any]"

_UNRESOLVABLE = (
    referencing.exceptions.Unresolvable,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)
"""What ``referencing`` raises for a reference, for a malformed URI, and for a schema whose keywords
have values of a wrong type."""

_SPECIFICATIONS: Mapping[Draft, Specification[Any]] = {
    Draft.DRAFT_4: referencing.jsonschema.DRAFT4,
    Draft.DRAFT_6: referencing.jsonschema.DRAFT6,
    Draft.DRAFT_7: referencing.jsonschema.DRAFT7,
    Draft.DRAFT_2019_09: referencing.jsonschema.DRAFT201909,
    Draft.DRAFT_2020_12: referencing.jsonschema.DRAFT202012,
}


class _Error(Protocol):
    message: str
    absolute_path: Iterable[str | int]


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterator[_Error]: ...


def compile_schema(document: Json, references: Mapping[str, Json]) -> Node:
    """Return the root of the graph of a schema.

    Args:
        document: The value of the schema's text.
        references: The values of the referenced texts by the names that the schemas use.

    Raises:
        InvalidSchema: A keyword has a wrong value, a reference cannot be resolved, a schema refers
            to itself without a step into the value, or a limit is exceeded.
    """
    return _Compiler().compile(document, references)


@dataclass(frozen=True, slots=True)
class _ReferenceScope:
    compiler: _Compiler
    resolver: _Resolver
    draft: Draft
    location: str

    def child(self, value: Json, pointer: str) -> Node:
        location = f"{self.location}/{pointer}"
        resolver = self.resolver
        if isinstance(value, dict) and ("$id" in value or "id" in value):
            resolver = self._inside(value, location)
        return self.compiler.node(value, resolver, self.draft, location)

    def part(self, form: Form) -> Node:
        return Node(self.location, {}, form)

    def target(self, reference: str) -> Node:
        try:
            target = self.resolver.lookup(reference)
        except _UNRESOLVABLE:
            raise InvalidSchema(
                f"{self.location}: the reference '{_shown(reference)}' cannot be resolved"
            ) from None
        location = reference if "#" in reference else f"{reference}#"
        return self.compiler.node(target.contents, target.resolver, self.draft, location)

    def _inside(self, value: dict[str, Json], location: str) -> _Resolver:
        resource = _SPECIFICATIONS[draft_of(value, self.draft)].create_resource(value)
        try:
            return self.resolver.in_subresource(resource)
        except _UNRESOLVABLE:
            raise InvalidSchema(f"{location}: the identifier is not a valid URI") from None


class _Compiler:
    """Compiles one schema. Nodes wait in a list, so a deep schema needs no deep stack."""

    def __init__(self) -> None:
        self._drafts: dict[int, Draft] = {}
        """The draft of each validated schema, by the identity of its value."""
        self._nodes: dict[int, Node] = {}
        self._pending: list[tuple[Node, dict[str, Json], _ReferenceScope]] = []

    def compile(self, document: Json, references: Mapping[str, Json]) -> Node:
        draft = draft_of(document, Draft.DRAFT_7)
        root = with_shared_definitions(document)
        self._validate(root, draft, "#")
        resources: dict[str, Json] = {}
        for name, contents in references.items():
            resources[name] = with_shared_definitions(contents)
            self._validate(resources[name], draft, f"{name}#")
        node = self.node(root, _resolver(root, resources, draft), draft, "#")
        while self._pending:
            waiting, schema, scope = self._pending.pop()
            waiting.form = form_of(schema, scope)
        _require_progress(self._nodes.values())
        for each in self._nodes.values():
            if isinstance(each.form, UnevaluatedForm):
                each.form = with_evaluated(each.form, each.schema)
        return node

    def node(self, value: object, resolver: _Resolver, draft: Draft, location: str) -> Node:
        """Return the node of a schema. Its form may not be known yet."""
        if isinstance(value, bool):
            return Node(location, value, EmptyForm() if value else FalseForm())
        if not isinstance(value, dict):
            raise InvalidSchema(f"{location} is not a schema: it must be an object or a boolean")
        found = self._nodes.get(id(value))
        if found is not None:
            return found
        if id(value) not in self._drafts:
            self._validate(value, draft, location)
        scope = _ReferenceScope(self, resolver, self._drafts[id(value)], location)
        node = Node(location, value)
        self._nodes[id(value)] = node
        self._pending.append((node, value, scope))
        return node

    def _validate(self, document: Json, draft: Draft, location: str) -> None:
        """Apply the metaschema to each schema of a document."""
        pending = [(document, draft, location)]
        while pending:
            schema, draft, location = pending.pop()
            if not isinstance(schema, dict) or id(schema) in self._drafts:
                continue
            if len(self._drafts) >= SCHEMAS_MAX:
                raise InvalidSchema(f"The schema contains more than {SCHEMAS_MAX} schemas")
            draft = draft_of(schema, draft)
            _require_valid(schema, draft, location)
            self._drafts[id(schema)] = draft
            pending.extend(
                (child, draft, f"{location}/{pointer}")
                for pointer, child in subschemas(schema, draft)
            )


@cache
def _validator(draft: Draft) -> _Validator:
    classes: Mapping[Draft, Any] = {
        Draft.DRAFT_4: jsonschema.validators.Draft4Validator,
        Draft.DRAFT_6: jsonschema.validators.Draft6Validator,
        Draft.DRAFT_7: jsonschema.validators.Draft7Validator,
        Draft.DRAFT_2019_09: jsonschema.validators.Draft201909Validator,
        Draft.DRAFT_2020_12: jsonschema.validators.Draft202012Validator,
    }
    chosen = classes[draft]
    return cast(_Validator, chosen(chosen.META_SCHEMA, registry=REGISTRY))


def _require_valid(schema: dict[str, Json], draft: Draft, location: str) -> None:
    keywords: dict[str, object] = {
        # The library accepts 2.0 as an integer only as a float.
        name: float(value) if isinstance(value, Decimal) else value
        for name, value in without_subschemas(schema, draft).items()
    }
    error = next(_validator(draft).iter_errors(keywords), None)
    if error is not None:
        pointer = "/".join([location, *map(str, error.absolute_path)])
        raise InvalidSchema(f"{pointer}: {_shown(error.message)}")
    pattern, patterns = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        require_expression(pattern, f"{location}/pattern")
    if isinstance(patterns, dict):
        _require_patterns(patterns, f"{location}/patternProperties")


def _require_patterns(patterns: Mapping[str, Json], location: str) -> None:
    if len(patterns) > EXPRESSIONS_OF_SCHEMA_MAX:
        raise InvalidSchema(f"{location} has more than {EXPRESSIONS_OF_SCHEMA_MAX} entries")
    for pattern in patterns:
        require_expression(pattern, location)


def with_shared_definitions(document: Json) -> Json:
    """Return the document with ``definitions`` copied into ``$defs``, as Confluent does."""
    if not isinstance(document, dict):
        return document
    definitions = document.get("definitions")
    shared = document.get("$defs", {})
    if not isinstance(definitions, dict) or not definitions or not isinstance(shared, dict):
        return document
    return {**document, "$defs": {**definitions, **shared}}


def _resolver(document: Json, references: Mapping[str, Json], draft: Draft) -> _Resolver:
    root = _resource(document, draft)
    base = root.id() or ""
    resources: list[tuple[str, Resource[Any]]] = []
    for name, contents in references.items():
        resource = _resource(contents, draft)
        resources.extend((uri, resource) for uri in reference_uris(base, name))
    registry: Registry[Any] = REGISTRY.with_resources([*resources, (base, root)])
    # References within the root need no crawl. If it fails, other references are unresolvable.
    with suppress(*_UNRESOLVABLE):
        registry = registry.crawl()
    return registry.resolver(base)


def _resource(document: Json, draft: Draft) -> Resource[Any]:
    return _SPECIFICATIONS[draft_of(document, draft)].create_resource(document)


def reference_uris(base: str, name: str) -> set[str]:
    """Return the URIs under which a reference is found: as in Confluent's registry.

    Args:
        base: The URI of the schema that has the reference, or empty.
        name: The name of the reference.

    Raises:
        InvalidSchema: The name is not a valid URI.
    """
    try:
        uris = {name, urljoin(base, name)}
        if not name.startswith(".") and not urlsplit(name).scheme:
            uris.add(f"./{name}")
    except ValueError:
        raise InvalidSchema(f"The reference name '{_shown(name)}' is not a valid URI") from None
    return uris


def _require_progress(nodes: Iterable[Node]) -> None:
    """Raise InvalidSchema if a validation of some value by these schemas would never end."""
    finished: set[Node] = set()
    for start in nodes:
        if start in finished:
            continue
        active = {start}
        stack = [(start, in_place(start.form))]
        while stack:
            node, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                active.discard(node)
                finished.add(node)
            elif child in active:
                raise InvalidSchema(f"{child.location}: the schema refers to itself")
            elif child not in finished:
                active.add(child)
                stack.append((child, in_place(child.form)))


def _shown(text: str) -> str:
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]}..."
