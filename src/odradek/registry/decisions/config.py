"""Configs of subjects and contexts: ``/config`` and ``/config/{subject}``. Pure.

The subject of the default context stands for the path without a subject.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import LEVEL_OF_UPDATES, Config
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.permissions import require_valid, require_writable
from odradek.registry.errors import (
    bad_request,
    compatibility_not_configured,
    invalid_compatibility_level,
    invalid_rule_set,
    subject_not_found,
)
from odradek.registry.json_value import JsonFields, JsonObject, JsonValue, WrongType
from odradek.registry.records import ConfigRecord
from odradek.registry.rules import InvalidRule
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject

FIELDS_OF_UPDATES = {
    "alias": "alias",
    "aliasForDeks": "alias_for_deks",
    "normalize": "normalize",
    "validateFields": "validate_fields",
    "validateNewSchemas": "validate_new_schemas",
    "validateRules": "validate_rules",
    LEVEL_OF_UPDATES: "level",
    "compatibilityPolicy": "policy",
    "compatibilityGroup": "group",
    "defaultMetadata": "default_metadata",
    "overrideMetadata": "override_metadata",
    "defaultRuleSet": "default_rule_set",
    "overrideRuleSet": "override_rule_set",
}
"""The attribute of a config for each field of a request."""


def get_config(
    state: RegistryState, subject: QualifiedSubject, *, default_to_global: bool = False
) -> JsonObject:
    """Return the config of a subject or context.

    Args:
        state: The state.
        subject: The subject or context.
        default_to_global: Whether to return the config that applies, if it has none of its own.

    Raises:
        RegistryError: 40408, it has no config.
    """
    if default_to_global:
        return state.config_in_scope(subject).to_json()
    config = state.config(subject)
    if config is None:
        raise compatibility_not_configured(str(subject))
    return config.to_json()


def update_config(state: RegistryState, subject: QualifiedSubject, body: JsonValue) -> Decision:
    """Change the config of a subject or context.

    Args:
        state: The state.
        subject: The subject or context.
        body: The settings to change. Null deletes a setting. Other settings are kept.

    Returns:
        The record, and the new config as the response.

    Raises:
        RegistryError: 400, a field has a wrong type. 42203, the level does not exist. 42205, the
            subject is read-only. 42208, its name is not valid. 42210, a rule set is not valid.
    """
    update, changed = _parse(body)
    require_valid(subject, for_settings=True)
    require_writable(state, subject)
    old = state.own_config(subject) or Config()
    config = replace(old, **{name: getattr(update, name) for name in changed})
    record = ConfigRecord(subject.record_name, config)
    return Decision((record,), config.to_json(LEVEL_OF_UPDATES))


def delete_config(state: RegistryState, subject: QualifiedSubject) -> Decision:
    """Delete the config of a subject or context.

    Returns:
        The record, and the deleted config as the response.

    Raises:
        RegistryError: 40401, it has no config. 42205, it is read-only.
    """
    config = state.config(subject)
    if config is None:
        raise subject_not_found(str(subject))
    require_writable(state, subject)
    is_set = state.own_config(subject) is not None
    records = (ConfigRecord(subject.record_name, None),) if is_set else ()
    return Decision(records, config.to_json())


def _parse(body: JsonValue) -> tuple[Config, list[str]]:
    """Return the settings of a request, and the attributes that it names."""
    try:
        fields = JsonFields(body, "body")
        _require_level(fields.text(LEVEL_OF_UPDATES))
        update = Config.from_json(fields, LEVEL_OF_UPDATES)
    except WrongType as error:
        raise bad_request(str(error)) from error
    try:
        for rule_set in (update.default_rule_set, update.override_rule_set):
            if rule_set is not None:
                rule_set.validate()
    except InvalidRule as error:
        raise invalid_rule_set(str(error)) from error
    return update, [name for field, name in FIELDS_OF_UPDATES.items() if field in fields]


def _require_level(name: str | None) -> None:
    if name is not None and name.upper() not in CompatibilityLevel.__members__:
        raise invalid_compatibility_level()
