"""Rule sets of a schema, which serializers execute. Pure.

The registry validates the form of rules, stores them and returns them. It never executes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from odradek.registry.json_value import JsonFields, JsonObject, JsonValue, WrongType

RULE_NAME_MAX = 256
"""Maximum length of a rule's name in characters."""


class InvalidRule(Exception):
    """A rule set is not valid. The message is Confluent's."""


class RuleKind(StrEnum):
    """Whether a rule transforms values or checks them."""

    TRANSFORM = "TRANSFORM"
    CONDITION = "CONDITION"


class RuleMode(StrEnum):
    """When a rule is executed."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    WRITE = "WRITE"
    READ = "READ"
    WRITEREAD = "WRITEREAD"


MIGRATION_MODES = frozenset({RuleMode.UPGRADE, RuleMode.DOWNGRADE, RuleMode.UPDOWN})
"""The modes of rules between versions. Rules for values have the other modes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `params` and `tags` are sorted."""

    name: str | None
    doc: str | None = None
    kind: RuleKind = RuleKind.TRANSFORM
    mode: RuleMode = RuleMode.WRITEREAD
    type: str | None = None
    tags: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False

    @classmethod
    def from_json(cls, value: JsonValue) -> Rule:
        """Return a rule of a request or record.

        Raises:
            WrongType: A value has a wrong type.
        """
        fields = JsonFields(value, "rule")
        return cls(
            name=fields.text("name"),
            doc=fields.text("doc"),
            kind=_kind(fields.text("kind")),
            mode=_mode(fields.text("mode")),
            type=fields.text("type"),
            tags=tuple(sorted(set(fields.texts("tags")))),
            params=fields.text_entries("params"),
            expr=fields.text("expr"),
            on_success=fields.text("onSuccess"),
            on_failure=fields.text("onFailure"),
            disabled=bool(fields.boolean("disabled")),
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form. Empty fields are omitted."""
        json: JsonObject = {
            "name": self.name,
            "doc": self.doc,
            "kind": self.kind.value,
            "mode": self.mode.value,
            "type": self.type,
            "tags": list(self.tags),
            "params": dict(self.params),
            "expr": self.expr,
            "onSuccess": self.on_success,
            "onFailure": self.on_failure,
        }
        return {
            **{name: value for name, value in json.items() if value},
            "disabled": self.disabled,
        }

    def hash_parts(self) -> list[str]:
        """Return the texts that the guid hashes, in Confluent's order."""
        params = [text for entry in self.params for text in entry]
        parts = [
            *(self.name, self.doc, self.kind.value, self.mode.value, self.type),
            *self.tags,
            *params,
            *(self.expr, self.on_success, self.on_failure),
        ]
        return [part for part in parts if part is not None] + (["\x01"] if self.disabled else [])

    def validate(self) -> None:
        """Check the name, the type and the actions.

        Raises:
            InvalidRule: One of them is not valid.
        """
        _validate_name(self.name)
        if self.type is None:
            raise InvalidRule("Missing rule type")
        pairs_allowed = self.mode in (RuleMode.WRITEREAD, RuleMode.UPDOWN)
        for action in (self.on_success, self.on_failure):
            if action is not None and "," in action and not pairs_allowed:
                raise InvalidRule("Multiple actions only valid with WRITEREAD and UPDOWN")


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema by their phase."""

    migration: tuple[Rule, ...] = ()
    domain: tuple[Rule, ...] = ()
    encoding: tuple[Rule, ...] = ()
    enable_at: str | None = None

    @classmethod
    def from_json(cls, value: JsonValue) -> RuleSet | None:
        """Return the rule set of a field, or None for null.

        Raises:
            WrongType: A value has a wrong type.
        """
        if value is None:
            return None
        fields = JsonFields(value, "ruleSet")
        return cls(
            migration=_rules(fields, "migrationRules"),
            domain=_rules(fields, "domainRules"),
            encoding=_rules(fields, "encodingRules"),
            enable_at=fields.text("enableAt"),
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form. Empty fields are omitted."""
        json: JsonObject = {
            "migrationRules": [rule.to_json() for rule in self.migration],
            "domainRules": [rule.to_json() for rule in self.domain],
            "encodingRules": [rule.to_json() for rule in self.encoding],
            "enableAt": self.enable_at,
        }
        return {name: value for name, value in json.items() if value}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules in the order of the guid's hash."""
        return self.migration + self.domain + self.encoding

    def has_type(self, rule_type: str) -> bool:
        """Whether a rule has a type such as ``CEL``."""
        return any(rule.type == rule_type for rule in self.rules)

    def hash_parts(self) -> list[str]:
        """Return the texts that the guid hashes, in Confluent's order."""
        parts = [part for rule in self.rules for part in rule.hash_parts()]
        return parts if self.enable_at is None else [*parts, self.enable_at]

    def validate(self) -> None:
        """Check that names are unique and that each rule and its mode are valid.

        Raises:
            InvalidRule: A rule is not valid.
        """
        names: set[str | None] = set()
        for phase, rules in (
            ("Migration", self.migration),
            ("Domain", self.domain),
            ("Encoding", self.encoding),
        ):
            for rule in rules:
                if rule.name in names:
                    raise InvalidRule(f"Found rule with duplicate name '{rule.name}'")
                names.add(rule.name)
                rule.validate()
                _validate_mode(phase, rule.mode)


def merge_rule_sets(base: RuleSet | None, over: RuleSet | None) -> RuleSet | None:
    """Return `base` with the rules of `over`, which replace rules of the same name."""
    if base is None or over is None:
        return base if over is None else over
    return RuleSet(
        migration=_merge(base.migration, over.migration),
        domain=_merge(base.domain, over.domain),
        encoding=_merge(base.encoding, over.encoding),
        enable_at=over.enable_at or base.enable_at,
    )


def _merge(base: Iterable[Rule], over: tuple[Rule, ...]) -> tuple[Rule, ...]:
    replaced = {rule.name for rule in over}
    return (*(rule for rule in base if rule.name not in replaced), *over)


def _rules(fields: JsonFields, name: str) -> tuple[Rule, ...]:
    return tuple(Rule.from_json(value) for value in fields.elements(name))


def _kind(text: str | None) -> RuleKind:
    try:
        return RuleKind.TRANSFORM if text is None else RuleKind(text)
    except ValueError:
        raise WrongType(f"rule.kind must be one of {', '.join(RuleKind)}") from None


def _mode(text: str | None) -> RuleMode:
    try:
        return RuleMode.WRITEREAD if text is None else RuleMode(text)
    except ValueError:
        raise WrongType(f"rule.mode must be one of {', '.join(RuleMode)}") from None


def _validate_mode(phase: str, mode: RuleMode) -> None:
    is_migration = phase == "Migration"
    if (mode in MIGRATION_MODES) != is_migration:
        allowed = "UPGRADE, DOWNGRADE, UPDOWN" if is_migration else "WRITE, READ, WRITEREAD"
        raise InvalidRule(f"{phase} rules can only be {allowed}")


def _validate_name(name: str | None) -> None:
    if name is None:
        raise InvalidRule("Missing rule name")
    if not name:
        raise InvalidRule("Empty rule name")
    if len(name) > RULE_NAME_MAX:
        raise InvalidRule("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidRule(f"Illegal initial character in rule name: {name}")
    if not all(character.isalnum() or character in "_-" for character in name[1:]):
        raise InvalidRule(f"Illegal character in rule name: {name}")
