"""Random JSON Schemas, mutations of them, and values that they accept.

The words are few, so that properties, patterns and values of different schemas meet.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeAlias

Schema: TypeAlias = Any
"""A schema's JSON: a dictionary or a boolean."""

URIS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ["a", "b", "c", "x_1", "x_2", "y_1"]
PATTERNS = ["^x_", "^y_", "1$", "[ab]"]
STRINGS = ["", "a", "ab", "abc", "x_1", "red", "green"]
NUMBERS = [0, 1, 2, 3, 4, 6, 8, -1, 0.5, 1.5, 1.0, 4.0]
VALUES = [*STRINGS, *NUMBERS, None, True, False, [], {}, [1], ["a", 1], {"a": 1}, {"x_1": "a"}]
TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"]
DEFINITIONS = ["one", "two"]
DEPTH_MAX = 3
MUTATIONS_MAX = 20
"""Maximum number of mutations to try for one change."""
STEPS_INTO_VALUE_MAX = 4


class SchemaMaker:
    """Makes random schemas of one draft."""

    def __init__(self, random: Random, draft: int) -> None:
        self._random = random
        self._draft = draft
        self._definitions = "$defs" if draft >= 2019 else "definitions"

    def document(self) -> Schema:
        """Return a schema with definitions, which it may refer to."""
        root = self.schema(0)
        while not isinstance(root, dict):
            root = self.schema(0)
        root["$schema"] = URIS[self._draft]
        root[self._definitions] = {name: self.schema(1) for name in DEFINITIONS}
        return root

    def schema(self, depth: int) -> Schema:
        """Return a schema. References may lead nowhere, which makes the document invalid."""
        makers: list[tuple[int, Callable[[int], Schema]]] = [
            (8, self._scalar),
            (2, self._values),
            (1, self._empty),
        ]
        if depth < DEPTH_MAX:
            makers += [
                (8, self._object),
                (5, self._array),
                (5, self._combined),
                (1, self._not),
                (3, self._reference),
                (1, self._conditional),
            ]
        weights, functions = zip(*makers, strict=True)
        chosen = self._random.choices(functions, weights)[0]
        return chosen(depth)

    def _maybe(self, chance: float = 0.4) -> bool:
        return self._random.random() < chance

    def _empty(self, depth: int) -> Schema:
        choices: list[Schema] = [{}, {"title": "any"}]
        return self._random.choice(choices if self._draft == 4 else [*choices, True, False])

    def _scalar(self, depth: int) -> Schema:
        kind = self._random.choice(TYPES[:5])
        schema: dict[str, Any] = {"type": kind}
        if kind == "string":
            schema |= self._limits("minLength", "maxLength")
            if self._maybe(0.2):
                schema["pattern"] = self._random.choice(PATTERNS)
        if kind in ("number", "integer"):
            schema |= self._limits("minimum", "maximum")
            if self._maybe(0.3):
                schema["multipleOf"] = self._random.choice([1, 2, 4, 0.5])
            schema |= self._exclusive(schema)
        if self._maybe(0.1):
            del schema["type"]
        elif self._maybe(0.15):
            schema["type"] = [kind, self._random.choice([each for each in TYPES if each != kind])]
        return schema

    def _exclusive(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self._draft > 4:
            return {"exclusiveMaximum": self._random.randrange(9)} if self._maybe(0.2) else {}
        return {"exclusiveMaximum": True} if "maximum" in schema and self._maybe(0.3) else {}

    def _limits(self, least: str, most: str) -> dict[str, Any]:
        limits = {}
        if self._maybe(0.3):
            limits[least] = self._random.randrange(3)
        if self._maybe(0.3):
            limits[most] = self._random.randrange(2, 7)
        return limits

    def _values(self, depth: int) -> Schema:
        if self._draft > 4 and self._maybe():
            return {"const": self._random.choice(VALUES)}
        values: list[Any] = self._random.sample(STRINGS, self._random.randrange(1, 4))
        if self._maybe(0.3):
            values.append(self._random.choice([None, True, 7]))
        schema: dict[str, Any] = {"enum": values}
        if self._maybe(0.3):
            schema["type"] = "string"
        return schema

    def _object(self, depth: int) -> Schema:
        random = self._random
        names = random.sample(NAMES, random.randrange(4))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: self.schema(depth + 1) for name in names},
        }
        required = [name for name in NAMES if self._maybe(0.15)]
        if required:
            schema["required"] = required
        if self._maybe(0.25):
            chosen = random.sample(PATTERNS, random.randrange(1, 3))
            schema["patternProperties"] = {each: self.schema(depth + 1) for each in chosen}
        if self._maybe(0.5):
            schema["additionalProperties"] = self._closed_or(depth)
        elif self._draft >= 2019 and self._maybe(0.3):
            schema["unevaluatedProperties"] = self._closed_or(depth)
        if self._maybe(0.2):
            schema |= self._limits("minProperties", "maxProperties")
        schema |= self._dependencies(depth)
        if self._draft > 4 and self._maybe(0.1):
            schema["propertyNames"] = {"maxLength": random.randrange(1, 4)}
        if self._maybe(0.1):
            del schema["type"]
        if self._maybe(0.1):
            schema |= self._combined(depth + 1)
        return schema

    def _closed_or(self, depth: int) -> Schema:
        return False if self._maybe(0.6) else self._dictionary(depth)

    def _dictionary(self, depth: int) -> Schema:
        schema = self.schema(depth + 1)
        return schema if isinstance(schema, dict) else {}

    def _dependencies(self, depth: int) -> dict[str, Any]:
        if not self._maybe(0.15):
            return {}
        name, other = self._random.sample(NAMES, 2)
        if self._maybe():
            keyword = "dependencies" if self._draft < 2019 else "dependentSchemas"
            return {keyword: {name: self._dictionary(depth)}}
        keyword = "dependencies" if self._draft < 2019 else "dependentRequired"
        return {keyword: {name: [other]}}

    def _array(self, depth: int) -> Schema:
        schema: dict[str, Any] = {"type": "array"}
        positions = "prefixItems" if self._draft >= 2020 else "items"
        rest = "items" if self._draft >= 2020 else "additionalItems"
        if self._maybe(0.5):
            schema["items"] = self._dictionary(depth)
        elif self._maybe(0.7):
            count = self._random.randrange(1, 4)
            schema[positions] = [self.schema(depth + 1) for _ in range(count)]
            if self._maybe():
                schema[rest] = self._closed_or(depth)
        elif self._draft >= 2019 and self._maybe(0.5):
            schema["unevaluatedItems"] = self._closed_or(depth)
        if self._maybe(0.3):
            schema |= self._limits("minItems", "maxItems")
        if self._maybe(0.2):
            schema["uniqueItems"] = True
        if self._draft > 4 and self._maybe(0.2):
            schema["contains"] = self._dictionary(depth)
            if self._draft >= 2019:
                schema |= self._limits("minContains", "maxContains")
        return schema

    def _combined(self, depth: int) -> dict[str, Any]:
        keyword = self._random.choice(["allOf", "anyOf", "oneOf"])
        count = self._random.choice([1, 2, 2, 3])
        schema: dict[str, Any] = {keyword: [self.schema(depth + 1) for _ in range(count)]}
        if self._draft >= 2019 and self._maybe(0.15):
            schema["unevaluatedProperties"] = False
        return schema

    def _not(self, depth: int) -> Schema:
        return {"not": self._dictionary(depth)}

    def _reference(self, depth: int) -> Schema:
        target = self._random.choice([*DEFINITIONS, *DEFINITIONS, None])
        reference = "#" if target is None else f"#/{self._definitions}/{target}"
        return {"$ref": reference}

    def _conditional(self, depth: int) -> Schema:
        if self._draft < 7:
            return {}
        schema = {"if": self.schema(depth + 1), "then": self.schema(depth + 1)}
        if self._maybe():
            schema["else"] = self.schema(depth + 1)
        return schema


def mutated(random: Random, document: Schema, draft: int) -> Schema:
    """Return a copy with one to three changes. It may be invalid."""
    copied = copy.deepcopy(document)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        copied = _changed_once(random, copied, draft)
    return copied


def _changed_once(random: Random, document: Schema, draft: int) -> Schema:
    """Return a copy with one change. A few mutations are without effect, so try some."""
    copied = copy.deepcopy(document)
    for _ in range(MUTATIONS_MAX):
        places = [place for place in _objects(copied) if place is not copied] or [copied]
        place = random.choice([*places, copied])
        random.choice(_MUTATIONS)(random, place, SchemaMaker(random, draft))
        if copied != document:
            break
    return copied


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects. Some are not schemas, and their mutation may be without effect."""
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from _objects(child)
    elif isinstance(value, list):
        for child in value:
            yield from _objects(child)


def _remove_keyword(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    keywords = [name for name in place if name not in ("$schema", "$defs", "definitions")]
    if keywords:
        del place[random.choice(keywords)]


def _change_number(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    names = [
        name
        for name, value in place.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if names:
        name = random.choice(names)
        place[name] = max(0, place[name] + random.choice([-2, -1, 1, 2]))


def _add_property(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    properties = place.get("properties")
    if isinstance(properties, dict):
        name = random.choice(NAMES)
        schema = maker.schema(2)
        if isinstance(schema, dict) and random.random() < 0.3:
            schema["default"] = random.choice(VALUES)
        properties[name] = schema


def _remove_property(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    properties = place.get("properties")
    if isinstance(properties, dict) and properties:
        del properties[random.choice(sorted(properties))]


def _change_required(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    required = place.get("required")
    if isinstance(required, list) and len(required) > 1:
        required.remove(random.choice(required))
    elif "properties" in place:
        place["required"] = [random.choice(NAMES)]


def _change_rest(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    for keyword in ("additionalProperties", "additionalItems", "unevaluatedProperties"):
        if keyword in place:
            place[keyword] = random.choice([True, False, {"type": random.choice(TYPES)}])


def _widen(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    kind = place.get("type")
    if kind == "integer":
        place["type"] = "number"
    elif isinstance(kind, str):
        other = random.choice([each for each in TYPES if each != kind])
        place["type"] = [kind, other]
    elif isinstance(kind, list) and kind:
        place["type"] = kind[0]


def _wrap(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    kept = ("$schema", "$defs", "definitions")
    inner = {name: value for name, value in place.items() if name not in kept}
    alternatives = [inner, maker.schema(2)][: random.choice([1, 2, 2])]
    random.shuffle(alternatives)
    for name in inner:
        del place[name]
    place[random.choice(["allOf", "anyOf", "oneOf"])] = alternatives


def _change_list(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    keywords = ["allOf", "anyOf", "oneOf", "items", "prefixItems", "enum"]
    names = [name for name in keywords if isinstance(place.get(name), list)]
    if not names:
        return
    name = random.choice(names)
    values = place[name]
    change = random.randrange(3)
    if change == 0 and len(values) > 1:
        del values[random.randrange(len(values))]
    elif change == 1:
        random.shuffle(values)
    else:
        added = random.choice(STRINGS) if name == "enum" else maker.schema(2)
        if added not in values:
            values.insert(random.randrange(len(values) + 1), added)


def _change_combination(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword in place:
            alternatives = place.pop(keyword)
            place[random.choice(["allOf", "anyOf", "oneOf"])] = alternatives
            return


def _add_title(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    place["title"] = "changed"


def _replace(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    if "$schema" in place:
        return
    schema = maker.schema(2)
    place.clear()
    place.update(schema if isinstance(schema, dict) else {})


def _add_keywords(random: Random, place: dict[str, Any], maker: SchemaMaker) -> None:
    schema = maker.schema(2)
    if isinstance(schema, dict):
        for name, value in schema.items():
            place.setdefault(name, value)


_MUTATIONS: list[Callable[[Random, dict[str, Any], SchemaMaker], None]] = [
    _remove_keyword,
    _remove_keyword,
    _change_number,
    _change_number,
    _add_property,
    _add_property,
    _remove_property,
    _change_required,
    _change_rest,
    _widen,
    _wrap,
    _change_list,
    _change_list,
    _change_combination,
    _add_title,
    _replace,
    _add_keywords,
]


class ValueMaker:
    """Makes values that a schema probably accepts. The caller validates them."""

    def __init__(self, random: Random, document: Schema) -> None:
        self._random = random
        self._document = document

    def value(self) -> Any:
        """Return a value for the document, sometimes with a change."""
        made = self._value(self._document, 0)
        return self._changed(made) if self._random.random() < 0.3 else made

    def _value(self, schema: Schema, depth: int) -> Any:
        random = self._random
        if not isinstance(schema, dict) or depth > STEPS_INTO_VALUE_MAX or random.random() < 0.05:
            return copy.deepcopy(random.choice(VALUES))
        sources = self._sources(schema, depth)
        return random.choice(sources)() if sources else copy.deepcopy(random.choice(VALUES))

    def _sources(self, schema: dict[str, Any], depth: int) -> list[Callable[[], Any]]:
        """Return functions that make a value from one group of keywords each."""
        random = self._random
        sources: list[Callable[[], Any]] = []
        if isinstance(schema.get("$ref"), str):
            sources.append(lambda: self._value(self._target(schema["$ref"]), depth + 1))
        for keyword in ("allOf", "anyOf", "oneOf"):
            if schema.get(keyword):
                alternatives = schema[keyword]
                sources.append(
                    lambda chosen=alternatives: self._value(random.choice(chosen), depth + 1)
                )
        if "enum" in schema:
            sources.append(lambda: copy.deepcopy(random.choice(schema["enum"])))
        if "const" in schema:
            sources.append(lambda: copy.deepcopy(schema["const"]))
        for keyword in ("if", "then", "else"):
            if keyword in schema:
                part = schema[keyword]
                sources.append(lambda chosen=part: self._value(chosen, depth + 1))
        types = schema.get("type", [])
        for kind in [types] if isinstance(types, str) else types:
            sources.append(lambda chosen=kind: self._of_type(chosen, schema, depth))
        if "properties" in schema:
            sources.append(lambda: self._object(schema, depth))
        return sources

    def _target(self, reference: str) -> Schema:
        if reference == "#":
            return self._document
        keyword, name = reference.removeprefix("#/").split("/")
        return self._document[keyword][name]

    def _of_type(self, kind: str, schema: dict[str, Any], depth: int) -> Any:
        random = self._random
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return random.choice(STRINGS)
        if kind == "integer":
            return random.choice([0, 1, 2, 3, 4, 6, 8, -1, 4.0])
        if kind == "number":
            return random.choice(NUMBERS)
        return None if kind == "null" else random.choice([True, False])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        random = self._random
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        made: dict[str, Any] = {}
        required = schema.get("required", [])
        for name in NAMES:
            if name in properties:
                if name in required or random.random() < 0.6:
                    made[name] = self._value(properties[name], depth + 1)
            elif name in required or random.random() < (0.1 if rest is False else 0.3):
                sources = [*patterns.values(), rest]
                made[name] = self._value(random.choice(sources), depth + 1)
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", True)
        positions = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        count = self._random.choice([0, 1, 2, 3, 4, len(positions)])
        sources = [*positions, *[rest] * 4][:count]
        if "contains" in schema and self._random.random() < 0.7:
            sources.append(schema["contains"])
        return [self._value(each, depth + 1) for each in sources]

    def _changed(self, value: Any) -> Any:
        random = self._random
        if isinstance(value, dict) and value and random.random() < 0.8:
            name = random.choice(sorted(value))
            return {**value, name: self._changed(value[name])}
        if isinstance(value, dict):
            return {**value, random.choice(NAMES): copy.deepcopy(random.choice(VALUES))}
        if isinstance(value, list):
            return [*value, copy.deepcopy(random.choice(VALUES))]
        return copy.deepcopy(random.choice(VALUES))
