"""DescribeUserScramCredentials over the wire: no user has credentials."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode as E
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from testkit.wire import WireClient


@pytest.mark.parametrize("users", [None, []])
def test_a_request_for_all_users_returns_none(
    client: WireClient, users: list[UserName] | None
) -> None:
    response = client.call(DescribeUserScramCredentialsRequest(users), 0)
    assert (response.error_code, response.results) == (0, [])


def test_each_requested_user_is_not_found_and_has_one_result(client: WireClient) -> None:
    users = [UserName(name) for name in ("ada", "bob", "ada")]
    response = client.call(DescribeUserScramCredentialsRequest(users), 0)
    results = [(each.user, each.error_code, each.credential_infos) for each in response.results]
    assert results == [("ada", E.DUPLICATE_RESOURCE, []), ("bob", E.RESOURCE_NOT_FOUND, [])]
