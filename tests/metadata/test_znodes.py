"""Contents of the metadata store: round trips, and nodes of older versions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ids import BrokerId, TopicName, Uuid, uuid_to_string
from odradek.metadata import znodes
from odradek.metadata.image import (
    BrokerRegistration,
    Endpoint,
    PartitionImage,
    SecurityProtocol,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.store.interface import Node, Stat
from odradek.slicing import run_to_completion
from tests.metadata.image_strategies import brokers, partitions, uuids


@given(st.lists(partitions(), max_size=5), uuids)
def test_topic_and_states_are_decoded_as_they_were_encoded(
    found: list[PartitionImage], topic_id: Uuid
) -> None:
    numbered = [replace(each, partition=number) for number, each in enumerate(found)]
    topic = TopicImage(TopicName("t"), topic_id, numbered)
    data = run_to_completion(znodes.encoding_topic(topic))
    decoded_id, replicas = run_to_completion(znodes.decoding_topic_header(data))
    states = [
        Node(znodes.encode_state(each, 3), Stat(0, 0, 0, each.partition_epoch, 0, 0, 0))
        for each in numbered
    ]
    assert decoded_id == topic_id
    assert [
        znodes.decode_partition(number, *both)
        for number, both in enumerate(zip(replicas, states, strict=True))
    ] == numbered


@given(st.lists(partitions(), max_size=5), uuids)
def test_node_of_a_topic_is_compact_json_of_kafka_s_form(
    found: list[PartitionImage], topic_id: Uuid
) -> None:
    numbered = [replace(each, partition=number) for number, each in enumerate(found)]
    expected = {
        "version": 3,
        "topic_id": uuid_to_string(topic_id),
        "partitions": {str(each.partition): each.replicas for each in numbered},
        "adding_replicas": {
            str(each.partition): each.adding_replicas for each in numbered if each.adding_replicas
        },
        "removing_replicas": {
            str(each.partition): each.removing_replicas
            for each in numbered
            if each.removing_replicas
        },
    }
    data = run_to_completion(znodes.encoding_topic(TopicImage(TopicName("t"), topic_id, numbered)))
    assert data == json.dumps(expected, separators=(",", ":")).encode()


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"partitions":' * 100_000, b"", b"[]", b"{}"])
def test_topic_node_that_is_not_valid_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(znodes.InvalidNode, match="/brokers/topics/t"):
        run_to_completion(
            znodes.valid_in_slices("/brokers/topics/t", znodes.decoding_topic_header(data))
        )


@given(brokers())
def test_broker_is_decoded_as_it_was_encoded(broker: BrokerRegistration) -> None:
    decoded = znodes.decode_broker(broker.id, znodes.encode_broker(broker, 5), broker.epoch)
    assert decoded == replace(broker, fenced=False, in_controlled_shutdown=False, drained=False)


@given(brokers())
def test_last_registration_is_decoded_as_it_was_encoded(broker: BrokerRegistration) -> None:
    data = znodes.encode_registration(broker)
    assert znodes.decode_registration(broker.id, data) == broker


def test_position_of_a_new_store_is_zero() -> None:
    assert znodes.decode_position(b"") == (0, 0)
    assert znodes.decode_position(znodes.encode_position(3, 7)) == (3, 7)


def test_broker_node_of_kafka() -> None:
    node = {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1",
        "endpoints": ["INSIDE://h:9092", "OUTSIDE://::1:9093"],
        "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "OUTSIDE": "SASL_SSL"},
        "features": {"f": {"min_version": 1, "max_version": 2}},
        "rack": "r",
    }
    assert znodes.decode_broker(BrokerId(4), json.dumps(node).encode(), 77) == BrokerRegistration(
        BrokerId(4),
        "h",
        9092,
        "r",
        (
            Endpoint("INSIDE", "h", 9092),
            Endpoint("OUTSIDE", "::1", 9093, SecurityProtocol.SASL_SSL),
        ),
        epoch=77,
        features={"f": (1, 2)},
    )


@pytest.mark.parametrize(
    "data", [b"", b"no json", b"[]", b"{}", b'{"version":5,"host":"h","port":1,"endpoints":["x"]}']
)
def test_broker_node_that_is_not_valid_is_named(data: bytes) -> None:
    with pytest.raises(ValueError, match="the node of broker 4 is not valid"):
        znodes.decode_broker(BrokerId(4), data, 1)


def test_state_without_the_newer_fields_has_the_keys_of_kafka() -> None:
    partition = PartitionImage(0, BrokerId(1), 2, 3, (BrokerId(1),), (BrokerId(1),))
    assert json.loads(znodes.encode_state(partition, 9)) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 2,
        "controller_epoch": 9,
        "isr": [1],
    }


@given(partitions())
def test_state_is_compact_json(partition: PartitionImage) -> None:
    data = znodes.encode_state(partition, 9)
    assert data == znodes.encode(json.loads(data))


def test_recorded_deletion_without_brokers_is_one_of_this_broker() -> None:
    topic_id = Uuid(b"x" * 16)
    name = znodes.deleted_topic_path(topic_id).rpartition("/")[2]
    deletion = TopicDeletion(TopicName("t"), (BrokerId(2), BrokerId(5)))
    node = znodes.encode_deletion(deletion)
    assert znodes.decode_deletion(name, node, BrokerId(1)) == (topic_id, deletion)
    assert znodes.decode_deletion(name, b'{"version":1,"topic":"t"}', BrokerId(1)) == (
        topic_id,
        TopicDeletion(TopicName("t"), (BrokerId(1),)),
    )
