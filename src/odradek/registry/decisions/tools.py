"""The interfaces through which decisions parse and compare schemas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from odradek.registry.compatibility.levels import CompatibilityLevel, EarlierVersion
from odradek.registry.request_budget import RequestBudget
from odradek.registry.schemas.parsed import ParsedSchema, ResolvedReference, SchemaKind


class SchemaParsers(Protocol):
    """Parses schemas of all kinds, as `odradek.registry.schemas.parsers.Parsers`."""

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        """Return the parsed schema.

        Raises:
            InvalidSchema: The text is not a valid schema of its kind.
        """

    def digest(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        resolved: bool = False,
    ) -> bytes | None:
        """Return the digest of the canonical or the resolved text, or None if it is not valid."""


class Incompatibilities(Protocol):
    """Compares schemas, as `odradek.registry.compatibility.levels.incompatibilities`."""

    def __call__(
        self,
        level: CompatibilityLevel,
        schema: ParsedSchema,
        earlier: Iterable[EarlierVersion],
        *,
        validate_fields: bool = False,
    ) -> list[str]:
        """Return the messages why a schema breaks a level. Empty: it does not."""


class LimitedParsers:
    """Parsers that parse no further schema when the time of a request is over.

    Args:
        parsers: The parsers.
        budget: The budget of the request.
    """

    def __init__(self, parsers: SchemaParsers, budget: RequestBudget) -> None:
        self._parsers = parsers
        self._budget = budget

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        """Return the parsed schema.

        Raises:
            InvalidSchema: The text is not a valid schema of its kind.
            BudgetExceeded: The time of the request is over.
        """
        self._budget.check_time()
        return self._parsers.parse(kind, text, references, stored=stored)

    def digest(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        resolved: bool = False,
    ) -> bytes | None:
        """Return the digest of the canonical or the resolved text, or None if it is not valid.

        Raises:
            BudgetExceeded: The time of the request is over.
        """
        self._budget.check_time()
        return self._parsers.digest(kind, text, references, resolved=resolved)


@dataclass(frozen=True, slots=True)
class SchemaTools:
    """The parsers and the rules that a decision needs besides the state."""

    parsers: SchemaParsers
    incompatibilities: Incompatibilities
