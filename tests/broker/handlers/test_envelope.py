"""Envelope: execution of embedded requests by the controller, and envelopes that are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.handlers import create_topics as create_topics_handler
from odradek.broker.handlers import describe_quorum
from odradek.broker.requests.apis import API_BY_KEY, APIS, Forwarding
from odradek.broker.requests.envelopes import wrap
from odradek.client.connection import request_frame
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.net.session import ANONYMOUS, Principal, SecurityProtocol, Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.results import PendingResult, Result
from tests.helpers.two_brokers import CONTROLLER_ID, OTHER_ID, TwoBrokers, run_with_two_brokers

CREATE = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1_000)
Test = Callable[[TwoBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    return lambda test: run_with_two_brokers(tmp_path, test)


def client(listener: str = "CLIENTS", principal: Principal = ANONYMOUS) -> Session:
    protocol = SecurityProtocol.PLAINTEXT
    return Session(listener, protocol, principal, "10.1.2.3", ("10.0.0.9", 9092))


def envelope(
    request: Message = CREATE, version: int = 7, session: Session | None = None
) -> EnvelopeRequest:
    return wrap(session or client(), request_frame(request, version, 55, "me"))


async def send(
    brokers: TwoBrokers, request: EnvelopeRequest, broker_id: int = CONTROLLER_ID
) -> EnvelopeResponse:
    response = await brokers.call(request, EnvelopeResponse, broker_id, listener="BROKERS")
    assert isinstance(response, EnvelopeResponse)
    return response


@pytest.mark.parametrize("version", range(2, 8))
def test_the_response_has_the_header_and_the_version_of_the_embedded_request(
    run: Any, version: int
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await send(brokers, envelope(version=version))
        assert response.error_code == 0 and response.response_data is not None
        data, position = response.response_data, 5 if version >= 5 else 4
        assert int.from_bytes(data[:4], "big") == 55
        created = decode(CreateTopicsResponse, version, data, position)
        assert [(each.name, each.error_code) for each in created.topics] == [("t", 0)]
        assert TopicName("t") in brokers.image(CONTROLLER_ID).topics_by_name

    run(test)


def test_a_broker_that_is_not_the_controller_refuses_envelopes(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await send(brokers, envelope(), OTHER_ID)
        assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert not brokers.image(OTHER_ID).topics_by_name

    run(test)


def test_only_apis_that_kafka_forwards_are_executed(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        local = [int(api.key) for api in APIS if api.forwarding is Forwarding.LOCAL]
        for api_key in [*local, int(ApiKey.ENVELOPE), int(ApiKey.ALLOCATE_PRODUCER_IDS), 999, -1]:
            version = API_BY_KEY[api_key].max_version if api_key in API_BY_KEY else 0
            header = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big")
            request = wrap(client(), header + bytes(20))
            response = await send(brokers, request)
            assert response.error_code == ErrorCode.INVALID_REQUEST, api_key

    run(test)


@pytest.mark.parametrize("version", [0, 1, 8, -1])
def test_a_version_that_is_not_served_is_reported(run: Any, version: int) -> None:
    async def test(brokers: TwoBrokers) -> None:
        header = b"\0\x13" + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff"
        response = await send(brokers, wrap(client(), header + bytes(20)))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

    run(test)


def test_a_bad_principal_or_address_is_refused(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        good = envelope()
        for request, code in (
            (EnvelopeRequest(good.request_data, None, good.client_host_address), 97),
            (EnvelopeRequest(good.request_data, b"\0\0\xff", good.client_host_address), 97),
            (EnvelopeRequest(good.request_data, good.request_principal, b"\1"), 42),
        ):
            assert (await send(brokers, request)).error_code == code
        assert not brokers.image(CONTROLLER_ID).topics_by_name

    run(test)


def test_torn_and_random_embedded_requests_change_nothing(run: Any, seed: int) -> None:
    random = Random(seed)

    async def test(brokers: TwoBrokers) -> None:
        good = envelope(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1_000, True))
        frame = good.request_data
        torn = [frame[:size] for size in range(len(frame))]
        flipped = []
        for _ in range(60):
            data = bytearray(frame)
            data[random.randrange(8, len(data))] ^= 1 << random.randrange(8)
            flipped.append(bytes(data))
        for data in [*torn, *flipped, random.randbytes(50)]:
            request = EnvelopeRequest(data, good.request_principal, good.client_host_address)
            response = await send(brokers, request)
            assert (response.response_data is None) == (response.error_code != 0)
            if data in torn:
                assert response.error_code in (
                    ErrorCode.INVALID_REQUEST,
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                )
        assert (await send(brokers, envelope())).error_code == 0

    run(test)


def test_the_embedded_request_has_the_clients_session(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Session] = []
    handle = describe_quorum.handle

    def spy(services: Any, context: Any, request: Any) -> Any:
        sessions.append(context.session)
        context.mute(1_000)
        return handle(services, context, request)

    monkeypatch.setattr(describe_quorum, "handle", spy)

    async def test(brokers: TwoBrokers) -> None:
        alice = Principal("User", "alice")
        for listener in ("CLIENTS", "UNKNOWN", ""):
            request = envelope(DescribeQuorumRequest(), 2, client(listener, alice))
            assert (await send(brokers, request)).error_code == 0
        assert {str(each.principal) for each in sessions} == {"User:alice"}
        assert {each.client_address for each in sessions} == {"10.1.2.3"}
        assert [each.listener_name for each in sessions] == ["CLIENTS", "UNKNOWN", "BROKERS"]
        assert all(each.is_forwarded for each in sessions)

    run(test)


def test_a_controller_that_lost_its_role_reports_it_instead_of_a_part(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have the role again. Without that error the request was executed before."""
    topics: list[CreatableTopicResult] = []

    async def test(brokers: TwoBrokers) -> None:
        monkeypatch.setattr(
            create_topics_handler,
            "handle",
            lambda *_: Result(CreateTopicsResponse(topics=topics)),
        )
        number = int(ErrorCode.NOT_CONTROLLER)
        for last, expected in (
            (CreatableTopicResult("b", error_code=number), ErrorCode.NOT_CONTROLLER),
            (CreatableTopicResult("b", num_partitions=number), ErrorCode.NONE),
            (CreatableTopicResult("b", error_code=36), ErrorCode.NONE),
            (CreatableTopicResult("b"), ErrorCode.NONE),
        ):
            topics[:] = [CreatableTopicResult("a"), last]
            response = await send(brokers, envelope())
            assert response.error_code == expected
            assert (response.response_data is None) == (expected != 0)

    run(test)


def test_a_bug_in_the_embedded_request_costs_neither_connection_nor_broker(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: PendingResult[Any] = PendingResult()

    def fail(*_: Any) -> Any:
        if pending.done:
            raise RuntimeError("bug")
        pending.fail(RuntimeError("late bug"))
        return pending

    monkeypatch.setattr(create_topics_handler, "handle", fail)

    async def test(brokers: TwoBrokers) -> None:
        for _ in range(2):
            response = await send(brokers, envelope())
            assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await send(brokers, envelope(DescribeQuorumRequest(), 2))).error_code == 0

    run(test)


def test_an_envelope_of_a_later_release_is_read(run: Any) -> None:
    """Unknown tagged fields are skipped, and the listener is optional."""

    async def test(brokers: TwoBrokers) -> None:
        data = encode(envelope(session=client("")), 0)
        assert data.endswith(b"\0")
        later = data[:-1] + b"\1\xb0\xea\1\3abc"
        request = decode(EnvelopeRequest, 0, later)
        assert request.listener_name == ""
        assert (await send(brokers, request)).error_code == 0

    run(test)
