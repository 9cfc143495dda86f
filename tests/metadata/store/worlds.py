"""The servers of a store under test, in memory or ZooKeeper, with the faults of sessions."""

from __future__ import annotations

import itertools
import os
from typing import Protocol

from kazoo.client import KazooClient

from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import MetadataStore
from odradek.metadata.store.memory import MemoryEnsemble, MemoryStore
from odradek.metadata.store.zookeeper import ZooKeeperStore
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress
from odradek.testing.store_thread import StoreThread, ThreadedStore
from testkit.zookeeper import ZooKeeperProcess
from tests.helpers.zookeeper_proxy import HOST, Loss, ZooKeeperProxy

_roots = itertools.count()


class World(Protocol):
    def new_store(self) -> MetadataStore:
        """Return a store that is not open."""

    def lose(self, store: MetadataStore, loss: Loss) -> None:
        """Lose the next write of the session, or its response. The connection breaks."""

    def block(self, store: MetadataStore) -> None:
        """Break the connection of the session, and let it not connect again."""

    def unblock(self, store: MetadataStore) -> None:
        """Let the session connect again."""

    def expire(self, store: MetadataStore) -> None:
        """End a blocked session at the servers."""

    def close(self) -> None: ...


class MemoryWorld:
    def __init__(self, ensemble: MemoryEnsemble | None = None) -> None:
        self.ensemble = ensemble or MemoryEnsemble()

    def new_store(self) -> MetadataStore:
        return MemoryStore(self.ensemble)

    def lose(self, store: MetadataStore, loss: Loss) -> None:
        assert isinstance(store, MemoryStore)
        if loss is Loss.REQUEST:
            store.lose_next_request()
        else:
            store.lose_next_response()

    def block(self, store: MetadataStore) -> None:
        self.ensemble.block(store.session_id)

    def unblock(self, store: MetadataStore) -> None:
        self.ensemble.unblock(store.session_id)

    def expire(self, store: MetadataStore) -> None:
        self.ensemble.expire(store.session_id)

    def close(self) -> None:
        return None


class ThreadedWorld:
    """An ensemble on a thread of its own."""

    def __init__(self) -> None:
        self.thread = StoreThread(EnsembleConditions())
        self.thread.start()

    def new_store(self) -> MetadataStore:
        return ThreadedStore(self.thread)

    def lose(self, store: MetadataStore, loss: Loss) -> None:
        assert isinstance(store, ThreadedStore)
        remote = store._remote
        lose = remote.lose_next_request if loss is Loss.REQUEST else remote.lose_next_response
        self.thread.call(lambda _: lose())

    def block(self, store: MetadataStore) -> None:
        self.thread.call(lambda ensemble: ensemble.block(store.session_id))

    def unblock(self, store: MetadataStore) -> None:
        self.thread.call(lambda ensemble: ensemble.unblock(store.session_id))

    def expire(self, store: MetadataStore) -> None:
        self.thread.call(lambda ensemble: ensemble.expire(store.session_id))

    def close(self) -> None:
        self.thread.close()


class ZooKeeperWorld:
    """A root of its own in ZooKeeper. Each store connects through a proxy of its own."""

    def __init__(self, server: ZooKeeperProcess) -> None:
        self.server = server
        self.root = f"/{os.getpid()}-{next(_roots)}"
        self._proxies: list[ZooKeeperProxy] = []
        self._proxy_of: dict[MetadataStore, ZooKeeperProxy] = {}
        client = KazooClient(self.server.address)
        client.start(60)
        client.create(self.root)
        client.stop()
        client.close()

    def new_store(self, session_timeout_ms: int = 10_000) -> ZooKeeperStore:
        proxy = ZooKeeperProxy(self.server.port)
        self._proxies.append(proxy)
        address = ZooKeeperAddress(f"{HOST}:{proxy.port}", self.root)
        store = ZooKeeperStore(address, session_timeout_ms=session_timeout_ms)
        self._proxy_of[store] = proxy
        return store

    def lose(self, store: MetadataStore, loss: Loss) -> None:
        self._proxy_of[store].lose_next_write(loss)

    def block(self, store: MetadataStore) -> None:
        self._proxy_of[store].cut(refuse=True)

    def unblock(self, store: MetadataStore) -> None:
        self._proxy_of[store].accept()

    def expire(self, store: MetadataStore) -> None:
        """End the session with its id and password, which ZooKeeper allows to any connection."""
        assert isinstance(store, ZooKeeperStore) and store._client is not None
        password = store._client.kazoo._session_passwd
        client = KazooClient(self.server.address, client_id=(store.session_id, password))
        client.start(60)
        client.stop()
        client.close()

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
