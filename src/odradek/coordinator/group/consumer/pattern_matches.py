"""The topics that regular expressions match: an input of decisions about consumer groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.errors import KafkaError


class PatternsNeeded(Exception):
    """The decision needs the topics that these expressions match. Repeat the decision with them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = sorted(patterns)
        super().__init__(*self.patterns)


@dataclass(frozen=True, slots=True)
class PatternMatches:
    """The matched topics of expressions in one version of the metadata.

    A refused expression has its error instead.
    """

    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    refused: Mapping[str, KafkaError] = field(default_factory=dict)

    def lacks(self, pattern: str) -> bool:
        return pattern not in self.topics and pattern not in self.refused

    def require(self, pattern: str) -> None:
        """Check that the matches of an expression are known.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION for a refused expression.
            PatternsNeeded: The matches are not known.
        """
        if pattern in self.refused:
            raise self.refused[pattern]
        if pattern not in self.topics:
            raise PatternsNeeded([pattern])


NO_MATCHES = PatternMatches()
