"""Groups and transactions on one broker of the simulator, with everything that they have written.

`main` prints a line of JSON: the responses, a hash of each file, and the calls that reached the
operating system. Two interpreters with different hash seeds must print the same line. There are
several members, transactions and topics, so that an order of strings that depends on their hashes
shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from typing import Any, TypeVar

from odradek.client.broker_channel import BrokerChannel
from odradek.errors import ErrorCode
from odradek.protocol.codec import Message
from odradek.protocol.messages import consumer_group_heartbeat_request as heartbeat_request
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.result_tasks import wait
from tests.environment.isolated_broker import Machine, reached, start_watching
from tests.simulation.event_loop import SimulatedLoop

TOPICS = [f"topic-{name}" for name in ("red", "green", "blue", "white", "black", "grey")]
PARTITIONS = 3
MEMBERS = ("ada", "grace", "edsger")
TRANSACTIONS = [f"transaction-{number}" for number in range(6)]
TRANSACTION_TIMEOUT_MS = 2_000
TRIES = 200
RETRY_S = 0.1

R = TypeVar("R", bound=Message)


class Client:
    """A client on the simulated network, and the responses that it has got."""

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        self.responses: list[str] = []

    async def call(self, request: Message, response: type[R], version: int) -> R:
        """Return the response. Send the request again while a coordinator is not ready."""
        for _ in range(TRIES):
            found = await wait(self._channel.send(request, response, version=version))
            self.responses.append(repr(found))
            code = ErrorCode(getattr(found, "error_code", 0))
            if code is ErrorCode.NONE:
                return found
            assert code in RETRIABLE, f"{response.__name__}: {code.name}"
            await asyncio.sleep(RETRY_S)
        raise AssertionError(f"no {response.__name__} without an error")


RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


async def find_coordinators(client: Client) -> None:
    """Create the internal topics, as the clients of groups and transactions do first."""
    for kind in (0, 1):
        await client.call(FindCoordinatorRequest("any", kind), FindCoordinatorResponse, 3)


def subsets() -> dict[str, list[str]]:
    """Return the topics that each member subscribes to."""
    return {name: TOPICS[at:] for at, name in enumerate(MEMBERS)}


async def consumer_group(client: Client) -> None:
    """Have members of different subscriptions reach their assignment, and leave at once."""
    owned: dict[str, list[heartbeat_request.TopicPartitions]] = {name: [] for name in MEMBERS}
    epochs = dict.fromkeys(MEMBERS, 0)
    for _ in range(6):
        for name, topics in subsets().items():
            request = heartbeat_request.ConsumerGroupHeartbeatRequest(
                group_id="readers",
                member_id=name,
                member_epoch=epochs[name],
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=topics,
                topic_partitions=owned[name],
            )
            response = await client.call(request, ConsumerGroupHeartbeatResponse, 1)
            epochs[name] = response.member_epoch
            if response.assignment is not None:
                owned[name] = [
                    heartbeat_request.TopicPartitions(each.topic_id, each.partitions)
                    for each in response.assignment.topic_partitions
                ]
    counts = [len(topic.partitions) for topics in owned.values() for topic in topics]
    assert sum(counts) == PARTITIONS * len(TOPICS)


async def classic_group(client: Client) -> None:
    """Join as a single member, and commit offsets of all topics."""
    request = JoinGroupRequest(
        "committers", 30_000, 30_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\x00\x00" + bytes(8))],
    )  # fmt: skip
    joined = await client.call(request, JoinGroupResponse, 3)
    sync = SyncGroupRequest("committers", joined.generation_id, joined.member_id)
    await client.call(sync, SyncGroupResponse, 2)
    partitions = [OffsetCommitRequestPartition(number, 10) for number in range(PARTITIONS)]
    commit = OffsetCommitRequest(
        "committers", joined.generation_id, joined.member_id,
        topics=[OffsetCommitRequestTopic(name, partitions=partitions) for name in TOPICS],
    )  # fmt: skip
    await client.call(commit, OffsetCommitResponse, 7)


async def transactions(client: Client) -> None:
    """Begin transactions in all partitions. End one, and let the others time out together."""
    everything = [AddPartitionsToTxnTopic(name, list(range(PARTITIONS))) for name in TOPICS]
    for name in TRANSACTIONS:
        init = InitProducerIdRequest(name, TRANSACTION_TIMEOUT_MS)
        producer = await client.call(init, InitProducerIdResponse, 4)
        identity = (name, producer.producer_id, producer.producer_epoch)
        add = AddPartitionsToTxnRequest([], *identity, everything)
        await client.call(add, AddPartitionsToTxnResponse, 3)
        if name == TRANSACTIONS[0]:
            await client.call(EndTxnRequest(*identity, True), EndTxnResponse, 3)


async def delete_topics(client: Client, names: Iterable[str]) -> None:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)
    await client.call(request, DeleteTopicsResponse, 5)


def scenario() -> dict[str, Any]:
    machine = Machine(
        {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "1"}
    )
    loop, broker = machine.broker()
    machine.run(loop, broker.start())
    for name in TOPICS:
        machine.run(loop, broker.create_topic(name, PARTITIONS))

    async def connect() -> Client:
        return Client(machine.channel())

    client_loop: SimulatedLoop = machine.client_loop
    client: Client = machine.run(client_loop, connect())
    for work in (find_coordinators, consumer_group, classic_group, transactions):
        machine.run(client_loop, work(client))
    machine.pass_time(30)
    machine.run(client_loop, delete_topics(client, TOPICS[:3]))
    machine.pass_time(90)
    machine.run(loop, broker.stop())
    files = {path: hashlib.sha256(inode.data).hexdigest() for path, inode in machine.disk.walk()}
    sizes = {path: len(inode.data) for path, inode in machine.disk.walk()}
    return {
        "responses": client.responses,
        "files": files,
        "sizes": sizes,
        "steps": machine.scheduler.steps,
    }


def main() -> None:
    start_watching()
    print(json.dumps({**scenario(), "reached": reached}))
