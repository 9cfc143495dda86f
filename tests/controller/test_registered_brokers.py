"""Tests of the registrations that follow from the nodes of brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.broker_changes import planning_broker_changes
from odradek.controller.election import ElectionPolicy
from odradek.controller.registered_brokers import registered_brokers
from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.store.interface import Node, Stat
from odradek.slicing import run_to_completion

VALID = znodes.encode_broker(
    BrokerRegistration(
        BrokerId(1), "h", 9092, listeners=(Endpoint("PLAINTEXT", "h", 9092),), boot_id="boot"
    ),
    time_ms=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def _node(data: bytes) -> Node:
    return Node(data, Stat(7, 7, 7, 0, 0, 1, 0))


def _valid(data: bytes) -> set[BrokerId]:
    """Return the valid ones of a broker with these data and another one."""
    nodes = {BrokerId(1): _node(data), BrokerId(2): _node(VALID)}
    changes, valid = registered_brokers(MetadataImage(), nodes)
    assert changes.after.keys() == valid.keys() == changes.restarts.keys()
    return set(valid)


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, VALID[:-1]],
    ids=["empty", "null", "list", "no text", "nested lists", "nested objects", "torn"],
)
def test_broker_whose_node_is_not_valid_is_not_registered_and_concerns_no_other(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert _valid(data) == {BrokerId(2)}
    assert "broker 1 is not registered" in caplog.text


@given(key=st.sampled_from([*json.loads(VALID), "rack", "features", "directories"]), value=JSON)
def test_any_value_in_the_node_of_a_broker_concerns_no_other_broker(key: str, value: Any) -> None:
    assert BrokerId(2) in _valid(json.dumps({**json.loads(VALID), key: value}).encode())


# --- a log directory that is missing ---

ONE, TWO, TOPIC_ID = (Uuid(bytes([n]) * 16) for n in (1, 2, 3))


def _after_restart(
    incarnation: int, directories: tuple[Uuid, ...], known: Uuid, kept: tuple[Uuid, ...] = (ONE,)
) -> PartitionImage:
    """Return a partition in the ELR of broker 1 only, after broker 1 has registered again.

    Args:
        incarnation: The last process of the broker is 1.
        directories: Those of its last registration.
        known: The directory of its replica in the metadata.
        kept: Its directories now.
    """
    process = Uuid(bytes([incarnation]) * 16)
    first, second = (
        BrokerRegistration(
            BrokerId(number),
            "h",
            9092,
            listeners=(Endpoint("PLAINTEXT", "h", 9092),),
            epoch=number,
            fenced=number == 1,
            boot_id="boot",
            incarnation_id=Uuid(bytes([number]) * 16),
            directories=directories,
        )
        for number in (1, 2)
    )
    partition = PartitionImage(
        0,
        NO_LEADER,
        4,
        7,
        (first.id, second.id),
        (),
        elr=(first.id,),
        last_known_elr=(first.id,),
        directories=() if known == ZERO_UUID else (known, TWO),
    )
    topic = TopicImage(TopicName("t"), TOPIC_ID, [partition])
    image = MetadataImage(
        brokers=PersistentMap({first.id: first, second.id: second}),
        topics_by_name=PersistentMap({topic.name: topic}),
        topics_by_id=PersistentMap({TOPIC_ID: topic}),
    )
    again = replace(first, incarnation_id=process, directories=kept)
    changes, _ = registered_brokers(image, {first.id: _node(znodes.encode_broker(again, 5))})
    planning = planning_broker_changes(image, changes, lambda _: ElectionPolicy())
    delta = MetadataDelta(image)
    for record in run_to_completion(planning):
        delta.replay(record)
    return delta.apply(MetadataProvenance(first.id, 1, 1)).topics_by_id[TOPIC_ID].partitions[0]


@pytest.mark.parametrize("known", [ZERO_UUID, ONE])
def test_e4_replica_leads_again_when_another_directory_failed_without_a_session(
    known: Uuid,
) -> None:
    """The process is the same. It reports the replicas of the failed directory itself."""
    assert _after_restart(1, (ONE, TWO), known).leader == 1


def test_e4_replica_of_the_directory_that_failed_without_a_session_leads_nothing() -> None:
    after = _after_restart(1, (ONE, TWO), TWO)
    assert (after.leader, after.elr) == (NO_LEADER, (1,))


def test_e4_replica_in_a_directory_that_exists_is_the_last_known_leader_after_a_restart() -> None:
    """The broker has lost its other directory. The replica has what was on the disk."""
    after = _after_restart(9, (ONE, TWO), ONE)
    assert (after.leader, after.isr, after.leader_recovery_state) == (
        1,
        (1,),
        LeaderRecoveryState.RECOVERING,
    )


@pytest.mark.parametrize("known", [ZERO_UUID, TWO])
def test_e4_replica_whose_directory_is_lost_or_not_known_is_no_candidate(known: Uuid) -> None:
    after = _after_restart(9, (ONE, TWO), known)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (), ())


def test_a_drained_broker_stays_drained_after_its_restart() -> None:
    previous = replace(znodes.decode_broker(BrokerId(1), VALID, 3), drained=True)
    image = MetadataImage(brokers=PersistentMap({BrokerId(1): previous}))
    _, valid = registered_brokers(image, {BrokerId(1): _node(VALID)})
    assert valid[BrokerId(1)].epoch == 7
    assert valid[BrokerId(1)].drained
