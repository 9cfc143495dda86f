"""Tests of the registrations that follow from the nodes of brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.registered_brokers import registered_brokers
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from odradek.metadata.store.interface import Node, Stat

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
