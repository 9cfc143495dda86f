"""The example of an API in CONTRIBUTING.md works: its test passes with its handler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conformance.differential import registry

from odradek.broker.requests.apis import APIS
from odradek.protocol import codec
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.describe_delegation_token_response import (
    DescribeDelegationTokenResponse,
)

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


def _names_of(title: str) -> dict[str, Any]:
    """Run the block with this title. Return its names."""
    found = re.search(rf'```python title="{title}"\n(.*?)```', PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], title, "exec"), names)
    return names


class DirectSession:
    """Keeps the requests of a scenario."""

    def __init__(self) -> None:
        self.asked: dict[str, object] = {}

    def ask(self, step: str, request: object) -> None:
        self.asked[step] = request


class DirectClient:
    """Calls the handler without a broker. Like WireClient, it encodes and decodes the response."""

    def __init__(self, handler: dict[str, Any]) -> None:
        self._handle = handler["handle"]

    def call(self, request: object, version: int) -> DescribeDelegationTokenResponse:
        result = self._handle(None, None, request)
        encoded = codec.encode(result.value, version)
        return codec.decode(DescribeDelegationTokenResponse, version, encoded)


def test_the_example_of_an_api_works() -> None:
    handler = _names_of("src/odradek/broker/handlers/describe_delegation_token.py")
    example = _names_of("tests/broker/handlers/test_describe_delegation_token.py")
    assert "versions 1-3" in handler["__doc__"]
    for version in (1, 2, 3):
        example["test_clients_without_authentication_get_no_tokens"](DirectClient(handler), version)


def test_the_example_of_a_scenario_works(monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = {}

    def scenario(key: ApiKey) -> Any:
        return lambda run: scenarios.setdefault(key, run)

    # The API is not served, so the real decorator would refuse it.
    monkeypatch.setattr(registry, "scenario", scenario)
    _names_of("conformance/differential/scenarios/cluster.py")
    session = DirectSession()
    scenarios[ApiKey.DESCRIBE_DELEGATION_TOKEN](session)
    assert session.asked == {"all tokens": DescribeDelegationTokenRequest()}


def test_the_example_is_an_api_that_is_not_served_yet() -> None:
    served = {each.key for each in APIS}
    assert ApiKey.DESCRIBE_DELEGATION_TOKEN not in served
    assert ApiKey.DESCRIBE_DELEGATION_TOKEN.name in PAGE.read_text("utf-8")
