"""The response with which a broker refuses a whole request: the error wherever it has a place.

What Kafka's ``AbstractRequest.getErrorResponse`` does for each API by hand follows here from the
message definitions. If the body has an error code, that is set, and nothing else; if not, the
response has an element for each that the request names (topics, partitions, groups, keys), and the
code is set there. Fetch names errors by partition, as its clients expect, though its body has a
code of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.spec import FieldSpec, StructSpec, load

if TYPE_CHECKING:
    from odradek.errors import ErrorCode

# AddPartitionsToTxn alone has another name for it.
ERROR_CODES = ("error_code", "partition_error_code")
# By what names a request and its response call the same thing.
_SAME = (
    {"name", "topic", "topic_name"},
    {"partition", "partition_index", "index"},
    {"group_id", "group", "groups_names"},
    {"coordinator_keys", "key"},
)


def error_response(response_class: Any, request: Any, version: int, code: ErrorCode) -> Any:
    """The response of `response_class` to `request` that says `code` for all it asks.

    LookupError: this version of the API has no place for an error.
    """
    spec = load(response_class.SPEC).body
    response = response_class()
    filler = _Filler(importlib.import_module(response_class.__module__), version, int(code))
    by_element = request.API_KEY == ApiKey.FETCH
    if not filler.fill(spec, response, load(request.SPEC).body, request, by_element=by_element):
        raise LookupError(f"version {version} of {response_class.__name__} has no error code")
    return response


class _Filler:
    """Fills one response, struct by struct, beside the request's."""

    def __init__(self, module: Any, version: int, code: int) -> None:
        self._module = module
        self._version = version
        self._code = code

    def fill(
        self,
        spec: StructSpec,
        response: Any,
        asked_spec: StructSpec | None,
        asked: Any,
        *,
        by_element: bool = False,
    ) -> bool:
        """Whether the error found a place in `response`, which is the answer to `asked`."""
        fields = _fields(spec, self._version)
        self._name(fields, response, asked_spec, asked)
        for field in fields:
            if field.attribute in ERROR_CODES and not by_element:
                setattr(response, field.attribute, self._code)
                return True
        for field in fields:
            if field.struct is not None and field.is_array and self._tells_errors(field.struct):
                assert asked_spec is not None
                made = self._elements(field.struct, asked_spec, asked)
                setattr(response, field.attribute, made)
                return True
        return False

    def _elements(self, spec: StructSpec, asked_spec: StructSpec, asked: Any) -> list[Any]:
        """An element for each of the request's first array (of structs, if it has one)."""
        arrays = [each for each in _fields(asked_spec, self._version) if each.is_array]
        arrays.sort(key=lambda each: each.struct is None)
        elements = []
        for item in (getattr(asked, arrays[0].attribute) or []) if arrays else []:
            element = getattr(self._module, spec.name)()
            self.fill(spec, element, arrays[0].struct, item)
            elements.append(element)
        return elements

    def _name(
        self, fields: list[FieldSpec], response: Any, asked_spec: StructSpec | None, asked: Any
    ) -> None:
        """Says in `response` what it answers: by the fields that both have, or, where the request
        has but a number or a string, by the first field that takes it."""
        if asked_spec is None:
            for field in fields:
                if field.attribute not in ERROR_CODES and isinstance(field.default, type(asked)):
                    setattr(response, field.attribute, asked)
                    return
            return
        names = {each.attribute: each for each in _fields(asked_spec, self._version)}
        for field in fields:
            if field.struct is not None or field.is_array or field.attribute in ERROR_CODES:
                continue
            for name in _names_of(field.attribute):
                found = names.get(name)
                if found is not None and (found.kind, found.is_array) == (field.kind, False):
                    setattr(response, field.attribute, getattr(asked, name))
                    break

    def _tells_errors(self, spec: StructSpec) -> bool:
        return any(
            field.attribute in ERROR_CODES
            or (field.struct is not None and field.is_array and self._tells_errors(field.struct))
            for field in _fields(spec, self._version)
        )


def _names_of(attribute: str) -> list[str]:
    """`attribute`, and what else a request may call the same."""
    others = [name for same in _SAME if attribute in same for name in sorted(same)]
    return [attribute, *(name for name in others if name != attribute)]


def _fields(spec: StructSpec, version: int) -> list[FieldSpec]:
    return spec.present(version) + spec.tagged(version)


def topics_named(request: Any, version: int) -> tuple[set[str], set[bytes]]:
    """The names and the ids of the topics in a request, wherever they stand."""
    names: set[str] = set()
    ids: set[bytes] = set()

    def walk(spec: StructSpec, value: Any) -> None:
        for field in _fields(spec, version):
            content = getattr(value, field.attribute)
            for each in (content or []) if field.is_array else [content]:
                if each is None:
                    continue
                if field.struct is not None:
                    walk(field.struct, each)
                elif is_topic_name(field):
                    names.add(each)
                elif field.kind == "uuid" and field.attribute.startswith("topic_id"):
                    ids.add(bytes(each))

    walk(load(request.SPEC).body, request)
    return names, ids


def is_topic_name(field: FieldSpec) -> bool:
    return field.entity == "topicName" and field.kind == "string"


def names_topics(spec: StructSpec) -> bool:
    """Whether a request of this kind can name a topic, in any version."""
    return any(
        is_topic_name(field) or (field.struct is not None and names_topics(field.struct))
        for field in spec.fields
    )
