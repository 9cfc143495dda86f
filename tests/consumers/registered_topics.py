"""A cluster that exists in ZooKeeper only: nodes of brokers and topics, and records in memory."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from odradek.consumers.zookeeper import ZooKeeperConsumer
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, create_client
from testkit.peer.server import HOST

SESSION_MS = 2_000
BACKOFF_MS = 500
_roots = itertools.count()


class NoEvents:
    """The events of a client whose requests block."""

    def completed(self, result: Any) -> None: ...

    def negotiated(self, session_timeout_ms: int) -> None: ...

    def state_changed(self, state: str) -> None: ...


class Record(NamedTuple):
    """A record with the methods of librdkafka's `Message`."""

    at: tuple[str, int]
    number: int

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.number

    def error(self) -> None:
        return None


class MemoryFetcher:
    """Reads the records of `RegisteredTopics` in the place of librdkafka."""

    def __init__(self, settings: dict[str, Any], sizes: dict[str, int]) -> None:
        self.settings = settings
        self._sizes = sizes
        self._next: dict[tuple[str, int], int] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            start = 0 if each.offset == OFFSET_BEGINNING else each.offset
            self._next[each.topic, each.partition] = start

    def poll(self, timeout_s: float) -> Record | None:
        for at, offset in self._next.items():
            if offset < self._sizes[at[0]]:
                self._next[at] = offset + 1
                return Record(at, offset)
        return None

    def close(self) -> None:
        self._next.clear()


class RegisteredTopics:
    """Topics and a broker in a new chroot of ZooKeeper. Each partition has equally many records."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.chroot = f"/registered-{os.getpid()}-{next(_roots)}"
        self.sizes: dict[str, int] = {}
        self.fetchers: list[MemoryFetcher] = []
        address = ZooKeeperAddress(f"{HOST}:{port}")
        self.client = create_client(address, 60_000, None, NoEvents())
        self.client.start()
        self.client.ensure_path(f"{self.chroot}/brokers/ids")
        self.client.ensure_path(f"{self.chroot}/brokers/topics")
        self.register_broker(1)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def register_broker(self, number: int) -> None:
        node = {
            "endpoints": [
                f"TLS://{HOST}:{8000 + number}",
                f"CLIENTS://{HOST}:{9000 + number}",
                f"BROKERS://{HOST}:{7000 + number}",
            ],
            "listener_security_protocol_map": {
                "TLS": "SSL",
                "CLIENTS": "PLAINTEXT",
                "BROKERS": "PLAINTEXT",
            },
        }
        self.client.create(f"{self.chroot}/brokers/ids/{number}", json.dumps(node).encode())

    def create(self, topic: str, partitions: int, records: int = 0) -> None:
        self.sizes[topic] = records
        self.client.create(f"{self.chroot}/brokers/topics/{topic}", self._node(partitions))

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.client.set(f"{self.chroot}/brokers/topics/{topic}", self._node(partitions))

    @staticmethod
    def _node(partitions: int) -> bytes:
        replicas = {str(number): [1] for number in range(partitions)}
        return json.dumps({"version": 3, "partitions": replicas}).encode()

    def consumer(
        self, name: str, *topics: str, port: int | None = None, **options: Any
    ) -> ZooKeeperConsumer:
        """Return a consumer of the group `readers`, which reads from memory."""

        def create_fetcher(settings: dict[str, Any]) -> MemoryFetcher:
            self.fetchers.append(MemoryFetcher(settings, self.sizes))
            return self.fetchers[-1]

        return ZooKeeperConsumer(
            ZooKeeperAddress(f"{HOST}:{port or self.port}", self.chroot),
            "readers",
            topics or ("pages",),
            consumer_id=name,
            session_timeout_ms=SESSION_MS,
            rebalance_backoff_ms=BACKOFF_MS,
            create_fetcher=create_fetcher,
            **options,
        )

    def group_path(self, path: str) -> str:
        return f"{self.chroot}/consumers/readers/{path}"

    def group_node(self, path: str) -> bytes | None:
        """Return the data of a node of the group, None without the node."""
        path = self.group_path(path)
        return None if self.client.exists(path) is None else self.client.get(path)[0]

    def owners(self, topic: str = "pages") -> dict[int, str]:
        """Return the owner of each partition that has one."""
        path = self.group_path(f"owners/{topic}")
        names = self.client.get_children(path) if self.client.exists(path) else []
        found = {int(name): self.group_node(f"owners/{topic}/{name}") for name in names}
        return {number: data.decode() for number, data in found.items() if data is not None}
