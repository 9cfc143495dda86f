"""Changes of the metadata on a broker's logs: only a recorded deletion deletes, and the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from odradek.replication import deletions
from odradek.replication import replica_manager as replica_manager_module
from odradek.replication.replica_manager import PARTITIONS_APPLIED_A_SLICE, ReplicaManager
from odradek.slicing import run_to_completion
from testkit.requests import batch as batch_now
from tests.helpers.call_count import count_calls
from tests.helpers.metadata_deltas import after_deletion, delta_between
from tests.replication.builders import NODE, apply, replica_manager

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
OTHER = BrokerId(NODE + 1)
KEY = TopicPartition("a", 0)
EMPTY = replace(MetadataImage(), offset=9)
"""An image without topics, as a store that has lost its contents gives."""


def topic(name: str, topic_id: Uuid, partitions: int = 1) -> TopicImage:
    both = (BrokerId(NODE), OTHER)
    return TopicImage(
        TopicName(name),
        topic_id,
        [PartitionImage(number, BrokerId(NODE), 0, 0, both, both) for number in range(partitions)],
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    return MetadataImage().with_topics({each.name: each for each in topics}, {})


def apply_records(
    manager: ReplicaManager, image: MetadataImage, *records: MetadataRecord
) -> MetadataImage:
    """Apply a delta as the controller publishes it."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    new = delta.apply(MetadataProvenance(BrokerId(NODE), 1, image.offset + 1))
    run_to_completion(manager.apply(delta, image, new))
    return new


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([str(tmp_path)], BrokerConfig({}).log_config({}), ManualClock())
    manager.load()
    yield manager
    manager.close(clean=False)


def slices(manager: ReplicaManager, old: MetadataImage, new: MetadataImage) -> int:
    """Apply the difference of two images. Return the number of time slices that have ended."""
    return sum(1 for _ in manager.apply(delta_between(old, new), old, new))


Work = Callable[[ReplicaManager, list[Uuid]], Coroutine[Any, Any, None]]


@pytest.fixture
def run(logs: LogManager) -> Iterator[Callable[[Work], None]]:
    """Run work on a replica manager over `logs`, with the list of finished deletions."""
    with ThreadPoolExecutor(2) as pool:

        async def main(work: Work) -> None:
            finished: list[Uuid] = []

            def finish(ids: Collection[Uuid]) -> None:
                finished.extend(ids)

            manager = replica_manager(logs, pool, finish)
            await work(manager, finished)
            await manager.stop()

        yield lambda work: asyncio.run(main(work))


def write(manager: ReplicaManager) -> None:
    manager.append_internal(KEY, batch_now(timestamp_ms=0))


async def settled() -> None:
    """Let the syncs of log directories end."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task


def directories(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir()}


def test_a_topic_that_an_image_lacks_keeps_its_records_until_it_is_back(
    run: Callable[[Work], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A))
        apply(manager, None, image)
        write(manager)
        apply(manager, image, EMPTY)
        with pytest.raises(KafkaError) as caught:
            manager.log(KEY)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert directories(tmp_path) == {"a-0"}
        assert "topic a" in caplog.text
        assert "Its logs are kept" in caplog.text
        apply(manager, EMPTY, replace(image, offset=10))
        assert manager.log(KEY).log_end_offset == 1
        assert finished == []

    run(work)


def test_another_topic_of_the_name_gets_an_empty_log_and_the_old_one_is_set_aside(
    run: Callable[[Work], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A))
        apply(manager, None, image)
        write(manager)
        apply(manager, image, image_of(topic("a", B)))
        write(manager)
        assert manager.log(KEY).topic_id == B
        aside = [name for name in directories(tmp_path) if name.endswith("-stray")]
        assert len(aside) == 1
        assert "Its files are kept in" in caplog.text
        assert finished == []

    run(work)


def test_a_recorded_deletion_deletes_and_is_reported_as_finished(
    run: Callable[[Work], None], tmp_path: Path
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A), topic("b", B))
        apply(manager, None, image)
        write(manager)
        apply_records(manager, image, RemoveTopicRecord(A), RemoveTopicRecord(B))
        assert not any(name == "a-0" for name in directories(tmp_path))
        await settled()
        assert set(finished) == {A, B}

    run(work)


def test_a_deletion_that_a_gap_has_hidden_deletes(
    run: Callable[[Work], None], tmp_path: Path
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A))
        apply(manager, None, image)
        write(manager)
        apply(manager, image, after_deletion(image, "a"))
        assert "a-0" not in directories(tmp_path)
        await settled()
        assert finished == [A]

    run(work)


def test_a_deletion_that_is_recorded_after_the_topic_was_lost_deletes(
    run: Callable[[Work], None], tmp_path: Path
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A))
        apply(manager, None, image)
        write(manager)
        apply(manager, image, EMPTY)
        assert directories(tmp_path) == {"a-0"}
        record = TopicDeletionRecord(A, "a", [NODE, OTHER])
        image = apply_records(manager, EMPTY, record)
        assert "a-0" not in directories(tmp_path)
        await settled()
        assert finished == [A]
        # The progress of another broker, and the end, cause no work here.
        for brokers in ([NODE], []):
            image = apply_records(manager, image, TopicDeletionRecord(A, "a", brokers))
        assert finished == [A]

    run(work)


def test_a_replica_that_moves_away_is_stopped_and_keeps_its_log(
    run: Callable[[Work], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(manager: ReplicaManager, finished: list[Uuid]) -> None:
        image = image_of(topic("a", A))
        apply(manager, None, image)
        write(manager)
        partition = manager.partition("a", 0)
        apply_records(
            manager,
            image,
            PartitionChangeRecord(0, A, replicas=[OTHER], isr=[OTHER], leader=OTHER),
        )
        assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert manager.find("a", 0) is None
        assert manager.find(A, 0) is None
        assert directories(tmp_path) == {"a-0"}
        assert "no longer a replica of a-0" in caplog.text

    run(work)


def test_an_isr_change_visits_one_partition(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager, _finished: list[Uuid]) -> None:
        calls = []
        previous: MetadataImage | None = None
        for count in (5, 400):
            image = image_of(topic("a", A, count))
            apply(manager, previous, image)
            delta = MetadataDelta(image)
            delta.replay(PartitionChangeRecord(2, A, isr=[NODE]))
            new = delta.apply(MetadataProvenance(BrokerId(NODE), 1, 2))
            found = count_calls(
                lambda delta=delta, image=image, new=new: run_to_completion(
                    manager.apply(delta, image, new)
                )
            )
            assert manager.partition("a", 2).isr == (NODE,)
            assert manager.partition("a", 1).isr == (NODE, OTHER)
            calls.append(found.total)
            previous = new
        assert calls[0] == calls[1]

    run(work)


def test_the_change_of_one_partition_leaves_the_leadership_of_others(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(manager: ReplicaManager, _finished: list[Uuid]) -> None:
        image = image_of(topic("a", A, 3))
        apply(manager, None, image)
        generation = manager.generation
        wider = image_of(topic("a", A, 4))
        run_to_completion(manager.apply(delta_between(image, wider), image, wider))
        assert manager.generation == generation + 2, "one creation and one leadership"

    run(work)


def test_caches_filled_between_the_slices_of_a_removal_are_not_used_after_it(
    run: Callable[[Work], None],
) -> None:
    async def work(manager: ReplicaManager, _finished: list[Uuid]) -> None:
        image = image_of(topic("a", A, 2 * PARTITIONS_APPLIED_A_SLICE))
        apply(manager, None, image)
        work = manager.apply(delta_between(image, EMPTY), image, EMPTY)
        filled = [manager.generation for _ in work if manager.partitions()]
        assert len(filled) > 1
        assert not manager.partitions() and manager.generation > max(filled)

    run(work)


@pytest.mark.parametrize("topics", [1, 10, 2 * PARTITIONS_APPLIED_A_SLICE])
def test_partitions_are_applied_in_time_slices(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    """Their number counts, whether they belong to one topic or to many."""
    monkeypatch.setattr(deletions, "LOGS_DELETED_A_SLICE", 1_000)
    monkeypatch.setattr(replica_manager_module, "LOGS_DELETED_A_SLICE", 1_000)
    count = 2 * PARTITIONS_APPLIED_A_SLICE

    async def work(manager: ReplicaManager, _: list[Uuid]) -> None:
        ids = [Uuid(bytes([at]) * 16) for at in range(1, topics + 1)]
        image = image_of(
            *(topic(f"t{at}", each, count // topics) for at, each in enumerate(ids, 1))
        )
        assert slices(manager, EMPTY, image) >= 2
        configs = {"": {"log.retention.ms": "1000"}}
        altered = replace(image, broker_configs=PersistentMap(configs))
        monkeypatch.setattr(replica_manager_module, "ELEMENTS_PER_SLICE", 10)
        assert slices(manager, image, altered) >= 2 + count // 10, "the topics are found, too"
        assert len(manager.partitions()) == count
        removal = slices(manager, altered, after_deletion(altered, "t1"))
        assert removal >= (2 if topics == 1 else 0)
        assert len(manager.partitions()) == count - count // topics

    run(work)
