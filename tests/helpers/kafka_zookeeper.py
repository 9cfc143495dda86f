"""A stopped cluster of Apache Kafka 3.9 on ZooKeeper, as recorded in ``tests/data/kafka-3.9.1``."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import Create, MetadataStore
from odradek.metadata.store.memory import MemoryStore

DATA = Path(__file__).parents[1] / "data" / "kafka-3.9.1"
# Some seconds after Kafka ended, when no offset has expired and no transaction has timed out.
TIME_MS = 1_795_723_170_000
Tree = dict[str, str | None]


def recorded_tree() -> Tree:
    """Return the contents of all nodes that Kafka left."""
    found: Tree = json.loads((DATA / "tree.json").read_text("utf-8"))
    return found


def recorded_view() -> dict[str, Any]:
    """Return what a client saw before Kafka was stopped."""
    found: dict[str, Any] = json.loads((DATA / "view.json").read_text("utf-8"))
    return found


def unpack_directories(target: Path) -> None:
    """Unpack the log directories of the brokers into ``target/1`` and so on."""
    with tarfile.open(DATA / "directories.tar.xz") as archive:
        archive.extractall(target, filter="data")


async def store_with(ensemble: MemoryEnsemble, tree: Mapping[str, str | None]) -> MemoryStore:
    """Create nodes, and return the session that has created them."""
    store = MemoryStore(ensemble)
    await store.open()
    nodes = [(path, data) for path, data in sorted(tree.items()) if path != "/"]
    await store.multi([Create(path, (data or "").encode()) for path, data in nodes])
    return store


async def tree_of(store: MetadataStore) -> Tree:
    """Return the contents of all nodes of a store."""
    paths = ["/"]
    for path in paths:
        paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    nodes = zip(paths, await store.get_many(paths), strict=True)
    return {path: node.data.decode() for path, node in nodes if node is not None}
