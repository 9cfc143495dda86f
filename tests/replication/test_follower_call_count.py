"""The number of Python calls of a follower for a replicated batch.

Counted from the bytes of the response in the receive buffer to the bytes of the next fetch at the
transport. The numbers are pinned, as in tests/broker/test_call_count.py.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.client.broker_channel import BrokerChannel
from odradek.environment.environment import Environment
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.replication.partition import Partition
from tests.helpers.call_count import CallCount, count_calls
from tests.log.builders import TOPIC_ID
from tests.replication.scripted_leader import Follower, batches, nothing

WARM_UP = 5
SESSION_ID = 7

# A response without partitions, and the next fetch. 24 calls receive and decode the response and
# complete its result, 30 decide and make the request, and 48 encode and write it. One reads the
# clock, which ends a time slice of slow appends.
EMPTY_CALLS_MAX = 118
# One batch: 50 calls check and append it. The codec has no part in the response and in the next
# fetch (`single_partition_fetch`), for which it needs 63 calls.
ONE_BATCH_CALLS_MAX = 168
TWO_BATCHES_CALLS_MAX = 179


class Transport:
    """The transport of one connection. It keeps what is written last."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written = data

    def abort(self) -> None: ...

    def respond(self, body: Any) -> Callable[[], None]:
        """Put a response to the last request into the receive buffer. Return its delivery."""
        header = memoryview(self.written)[4:]
        api_key, version, correlation_id, *_ = parse_request_header(header)
        data = response_header(api_key, version, correlation_id) + encode(body, version)
        data = struct.pack(">i", len(data)) + data
        self.protocol.get_buffer(-1)[: len(data)] = data

        def deliver() -> None:
            self.protocol.get_buffer(-1)
            self.protocol.buffer_updated(len(data))

        return deliver


class Network:
    """Opens connections without a peer."""

    def __init__(self) -> None:
        self.transports: list[Transport] = []

    async def connect(self, host: str, port: int, make: Callable[[], Any]) -> tuple[Any, Any]:
        protocol = make()
        self.transports.append(Transport(protocol))
        protocol.connection_made(self.transports[-1])
        return self.transports[-1], protocol


class ConnectedFollower(Follower):
    """A follower with real channels."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.network = Network()
        self.environment = Environment(
            clock=self.clock,
            timers=self.timers,
            network=self.network,  # type: ignore[arg-type]
        )

    def _connect(self, host: str, port: int, purpose: str) -> Any:
        return BrokerChannel(host, port, self.environment, client_id=purpose)

    async def ready(self) -> Transport:
        """Return the newest connection with a fetch in flight."""
        await asyncio.sleep(0)
        transport = self.network.transports[-1]
        keys = [ApiVersion(int(ApiKey.FETCH), 4, 18), ApiVersion(int(ApiKey.API_VERSIONS), 0, 4)]
        transport.respond(ApiVersionsResponse(0, keys))()
        return transport


def fetched(*partitions: PartitionData) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))]
    return FetchResponse(0, 0, SESSION_ID, topics if partitions else [])


def records(partition: Partition, count: int) -> PartitionData:
    end = partition.log.log_end_offset
    return PartitionData(0, 0, end, -1, 0, records=batches(end, count))


async def in_sync(follower: ConnectedFollower, partition: Partition) -> Transport:
    """Return the connection for replicas in sync, with a fetch in flight."""
    follower.follow(partition)
    catch_up = await follower.ready()
    catch_up.respond(fetched(nothing(0)))()
    catch_up.respond(FetchResponse())()
    return await follower.ready()


@pytest.mark.parametrize(
    ("count", "calls_max"),
    [(0, EMPTY_CALLS_MAX), (1, ONE_BATCH_CALLS_MAX), (2, TWO_BATCHES_CALLS_MAX)],
)
def test_follower_makes_a_constant_number_of_calls_for_a_response(
    tmp_path: Path, count: int, calls_max: int
) -> None:
    async def main() -> CallCount:
        follower = ConnectedFollower(tmp_path)
        partition = follower.partition()
        transport = await in_sync(follower, partition)
        result = CallCount()
        for _ in range(WARM_UP):
            before = transport.written
            response = fetched(records(partition, count)) if count else fetched()
            result = count_calls(transport.respond(response))
            assert transport.written != before, "the next fetch is sent in the same step"
        assert partition.log.log_end_offset == WARM_UP * count
        await follower.fetchers.stop()
        follower.manager.close()
        return result

    found = asyncio.run(main())
    assert found.total <= calls_max, str(found)
