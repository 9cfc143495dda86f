"""Number of Python calls of a leader for a follower's fetch, as in tests/broker/test_call_count.py.

Counted from the received bytes of the request to the bytes passed to the socket.
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek.broker.broker import BrokerServer
from odradek.broker.requests.cluster import ClusterRequests
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.embedded import EmbeddedRequests
from odradek.broker.requests.follower_sessions import FollowerSessions
from odradek.broker.requests.forwarded_bytes import ForwardedBytes
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from odradek.records.record import Record, build_batch
from tests.broker.test_call_count import framed, received, running_broker
from tests.helpers.call_count import CallCount, count_calls
from tests.helpers.led_partitions import led
from tests.helpers.mock_transport import open_connection
from tests.replication.cluster_fakes import ALL, EPOCH, A, Cluster

WARM_UP = 4

# A fetch that names one partition and reads one batch: 30 calls decode the request, 15 find the
# session, 60 move the follower and copy the records, and 50 make and encode the response.
FETCH_CALLS_MAX = 165
# A fetch at the log end, until it waits.
WAITING_FETCH_CALLS_MAX = 143


class Follower:
    """A follower of partition t-0, whose leader is a running broker."""

    def __init__(self, server: BrokerServer) -> None:
        services, cluster = server.services, Cluster()
        manager = services.replica_manager
        manager._replication = cluster.parts
        self.partition = partition = manager.partition("t", 0)
        partition._factory = cluster.parts
        partition.become_leader(led(partition.leader_epoch + 1, ALL))
        ids = count(7)
        self.sessions = FollowerSessions(services.clock, lambda *_: next(ids))
        closable: Any = SimpleNamespace(close=lambda: None)
        membership: Any = None
        services.cluster = ClusterRequests(
            "PLAINTEXT",
            membership,
            closable,
            closable,
            EmbeddedRequests(),
            self.sessions,
            closable,
            ForwardedBytes(100_000_000),
            closable,
        )
        image: Any = SimpleNamespace(brokers=cluster.brokers)
        services.image = lambda: image
        self.connection, _ = open_connection(Dispatcher(services).dispatch)
        self.session_id = self.session_epoch = self.offset = 0

    def append(self) -> None:
        records = memoryview(build_batch([Record(None, bytes(1_000), 0)]))
        self.partition.append(records, 1, 0)

    def fetch(self, max_wait_ms: int = 0) -> CallCount:
        """Fetch at the log end of the follower, which the request names."""
        requested = FetchPartition(
            0,
            self.partition.leader_epoch,
            self.offset,
            self.partition.leader_epoch if self.offset else -1,
            0,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(A, EPOCH),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.partition.topic_id, partitions=[requested])],
        )
        counted = count_calls(received(self.connection, framed(request, 17)))
        self.session_id = next(iter(self.sessions.sessions))
        self.session_epoch += 1
        return counted


def test_fetch_of_a_follower_makes_a_constant_number_of_calls(tmp_path: Path) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def fetches() -> tuple[CallCount, CallCount]:
            follower = Follower(server)
            follower.fetch()
            for _ in range(WARM_UP):
                follower.append()
                with_records = follower.fetch()
                follower.offset += 1
            waiting = follower.fetch(500)
            follower.append()
            await asyncio.sleep(0)
            return with_records, waiting

        with_records, waiting = runner.run(fetches())
        server.services.cluster = None
    assert with_records.total <= FETCH_CALLS_MAX, str(with_records)
    assert waiting.total <= WAITING_FETCH_CALLS_MAX, str(waiting)
