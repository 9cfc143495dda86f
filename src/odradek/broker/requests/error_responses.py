"""Responses that refuse a whole request with one error code.

Kafka's ``AbstractRequest.getErrorResponse`` is written by hand for each API. Here the response is
derived from the message definitions. If the body of the response has an error code, only that code
is set. Otherwise the response has an element for each topic, partition, group or key of the
request, and the code is set in each element. A Fetch response has the error in each partition,
because clients expect it there, although its body has an error code too.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.spec import FieldSpec, StructSpec, load
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

if TYPE_CHECKING:
    from odradek.errors import ErrorCode

# Names of error code fields. Only AddPartitionsToTxn uses the second one.
ERROR_CODES = ("error_code", "partition_error_code")
# Names that a request and its response use for the same field.
_SAME = (
    {"name", "topic", "topic_name"},
    {"partition", "partition_index", "index"},
    {"group_id", "group", "groups_names"},
    {"coordinator_keys", "key"},
)


Slices = Generator[None, None, bool]
"""Work in time slices that returns whether it has set or found an error code."""


def error_response(response_class: Any, request: Any, version: int, code: ErrorCode) -> Any:
    """Return the response to `request` that reports `code` for all of its elements.

    Args:
        response_class: The class of the response.
        request: The decoded request.
        version: The version of both.
        code: The error code to report.

    Raises:
        LookupError: This version of the response has no field for an error code.
    """
    return run_to_completion(making_error_response(response_class, request, version, code))


def making_error_response(
    response_class: Any, request: Any, version: int, code: ErrorCode
) -> Generator[None, None, Any]:
    """Return the response in time slices: see `error_response`."""
    spec = load(response_class.SPEC).body
    response = response_class()
    filler = _Filler(importlib.import_module(response_class.__module__), version, int(code))
    by_element = request.API_KEY == ApiKey.FETCH
    is_set = yield from filler.fill(
        spec, response, load(request.SPEC).body, request, by_element=by_element
    )
    if not is_set:
        raise LookupError(f"version {version} of {response_class.__name__} has no error code")
    return response


class _Filler:
    """Filler for the structs of one response, from the corresponding structs of the request."""

    def __init__(self, module: Any, version: int, code: int) -> None:
        self._module = module
        self._version = version
        self._code = code
        self._left = ELEMENTS_PER_SLICE

    def fill(
        self,
        spec: StructSpec,
        response: Any,
        request_spec: StructSpec | None,
        request: Any,
        *,
        by_element: bool = False,
    ) -> Slices:
        """Set the error in `response` to `request`, and return whether it has a field for it."""
        fields = _fields(spec, self._version)
        self._name(fields, response, request_spec, request)
        for field in fields:
            if field.attribute in ERROR_CODES and not by_element:
                setattr(response, field.attribute, self._code)
                return True
        for field in fields:
            if field.struct is not None and field.is_array and self._has_error_code(field.struct):
                assert request_spec is not None
                made = yield from self._elements(field.struct, request_spec, request)
                setattr(response, field.attribute, made)
                return True
        return False

    def _elements(
        self, spec: StructSpec, request_spec: StructSpec, request: Any
    ) -> Generator[None, None, list[Any]]:
        """Return an element for each of the request's first array (of structs, if it has one)."""
        arrays = [each for each in _fields(request_spec, self._version) if each.is_array]
        arrays.sort(key=lambda each: each.struct is None)
        elements = []
        for item in (getattr(request, arrays[0].attribute) or []) if arrays else []:
            if not self._left:
                self._left = ELEMENTS_PER_SLICE
                yield
            self._left -= 1
            element = getattr(self._module, spec.name)()
            yield from self.fill(spec, element, arrays[0].struct, item)
            elements.append(element)
        return elements

    def _name(
        self, fields: list[FieldSpec], response: Any, request_spec: StructSpec | None, request: Any
    ) -> None:
        """Copy the fields that identify an element from the request to the response.

        An element of the request that is a single number or string goes to the first field of the
        same type.
        """
        if request_spec is None:
            for field in fields:
                if field.attribute not in ERROR_CODES and isinstance(field.default, type(request)):
                    setattr(response, field.attribute, request)
                    return
            return
        names = {each.attribute: each for each in _fields(request_spec, self._version)}
        for field in fields:
            if field.struct is not None or field.is_array or field.attribute in ERROR_CODES:
                continue
            for name in _names_of(field.attribute):
                found = names.get(name)
                if found is not None and (found.kind, found.is_array) == (field.kind, False):
                    setattr(response, field.attribute, getattr(request, name))
                    break

    def _has_error_code(self, spec: StructSpec) -> bool:
        return any(
            field.attribute in ERROR_CODES
            or (field.struct is not None and field.is_array and self._has_error_code(field.struct))
            for field in _fields(spec, self._version)
        )


def _names_of(attribute: str) -> list[str]:
    """Return `attribute` and the other names that a request may use for the same field."""
    others = [name for same in _SAME if attribute in same for name in sorted(same)]
    return [attribute, *(name for name in others if name != attribute)]


def _fields(spec: StructSpec, version: int) -> list[FieldSpec]:
    return spec.present(version) + spec.tagged(version)


def finding_error(message: Any, version: int, code: ErrorCode) -> Slices:
    """Return in time slices whether a response has this error code, at any level of its structs."""
    left = ELEMENTS_PER_SLICE

    def found(spec: StructSpec, value: Any) -> Slices:
        nonlocal left
        for field in _fields(spec, version):
            content = getattr(value, field.attribute)
            if field.attribute in ERROR_CODES:
                if content == code:
                    return True
            elif field.struct is not None:
                for each in (content or []) if field.is_array else [content]:
                    if not left:
                        left = ELEMENTS_PER_SLICE
                        yield
                    left -= 1
                    if each is not None and (yield from found(field.struct, each)):
                        return True
        return False

    return (yield from found(load(message.SPEC).body, message))


def topics_named(request: Any, version: int) -> tuple[set[str], set[bytes]]:
    """Return the names and the ids of the topics in a request, at all levels of its structs."""
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
    """Return whether a request of this kind can name a topic in some version."""
    return any(
        is_topic_name(field) or (field.struct is not None and names_topics(field.struct))
        for field in spec.fields
    )
