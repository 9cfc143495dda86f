"""Metadata and rule set that a schema takes from configs and from the previous version. Pure."""

from __future__ import annotations

from dataclasses import replace

from odradek.registry.configs import Config
from odradek.registry.decisions.requests import NEXT_VERSION, SchemaRequest
from odradek.registry.errors import invalid_schema
from odradek.registry.metadata import VERSION_PROPERTY, Metadata, merge_metadata
from odradek.registry.rules import merge_rule_sets
from odradek.registry.schema_version import SchemaVersion


def with_inherited_text(request: SchemaRequest, previous: SchemaVersion | None) -> SchemaRequest:
    """Return the request with the previous version's text, if it has none.

    Raises:
        RegistryError: 42201, there is no previous version.
    """
    if not request.is_empty:
        return request
    if previous is None:
        raise invalid_schema("Empty schema")
    return replace(request, text=previous.text, kind=previous.kind, references=previous.references)


def with_inherited_contract(
    request: SchemaRequest,
    config: Config,
    previous: SchemaVersion | None,
    new_version: int | None,
) -> SchemaRequest:
    """Return the request with its final metadata and rule set.

    The config's defaults come first, then the values of the request or else those of the previous
    version, then the config's overrides.

    Args:
        request: The request.
        config: The config that applies to the subject.
        previous: The latest version of the subject, or None.
        new_version: The number for ``confluent:version``, which a registration sets if the request
            names a version or if the metadata has the property. None for a look-up.
    """
    metadata, rule_set = request.metadata, request.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rule_set = previous.rule_set if rule_set is None else rule_set
    metadata = merge_metadata(config.default_metadata, metadata)
    metadata = merge_metadata(metadata, config.override_metadata)
    rule_set = merge_rule_sets(config.default_rule_set, rule_set)
    rule_set = merge_rule_sets(rule_set, config.override_rule_set)
    if new_version is not None:
        has_property = metadata is not None and metadata.get(VERSION_PROPERTY) is not None
        if request.version != NEXT_VERSION or has_property:
            metadata = (metadata or Metadata()).with_version(new_version)
    return replace(request, metadata=metadata, rule_set=rule_set)
