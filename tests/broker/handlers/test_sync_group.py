"""SyncGroup over the wire: every version, the stored assignment, checks of the request."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find, join, stable_member, sync


@pytest.mark.parametrize("version", range(6))
def test_every_version_returns_the_assignment(client: WireClient, version: int) -> None:
    find(client)
    joined = join(client)
    response = sync(client, joined, version)
    assert (response.error_code, response.assignment) == (0, b"mine")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (response.protocol_type, response.protocol_name) == expected


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_version_5_needs_the_protocol(client: WireClient, missing: str) -> None:
    joined = stable_member(client)
    response = sync(client, joined, **{missing: None})
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_other_generation_is_refused(client: WireClient) -> None:
    joined = stable_member(client)
    response = sync(client, joined, generation_id=9)
    assert response.error_code == ErrorCode.ILLEGAL_GENERATION


def test_unknown_member_and_group_are_refused(client: WireClient) -> None:
    joined = stable_member(client)
    joined.member_id = "nobody"
    assert sync(client, joined).error_code == ErrorCode.UNKNOWN_MEMBER_ID
