"""The scenarios. Importing this package fills the table of scenarios."""

from conformance.differential.scenarios import (
    administration,
    cluster,
    configs,
    fetch,
    group_admin,
    group_offsets,
    groups,
    offsets,
    produce,
    producers,
    sequences,
    topics,
    transactions,
)

__all__ = [
    "administration",
    "cluster",
    "configs",
    "fetch",
    "group_admin",
    "group_offsets",
    "groups",
    "offsets",
    "produce",
    "producers",
    "sequences",
    "topics",
    "transactions",
]
