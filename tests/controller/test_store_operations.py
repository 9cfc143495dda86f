"""The nodes that follow from a change of the image, and the fences of each write."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.controller.loading import load, prepare
from odradek.controller.metadata_writer import MetadataWriter
from odradek.controller.store_operations import store_operations
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.image_records import difference
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord
from odradek.metadata.store.interface import BadVersionError, Check, Operation, Set
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.slicing import run_to_completion
from tests.metadata.image_strategies import broker_ids, images, replica_lists

NODE = BrokerId(1)
A = Uuid(b"a" * 16)
EMPTY: PersistentMap[str, int] = PersistentMap()
EPOCH = 1


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def storable(image: MetadataImage) -> MetadataImage:
    """Return a generated image with the partition epochs of new nodes."""
    topics = [
        TopicImage(
            topic.name,
            topic.topic_id,
            [replace(each, partition_epoch=0) for each in topic.partitions],
        )
        for topic in image.topics_by_id.values()
    ]
    return replace(
        image,
        topics_by_name=PersistentMap({each.name: each for each in topics}),
        topics_by_id=PersistentMap({each.topic_id: each for each in topics}),
        next_producer_id=0,
    )


def with_topics_of(first: MetadataImage, second: MetadataImage) -> MetadataImage:
    """Return `second` with those topics of `first` that both have as they are in `first`.

    A partition that exists can only go through its partition epochs one by one.
    """
    topics = {
        topic_id: first.topics_by_id.get(topic_id, topic)
        for topic_id, topic in second.topics_by_id.items()
    }
    by_name = {topic.name: topic for topic in topics.values()}
    return replace(
        second,
        topics_by_name=PersistentMap(by_name),
        topics_by_id=PersistentMap({each.topic_id: each for each in by_name.values()}),
    )


class Writer:
    """A store, and the image that is written to it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.image = MetadataImage()
        self.writer: MetadataWriter

    async def start(self) -> Writer:
        await self.store.open()
        cluster_id = await prepare(self.store, "cluster", lambda: A)
        loaded = await load(self.store, cluster_id, NODE)
        self.image = loaded.image
        self.writer = MetadataWriter(self.store, EPOCH, 0, loaded.position_version)
        return self

    def change(self, records: Iterable[MetadataRecord]) -> tuple[MetadataImage, list[Operation]]:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        new = delta.apply(MetadataProvenance(NODE, EPOCH, self.image.offset + 1))
        return new, run_to_completion(store_operations(delta, new, EPOCH))

    async def write(self, records: Iterable[MetadataRecord]) -> list[Operation]:
        new, operations = self.change(records)
        assert await self.writer.write(operations, new.offset) is None
        self.image = new
        return operations

    async def loaded(self) -> MetadataImage:
        found = (await load(self.store, "cluster", NODE)).image
        return replace(found, controller_id=NODE)


@settings(max_examples=50, deadline=None)
@given(images().map(storable), images().map(storable))
def test_the_store_has_the_image_after_any_changes(
    first: MetadataImage, second: MetadataImage
) -> None:
    async def scenario() -> None:
        it = await Writer().start()
        await it.write(difference(it.image, first))
        assert await it.loaded() == it.image
        await it.write(difference(it.image, with_topics_of(it.image, second)))
        assert await it.loaded() == it.image

    run(scenario())


@st.composite
def partition_changes(draw: st.DrawFn) -> PartitionChangeRecord:
    def maybe(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.one_of(st.none(), values.map(list)))

    return PartitionChangeRecord(
        draw(st.integers(0, 2)),
        A,
        isr=maybe(replica_lists),
        leader=draw(st.one_of(st.just(-2), st.just(-1), broker_ids)),
        replicas=maybe(replica_lists),
        removing_replicas=maybe(replica_lists),
        adding_replicas=maybe(replica_lists),
        leader_recovery_state=draw(st.integers(-1, 1)),
        eligible_leader_replicas=maybe(replica_lists),
        last_known_elr=maybe(replica_lists),
    )


def topic(partitions: int, topic_id: Uuid = A, name: str = "t") -> TopicImage:
    ids = (BrokerId(1), BrokerId(2))
    return TopicImage(
        TopicName(name),
        topic_id,
        [PartitionImage(number, NODE, 0, 0, ids, ids) for number in range(partitions)],
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    return MetadataImage().with_topics({each.name: each for each in topics}, {})


@settings(max_examples=50, deadline=None)
@given(st.lists(partition_changes(), max_size=6))
def test_the_version_of_a_state_is_the_partition_epoch(
    changes: Sequence[PartitionChangeRecord],
) -> None:
    async def scenario() -> None:
        it = await Writer().start()
        await it.write(
            difference(it.image, replace(image_of(topic(3)), features=it.image.features))
        )
        for change in changes:
            await it.write([change])
            assert await it.loaded() == it.image

    run(scenario())


def test_an_isr_change_writes_one_state_at_its_version_and_the_position() -> None:
    async def scenario() -> None:
        it = await Writer().start()
        topics = [topic(1, Uuid(n.to_bytes(16, "big")), f"t{n}") for n in range(1, 300)]
        target = replace(image_of(*topics), features=it.image.features)
        await it.write(difference(it.image, target))
        operations = await it.write([PartitionChangeRecord(0, topics[7].topic_id, isr=[1])])
        (operation,) = operations
        assert isinstance(operation, Set)
        assert (operation.path, operation.version) == (znodes.state_path("t8", 0), 0)
        position = await it.store.get(znodes.METADATA)
        assert znodes.decode_position(position.data) == (EPOCH, it.image.offset)

    run(scenario())


def test_a_writer_whose_epoch_has_ended_writes_nothing() -> None:
    async def scenario() -> None:
        it = await Writer().start()
        await it.store.set(znodes.CONTROLLER_EPOCH, b"2")
        _, operations = it.change(difference(it.image, image_of(topic(1))))
        failure = await it.writer.write(operations, 1)
        assert failure is not None
        assert failure.code is ErrorCode.NOT_CONTROLLER
        assert await it.store.children(znodes.TOPICS) == []

    run(scenario())


def test_a_writer_that_missed_a_write_of_another_one_writes_nothing() -> None:
    async def scenario() -> None:
        it = await Writer().start()
        await it.store.set(znodes.METADATA, znodes.encode_position(EPOCH, 1))
        _, operations = it.change(difference(it.image, image_of(topic(1))))
        failure = await it.writer.write(operations, 1)
        assert failure is not None
        assert failure.code is ErrorCode.NOT_CONTROLLER
        assert await it.store.children(znodes.TOPICS) == []

    run(scenario())


def test_a_write_is_fenced_by_the_epoch_first_and_sets_the_position_last() -> None:
    async def scenario() -> None:
        it = await Writer().start()
        written: list[Sequence[Operation]] = []

        class Recorded:
            async def multi(self, operations: Sequence[Operation]) -> None:
                written.append(operations)
                raise BadVersionError(znodes.METADATA)

        writer = MetadataWriter(Recorded(), 5, 3, 9)  # type: ignore[arg-type]
        assert await writer.write([], 77) is not None
        ((fence, position),) = written
        assert fence == Check(znodes.CONTROLLER_EPOCH, 3)
        assert position == Set(znodes.METADATA, znodes.encode_position(5, 77), 9)
        refused = await writer.write([], 78)
        assert refused is not None
        assert refused.code is ErrorCode.NOT_CONTROLLER
        assert len(written) == 1, "the writer has ended, and sends nothing"
        await it.store.close()

    run(scenario())


@pytest.mark.parametrize("is_executed", [True, False], ids=["response lost", "request lost"])
def test_a_write_without_a_response_is_resolved_and_never_repeated(is_executed: bool) -> None:
    async def scenario() -> None:
        it = await Writer().start()
        new, operations = it.change(difference(it.image, image_of(topic(1))))
        if is_executed:
            it.store.lose_next_response()
        else:
            it.store.lose_next_request()
        write = asyncio.create_task(it.writer.write(operations, new.offset))
        for _ in range(5):
            await asyncio.sleep(0)
        it.store.reconnect()
        failure = await write
        assert await it.store.children(znodes.TOPICS) == (["t"] if is_executed else [])
        assert not it.writer.has_ended
        if is_executed:
            assert failure is None
            it.image = new
        else:
            assert failure is not None
            assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
        # The writer goes on, at the right version of the position.
        await it.write(difference(it.image, replace(image_of(topic(1)), features=EMPTY)))
        assert await it.loaded() == it.image

    run(scenario())


def test_a_writer_whose_session_has_ended_writes_nothing_any_longer() -> None:
    async def scenario() -> None:
        it = await Writer().start()
        it.store.ensemble.expire(it.store.session_id)
        for _ in range(5):
            await asyncio.sleep(0)
        for _ in range(2):
            failure = await it.writer.write([], 1)
            assert failure is not None
            assert failure.code is ErrorCode.NOT_CONTROLLER
        assert it.writer.has_ended

    run(scenario())
