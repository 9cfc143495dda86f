"""Parameters of a request in its query string and its path. Pure.

They are read as Confluent's registry (JAX-RS) reads them: the first value of a name counts, a flag
is true for the text ``true`` in any case, and a malformed number is a 404. Unknown parameters are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar
from urllib.parse import parse_qs

from odradek.registry.errors import RegistryError, RegistryErrorCode, invalid_version
from odradek.registry.json_value import INTEGER_MAX
from odradek.registry.state import LATEST_VERSION

SCHEMAS_LIMIT = 1_000
"""Default and maximum number of schemas in a response to ``GET /schemas``, as in Confluent's."""

UNLIMITED = INTEGER_MAX
"""Default number of subjects, versions and contexts in a response."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")

T = TypeVar("T")


class QueryParameters:
    """The parameters in the query string of a request."""

    __slots__ = ("_values",)

    def __init__(self, query_string: bytes) -> None:
        self._values: dict[str, list[str]] = (
            parse_qs(query_string.decode(errors="replace"), keep_blank_values=True)
            if query_string
            else {}
        )

    def flag(self, name: str) -> bool:
        """Return whether the value is ``true`` in any case."""
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a name."""
        values = self._values.get(name)
        return values[0] if values else default

    def optional_text(self, name: str) -> str | None:
        """Return the first value of a name, or None if the request does not have it."""
        values = self._values.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of a name in their order."""
        return self._values.get(name, ())

    def integer(self, name: str, default: int) -> int:
        """Return a 32-bit number.

        Raises:
            RegistryError: 404, the value is not a 32-bit number.
        """
        text = self.text(name)
        return parse_integer(text) if name in self._values else default


def not_found() -> RegistryError:
    """Return the error of a path that does not exist."""
    return RegistryError(RegistryErrorCode.NOT_FOUND, "HTTP 404 Not Found")


def parse_integer(text: str) -> int:
    """Return the number of a parameter.

    Raises:
        RegistryError: 404, the text is not a 32-bit number.
    """
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -INTEGER_MAX - 1 <= number <= INTEGER_MAX:
        raise not_found()
    return number


def parse_version(text: str) -> int:
    """Return the number of a version in a path, or `LATEST_VERSION`.

    Raises:
        RegistryError: 42202, the text is neither ``latest``, -1 nor a positive 32-bit number.
    """
    stripped = text.strip()
    if stripped.lower() == "latest":
        return LATEST_VERSION
    number = int(stripped) if _INTEGER.fullmatch(stripped) else None
    if number is None or number > INTEGER_MAX:
        raise invalid_version(text)
    if number <= 0 and number != LATEST_VERSION:
        raise invalid_version(number)
    return number


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that a response has."""

    offset: int
    limit: int

    @classmethod
    def of(cls, query: QueryParameters, limit: int = UNLIMITED) -> Page:
        """Return the page that ``offset`` and ``limit`` request.

        Args:
            query: The parameters of the request.
            limit: Maximum number of elements. It also applies to a request with a limit that is
                absent, zero, negative or larger.
        """
        offset = query.integer("offset", 0)
        requested = query.integer("limit", -1)
        return cls(max(offset, 0), requested if 0 < requested <= limit else limit)

    def of_elements(self, elements: Iterable[T]) -> list[T]:
        """Return the elements of this page."""
        return list(islice(elements, self.offset, self.offset + self.limit))
