"""The differences between two JSON Schemas, with Confluent's names, and which are compatible. Pure.

A difference is seen from the reader: ``MAXIMUM_ADDED`` means that the reader has a maximum and the
writer has none. A pair of schemas is compatible if all its differences are.

Deviations from Confluent's list of compatible differences:

- ``REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED`` and
  ``REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL`` are incompatible here.
  Confluent's Java validator inserts the default before it validates. Other validators reject the
  value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from odradek.registry.schemas.json_drafts import escaped

DIFFERENCES_MAX = 100
"""Maximum number of differences kept for one pair of schemas."""


class JsonDifferenceKind(Enum):
    """The kinds of differences. The names are Confluent's (``Difference.Type``)."""

    ID_CHANGED = auto()
    DESCRIPTION_CHANGED = auto()
    TITLE_CHANGED = auto()
    DEFAULT_CHANGED = auto()
    SCHEMA_ADDED = auto()
    SCHEMA_REMOVED = auto()
    TYPE_EXTENDED = auto()
    TYPE_NARROWED = auto()
    TYPE_CHANGED = auto()
    MAX_LENGTH_ADDED = auto()
    MAX_LENGTH_REMOVED = auto()
    MAX_LENGTH_INCREASED = auto()
    MAX_LENGTH_DECREASED = auto()
    MIN_LENGTH_ADDED = auto()
    MIN_LENGTH_REMOVED = auto()
    MIN_LENGTH_INCREASED = auto()
    MIN_LENGTH_DECREASED = auto()
    PATTERN_ADDED = auto()
    PATTERN_REMOVED = auto()
    PATTERN_CHANGED = auto()
    MAXIMUM_ADDED = auto()
    MAXIMUM_REMOVED = auto()
    MAXIMUM_INCREASED = auto()
    MAXIMUM_DECREASED = auto()
    MINIMUM_ADDED = auto()
    MINIMUM_REMOVED = auto()
    MINIMUM_INCREASED = auto()
    MINIMUM_DECREASED = auto()
    EXCLUSIVE_MAXIMUM_ADDED = auto()
    EXCLUSIVE_MAXIMUM_REMOVED = auto()
    EXCLUSIVE_MAXIMUM_INCREASED = auto()
    EXCLUSIVE_MAXIMUM_DECREASED = auto()
    EXCLUSIVE_MINIMUM_ADDED = auto()
    EXCLUSIVE_MINIMUM_REMOVED = auto()
    EXCLUSIVE_MINIMUM_INCREASED = auto()
    EXCLUSIVE_MINIMUM_DECREASED = auto()
    MULTIPLE_OF_ADDED = auto()
    MULTIPLE_OF_REMOVED = auto()
    MULTIPLE_OF_EXPANDED = auto()
    MULTIPLE_OF_REDUCED = auto()
    MULTIPLE_OF_CHANGED = auto()
    REQUIRED_ATTRIBUTE_ADDED = auto()
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED = auto()
    REQUIRED_ATTRIBUTE_REMOVED = auto()
    MAX_PROPERTIES_ADDED = auto()
    MAX_PROPERTIES_REMOVED = auto()
    MAX_PROPERTIES_INCREASED = auto()
    MAX_PROPERTIES_DECREASED = auto()
    MIN_PROPERTIES_ADDED = auto()
    MIN_PROPERTIES_REMOVED = auto()
    MIN_PROPERTIES_INCREASED = auto()
    MIN_PROPERTIES_DECREASED = auto()
    ADDITIONAL_PROPERTIES_ADDED = auto()
    ADDITIONAL_PROPERTIES_REMOVED = auto()
    ADDITIONAL_PROPERTIES_EXTENDED = auto()
    ADDITIONAL_PROPERTIES_NARROWED = auto()
    DEPENDENCY_ARRAY_ADDED = auto()
    DEPENDENCY_ARRAY_REMOVED = auto()
    DEPENDENCY_ARRAY_EXTENDED = auto()
    DEPENDENCY_ARRAY_NARROWED = auto()
    DEPENDENCY_ARRAY_CHANGED = auto()
    DEPENDENCY_SCHEMA_ADDED = auto()
    DEPENDENCY_SCHEMA_REMOVED = auto()
    REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL = auto()
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    UNEVALUATED_PROPERTIES_ADDED = auto()
    UNEVALUATED_PROPERTIES_REMOVED = auto()
    UNEVALUATED_PROPERTIES_EXTENDED = auto()
    UNEVALUATED_PROPERTIES_NARROWED = auto()
    MAX_ITEMS_ADDED = auto()
    MAX_ITEMS_REMOVED = auto()
    MAX_ITEMS_INCREASED = auto()
    MAX_ITEMS_DECREASED = auto()
    MIN_ITEMS_ADDED = auto()
    MIN_ITEMS_REMOVED = auto()
    MIN_ITEMS_INCREASED = auto()
    MIN_ITEMS_DECREASED = auto()
    MAX_CONTAINS_ADDED = auto()
    MAX_CONTAINS_REMOVED = auto()
    MAX_CONTAINS_INCREASED = auto()
    MAX_CONTAINS_DECREASED = auto()
    MIN_CONTAINS_ADDED = auto()
    MIN_CONTAINS_REMOVED = auto()
    MIN_CONTAINS_INCREASED = auto()
    MIN_CONTAINS_DECREASED = auto()
    UNIQUE_ITEMS_ADDED = auto()
    UNIQUE_ITEMS_REMOVED = auto()
    ADDITIONAL_ITEMS_ADDED = auto()
    ADDITIONAL_ITEMS_REMOVED = auto()
    ADDITIONAL_ITEMS_EXTENDED = auto()
    ADDITIONAL_ITEMS_NARROWED = auto()
    UNEVALUATED_ITEMS_ADDED = auto()
    UNEVALUATED_ITEMS_REMOVED = auto()
    UNEVALUATED_ITEMS_EXTENDED = auto()
    UNEVALUATED_ITEMS_NARROWED = auto()
    ITEM_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_TO_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL = auto()
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ENUM_ARRAY_EXTENDED = auto()
    ENUM_ARRAY_NARROWED = auto()
    ENUM_ARRAY_CHANGED = auto()
    COMBINED_TYPE_EXTENDED = auto()
    COMBINED_TYPE_CHANGED = auto()
    PRODUCT_TYPE_EXTENDED = auto()
    PRODUCT_TYPE_NARROWED = auto()
    SUM_TYPE_EXTENDED = auto()
    SUM_TYPE_NARROWED = auto()
    COMBINED_TYPE_SUBSCHEMAS_CHANGED = auto()
    NOT_TYPE_EXTENDED = auto()
    NOT_TYPE_NARROWED = auto()


_K = JsonDifferenceKind

COMPATIBLE: frozenset[JsonDifferenceKind] = frozenset(
    {
        _K.ID_CHANGED,
        _K.DESCRIPTION_CHANGED,
        _K.TITLE_CHANGED,
        _K.DEFAULT_CHANGED,
        _K.SCHEMA_REMOVED,
        _K.TYPE_EXTENDED,
        _K.MAX_LENGTH_INCREASED,
        _K.MAX_LENGTH_REMOVED,
        _K.MIN_LENGTH_DECREASED,
        _K.MIN_LENGTH_REMOVED,
        _K.PATTERN_REMOVED,
        _K.MAXIMUM_INCREASED,
        _K.MAXIMUM_REMOVED,
        _K.MINIMUM_DECREASED,
        _K.MINIMUM_REMOVED,
        _K.EXCLUSIVE_MAXIMUM_INCREASED,
        _K.EXCLUSIVE_MAXIMUM_REMOVED,
        _K.EXCLUSIVE_MINIMUM_DECREASED,
        _K.EXCLUSIVE_MINIMUM_REMOVED,
        _K.MULTIPLE_OF_REDUCED,
        _K.MULTIPLE_OF_REMOVED,
        _K.REQUIRED_ATTRIBUTE_REMOVED,
        _K.DEPENDENCY_ARRAY_NARROWED,
        _K.DEPENDENCY_ARRAY_REMOVED,
        _K.DEPENDENCY_SCHEMA_REMOVED,
        _K.MAX_PROPERTIES_INCREASED,
        _K.MAX_PROPERTIES_REMOVED,
        _K.MIN_PROPERTIES_DECREASED,
        _K.MIN_PROPERTIES_REMOVED,
        _K.ADDITIONAL_PROPERTIES_ADDED,
        _K.ADDITIONAL_PROPERTIES_EXTENDED,
        _K.UNEVALUATED_PROPERTIES_ADDED,
        _K.UNEVALUATED_PROPERTIES_EXTENDED,
        _K.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
        _K.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL,
        _K.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        _K.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL,
        _K.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _K.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _K.MAX_ITEMS_INCREASED,
        _K.MAX_ITEMS_REMOVED,
        _K.MIN_ITEMS_DECREASED,
        _K.MIN_ITEMS_REMOVED,
        _K.MAX_CONTAINS_INCREASED,
        _K.MAX_CONTAINS_REMOVED,
        _K.MIN_CONTAINS_DECREASED,
        _K.MIN_CONTAINS_REMOVED,
        _K.UNIQUE_ITEMS_REMOVED,
        _K.ADDITIONAL_ITEMS_ADDED,
        _K.ADDITIONAL_ITEMS_EXTENDED,
        _K.UNEVALUATED_ITEMS_ADDED,
        _K.UNEVALUATED_ITEMS_EXTENDED,
        _K.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
        _K.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL,
        _K.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        _K.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL,
        _K.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _K.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _K.ENUM_ARRAY_EXTENDED,
        _K.COMBINED_TYPE_EXTENDED,
        _K.PRODUCT_TYPE_NARROWED,
        _K.SUM_TYPE_EXTENDED,
        _K.NOT_TYPE_NARROWED,
    }
)
"""The differences with which a reader still accepts every value of the writer."""


@dataclass(frozen=True, slots=True)
class JsonDifference:
    """A difference and where it is."""

    kind: JsonDifferenceKind
    path: tuple[str, ...] = ()
    """The names from the root, as in a JSON pointer."""

    @property
    def is_compatible(self) -> bool:
        """Whether the reader accepts every value of the writer in spite of it."""
        return self.kind in COMPATIBLE

    @property
    def pointer(self) -> str:
        """The place as a JSON pointer with Confluent's prefix, such as ``#/properties/a``."""
        return "#/" + "/".join(escaped(name) for name in self.path)

    def inside(self, path: tuple[str, ...]) -> JsonDifference:
        """Return the difference with a path that begins with `path`."""
        return JsonDifference(self.kind, path + self.path) if path else self

    def __str__(self) -> str:
        """Return the reason in a response. ``%s`` stands for the roles of reader and writer."""
        description = f"{_phrase(self.kind)}, at path '{self.pointer}'"
        return f'{{errorType:"{self.kind.name}", description:"{description}"}}'


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the comparison of a pair of schemas."""

    differences: tuple[JsonDifference, ...]
    """At most `DIFFERENCES_MAX`. At least one is incompatible if the pair is."""
    is_compatible: bool


NO_DIFFERENCE = Outcome((), True)
"""The result for schemas that accept the same values."""


class Findings:
    """Collects the differences of one pair of schemas. Owned by the comparison of the pair."""

    def __init__(self) -> None:
        self._differences: list[JsonDifference] = []
        self.is_compatible = True

    def add(self, kind: JsonDifferenceKind, *path: str) -> None:
        """Add a difference at a path from the pair."""
        self._add(JsonDifference(kind, path))

    def merge(self, outcome: Outcome, *path: str) -> None:
        """Add the differences of a pair of subschemas, which are at a path from this pair."""
        for difference in outcome.differences:
            self._add(difference.inside(path))

    def outcome(self) -> Outcome:
        """Return what was collected."""
        return Outcome(tuple(self._differences), self.is_compatible)

    def _add(self, difference: JsonDifference) -> None:
        is_first = self.is_compatible and not difference.is_compatible
        self.is_compatible = self.is_compatible and difference.is_compatible
        if len(self._differences) < DIFFERENCES_MAX:
            self._differences.append(difference)
        elif is_first:
            self._differences[-1] = difference


def incompatible(differences: Iterable[JsonDifference]) -> list[JsonDifference]:
    """Return the incompatible differences."""
    return [each for each in differences if not each.is_compatible]


_ENDINGS: tuple[tuple[str, str], ...] = (
    ("TO_OPEN_CONTENT_MODEL", "has a property or item that the %s schema leaves open"),
    ("TO_UNOPEN_CONTENT_MODEL", "requires a property that the %s schema does not have"),
    ("FROM_CLOSED_CONTENT_MODEL", "rejects a property or item of the %s schema"),
    ("BY_PARTIALLY_OPEN_CONTENT_MODEL", "does not accept all values of the %s schema"),
    ("REMOVED", "rejects properties or items that the %s schema accepts"),
    ("ADDED", "has a constraint that the %s schema does not have"),
    ("INCREASED", "has a greater value than the %s schema"),
    ("DECREASED", "has a smaller value than the %s schema"),
    ("EXPANDED", "has a greater value than the %s schema"),
    ("EXTENDED", "has more elements than the %s schema"),
    ("NARROWED", "accepts fewer values than the %s schema"),
    ("CHANGED", "does not accept all values of the %s schema"),
)


def _phrase(kind: JsonDifferenceKind) -> str:
    for ending, text in _ENDINGS:
        if kind.name.endswith(ending):
            return f"The %s schema {text}"
    return "The %s schema differs from the %s schema"
