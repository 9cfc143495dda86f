"""Heartbeat over the wire: every version, and its errors."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import heartbeat, stable_member


@pytest.mark.parametrize("version", range(5))
def test_every_version_keeps_a_member(client: WireClient, version: int) -> None:
    assert heartbeat(client, stable_member(client), version) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"generation_id": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_wrong_member_generation_or_group_is_refused(
    client: WireClient, options: dict[str, object], code: ErrorCode
) -> None:
    assert heartbeat(client, stable_member(client), **options) is code
