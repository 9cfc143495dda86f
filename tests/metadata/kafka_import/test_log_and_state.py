"""Kafka's metadata: snapshots, torn segments, and the cluster that the records describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.environment.files import RealFiles
from odradek.ids import Uuid
from odradek.log.directories.directory_names import METADATA_DIRECTORY
from odradek.metadata.kafka_import.metadata_log import UnreadableMetadata, read_frames
from odradek.metadata.kafka_import.metadata_replay import ImportedCluster, replay
from odradek.protocol import interpret
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.records.record import Record, build_batch
from tests.helpers.kafka_directory import KINDS, unpack

CLASSES: dict[int, type[Message]] = {
    cls.API_KEY: cls
    for cls in (
        BrokerRegistrationChangeRecord,
        RegisterBrokerRecord,
        ClientQuotaRecord,
        ConfigRecord,
        FeatureLevelRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
}
A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
BEGIN, END, ABORT = b"\x01\x17\x00\x00", b"\x01\x18\x00\x00", b"\x01\x19\x00\x00"


def framed(message: Message, version: int | None = None) -> bytes:
    version = message.MAX_VERSION if version is None else version
    body = encode(message, min(version, message.MAX_VERSION))
    return bytes([1, message.API_KEY, version]) + body


def batch(values: Sequence[bytes], base_offset: int) -> bytes:
    records = [Record(None, value) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, timestamp_ms=1))


def write_log(directory: Path, *values: bytes, base_offset: int = 0) -> Path:
    """Write a segment with a batch for each value."""
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batch([v], base_offset + i) for i, v in enumerate(values)))
    return path


def write_snapshot(directory: Path, end_offset: int, *values: bytes) -> Path:
    path = directory / f"{end_offset:020d}-0000000001.checkpoint"
    path.write_bytes(batch(values, 0))
    return path


def found(directory: Path) -> ImportedCluster:
    return replay(read_frames(RealFiles(), str(directory)))


def topics(directory: Path) -> set[str]:
    return set(found(directory).image.topics_by_name)


TOPIC_A, TOPIC_B = framed(TopicRecord("a", A)), framed(TopicRecord("b", B))


def test_the_log_continues_where_the_newest_snapshot_ends(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 1, TOPIC_B)
    write_snapshot(tmp_path, 2, TOPIC_A)
    write_log(tmp_path, b"never read", b"never read", TOPIC_B)
    assert topics(tmp_path) == {"a", "b"}


def test_a_truncated_snapshot_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 1, TOPIC_A)
    newest = write_snapshot(tmp_path, 2, TOPIC_A)
    newest.write_bytes(newest.read_bytes()[:-1])
    write_log(tmp_path, b"never read", TOPIC_B)
    assert topics(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("cut", [1, 30])
def test_an_incomplete_last_batch_is_ignored(tmp_path: Path, cut: int) -> None:
    path = write_log(tmp_path, TOPIC_A, TOPIC_B)
    path.write_bytes(path.read_bytes()[:-cut])
    assert topics(tmp_path) == {"a"}


def test_a_batch_with_a_wrong_crc_ends_the_log(tmp_path: Path) -> None:
    path = write_log(tmp_path, TOPIC_A, TOPIC_B)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert topics(tmp_path) == {"a"}


def test_segments_are_read_in_order(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A)
    write_log(tmp_path, TOPIC_B, base_offset=1)
    assert topics(tmp_path) == {"a", "b"}


def test_a_gap_between_segments_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A)
    write_log(tmp_path, TOPIC_B, base_offset=2)
    with pytest.raises(UnreadableMetadata, match="lacks the records from 1 to 1"):
        topics(tmp_path)


def test_a_log_that_starts_behind_the_snapshot_is_refused(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 1, TOPIC_A)
    write_log(tmp_path, TOPIC_B, base_offset=3)
    with pytest.raises(UnreadableMetadata, match="lacks the records from 1 to 2"):
        topics(tmp_path)


def test_a_transaction_takes_effect_when_it_has_ended(tmp_path: Path) -> None:
    write_log(tmp_path, BEGIN, TOPIC_A, END, BEGIN, TOPIC_B, ABORT)
    assert topics(tmp_path) == {"a"}


def test_a_transaction_that_never_ended_has_no_effect(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A, BEGIN, TOPIC_B)
    assert topics(tmp_path) == {"a"}


def test_unknown_record_types_are_skipped(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A, b"\x01\x7f\x00whatever", b"\x01\x80\x01\x00later")
    assert topics(tmp_path) == {"a"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (framed(TopicRecord("b", B), 1), "version 1"),
        (TOPIC_B[:-1], "has an invalid"),
        (framed(PartitionRecord(0, B)), "has an invalid"),
        (b"\x02" + TOPIC_B[1:], "frame version 2"),
        (b"\x80", "varint"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, value: bytes, reason: str) -> None:
    write_log(tmp_path, TOPIC_A, value)
    with pytest.raises(UnreadableMetadata, match=reason):
        found(tmp_path)


def test_the_epoch_rises_with_every_leader_election(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        TOPIC_A,
        framed(PartitionRecord(0, A, [1, 2], [1, 2], leader=1, leader_epoch=4, partition_epoch=9)),
        framed(PartitionChangeRecord(0, A, isr=[1])),
        framed(PartitionChangeRecord(0, A, leader=-1)),
        framed(PartitionChangeRecord(0, A, leader=1, replicas=[1])),
    )
    partition = found(tmp_path).image.topics_by_id[A].partitions[0]
    assert (partition.leader_epoch, partition.replicas, partition.isr) == (6, (1,), (1,))


def test_a_topic_is_removed_with_its_configs(tmp_path: Path) -> None:
    config = framed(ConfigRecord(2, "a", "retention.ms", "1"))
    write_log(tmp_path, TOPIC_A, config, TOPIC_B, framed(RemoveTopicRecord(A)))
    image = found(tmp_path).image
    assert set(image.topics_by_name) == {"b"}
    assert image.topic_configs == {}
    assert image.deletions == {}


def test_configs_quotas_and_features_can_be_removed(tmp_path: Path) -> None:
    entity = [EntityData("user", None)]
    write_log(
        tmp_path,
        framed(ConfigRecord(4, "", "log.retention.ms", "1")),
        framed(ConfigRecord(4, "", "log.segment.bytes", "2000000")),
        framed(ConfigRecord(4, "", "log.retention.ms", None)),
        framed(ClientQuotaRecord(entity, "producer_byte_rate", 1.0)),
        framed(ClientQuotaRecord(entity, "producer_byte_rate", 0.0, remove=True)),
        framed(FeatureLevelRecord("group.version", 1)),
        framed(FeatureLevelRecord("transaction.version", 2)),
        framed(FeatureLevelRecord("group.version", 0)),
        framed(ProducerIdsRecord(1, 2, 5000)),
    )
    image = found(tmp_path).image
    assert image.broker_configs == {"": {"log.segment.bytes": "2000000"}}
    assert image.client_quotas == {}
    assert image.features == {"transaction.version": 2}
    assert image.next_producer_id == 5000


def test_configs_of_an_unknown_type_are_counted_and_skipped(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A, framed(ConfigRecord(64, "x", "a", "1")))
    cluster = found(tmp_path)
    assert set(cluster.image.topics_by_name) == {"a"}
    assert cluster.unused == {"configs of resources of type 64": 1}


def test_partitions_with_a_gap_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path, TOPIC_A, framed(PartitionRecord(1, A, [1], [1])))
    with pytest.raises(UnreadableMetadata, match="must be consecutive from 0"):
        found(tmp_path)


@pytest.fixture
def whole_log(kind: str, tmp_path: Path) -> Path:
    """Return a directory with Kafka's metadata from the first record on, without a snapshot."""
    directory = unpack(kind, tmp_path) / METADATA_DIRECTORY
    for path in directory.glob("*.checkpoint"):
        path.unlink()
    return directory


@pytest.mark.parametrize("kind", KINDS)
def test_kafkas_own_records_are_read_and_written_back_unchanged(kind: str, whole_log: Path) -> None:
    seen = set()
    for frame in read_frames(RealFiles(), str(whole_log)):
        cls = CLASSES.get(frame.api_key)
        # Kafka 4.3 writes newer versions of two records, with one more tagged field. It is at its
        # default, and therefore absent, in RegisterBrokerRecord.
        if cls is not None and (frame.version <= cls.MAX_VERSION or cls is RegisterBrokerRecord):
            version = min(frame.version, cls.MAX_VERSION)
            message = decode(cls, version, frame.body)
            assert encode(message, version) == frame.body
            assert interpret.encode(message, version) == frame.body
            seen.add(cls)
    assert seen == set(CLASSES.values()) - ({PartitionChangeRecord} if kind == "killed" else set())


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_log_gives_the_state_of_kafkas_snapshot(
    kind: str, whole_log: Path, tmp_path: Path
) -> None:
    other = tmp_path / "with snapshots"
    other.mkdir()
    assert found(whole_log) == found(unpack(kind, other) / METADATA_DIRECTORY)
