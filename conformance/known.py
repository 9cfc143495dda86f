"""Known failures of Odradek with their causes. Remove an entry when its case passes."""

from __future__ import annotations

_FIELDS_OF_7 = (
    "the test expects a response without the fields that Confluent's registry added in version "
    "8.0.0: subject, version, guid, schemaType of Avro, ts, deleted"
)
KNOWN: dict[tuple[str, str], str] = {
    (
        "schema_registry",
        "@confluentinc/schemaregistry's schemaregistry-client: "
        "Should register, retrieve, and delete a schema",
    ): _FIELDS_OF_7,
    (
        "schema_registry",
        "@confluentinc/schemaregistry's schemaregistry-client: Should get schema metadata",
    ): _FIELDS_OF_7,
}
"""The cause of each known failure by (suite, name of the case)."""
KNOWN_ON_CLUSTERS: dict[tuple[str, str], str] = {
    ("kafka_python_suite", "test_alter_partition_reassignments"): (
        "it assigns the brokers in the order of their ids, and reassignment is not implemented "
        "(deviations.md): passes if the replicas have that order"
    ),
}
"""The same on three brokers, also for cases that pass sometimes."""
