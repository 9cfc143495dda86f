"""Replay of metadata records: the resulting image, the changed parts, and the cost."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    SecurityProtocol,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.image_records import (
    compared,
    difference,
    image_records,
    partition_change,
    partition_record,
    registration_record,
)
from odradek.metadata.persistent import CHUNK_LENGTH
from odradek.metadata.records import InvalidRecord, MetadataRecord
from odradek.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.helpers.call_count import count_calls
from tests.metadata.image_strategies import images, partitions

AT = MetadataProvenance(BrokerId(1), 3, 7)
A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ALLOCATED_BYTES_MAX = 24_000
"""Maximum memory that one ISR change allocates at any time, with 10 and with 10,000 partitions."""


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def replayed(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(AT)


def contents(image: MetadataImage) -> MetadataImage:
    """Return the part of an image that is in records."""
    return replace(image, cluster_id="", controller_id=NO_LEADER, controller_epoch=0, offset=0)


@settings(max_examples=50, deadline=None)
@given(images())
def test_replay_of_an_image_equals_the_image(image: MetadataImage) -> None:
    assert contents(replayed(MetadataImage(), image_records(image))) == contents(image)


@settings(max_examples=50, deadline=None)
@given(images(), images())
def test_a_difference_that_is_applied_equals_the_target(
    old: MetadataImage, new: MetadataImage
) -> None:
    records = list(difference(old, new))
    assert contents(replayed(old, records)) == contents(new)
    assert list(difference(new, new)) == []


@settings(max_examples=50, deadline=None)
@given(images(), images())
def test_a_delta_names_exactly_what_changed(old: MetadataImage, new: MetadataImage) -> None:
    delta = MetadataDelta(old)
    for record in difference(old, new):
        delta.replay(record)
    after = delta.apply(AT)
    for name in (
        "brokers",
        "topic_configs",
        "broker_configs",
        "group_configs",
        "client_metrics",
        "features",
        "client_quotas",
        "deletions",
    ):
        before_map, after_map = getattr(old, name), getattr(after, name)
        changed = getattr(delta, name).changed
        for key in {*before_map, *after_map}:
            if before_map.get(key) != after_map.get(key):
                assert changed[key] == after_map.get(key)
    for topic_id, topic in old.topics_by_id.items():
        same = after.topics_by_id.get(topic_id)
        assert (topic_id in delta.topics.removed) or same is not None
        if topic_id not in delta.topics.changed and topic_id not in delta.topics.removed:
            assert same is topic
    for topic_id, changes in delta.topics.changed.items():
        for number, partition in enumerate(after.topics_by_id[topic_id].partitions):
            if number not in changes.partitions:
                assert changes.before is not None
                assert partition is changes.before.partitions[number]


@settings(max_examples=50, deadline=None)
@given(images(), st.randoms())
def test_equality_of_images_does_not_depend_on_the_order_of_records(image, random) -> None:  # type: ignore[no-untyped-def]
    records = list(image_records(image))
    creations = [each for each in records if isinstance(each, TopicRecord)]
    others = [each for each in records if not isinstance(each, TopicRecord)]
    random.shuffle(creations)
    random.shuffle(others)
    assert contents(replayed(MetadataImage(), [*creations, *others])) == contents(image)


def test_an_image_has_the_provenance_of_its_delta() -> None:
    image = replayed(MetadataImage(cluster_id="c"), [])
    assert (image.cluster_id, image.controller_id) == ("c", 1)
    assert (image.controller_epoch, image.offset) == (3, 7)


# --- topics ---


def topic(topic_id: Uuid = A, partitions: int = 2, name: str = "t") -> TopicImage:
    return TopicImage(
        TopicName(name),
        topic_id,
        [
            PartitionImage(number, BrokerId(1), 5, 8, ids(1, 2, 3), ids(1, 2))
            for number in range(partitions)
        ],
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    return MetadataImage().with_topics({each.name: each for each in topics}, {})


def changed(record: PartitionChangeRecord) -> PartitionImage:
    """Return partition 0 of the topic after a change."""
    found = replayed(image_of(topic()), [record]).partition("t", 0)
    assert found is not None
    return found


def test_each_change_of_a_partition_raises_its_partition_epoch() -> None:
    after = changed(PartitionChangeRecord(0, A, isr=[1]))
    assert after == PartitionImage(0, BrokerId(1), 5, 9, ids(1, 2, 3), ids(1))


@pytest.mark.parametrize("leader", [-1, 1, 2])
def test_an_election_raises_the_leader_epoch_even_of_the_same_leader(leader: int) -> None:
    after = changed(PartitionChangeRecord(0, A, leader=leader))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, 6, 9)


def test_all_fields_of_a_partition_can_change() -> None:
    directories = [Uuid(b"d" * 16), ZERO_UUID]
    after = changed(
        PartitionChangeRecord(
            0,
            A,
            isr=[],
            leader=-1,
            replicas=[4, 1],
            removing_replicas=[2],
            adding_replicas=[4],
            leader_recovery_state=1,
            directories=directories,
            eligible_leader_replicas=[1],
            last_known_elr=[3],
        )
    )
    assert after == PartitionImage(
        0,
        NO_LEADER,
        6,
        9,
        ids(4, 1),
        (),
        ids(4),
        ids(2),
        ids(1),
        ids(3),
        LeaderRecoveryState.RECOVERING,
        tuple(directories),
    )


def test_new_replicas_have_no_directory_and_others_keep_theirs() -> None:
    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    placed = replayed(
        image_of(topic()), [PartitionChangeRecord(0, A, directories=[one, two, ZERO_UUID])]
    )
    after = replayed(placed, [PartitionChangeRecord(0, A, replicas=[4, 2])]).partition("t", 0)
    assert after is not None
    assert after.directories == (ZERO_UUID, two)


def test_a_partition_record_sets_the_epochs_of_an_existing_partition() -> None:
    before = topic().partitions[1]
    raised = replace(before, leader_epoch=40, partition_epoch=before.partition_epoch + 1)
    after = replayed(image_of(topic()), [partition_record(A, raised)])
    assert after.partition("t", 1) == raised
    assert after.partition("t", 0) is not None


@given(partitions(), partitions())
def test_the_change_between_two_states_leads_from_one_to_the_other(
    before: PartitionImage, after: PartitionImage
) -> None:
    record = partition_change(A, before, after)
    if record is None:
        assert before == after
        return
    image = image_of(TopicImage(TopicName("t"), A, [before]))
    assert replayed(image, [record]).partition("t", 0) == after


def test_a_change_within_the_next_epochs_has_only_the_changed_fields() -> None:
    before = topic().partitions[0]
    shrunk = replace(before, partition_epoch=9, isr=ids(1), elr=ids(2))
    assert partition_change(A, before, shrunk) == PartitionChangeRecord(
        0, A, isr=[1], eligible_leader_replicas=[2]
    )
    elected = replace(shrunk, partition_epoch=10, leader=BrokerId(2), leader_epoch=6)
    assert partition_change(A, shrunk, elected) == PartitionChangeRecord(0, A, leader=2)
    raised = replace(before, partition_epoch=9, leader_epoch=50)
    assert partition_change(A, before, raised) == partition_record(A, raised)
    assert partition_change(A, before, before) is None


def test_removal_of_a_topic_records_its_deletion_and_removes_its_configs() -> None:
    before = image_of(topic()).with_configs({TopicName("t"): {"a": "1"}}, {})
    delta = MetadataDelta(before)
    delta.replay(RemoveTopicRecord(A))
    after = delta.apply(AT)
    assert not after.topics_by_name
    assert not after.topics_by_id
    assert after.topic_configs == {}
    assert after.deletions == {A: TopicDeletion(TopicName("t"), ids(1, 2, 3))}
    assert delta.topics.removed == {A: before.topics_by_id[A]}


def test_a_deletion_ends_when_no_broker_is_left() -> None:
    deleted = replayed(image_of(topic()), [RemoveTopicRecord(A)])
    fewer = replayed(deleted, [TopicDeletionRecord(A, "t", [3])])
    assert fewer.deletions == {A: TopicDeletion(TopicName("t"), ids(3))}
    assert replayed(fewer, [TopicDeletionRecord(A, "t", [])]).deletions == {}


def test_a_topic_that_a_target_lacks_without_a_deletion_is_removed_without_one() -> None:
    after = replayed(image_of(topic()), difference(image_of(topic()), MetadataImage()))
    assert not after.topics_by_name
    assert after.deletions == {}


def test_a_name_can_be_removed_and_created_again_in_one_delta() -> None:
    delta = MetadataDelta(image_of(topic()))
    for record in (
        RemoveTopicRecord(A),
        TopicRecord("t", B),
        PartitionRecord(0, B, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
    ):
        delta.replay(record)
    after = delta.apply(AT)
    assert after.topics_by_name[TopicName("t")].topic_id == B
    assert set(after.topics_by_id) == {B}
    assert list(delta.topics.removed) == [A]
    assert list(delta.topics.changed) == [B]


def test_a_topic_that_is_created_and_removed_in_one_delta_leaves_no_change_of_topics() -> None:
    delta = MetadataDelta(MetadataImage())
    for record in (TopicRecord("t", A), RemoveTopicRecord(A)):
        delta.replay(record)
    assert contents(delta.apply(AT)) == MetadataImage()
    assert not delta.topics.removed
    assert not delta.topics.changed


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("t", B),
        TopicRecord("u", A),
        PartitionRecord(0, B, [1], [1]),
        PartitionChangeRecord(0, B, isr=[1]),
        PartitionChangeRecord(2, A, isr=[1]),
        PartitionChangeRecord(-1, A, isr=[1]),
        PartitionChangeRecord(0, A, leader_recovery_state=9),
        RemoveTopicRecord(B),
        ConfigRecord(64, "x", "a", "1"),
        ConfigRecord(8, "1", "a", "1"),
        UnregisterBrokerRecord(1, 5),
        BrokerRegistrationChangeRecord(1, 5, 1),
    ],
    ids=repr,
)
def test_a_record_that_does_not_fit_is_refused(record: MetadataRecord) -> None:
    image = image_of(topic())
    with pytest.raises(InvalidRecord):
        replayed(image, [record])
    assert image == image_of(topic())


def test_partitions_with_a_gap_are_refused() -> None:
    record = partition_record(A, replace(topic().partitions[0], partition=3))
    with pytest.raises(InvalidRecord, match=r"topic t are \[3\], and must be consecutive"):
        replayed(image_of(topic()), [record])


# --- brokers and the other sections ---


BROKER = BrokerRegistration(
    BrokerId(4),
    "h",
    9093,
    "r",
    (
        Endpoint("INSIDE", "h", 9093, SecurityProtocol.SASL_SSL),
        Endpoint("OUTSIDE", "x", 9092),
    ),
    77,
    Uuid(b"i" * 16),
    fenced=True,
    features={"f": (1, 2)},
    directories=(Uuid(b"d" * 16),),
    boot_id="boot",
    drained=True,
)


def test_a_broker_is_registered_changed_and_unregistered() -> None:
    registered = replayed(MetadataImage(), [registration_record(BROKER)])
    assert registered.brokers == {4: BROKER}
    assert not registered.is_alive(BROKER.id)
    running = replayed(registered, [BrokerRegistrationChangeRecord(4, 77, fenced=-1)])
    assert running.brokers == {4: replace(BROKER, fenced=False)}
    assert running.is_alive(BROKER.id)
    assert running.is_eligible(BROKER.id)
    stopping = replayed(running, [BrokerRegistrationChangeRecord(4, 77, in_controlled_shutdown=1)])
    assert stopping.is_alive(BROKER.id)
    assert not stopping.is_eligible(BROKER.id)
    moved = replayed(
        stopping, [BrokerRegistrationChangeRecord(4, 77, fenced=1, log_dirs=[Uuid(b"e" * 16)])]
    )
    assert moved.brokers[BROKER.id] == replace(
        BROKER, in_controlled_shutdown=True, directories=(Uuid(b"e" * 16),)
    )
    used = replayed(moved, [BrokerRegistrationChangeRecord(4, 77, drained=-1)])
    assert used.brokers[BROKER.id] == replace(moved.brokers[BROKER.id], drained=False)
    assert replayed(moved, [UnregisterBrokerRecord(4, 77)]).brokers == {}
    with pytest.raises(InvalidRecord, match="broker 4 is not registered with the epoch 76"):
        replayed(moved, [UnregisterBrokerRecord(4, 76)])


def test_the_last_override_quota_or_level_that_is_removed_removes_its_entry() -> None:
    user = [EntityData("user", None)]
    entity = (("user", None),)
    image = replayed(
        MetadataImage(),
        [
            ConfigRecord(4, "", "a", "1"),
            ConfigRecord(4, "", "b", "2"),
            ConfigRecord(32, "g", "c", "3"),
            ConfigRecord(16, "m", "d", "4"),
            ClientQuotaRecord(user, "producer_byte_rate", 5.0),
            FeatureLevelRecord("f", 6),
            ProducerIdsRecord(1, 1, 7000),
        ],
    )
    assert image.broker_configs == {"": {"a": "1", "b": "2"}}
    assert image.group_configs == {"g": {"c": "3"}}
    assert image.client_metrics == {"m": {"d": "4"}}
    assert image.client_quotas == {entity: {"producer_byte_rate": 5.0}}
    assert image.features == {"f": 6}
    assert image.next_producer_id == 7000
    after = replayed(
        image,
        [
            ConfigRecord(4, "", "a", None),
            ConfigRecord(32, "g", "c", None),
            ConfigRecord(16, "m", "d", None),
            ClientQuotaRecord(user, "producer_byte_rate", remove=True),
            FeatureLevelRecord("f", 0),
        ],
    )
    assert after.broker_configs == {"": {"b": "2"}}
    assert not after.group_configs
    assert not after.client_metrics
    assert not after.client_quotas
    assert not after.features
    assert after.next_producer_id == 7000


# --- cost ---


def large_images(partitions: int) -> list[MetadataImage]:
    """Return images with so many partitions: in one topic, and in topics of one partition."""
    number = iter(range(partitions))
    topics = [topic(Uuid(each.to_bytes(16, "big")), 1, f"t{each}") for each in number]
    return [image_of(topic(A, partitions)), image_of(*topics)]


def an_isr_change(image: MetadataImage) -> MetadataImage:
    topic_id = next(iter(image.topics_by_id))
    return replayed(image, [PartitionChangeRecord(0, topic_id, isr=[1])])


def test_an_isr_change_makes_as_many_calls_with_10_000_partitions_as_with_10() -> None:
    for few, many in zip(large_images(10), large_images(10_000), strict=True):
        an_isr_change(few), an_isr_change(many)
        calls = count_calls(lambda few=few: an_isr_change(few)).total
        assert count_calls(lambda many=many: an_isr_change(many)).total <= calls + 20
        assert calls < 150


def test_an_isr_change_copies_as_little_with_10_000_partitions_as_with_10() -> None:
    for image in (*large_images(10), *large_images(10_000)):
        an_isr_change(image)
        tracemalloc.start()
        try:
            after = an_isr_change(image)
            assert tracemalloc.get_traced_memory()[1] < ALLOCATED_BYTES_MAX
        finally:
            tracemalloc.stop()
        assert after != image


def test_long_replays_run_in_time_slices() -> None:
    target = large_images(1_000)[1]
    delta = MetadataDelta(MetadataImage())
    slices = sum(1 for _ in delta.replaying(image_records(target)))
    assert slices >= 9
    applying = delta.applying(AT)
    slices = 0
    while True:
        try:
            next(applying)
            slices += 1
        except StopIteration as ended:
            assert contents(ended.value) == contents(target)
            break
    assert slices >= 4


@pytest.mark.parametrize("removes", [False, True])
def test_partitions_of_the_old_image_are_freed_in_time_slices(removes: bool) -> None:
    """Otherwise all partitions that a change has replaced are freed in one slice."""
    count, replicas = 500, ids(77, 78)  # no image of another test in the process has these

    def alive() -> int:
        gc.collect()
        images = (each for each in gc.get_objects() if isinstance(each, PartitionImage))
        return sum(each.replicas == replicas for each in images)

    partitions = [
        PartitionImage(number, BrokerId(77), 5, 8, replicas, replicas) for number in range(count)
    ]
    old = image_of(TopicImage(TopicName("t"), A, partitions))
    del partitions
    (topic_id,) = old.topics_by_id
    delta = MetadataDelta(old)
    if removes:
        delta.replay(RemoveTopicRecord(topic_id))
    else:
        for number in range(count):
            delta.replay(PartitionChangeRecord(number, topic_id, isr=[1]))
    new = delta.apply(AT)
    del old
    found = [alive(), *(alive() for _ in delta.releasing()), alive()]
    left = 0 if removes else count
    assert (found[0], found[-1]) == (left + count, left)
    freed = [one - next_one for one, next_one in pairwise(found)]
    assert max(freed) <= ELEMENTS_PER_SLICE + CHUNK_LENGTH
    assert new.partition_count("t") == left


def test_each_removal_of_a_topic_ends_its_time_slice() -> None:
    """It visits all partitions of the topic."""
    image = large_images(10)[1]
    removals = [RemoveTopicRecord(topic_id) for topic_id in image.topics_by_id]
    assert sum(1 for _ in MetadataDelta(image).replaying(removals)) == 10


def test_difference_of_images_counts_the_partitions_of_removed_topics() -> None:
    image = large_images(1_000)[0]
    assert sum(record is None for record in compared(image, MetadataImage())) >= 1_000
