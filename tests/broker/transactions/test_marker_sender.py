"""Markers for partitions of all brokers: destinations, codes, large transactions, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from odradek.broker.transactions.marker_sender import MarkerSender
from odradek.broker.transactions.markers import Results
from odradek.broker.transactions.peer_queue import LIMITS
from odradek.client.connection import ConnectionClosed
from odradek.coordinator.transaction.transaction_marker import MarkerCodes, TransactionMarker
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.helpers.peer_requests import RecordedRequests, Sent

E = ErrorCode
A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
NONE_LEADS = BrokerId(-1)


def image_of(*leaders: BrokerId, name: str = "t") -> MetadataImage:
    """Return an image with a topic whose partitions have these leaders."""
    partitions = [
        PartitionImage(number, leader, 0, 0, (A, B, C), (A, B, C))
        for number, leader in enumerate(leaders)
    ]
    topic = TopicImage(TopicName(name), Uuid(b"t" * 16), partitions)
    empty = MetadataImage()
    return replace(
        empty,
        topics_by_name=empty.topics_by_name.with_changes({topic.name: topic}, []),
        topics_by_id=empty.topics_by_id.with_changes({topic.topic_id: topic}, []),
    )


def parts(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", each) for each in numbers]


def marker(producer_id: int, *numbers: int, version: int = 2) -> TransactionMarker:
    return TransactionMarker(producer_id, 4, 7, True, parts(*numbers), version)


class Fixture:
    """A sender in broker 1, and what it has written here."""

    def __init__(self) -> None:
        self.image = image_of(A, B, C, B)
        self.requests = RecordedRequests()
        self.here: list[TransactionMarker] = []
        self.sender = MarkerSender(A, lambda: self.image, self.requests)

    def write_here(self, markers: Sequence[TransactionMarker]) -> Result[Results]:
        self.here += markers
        return Result(
            {each.producer_id: dict.fromkeys(each.partitions, E.NONE) for each in markers}
        )

    def write(self, *markers: TransactionMarker) -> asyncio.Task[MarkerCodes]:
        writing = self.sender.write(self.write_here, markers)
        return asyncio.get_running_loop().create_task(writing)  # type: ignore[arg-type]


def respond(sent: Sent, *codes: ErrorCode) -> None:
    """Respond with these codes to the partitions in their order, then with NONE."""
    left = list(codes)
    results = [
        WritableTxnMarkerResult(
            each.producer_id,
            [
                WritableTxnMarkerTopicResult(
                    topic.name,
                    [
                        WritableTxnMarkerPartitionResult(index, int(left.pop(0) if left else 0))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in each.topics
            ],
        )
        for each in sent.request.markers
    ]
    sent.result.complete(WriteTxnMarkersResponse(results))


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Fixture())

    asyncio.run(main())


async def steps(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_each_leader_gets_the_marker_for_its_partitions() -> None:
    async def test(it: Fixture) -> None:
        writing = it.write(marker(5, 0, 1, 2, 3))
        await steps()
        assert it.here == [marker(5, 0)]
        assert [each.broker for each in it.requests.sent] == [B, C]
        (to_b,) = it.requests.sent[0].request.markers
        assert (to_b.producer_id, to_b.producer_epoch, to_b.coordinator_epoch) == (5, 4, 7)
        assert (to_b.transaction_result, to_b.transaction_version) == (True, 2)
        assert [(each.name, each.partition_indexes) for each in to_b.topics] == [("t", [1, 3])]
        respond(it.requests.sent[0], E.NOT_LEADER_OR_FOLLOWER)
        await steps()
        assert not writing.done()
        respond(it.requests.sent[1])
        moved = dict.fromkeys(parts(1), E.NOT_LEADER_OR_FOLLOWER)
        assert await writing == {5: dict.fromkeys(parts(0, 2, 3), E.NONE) | moved}

    run(test)


def test_markers_that_wait_for_the_same_broker_share_a_request() -> None:
    async def test(it: Fixture) -> None:
        writes = [it.write(marker(each, 1)) for each in range(4)]
        await steps()
        (first,) = it.requests.sent
        respond(first)
        await steps()
        second = it.requests.sent[1]
        assert [each.producer_id for each in second.request.markers] == [1, 2, 3]
        respond(second, E.NONE, E.INVALID_PRODUCER_EPOCH)
        codes = [next(iter((await each).values()))[parts(1)[0]] for each in writes]
        assert codes == [E.NONE, E.NONE, E.INVALID_PRODUCER_EPOCH, E.NONE]

    run(test)


def test_version_1_leaves_the_transaction_version_out() -> None:
    async def test(it: Fixture) -> None:
        it.write(marker(5, 1))
        await steps()
        request = it.requests.sent[0].request
        old = decode(WriteTxnMarkersRequest, 1, encode(request, 1))
        assert old.markers[0].transaction_version == 0
        assert decode(WriteTxnMarkersRequest, 2, encode(request, 2)) == request

    run(test)


def test_a_lost_connection_is_an_error_of_each_partition() -> None:
    async def test(it: Fixture) -> None:
        writing = it.write(marker(5, 1, 3))
        await steps()
        it.requests.sent[0].result.fail(ConnectionResetError())
        assert await writing == {5: dict.fromkeys(parts(1, 3), E.NETWORK_EXCEPTION)}
        it.requests.error = ConnectionClosed()
        assert await it.write(marker(6, 2)) == {6: dict.fromkeys(parts(2), E.NETWORK_EXCEPTION)}

    run(test)


def test_partition_without_a_leader_is_not_available() -> None:
    async def test(it: Fixture) -> None:
        it.image = image_of(NONE_LEADS)
        codes = await it.write(marker(5, 0, 9))
        assert codes == {5: dict.fromkeys(parts(0, 9), E.LEADER_NOT_AVAILABLE)}

    run(test)


def test_the_newest_image_names_the_leader() -> None:
    async def test(it: Fixture) -> None:
        writing = it.write(marker(5, 1))
        await steps()
        respond(it.requests.sent[0], E.NOT_LEADER_OR_FOLLOWER)
        assert (await writing)[5] == {parts(1)[0]: E.NOT_LEADER_OR_FOLLOWER}
        it.image = image_of(A, C)
        it.write(marker(5, 1))
        await steps()
        assert it.requests.sent[1].broker == C

    run(test)


def test_a_response_without_a_partition_is_tried_again() -> None:
    async def test(it: Fixture) -> None:
        writing = it.write(marker(5, 1))
        await steps()
        it.requests.sent[0].result.complete(WriteTxnMarkersResponse())
        assert await writing == {5: {parts(1)[0]: E.UNKNOWN_SERVER_ERROR}}

    run(test)


def test_a_cancelled_transaction_sends_no_further_markers() -> None:
    async def test(it: Fixture) -> None:
        first, second = it.write(marker(5, 1)), it.write(marker(6, 1))
        await steps()
        second.cancel()
        await steps()
        respond(it.requests.sent[0])
        await first
        await steps()
        assert len(it.requests.sent) == 1

    run(test)


def test_ten_thousand_partitions_take_bounded_requests_and_slices() -> None:
    async def test(it: Fixture) -> None:
        count = 10_000
        it.image = image_of(*[B] * count)
        writing = it.write(marker(5, *range(count)))
        slices, sizes = 0, []
        while not writing.done():
            await asyncio.sleep(0)
            slices += 1
            if it.requests.sent:
                sent = it.requests.sent.pop()
                (only,) = sent.request.markers
                sizes.append(sum(len(topic.partition_indexes) for topic in only.topics))
                respond(sent)
        assert sum(sizes) == count
        assert max(sizes) == LIMITS.partitions_max
        assert slices >= count / ELEMENTS_PER_SLICE + len(sizes)
        assert (await writing)[5] == dict.fromkeys(parts(*range(count)), E.NONE)

    run(test)


def test_requests_that_fail_immediately_do_not_share_a_slice() -> None:
    async def test(it: Fixture) -> None:
        count = 3 * LIMITS.partitions_max
        it.image = image_of(*[B] * count)
        order: list[str] = []

        def fail(*_: object) -> Result[WriteTxnMarkersResponse]:
            order.append("request")
            return Result.failed(ConnectionClosed())

        it.requests.send = fail  # type: ignore[method-assign,assignment]
        writing = it.write(marker(5, *range(count)))
        while not writing.done():
            order.append("slice")
            await asyncio.sleep(0)
        assert order.count("request") == 3
        assert "request,request" not in ",".join(order)

    run(test)
