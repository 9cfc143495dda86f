"""The fast path of record encoding has the bytes of the codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.group_records import (
    encode,
    group_metadata_tombstone,
    offset_commit_record,
    offset_commit_tombstone,
)
from odradek.coordinator.runtime import CoordinatorRecord, encode_record
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

names = st.text(max_size=60)
keys = st.builds(OffsetCommitKey, names, names, st.integers(-(2**31), 2**31 - 1))
int64 = st.integers(-(2**63), 2**63 - 1)
values = st.builds(
    OffsetCommitValue,
    offset=int64,
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=names,
    commit_timestamp=int64,
    expire_timestamp=st.just(-1) | int64,
)


@given(st.builds(offset_commit_record, keys, values))
def test_committed_offsets(record: CoordinatorRecord) -> None:
    assert encode(record) == encode_record(record)


@given(names, names, st.integers(0, 2**31 - 1))
def test_tombstones(group: str, topic: str, partition: int) -> None:
    for record in (
        offset_commit_tombstone(group, topic, partition),
        group_metadata_tombstone(group),
    ):
        assert encode(record) == encode_record(record)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"group": "g" * 32_768}, {}),
        ({"topic": "ü" * 16_384}, {}),
        ({"topic": "\ud800"}, {}),
        ({"partition": 2**31}, {}),
        ({}, {"metadata": "m" * 32_768}),
        ({}, {"offset": 2**63}),
    ],
)
def test_unencodable_record_is_refused(key: dict[str, Any], value: dict[str, Any]) -> None:
    record = offset_commit_record(OffsetCommitKey(**key), OffsetCommitValue(**value))
    with pytest.raises(UnencodableMessage):
        encode(record)
