"""Importing this fills the table of scenarios."""

from conformance.differential.scenarios import (
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    offsets,
    produce,
    sequences,
    topics,
    transactions,
)

__all__ = [
    "cluster",
    "configs",
    "fetch",
    "group_offsets",
    "groups",
    "offsets",
    "produce",
    "sequences",
    "topics",
    "transactions",
]
