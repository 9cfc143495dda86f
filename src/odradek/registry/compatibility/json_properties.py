"""What an object schema says about a property by its name. Pure.

A property must satisfy its schema in ``properties`` and the schemas of all patterns that match its
name. Only if there is none, it must satisfy ``additionalProperties``.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.schemas.json_model import Node, ObjectForm, constraint
from odradek.registry.schemas.json_patterns import matches


def additional(form: ObjectForm) -> Node | None:
    """Return the schema of other properties, or None if they may have any value."""
    return constraint(form.additional if form.additional is not None else form.unevaluated)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns that match a name."""

    certain: tuple[str, ...]
    possible: tuple[str, ...]
    """Patterns of which it is unknown whether they match."""


def patterns_of(form: ObjectForm, name: str) -> Patterns:
    """Return the patterns of a schema that match a name."""
    found = {pattern: matches(pattern, name) for pattern in form.pattern_properties}
    return Patterns(
        certain=tuple(pattern for pattern, match in found.items() if match),
        possible=tuple(pattern for pattern, match in found.items() if match is None),
    )


def known_schemas(form: ObjectForm, name: str) -> tuple[Node, ...]:
    """Return schemas that each value of a property satisfies. Empty: the value may be anything.

    With unknown matches, schemas may be missing, but none is wrong.
    """
    patterns = patterns_of(form, name)
    known = [form.properties[name]] if name in form.properties else []
    known.extend(form.pattern_properties[pattern] for pattern in patterns.certain)
    rest = additional(form)
    if not known and not patterns.possible and rest is not None:
        known.append(rest)
    return tuple(node for node in known if constraint(node) is not None)


@dataclass(frozen=True, slots=True)
class Obligation:
    """A schema that the reader may apply to a property, other than its schema by name."""

    path: tuple[str, ...]
    schema: Node


def obligations(
    reader: ObjectForm, name: str, writer_patterns: frozenset[str]
) -> tuple[Obligation, ...]:
    """Return the schemas that the reader may apply to a property besides ``properties``.

    Args:
        reader: The reader's schema.
        name: The name of the property.
        writer_patterns: The writer's patterns. The same pattern of the reader is compared with the
            writer's on its own, for all names that it matches.
    """
    patterns = patterns_of(reader, name)
    found = [
        Obligation(("patternProperties", pattern), reader.pattern_properties[pattern])
        for pattern in (*patterns.certain, *patterns.possible)
        if pattern not in writer_patterns
    ]
    rest = additional(reader)
    if rest is not None and name not in reader.properties and not patterns.certain:
        found.append(Obligation(("additionalProperties",), rest))
    return tuple(each for each in found if constraint(each.schema) is not None)
