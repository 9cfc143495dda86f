"""AlterClientQuotas over the wire: set, change, remove and refuse quotas, and keep them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.errors import ErrorCode
from odradek.metadata.quotas import QuotaAlteration, entity_of
from odradek.metadata.store.sqlite import SqliteStore
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from testkit.wire import WireClient
from tests.controller.test_controller import broker as registration
from tests.controller.test_controller import run

Parts = list[tuple[str, str | None]]
ME: Parts = [("user", "me")]
IN, OUT = "producer_byte_rate", "consumer_byte_rate"


def alter(
    client: WireClient,
    *entries: tuple[Parts, dict[str, float | None]],
    version: int = 1,
    validate_only: bool = False,
) -> list[Any]:
    alterations = [
        EntryData(
            [EntityData(*part) for part in parts],
            [OpData(key, value or 0.0, value is None) for key, value in ops.items()],
        )
        for parts, ops in entries
    ]
    responses: list[Any] = client.call(
        AlterClientQuotasRequest(alterations, validate_only), version
    ).entries
    return responses


def described(client: WireClient) -> dict[Any, dict[str, float]]:
    response = client.call(DescribeClientQuotasRequest([], False), 1)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
    return {
        entity_of((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", range(2))
def test_every_version_sets_changes_and_removes(client: WireClient, version: int) -> None:
    pair: Parts = [("user", "me"), ("client-id", None)]
    responses = alter(client, (ME, {IN: 1024.0, OUT: 2048.0}), (pair, {OUT: 1.0}), version=version)
    assert [(each.error_code, each.error_message) for each in responses] == [(0, None)] * 2
    assert {
        entity_of((part.entity_type, part.entity_name) for part in each.entity)
        for each in responses
    } == {entity_of(ME), entity_of(pair)}
    both = {entity_of(ME): {IN: 1024.0, OUT: 2048.0}, entity_of(pair): {OUT: 1.0}}
    assert described(client) == both
    alter(client, (ME, {IN: 7.0, OUT: None}), (pair, {OUT: None, IN: None}), version=version)
    assert described(client) == {entity_of(ME): {IN: 7.0}}


def test_validate_only_changes_nothing(client: WireClient) -> None:
    (response,) = alter(client, (ME, {IN: 1024.0}), validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert described(client) == {}


REFUSED: list[tuple[Parts, dict[str, float | None], str]] = [
    ([], {IN: 1.0}, "Invalid empty client quota entity"),
    ([("group", "g")], {IN: 1.0}, "Unhandled client quota entity type: group"),
    ([("user", "")], {IN: 1.0}, "Empty user not supported"),
    ([("client-id", "")], {IN: 1.0}, "Empty client-id not supported"),
    ([("ip", "127.0.0.1")], {"connection_creation_rate": 1.0}, "do not apply here"),
    (ME, {"request_percentage": 1.0}, "does not apply here"),
    (ME, {"controller_mutation_rate": 1.0}, "does not apply here"),
    (ME, {"bytes": 1.0}, "Invalid configuration key bytes"),
    (ME, {IN: 0.0}, "must be greater than 0"),
    (ME, {IN: -1.0}, "must be greater than 0"),
    (ME, {IN: math.nan}, "must be greater than 0"),
    (ME, {IN: math.inf}, "too large for a LONG"),
    (ME, {IN: 1.5}, "cannot be a fractional value"),
    (ME, {IN: 1e-300}, "cannot be a fractional value"),
]


@pytest.mark.parametrize(("parts", "ops", "reason"), REFUSED)
def test_refused_quotas_have_a_message_and_do_not_affect_others(
    client: WireClient, parts: Parts, ops: dict[str, float | None], reason: str
) -> None:
    good: Parts = [("client-id", "c")]
    refused, done = alter(client, (parts, {OUT: 5.0, **ops}), (good, {IN: 1.0}))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert reason in refused.error_message
    assert done.error_code == ErrorCode.NONE
    assert described(client) == {entity_of(good): {IN: 1.0}}


def test_first_change_of_a_repeated_entity_applies(client: WireClient) -> None:
    (response,) = alter(client, (ME, {IN: 1.0}), (ME, {IN: 2.0}))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert described(client) == {entity_of(ME): {IN: 1.0}}


def test_a_repeated_quota_key_is_refused(client: WireClient) -> None:
    entry = EntryData([EntityData("user", "me")], [OpData(IN, 1.0), OpData(IN, 2.0)])
    (response,) = client.call(AlterClientQuotasRequest([entry]), 1).entries
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert described(client) == {}


def test_quotas_outlive_a_restart_under_any_name(tmp_path: Path) -> None:
    names = [None, "<default>", "a/b", "ä ö%", "clients", "..", "c"]
    entities = [
        *(entity_of([("user", name)]) for name in names[:4]),
        *(entity_of([("client-id", name)]) for name in names),
        *(entity_of([("user", user), ("client-id", name)]) for user in names for name in names),
    ]

    async def started() -> Controller:
        controller = Controller(SqliteStore(tmp_path / "s"), BrokerConfig.from_properties({}))
        await controller.start(registration())
        return controller

    async def scenario() -> None:
        controller = await started()
        quotas = {entity: {IN: float(1 + index)} for index, entity in enumerate(entities)}
        alterations = [QuotaAlteration(entity, list(quotas[entity].items())) for entity in entities]
        assert set((await controller.alter_client_quotas(alterations)).values()) == {None}
        await controller.stop()
        controller = await started()
        assert controller.image.client_quotas == quotas
        alterations = [QuotaAlteration(entity, [(IN, None)]) for entity in entities[:-1]]
        await controller.alter_client_quotas(alterations)
        await controller.stop()
        controller = await started()
        assert controller.image.client_quotas == {entities[-1]: quotas[entities[-1]]}
        await controller.stop()

    run(scenario())
