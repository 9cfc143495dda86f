"""Known failures of Odradek with their causes. Remove an entry when its case passes."""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {}
"""The cause of each known failure by (suite, name of the case). Empty: none is known."""
KNOWN_ON_CLUSTERS: dict[tuple[str, str], str] = {
    ("kafka_python_suite", "test_alter_partition_reassignments"): (
        "it assigns the brokers in the order of their ids, and reassignment is not implemented "
        "(deviations.md): passes if the replicas have that order"
    ),
}
"""The same on three brokers, also for cases that pass sometimes."""
