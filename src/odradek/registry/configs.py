"""Configs of subjects and contexts: compatibility level, defaults, overrides, aliases. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.json_value import JsonFields, JsonObject, JsonValue, WrongType
from odradek.registry.metadata import Metadata
from odradek.registry.rules import RuleSet

LEVEL_OF_RECORDS = "compatibilityLevel"
"""The field of the level in records and in responses to GET and DELETE."""

LEVEL_OF_UPDATES = "compatibility"
"""The field of the level in requests to PUT and in their responses."""


@dataclass(frozen=True, slots=True)
class Config:
    """The config of a subject or context. None is a setting that is not configured."""

    alias: str | None = None
    alias_for_deks: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    level: CompatibilityLevel | None = None
    policy: str | None = None
    group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None

    @classmethod
    def from_json(cls, fields: JsonFields, level_field: str = LEVEL_OF_RECORDS) -> Config:
        """Return the config of a record or a request.

        Raises:
            WrongType: A value has a wrong type, or the level does not exist.
        """
        return cls(
            alias=fields.text("alias"),
            alias_for_deks=fields.text("aliasForDeks"),
            normalize=fields.boolean("normalize"),
            validate_fields=fields.boolean("validateFields"),
            validate_new_schemas=fields.boolean("validateNewSchemas"),
            validate_rules=fields.boolean("validateRules"),
            level=_level(fields.text(level_field)),
            policy=fields.text("compatibilityPolicy"),
            group=fields.text("compatibilityGroup"),
            default_metadata=Metadata.from_json(fields.value("defaultMetadata")),
            override_metadata=Metadata.from_json(fields.value("overrideMetadata")),
            default_rule_set=RuleSet.from_json(fields.value("defaultRuleSet")),
            override_rule_set=RuleSet.from_json(fields.value("overrideRuleSet")),
        )

    def to_json(self, level_field: str = LEVEL_OF_RECORDS) -> JsonObject:
        """Return the JSON form of a record or a response. Absent settings are omitted."""
        json: JsonObject = {
            "alias": self.alias,
            "aliasForDeks": self.alias_for_deks,
            "normalize": self.normalize,
            "validateFields": self.validate_fields,
            "validateNewSchemas": self.validate_new_schemas,
            "validateRules": self.validate_rules,
            level_field: None if self.level is None else self.level.value,
            "compatibilityPolicy": self.policy,
            "compatibilityGroup": self.group,
            "defaultMetadata": _optional_json(self.default_metadata),
            "overrideMetadata": _optional_json(self.override_metadata),
            "defaultRuleSet": _optional_json(self.default_rule_set),
            "overrideRuleSet": _optional_json(self.override_rule_set),
        }
        return {name: value for name, value in json.items() if value is not None}

    @property
    def has_defaults_or_overrides(self) -> bool:
        """Whether it changes the metadata or the rule set of registered schemas."""
        return any(
            value is not None
            for value in (
                self.default_metadata,
                self.override_metadata,
                self.default_rule_set,
                self.override_rule_set,
            )
        )

    def with_default_level(self, level: CompatibilityLevel) -> Config:
        """Return the config with a level, which is `level` if none is configured."""
        return self if self.level is not None else replace(self, level=level)

    def over(self, base: Config) -> Config:
        """Return this config with the settings of `base` that subjects inherit."""
        return replace(
            self,
            normalize=_first(self.normalize, base.normalize),
            validate_fields=_first(self.validate_fields, base.validate_fields),
            validate_new_schemas=_first(self.validate_new_schemas, base.validate_new_schemas),
            validate_rules=_first(self.validate_rules, base.validate_rules),
            policy=self.policy if self.policy is not None else base.policy,
            group=self.group if self.group is not None else base.group,
        )


def _first(value: bool | None, default: bool | None) -> bool | None:
    return default if value is None else value


def _optional_json(value: Metadata | RuleSet | None) -> JsonValue:
    return None if value is None else value.to_json()


def _level(name: str | None) -> CompatibilityLevel | None:
    if name is None:
        return None
    try:
        return CompatibilityLevel(name.upper())
    except ValueError:
        raise WrongType(f"compatibility level {name!r} does not exist") from None
