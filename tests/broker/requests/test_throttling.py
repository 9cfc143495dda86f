"""Quotas over the wire: the response has the throttle time and is sent immediately, and the
connection is muted.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import TIMEOUT_S, WireClient
from tests.broker.handlers.test_alter_client_quotas import IN, OUT, alter

SIZE = 50_000
# A window allows ten times as much in one request. A request far above that causes a pause of many
# minutes, so that it does not end if the machine stalls for some seconds.
RATE = 1_000.0
BURST = 10_000
LONG_MS = 400_000


def limited(client: WireClient, key: str, rate: float = RATE, name: str = "wire") -> None:
    (response,) = alter(client, ([("client-id", name)], {key: rate}))
    assert not response.error_code


def muted(broker: Broker) -> int:
    async def count(server: Any) -> int:
        return sum(bool(each._mutes) for each in server.connections)

    return broker.call(count)


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_over_the_quota_is_appended_and_the_client_pauses(
    broker: Broker, client: WireClient, acks: int
) -> None:
    broker.create_topic("t")
    limited(client, IN)
    pauses = []
    with WireClient(broker.bootstrap_servers) as producer:
        for offset, size in enumerate((BURST // 2, SIZE * 10)):
            response = producer.call(produce("t", batch(bytes(size)), acks=acks), 9)
            ((partition,),) = [each.partition_responses for each in response.responses]
            assert (partition.error_code, partition.base_offset) == (0, offset)
            pauses.append(response.throttle_time_ms)
        # The pause is as many windows long as the request exceeds the quota by.
        assert pauses[0] == 0
        assert 480_000 < pauses[1] < 500_000
        assert muted(broker) == 1
    with WireClient(broker.bootstrap_servers) as other:
        request = produce("t", batch(bytes(SIZE)), acks=acks)
        assert other.call(request, 9, client_id="other").throttle_time_ms == 0


def test_with_acks_0_the_client_is_muted_without_a_response(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    limited(client, IN)
    with WireClient(broker.bootstrap_servers) as producer:
        producer.send(produce("t", batch(bytes(SIZE * 10)), acks=0), 9)
        producer.send(MetadataRequest(), 12)
        assert broker.wait_until(lambda: muted(broker), timeout_s=TIMEOUT_S) == 1


def two_batches_over_the_quota(broker: Broker, client: WireClient) -> None:
    """Write two batches. One fetch may return the first of them and not the second, too."""
    broker.create_topic("t")
    for size in (BURST // 2, SIZE * 10):
        client.call(produce("t", batch(bytes(size))), 9)
    limited(client, OUT)


@pytest.mark.parametrize("replica_id", [-1, -2, -3])
def test_fetch_over_the_quota_has_no_records_until_the_pause_is_over(
    broker: Broker, client: WireClient, replica_id: int
) -> None:
    two_batches_over_the_quota(broker, client)
    with WireClient(broker.bootstrap_servers) as consumer:
        first = consumer.call(fetch(replica_id=replica_id), 11)
        assert first.throttle_time_ms == 0
        ((partition,),) = [each.partitions for each in first.responses]
        assert len(partition.records) > BURST // 2
        second = consumer.call(fetch(offset=1, replica_id=replica_id), 11)
        assert second.throttle_time_ms > LONG_MS
        assert second.responses == []
        assert muted(broker) == 1
    with WireClient(broker.bootstrap_servers) as other:
        assert other.call(fetch(), 11, client_id="other").responses


def test_records_that_a_throttled_fetch_omits_are_not_counted(
    broker: Broker, client: WireClient
) -> None:
    two_batches_over_the_quota(broker, client)
    pauses = []
    for offset in (0, 1, 1):
        with WireClient(broker.bootstrap_servers) as consumer:  # a connection that is not muted
            pauses.append(consumer.call(fetch(offset=offset), 11).throttle_time_ms)
    assert pauses[0] == 0
    assert LONG_MS < pauses[2] <= pauses[1]


def test_a_throttled_session_is_unchanged(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    with WireClient(broker.bootstrap_servers) as consumer:
        opening = fetch(max_wait_ms=0)
        opening.session_epoch = 0
        session_id = consumer.call(opening, 11).session_id
        assert session_id
        client.call(produce("t", batch(bytes(SIZE))), 9)
        limited(client, OUT, 1)
        continued = fetch(max_wait_ms=0, partitions=())
        continued.topics = []
        continued.session_id, continued.session_epoch = session_id, 1
        response = consumer.call(continued, 11)
        assert (response.error_code, response.session_id, response.responses) == (0, session_id, [])
        assert response.throttle_time_ms > 0
        assert muted(broker) == 1
        alter(client, ([("client-id", "wire")], {OUT: None}))

        async def unmute(server: Any) -> None:
            for each in server.connections:
                if each._mutes:
                    each._mutes = 1
                    each._unmute()
                    each._mutes = 1  # the timer has not fired yet

        broker.call(unmute)
        continued.session_epoch = 2
        again = consumer.call(continued, 11)
        assert again.error_code == 0
        ((partition,),) = [each.partitions for each in again.responses]
        assert len(partition.records) > SIZE


def test_a_fetch_is_limited_to_the_bytes_of_a_window(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    for _ in range(4):
        client.call(produce("t", batch(bytes(SIZE))), 9)
    limited(client, OUT, SIZE // 4)
    with WireClient(broker.bootstrap_servers) as consumer:
        response = consumer.call(fetch(max_bytes=SIZE * 10), 11)
        ((partition,),) = [each.partitions for each in response.responses]
        assert response.throttle_time_ms == 0
        assert SIZE * 2 < len(partition.records) <= SIZE * 2.5


def test_user_quotas_apply_to_the_anonymous_user(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    alter(client, ([("user", "ANONYMOUS")], {IN: 1.0}))
    with WireClient(broker.bootstrap_servers) as producer:
        assert producer.call(produce("t", batch(bytes(SIZE))), 9).throttle_time_ms > SIZE * 900
