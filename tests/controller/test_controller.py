"""The controller: its decisions, writes and published images, on both metadata stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    TopicDeletion,
)
from odradek.metadata.internal_topics import internal_topic
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.interface import (
    Create,
    MetadataStore,
    Operation,
    Performed,
    StoreFailure,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic

MakeStore = Callable[[], MetadataStore]


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Return a function that makes the same store each time, as after a restart."""
    memory = MemoryStore()
    if request.param == "memory":
        return lambda: memory
    return lambda: SqliteStore(tmp_path / "metadata.sqlite")


def broker(node_id: int = 1) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
    return BrokerRegistration(BrokerId(node_id), "localhost", 9092, None, (endpoint,))


class Run:
    """A controller from start to stop."""

    def __init__(self, store: MetadataStore, node_id: int = 1, **config: object) -> None:
        self.config = BrokerConfig({name.replace("_", "."): it for name, it in config.items()})
        self.controller = Controller(store, self.config, clock=ManualClock())
        self.store = store
        self.node_id = node_id
        self.published: list[tuple[MetadataImage, MetadataImage]] = []
        self.controller.subscribe(lambda _, old, new: self.published.append((old, new)))

    async def __aenter__(self) -> Run:
        await self.controller.start(broker(self.node_id))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.stop()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    async def create(self, *topics: NewTopic, **options: Any) -> list[Any]:
        """Create topics. Return the results with errors as their codes."""
        results = await self.controller.create_topics(topics, **options)
        return [it.code if isinstance(it, KafkaError) else it for it in results]

    async def alter(
        self, kind: ResourceType, name: str, *ops: tuple[str, OpType, str | None], **options: Any
    ) -> Any:
        change = ConfigChange(kind, name, [ConfigOp(*op) for op in ops], **options)
        return (await self.controller.alter_configs([change]))[0]


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_created_topic_is_published_before_the_call_returns(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as run:
            (created,) = await run.create(NewTopic("t", 3))
            old, new = run.published[-1]
            assert "t" not in old.topics_by_name
            assert new is run.image
            assert new.topics_by_name[TopicName("t")] == created.image
            assert new.topics_by_id[created.image.topic_id] == created.image
            assert [p.leader for p in created.image.partitions] == [1, 1, 1]
            assert new.partition("t", 2) is not None
            assert new.partition("t", 3) is None

    run(scenario())


class CountedWrites(MemoryStore):
    """A store that keeps the operations of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Operation]] = []

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        self.writes.append(list(operations))
        return await super().perform(operations)


def test_first_start_creates_all_parent_nodes_in_one_write_and_a_restart_creates_none() -> None:
    async def scenario() -> None:
        store = CountedWrites()
        async with Run(store):
            (parents,) = [write for write in store.writes if Create(znodes.TOPICS) in write]
            assert {Create(path) for path in znodes.PERSISTENT_PATHS} <= set(parents)
        store.writes.clear()
        async with Run(store):
            assert not [write for write in store.writes if Create(znodes.TOPICS) in write]

    run(scenario())


@pytest.mark.parametrize("missing", [znodes.DELETED_TOPICS, znodes.CLIENT_METRICS])
def test_a_start_creates_a_parent_node_that_an_older_store_does_not_have(missing: str) -> None:
    async def scenario() -> None:
        store = CountedWrites()
        async with Run(store):
            pass
        await store.open()
        await store.delete(missing)
        await store.close()
        async with Run(store):
            assert [Create(missing)] in store.writes

    run(scenario())


def test_restart_loads_topics_ids_configs_and_cluster(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as first:
            configs = [("retention.ms", "1000")]
            await first.create(NewTopic("a", 2, configs=configs), NewTopic("b"))
            await first.controller.create_partitions([NewPartitions("b", 4)])
            await first.alter(ResourceType.BROKER, "", ("message.max.bytes", OpType.SET, "2000"))
            before = first.image
        async with Run(make_store()) as second:
            after = second.image
            assert after.cluster_id == before.cluster_id
            assert after.topic_configs == {"a": {"retention.ms": "1000"}}
            assert after.broker_configs == {"": {"message.max.bytes": "2000"}}
            assert second.config.get_int("message.max.bytes") == 2000
            ids = {name: topic.topic_id for name, topic in before.topics_by_name.items()}
            assert {n: topic.topic_id for n, topic in after.topics_by_name.items()} == ids
            assert len(after.topics_by_name[TopicName("b")].partitions) == 4

    run(scenario())


def test_restart_begins_a_new_leader_epoch(make_store: MakeStore) -> None:
    async def scenario() -> None:
        for epoch in range(3):
            async with Run(make_store()) as it:
                await it.create(NewTopic("t"))
                partition = it.image.partition("t", 0)
                assert partition is not None
                assert (partition.leader_epoch, partition.partition_epoch) == (epoch, epoch)
                node = await it.store.get(znodes.state_path("t", 0))
                assert node.version == epoch

    run(scenario())


def test_partition_of_another_node_has_no_leader(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            await it.create(NewTopic("t"))
        async with Run(make_store(), node_id=2) as it:
            partition = it.image.partition("t", 0)
            assert partition is not None
            assert (partition.leader, partition.replicas) == (NO_LEADER, (1,))
            assert list(it.image.brokers) == [2]

    run(scenario())


def test_store_of_another_cluster_is_refused(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()):
            pass
        controller = Controller(make_store(), BrokerConfig({}))
        with pytest.raises(KafkaError) as caught:
            await controller.start(broker(), "another")
        assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    run(scenario())


def test_cluster_id_of_the_log_directories_is_taken_over() -> None:
    async def scenario() -> None:
        controller = Controller(MemoryStore(), BrokerConfig({}))
        await controller.start(broker(), "from-the-logs")
        assert controller.image.cluster_id == "from-the-logs"

    run(scenario())


def test_a_topic_created_again_is_another_topic(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            (first,) = await it.create(NewTopic("t", 3, configs=[("retention.ms", "5")]))
            assert await it.controller.delete_topics([first.image.topic_id]) == [None]
            assert not it.image.topics_by_name
            assert not it.image.topics_by_id
            assert not it.image.topic_configs
            (second,) = await it.create(NewTopic("t"))
            assert second.image.topic_id != first.image.topic_id
            assert len(second.image.partitions) == 1
            assert "t" not in it.image.topic_configs

    run(scenario())


def test_deletion_is_recorded_until_it_is_reported_as_finished(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            (created,) = await it.create(NewTopic("t"))
            topic_id = created.image.topic_id
            await it.controller.delete_topics([topic_id])
            deletion = TopicDeletion(TopicName("t"), (BrokerId(1),))
            assert it.image.deletions == {topic_id: deletion}
        for _ in range(2):
            async with Run(make_store()) as it:
                assert it.published[0][1].deletions == {topic_id: deletion}
        async with Run(make_store()) as it:
            it.controller.deletions_finished([topic_id, Uuid(b"x" * 16)])
            await it.create(NewTopic("next"))
            assert it.image.deletions == {}
        async with Run(make_store()) as it:
            assert it.image.deletions == {}

    run(scenario())


def test_topic_that_does_not_exist_or_is_named_twice_is_unknown(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            (created,) = await it.create(NewTopic("t"))
            topic_id = created.image.topic_id
            gone, again = await it.controller.delete_topics([topic_id, topic_id])
            assert gone is None
            assert again is not None
            assert again.code is ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario())


def test_validate_only_changes_nothing(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            (created,) = await it.create(NewTopic("t", 2), validate_only=True)
            assert isinstance(created, CreatedTopic)
            assert "t" not in it.image.topics_by_name
            await it.create(NewTopic("u"))
            options = {"validate_only": True}
            assert await it.controller.create_partitions([NewPartitions("u", 9)], **options) == [
                None
            ]
            assert len(it.image.topics_by_name[TopicName("u")].partitions) == 1
            assert len(it.published) == 2
        async with Run(make_store()) as it:
            assert list(it.image.topics_by_name) == ["u"]

    run(scenario())


def test_one_invalid_topic_does_not_fail_the_others(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            results = await it.create(NewTopic("a"), NewTopic("b/c"), NewTopic("d", 1, 2))
            assert isinstance(results[0], CreatedTopic)
            assert results[1:] == [
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.INVALID_REPLICATION_FACTOR,
            ]
            assert list(it.image.topics_by_name) == ["a"]

    run(scenario())


def test_concurrent_changes_are_made_one_after_the_other(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            results = await asyncio.gather(*(it.create(NewTopic("t")) for _ in range(5)))
            codes = [result for (result,) in results if not isinstance(result, CreatedTopic)]
            assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4

    run(scenario())


def test_cancelled_caller_leaves_store_and_image_consistent(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            task = asyncio.create_task(it.create(NewTopic("t")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await it.create(NewTopic("u"))
            assert set(it.image.topics_by_name) == {"t", "u"}
        async with Run(make_store()) as it:
            assert set(it.image.topics_by_name) == {"t", "u"}

    run(scenario())


def test_topic_configs_are_altered_and_kept(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            await it.create(NewTopic("t"))
            assert (
                await it.alter(
                    ResourceType.TOPIC,
                    "t",
                    ("retention.ms", OpType.SET, "7"),
                    ("cleanup.policy", OpType.APPEND, "compact"),
                )
                is None
            )
            expected = {"retention.ms": "7", "cleanup.policy": "delete,compact"}
            assert it.image.topic_configs[TopicName("t")] == expected
            await it.alter(ResourceType.TOPIC, "t", ("cleanup.policy", OpType.SUBTRACT, "delete"))
            await it.alter(ResourceType.TOPIC, "t", ("retention.ms", OpType.DELETE, None))
            assert it.image.topic_configs[TopicName("t")] == {"cleanup.policy": "compact"}
        async with Run(make_store()) as it:
            assert it.image.topic_configs[TopicName("t")] == {"cleanup.policy": "compact"}
            replaced = ("segment.ms", OpType.SET, "9")
            await it.alter(ResourceType.TOPIC, "t", replaced, replace=True)
            assert it.image.topic_configs[TopicName("t")] == {"segment.ms": "9"}
            await it.alter(ResourceType.TOPIC, "t", replace=True)
            assert "t" not in it.image.topic_configs
        async with Run(make_store()) as it:
            assert it.image.topic_configs == {}

    run(scenario())


def test_broker_configs_are_in_effect_when_the_call_returns(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            seen: list[int] = []
            it.controller.subscribe(
                lambda delta, old, new: seen.append(it.config.get_int("message.max.bytes"))
            )
            await it.alter(ResourceType.BROKER, "", ("message.max.bytes", OpType.SET, "2000"))
            await it.alter(ResourceType.BROKER, "1", ("message.max.bytes", OpType.SET, "3000"))
            await it.alter(ResourceType.BROKER, "1", ("message.max.bytes", OpType.DELETE, None))
            assert seen == [2000, 3000, 2000]
            assert it.image.broker_configs == {"": {"message.max.bytes": "2000"}}

    run(scenario())


def test_store_that_cannot_write_is_a_storage_error_and_changes_nothing(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(operations: object) -> None:
        raise StoreFailure("the disk is full")

    async def scenario() -> None:
        async with Run(make_store()) as it:
            (created,) = await it.create(NewTopic("t"))
            before = it.image
            with monkeypatch.context() as patch:
                patch.setattr(it.store, "multi", full)
                failed, named = await it.create(NewTopic("u"), NewTopic("b d"))
                assert failed is ErrorCode.KAFKA_STORAGE_ERROR
                assert named is ErrorCode.INVALID_TOPIC_EXCEPTION
                for errors in (
                    await it.controller.delete_topics([created.image.topic_id]),
                    await it.controller.create_partitions([NewPartitions("t", 2)]),
                    [await it.alter(ResourceType.TOPIC, "t", ("segment.ms", OpType.SET, "7"))],
                ):
                    assert [error and error.code for error in errors] == [
                        ErrorCode.KAFKA_STORAGE_ERROR
                    ]
            assert it.image is before
            assert isinstance((await it.create(NewTopic("u")))[0], CreatedTopic)

    run(scenario())


def test_controller_replaced_by_another_writes_nothing(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            await it.create(NewTopic("t"))
            node = await it.store.get(znodes.CONTROLLER_EPOCH)
            await it.store.set(znodes.CONTROLLER_EPOCH, b"9", node.version)
            assert await it.create(NewTopic("u")) == [ErrorCode.NOT_CONTROLLER]
            assert await it.store.children(znodes.TOPICS) == ["t"]
            assert list(it.image.topics_by_name) == ["t"]

    run(scenario())


def test_producer_ids_are_never_allocated_twice(make_store: MakeStore) -> None:
    async def scenario() -> None:
        allocated: list[int] = []
        for _ in range(3):
            async with Run(make_store()) as it:
                blocks = await asyncio.gather(
                    *(it.controller.allocate_producer_ids() for _ in "ab")
                )
                for block in blocks:
                    allocated += block
        assert allocated == list(range(6000))

    run(scenario())


def test_internal_topics_have_the_configs_of_their_coordinators(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store(), offsets_topic_num_partitions=5) as it:
            topic = internal_topic(it.config, "__consumer_offsets")
            assert topic is not None
            (created,) = await it.create(topic)
            assert len(created.image.partitions) == 5
            log_config = it.config.log_config(created.configs)
            assert log_config.cleanup_compact
            assert log_config.segment_bytes == 104_857_600
            state = internal_topic(it.config, "__transaction_state")
            assert state is not None
            assert isinstance((await it.create(state))[0], CreatedTopic)
            assert internal_topic(it.config, "other") is None

    run(scenario())


def test_znodes_have_kafkas_layout(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with Run(make_store()) as it:
            (created,) = await it.create(NewTopic("t", 2, configs=[("retention.ms", "5")]))
            store = it.store
            topic = znodes.decode((await store.get("/brokers/topics/t")).data)
            assert topic["version"] == 3
            assert topic["partitions"] == {"0": [1], "1": [1]}
            assert len(topic["topic_id"]) == 22
            state = znodes.decode((await store.get("/brokers/topics/t/partitions/1/state")).data)
            assert state == {
                "version": 1, "leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1]
            }  # fmt: skip
            config = znodes.decode((await store.get("/config/topics/t")).data)
            assert config == {"version": 1, "config": {"retention.ms": "5"}}
            assert await store.children("/brokers/ids") == ["1"]
            assert (await store.get("/controller_epoch")).data == b"1"
            await it.controller.delete_topics([created.image.topic_id])
            assert await store.children("/brokers/topics") == []
            assert await store.children("/config/topics") == []

    run(scenario())
