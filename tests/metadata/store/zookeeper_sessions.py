"""The end of another client's session. ZooKeeper allows it to a client with its password."""

from __future__ import annotations

from kazoo.client import KazooClient

from odradek.metadata.store.zookeeper import ZooKeeperStore


def end_session(address: str, store: ZooKeeperStore) -> None:
    """End the session of `store` at the server, as if it had expired."""
    assert store._client is not None
    victim = store._client.kazoo
    client = KazooClient(address, client_id=(store.session_id, victim._session_passwd))
    client.start(60)
    client.stop()
    client.close()
