"""Refused starts in a cluster, and the files and nodes after them, for several test files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.errors import KafkaError
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.memory import MemoryStore
from tests.helpers.cluster_brokers import ClusterBrokers


def contents(path: Path) -> dict[str, bytes | None]:
    """Return all files below a path, without the lock."""
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None
        for each in sorted(path.rglob("*"))
        if each.name != ".lock"
    }


def tree(ensemble: MemoryEnsemble) -> dict[str, bytes]:
    """Return the nodes of an ensemble."""

    async def read() -> dict[str, bytes]:
        store = MemoryStore(ensemble)
        await store.open()
        paths = ["/"]
        for path in paths:
            paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
        nodes = await store.get_many(paths)
        await store.close()
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node}

    return asyncio.run(read())


async def refused(cluster: ClusterBrokers, broker_id: int) -> KafkaError:
    with pytest.raises(KafkaError) as error:
        await cluster.start(broker_id)
    del cluster.servers[broker_id]
    assert "\n" not in error.value.message
    return error.value
