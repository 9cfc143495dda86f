"""DescribeClientQuotas over the wire: the matches of filters, and invalid filters."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from testkit.wire import WireClient
from tests.broker.handlers.test_alter_client_quotas import IN, alter

EXACT, DEFAULT, ANY = 0, 1, 2
USER, CLIENT = "user", "client-id"
ALL = ["u", "u,c", "u,*", "*", "*,c", "*,*", ",c", ",*"]


def parts(name: str) -> list[tuple[str, str | None]]:
    """Return the parts of an entity. ``u,*`` is the default client id of user u."""
    user, _, client = name.partition(",")
    named = [(USER, user), (CLIENT, client)]
    return [(kind, None if each == "*" else each) for kind, each in named if each]


def matched(
    client: WireClient, *components: ComponentData, strict: bool = False, version: int = 1
) -> Any:
    response = client.call(DescribeClientQuotasRequest(list(components), strict), version)
    if response.error_code:
        assert response.error_message
        assert response.entries is None
        return response.error_code
    found = []
    for entry in response.entries:
        names = {part.entity_type: part.entity_name or "*" for part in entry.entity}
        found.append(
            ",".join([names.get(USER, ""), names[CLIENT]]) if CLIENT in names else names[USER]
        )
        assert [value.key for value in entry.values] == [IN]
    return sorted(found)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, ALL),
        ([], True, []),
        ([(USER, EXACT, "u")], False, ["u", "u,c", "u,*"]),
        ([(USER, EXACT, "u")], True, ["u"]),
        ([(USER, DEFAULT, None)], False, ["*", "*,c", "*,*"]),
        ([(USER, ANY, None)], True, ["u", "*"]),
        ([(USER, ANY, None), (CLIENT, DEFAULT, None)], False, ["u,*", "*,*"]),
        ([(CLIENT, EXACT, "c"), (USER, EXACT, "u")], True, ["u,c"]),
        ([(CLIENT, ANY, None)], True, [",c", ",*"]),
        ([(CLIENT, EXACT, "nobody")], False, []),
        ([("ip", ANY, None)], False, []),
    ],
)
def test_filters_match_as_in_kafka(
    client: WireClient,
    version: int,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    expected: list[str],
) -> None:
    for name in ALL:
        alter(client, (parts(name), {IN: 1.0}))
    component_data = [ComponentData(*each) for each in components]
    assert matched(client, *component_data, strict=strict, version=version) == sorted(expected)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, ANY, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, ANY, None), (USER, EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), (USER, EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_filters_are_refused(
    client: WireClient, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert matched(client, *(ComponentData(*each) for each in components)) == code
