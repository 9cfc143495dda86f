"""Requests to a broker that is not the controller, on two brokers with separate metadata."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.handlers import create_topics as create_topics_handler
from odradek.broker.handlers import describe_groups
from odradek.broker.requests import (
    auto_topic_creation_manager,
    cluster_parts,
    dispatch,
    forwarded_bytes,
    forwarding,
)
from odradek.broker.requests.apis import (
    API_BY_KEY,
    APIS,
    INTER_BROKER_APIS,
    Api,
    Forwarding,
)
from odradek.broker.requests.dispatch import LONG_REQUESTS_MAX
from odradek.broker.requests.error_responses import finding_error
from odradek.client.channel_state import ChannelSettings
from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata.controller_channel import ControllerChannelSettings
from odradek.metadata.resources import ResourceType
from odradek.metadata.topic_changes import NewTopic
from odradek.net.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.freeing import freeing
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.alter_configs_response import AlterConfigsResponse
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_groups_response import DescribeGroupsResponse
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest, TopicData
from odradek.protocol.messages.describe_quorum_request import PartitionData as QuorumPartition
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.registry import request_class, response_class
from odradek.protocol.spec import load
from odradek.result_tasks import wait
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_UNSLICED_MAX, run_to_completion
from tests.helpers.two_brokers import (
    CONTROLLER_ID,
    EPOCH,
    OTHER_ID,
    TwoBrokers,
    publish_brokers,
    run_with_two_brokers,
)

KAFKAS_FORWARDED = {19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 55, 57, 64}
"""``ApiKeys.forwardable`` of Kafka 4.1, without the APIs that this broker does not serve."""
FORWARDED = [api for api in APIS if api.forwarding is Forwarding.DISPATCHER]
LOGGER = "odradek.broker.broker"
CREATE = CreateTopicsRequest([CreatableTopic("t", 2, 1)], 30_000)

Test = Callable[[TwoBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    def start(test: Test, **config: str) -> None:
        run_with_two_brokers(tmp_path, test, config)

    return start


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a forwarded request fail after 300 ms."""
    settings = ControllerChannelSettings(
        timeout_ms=300,
        retry_backoff_ms=10,
        channel=ChannelSettings(request_timeout_ms=10_000, backoff_ms=10),
    )
    monkeypatch.setattr(cluster_parts, "ControllerChannelSettings", lambda **_: settings)


def test_the_forwarded_apis_are_those_of_kafka() -> None:
    forwarded = {int(api.key) for api in APIS if api.forwarding is not Forwarding.LOCAL}
    assert forwarded == KAFKAS_FORWARDED
    assert all(api.forwarding is Forwarding.LOCAL for api in INTER_BROKER_APIS)


def test_a_topic_is_created_by_the_controller(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(CREATE, CreateTopicsResponse)
        (result,) = response.topics
        assert (result.name, result.error_code, result.num_partitions) == ("t", 0, 2)
        assert TopicName("t") in brokers.image(CONTROLLER_ID).topics_by_name
        assert TopicName("t") not in brokers.image(OTHER_ID).topics_by_name

    run(test)


def test_the_controller_executes_requests_itself(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await brokers.call(CREATE, CreateTopicsResponse, CONTROLLER_ID)
        assert TopicName("t") in brokers.image(CONTROLLER_ID).topics_by_name
        assert brokers.other.services.cluster is not None
        assert brokers.other.services.cluster.channel.versions(ApiKey.ENVELOPE) is None

    run(test)


def test_a_request_has_the_identity_of_its_client_at_the_controller(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[tuple[Session, str | None, int]] = []
    handle = create_topics_handler.handle

    def spy(services: Any, context: Any, request: Any) -> Any:
        sessions.append((context.session, context.client_id, context.api_version))
        return handle(services, context, request)

    monkeypatch.setattr(create_topics_handler, "handle", spy)

    async def test(brokers: TwoBrokers) -> None:
        await brokers.call(CREATE, CreateTopicsResponse, version=4)
        ((session, client_id, version),) = sessions
        assert (client_id, version) == ("client", 4)
        assert session.is_forwarded
        assert str(session.principal) == "User:ANONYMOUS"
        assert (session.listener_name, session.client_address) == ("CLIENTS", "127.0.0.1")

    run(test)


REFUSALS: list[Result[Any]] = [
    Result.failed(KafkaError(ErrorCode.NOT_CONTROLLER, "deposed")),
    Result(CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=41)])),
]
"""The end of a request whose controller was deposed while it executed it."""


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("broker_id", [CONTROLLER_ID, OTHER_ID])
@pytest.mark.parametrize("elected", [CONTROLLER_ID, OTHER_ID])
def test_a_request_of_a_deposed_controller_is_executed_by_the_next_one(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    broker_id: int,
    elected: int,
    refusal: Result[Any],
) -> None:
    """A client never gets NOT_CONTROLLER. The deposed controller may be elected again."""
    handle = create_topics_handler.handle

    async def test(brokers: TwoBrokers) -> None:
        refusals = [refusal]

        def refuse_first(*args: Any) -> Result[Any]:
            if not refusals:
                return handle(*args)
            brokers.change_controller(None)
            loop = asyncio.get_running_loop()
            loop.call_later(0.05, brokers.change_controller, elected)
            return refusals.pop()

        monkeypatch.setattr(create_topics_handler, "handle", refuse_first)
        response = await brokers.call(CREATE, CreateTopicsResponse, broker_id)
        assert [(each.name, each.error_code) for each in response.topics] == [("t", 0)]
        assert TopicName("t") in brokers.image(elected).topics_by_name

    run(test)


def test_configs_of_a_deposed_controller_are_stored_by_the_next_one(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        async def refuse(*_: Any, **__: Any) -> Any:
            brokers.change_controller(OTHER_ID)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "deposed")

        monkeypatch.setattr(brokers.controller.services.controller, "alter_configs", refuse)
        request = IncrementalAlterConfigsRequest(
            [resource(ResourceType.BROKER, "", "message.max.bytes", "3000")]
        )
        response = await brokers.call(request, IncrementalAlterConfigsResponse, CONTROLLER_ID)
        assert [each.error_code for each in response.responses] == [0]
        assert dict(brokers.image(OTHER_ID).broker_configs) == {"": {"message.max.bytes": "3000"}}

    run(test)


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.message_name)
def test_every_version_of_every_forwarded_api_has_a_response(run: Any, api: Api) -> None:
    """An empty request is executed, and its response is the controller's."""

    async def test(brokers: TwoBrokers) -> None:
        for version in range(api.min_version, api.max_version + 1):
            request, response = request_class(api.key), response_class(api.key)
            forwarded = await brokers.call(request(), response, version=version)
            direct = await brokers.call(request(), response, CONTROLLER_ID, version=version)
            assert forwarded == direct

    run(test)


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.message_name)
def test_every_forwarded_api_reports_a_timeout(run: Any, short_timeouts: None, api: Api) -> None:
    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        request: Any = request_class(api.key)()
        # Without an element some responses have no place for an error.
        for field in load(request.SPEC).body.present(api.max_version):
            if field.is_array and field.struct is not None:
                structs = vars(sys.modules[type(request).__module__])
                setattr(request, field.attribute, [structs[field.struct.name]()])
        response = await brokers.call(request, response_class(api.key), version=api.max_version)
        code = ErrorCode.REQUEST_TIMED_OUT
        assert run_to_completion(finding_error(response, api.max_version, code))

    run(test)


def test_large_requests_and_responses_are_forwarded(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(2_000)]
        response = await brokers.call(CreateTopicsRequest(topics, 30_000), CreateTopicsResponse)
        assert [each.name for each in response.topics] == [each.name for each in topics]
        assert not any(each.error_code for each in response.topics)

    run(test)


def test_a_request_waits_for_the_controller_that_is_elected(run: Any) -> None:
    """The controller is not known first, then wrong (NOT_CONTROLLER), then right."""

    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        call = asyncio.create_task(brokers.call(CREATE, CreateTopicsResponse))
        await asyncio.sleep(0.05)
        brokers.change_controller(CONTROLLER_ID, at=OTHER_ID)
        await asyncio.sleep(0.2)
        assert not call.done()
        brokers.change_controller(CONTROLLER_ID)
        assert (await call).topics[0].error_code == 0

    run(test)


def test_a_broker_that_becomes_the_controller_executes_the_request_that_waited(run: Any) -> None:
    """It sends the envelope to its own listener."""

    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        call = asyncio.create_task(brokers.call(CREATE, CreateTopicsResponse))
        await asyncio.sleep(0.05)
        brokers.change_controller(OTHER_ID)
        assert (await call).topics[0].error_code == 0
        assert TopicName("t") in brokers.image(OTHER_ID).topics_by_name

    run(test)


def long_creations(brokers: TwoBrokers) -> list[Result[CreateTopicsResponse]]:
    """Send as many long CreateTopics requests as there are slots for long requests."""
    topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(ELEMENTS_UNSLICED_MAX + 1)]
    request = CreateTopicsRequest(topics, 30_000, validate_only=True)
    return [
        brokers.channel(OTHER_ID).send(request, CreateTopicsResponse)
        for _ in range(LONG_REQUESTS_MAX)
    ]


@pytest.mark.parametrize("elected", [CONTROLLER_ID, OTHER_ID])
def test_long_requests_that_wait_for_the_controller_have_no_slot(run: Any, elected: int) -> None:
    """The forwarding broker may be elected. It executes the embedded requests with its slots."""

    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        created = long_creations(brokers)
        cluster = brokers.other.services.cluster
        assert cluster is not None
        groups = [f"g{number}" for number in range(ELEMENTS_UNSLICED_MAX + 1)]
        for _ in range(2):  # the second one is decoded after all of the first requests
            response = await brokers.call(DescribeGroupsRequest(groups), DescribeGroupsResponse)
            assert len(response.groups) == len(groups)
        assert not any(each.done for each in created)
        brokers.change_controller(elected)
        for each in created:
            assert {topic.error_code for topic in (await wait(each)).topics} == {0}
        assert cluster.forwarded.used == 0

    run(test)


def test_the_arrays_of_a_long_request_are_freed_once(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[list[list[Any]]] = []

    def recorded(arrays: list[list[Any]]) -> Generator[None, None, None]:
        freed.append(arrays)
        yield from freeing(arrays)

    async def test(brokers: TwoBrokers) -> None:
        topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(ELEMENTS_UNSLICED_MAX + 1)]
        request = CreateTopicsRequest(topics, 30_000, validate_only=True)
        monkeypatch.setattr(dispatch, "freeing", recorded)
        await brokers.call(request, CreateTopicsResponse)
        assert len(freed) > 1
        assert len({id(each) for each in freed}) == len(freed)

    run(test)


def test_requests_of_brokers_do_not_wait_for_slots_of_other_requests(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients may use the listener of the brokers."""
    waiting: list[PendingResult[Any]] = []

    def wait_forever(*_: Any) -> Result[Any]:
        waiting.append(PendingResult(executed=False))
        return waiting[-1]

    monkeypatch.setattr(describe_groups, "handle", wait_forever)

    async def test(brokers: TwoBrokers) -> None:
        numbers = range(ELEMENTS_UNSLICED_MAX + 1)
        describe = DescribeGroupsRequest([f"g{number}" for number in numbers])
        for _ in range(LONG_REQUESTS_MAX):
            brokers.channel(OTHER_ID, "BROKERS").send(describe, DescribeGroupsResponse)
        partitions = [ListOffsetsPartition(number, -1, -1) for number in numbers]
        request = ListOffsetsRequest(CONTROLLER_ID, 0, [ListOffsetsTopic("t", partitions)])
        channel = brokers.channel(OTHER_ID, "BROKERS")
        while len(waiting) < LONG_REQUESTS_MAX:
            await wait(channel.send(ApiVersionsRequest("a", "1"), ApiVersionsResponse))
        response = await wait(channel.send(request, ListOffsetsResponse, version=7))
        assert len(response.topics[0].partitions) == len(partitions)
        for each in waiting:
            each.complete(DescribeGroupsResponse())

    run(test)


def test_the_bytes_of_requests_that_wait_for_the_controller_are_limited(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded_bytes, "FORWARDED_BYTES_MAX", 300)
    create = CreateTopicsRequest([CreatableTopic("t" * 200, 1, 1)], 30_000)

    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        cluster = brokers.other.services.cluster
        assert cluster is not None
        channel = brokers.channel(OTHER_ID)
        first = channel.send(create, CreateTopicsResponse)
        while not cluster.forwarded.used:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0)
        refused = await brokers.call(create, CreateTopicsResponse)
        assert refused.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        brokers.change_controller(CONTROLLER_ID)
        assert (await wait(first)).topics[0].error_code == 0
        assert cluster.forwarded.used == 0

    run(test)


@pytest.mark.parametrize("count", [1, ELEMENTS_UNSLICED_MAX + 1])
def test_a_request_of_a_client_that_is_gone_does_not_wait_for_the_controller(
    run: Any, count: int
) -> None:
    """It would be executed later, and other clients would not get its place."""

    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        cluster = brokers.other.services.cluster
        assert cluster is not None
        channel = brokers.channel(OTHER_ID)
        topics = [CreatableTopic(f"gone{number}", 1, 1) for number in range(count)]
        channel.send(CreateTopicsRequest(topics, 30_000), CreateTopicsResponse)
        kept = brokers.channel(OTHER_ID).send(CREATE, CreateTopicsResponse)
        while len(cluster.channel._calls) < 2:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0)
        channel.close()
        while len(cluster.channel._calls) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        brokers.change_controller(CONTROLLER_ID)
        assert (await wait(kept)).topics[0].error_code == 0
        assert cluster.forwarded.used == 0
        assert set(brokers.image(CONTROLLER_ID).topics_by_name) == {"t"}

    run(test)


def test_a_large_frame_and_its_envelope_are_made_in_two_time_slices(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    end_slice, wrap = forwarding.end_slice, forwarding.wrap

    async def ended() -> None:
        done.append("slice")
        await end_slice()

    def wrapped(session: Session, frame: bytes) -> Any:
        done.append("large" if len(frame) > forwarding.FRAME_BYTES_A_SLICE else "small")
        return wrap(session, frame)

    monkeypatch.setattr(forwarding, "end_slice", ended)
    monkeypatch.setattr(forwarding, "wrap", wrapped)

    async def test(brokers: TwoBrokers) -> None:
        for configs in (1, 10):
            values = [
                CreatableTopicConfig("follower.replication.throttled.replicas", "x" * 32_000)
                for _ in range(configs)
            ]
            topic = CreatableTopic("t", 1, 1, [], values)
            await brokers.call(CreateTopicsRequest([topic], 30_000), CreateTopicsResponse)

    run(test)
    assert done == ["small", "slice", "large"]


def test_a_request_whose_envelope_is_too_large_is_refused(run: Any) -> None:
    """The controller would close the connection, on which other requests wait for responses."""

    async def test(brokers: TwoBrokers) -> None:
        async def code(size: int) -> int:
            topics = [CreatableTopic("t" * size, 1, 1), CreatableTopic("u" * 5_000, 1, 1)]
            request = CreateTopicsRequest(topics, 30_000)
            response = await brokers.call(request, CreateTopicsResponse)
            one, other = response.topics
            assert one.error_code == other.error_code
            return int(one.error_code)

        assert await code(4_000) == ErrorCode.INVALID_TOPIC_EXCEPTION
        for size in (13_960, 14_900, 14_940):
            assert await code(size) == ErrorCode.INVALID_REQUEST
        assert await code(12_000) == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test, **{"socket.request.max.bytes": "20000"})


def test_requests_of_a_connection_are_executed_in_their_order(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        channel = brokers.channel(OTHER_ID)
        names = ["a", "b", "c"]
        created = [
            channel.send(
                CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1_000), CreateTopicsResponse
            )
            for name in names
        ]
        again = channel.send(
            CreateTopicsRequest([CreatableTopic("a", 1, 1)], 1_000), CreateTopicsResponse
        )
        for result in created:
            assert (await wait(result)).topics[0].error_code == 0
        assert (await wait(again)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    run(test)


@pytest.mark.parametrize(
    "envelope",
    [
        EnvelopeResponse(None, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
        EnvelopeResponse(None, 0),
        EnvelopeResponse(b"", 0),
        EnvelopeResponse(b"\0\0\0\x63\0", 0),
        EnvelopeResponse(b"\0\0\0\2\0\xff", 0),
        EnvelopeResponse(b"\0" * 400, 0),
        EnvelopeResponse(None, 9_999),
    ],
)
def test_a_bad_response_of_the_controller_never_reaches_the_client(
    run: Any, envelope: EnvelopeResponse
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        cluster = brokers.other.services.cluster
        assert cluster is not None
        cluster.channel.send = lambda *_, **__: Result(envelope)  # type: ignore[method-assign]
        response = await brokers.call(CREATE, CreateTopicsResponse)
        (result,) = response.topics
        assert (result.name, result.error_code) == ("t", ErrorCode.UNKNOWN_SERVER_ERROR)

    run(test)


def test_a_version_that_the_controller_does_not_serve_ends_the_connection(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        cluster = brokers.other.services.cluster
        assert cluster is not None
        refusal = EnvelopeResponse(None, int(ErrorCode.UNSUPPORTED_VERSION))
        cluster.channel.send = lambda *_, **__: Result(refusal)  # type: ignore[method-assign]
        with pytest.raises(ConnectionError):
            await brokers.call(CREATE, CreateTopicsResponse)

    run(test)


# --- requests that a broker executes in part ---


def resource(kind: int, name: str, config: str, value: str) -> AlterConfigsResource:
    return AlterConfigsResource(kind, name, [AlterableConfig(config, 0, value)])


def test_loggers_change_here_and_stored_configs_at_the_controller(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await brokers.call(CREATE, CreateTopicsResponse)
        request = IncrementalAlterConfigsRequest(
            [
                resource(
                    ResourceType.BROKER_LOGGER, str(OTHER_ID), "odradek.broker.broker", "INFO"
                ),
                resource(ResourceType.TOPIC, "t", "retention.ms", "5"),
                resource(ResourceType.BROKER, str(OTHER_ID), "message.max.bytes", "2000"),
                resource(ResourceType.BROKER, "", "message.max.bytes", "3000"),
                resource(ResourceType.BROKER, str(CONTROLLER_ID), "message.max.bytes", "4000"),
                resource(ResourceType.BROKER, str(OTHER_ID), "nonsense", "1"),
                resource(ResourceType.TOPIC, "absent", "retention.ms", "5"),
                resource(99, "", "retention.ms", "5"),
            ]
        )
        response = await brokers.call(request, IncrementalAlterConfigsResponse)
        assert [(each.resource_type, each.resource_name) for each in response.responses] == [
            (each.resource_type, each.resource_name) for each in request.resources
        ]
        codes = [ErrorCode(each.error_code) for each in response.responses]
        assert codes == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,  # broker 2 is named twice
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]
        stored = brokers.image(CONTROLLER_ID)
        assert stored.topic_configs[TopicName("t")] == {"retention.ms": "5"}
        assert dict(stored.broker_configs) == {"": {"message.max.bytes": "3000"}}
        assert not brokers.image(OTHER_ID).broker_configs

    run(test)


def test_a_broker_checks_its_own_configs_and_the_controller_stores_them(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        name = str(OTHER_ID)

        async def alter(config: str, value: str) -> int:
            request = IncrementalAlterConfigsRequest(
                [resource(ResourceType.BROKER, name, config, value)]
            )
            response = await brokers.call(request, IncrementalAlterConfigsResponse)
            return int(response.responses[0].error_code)

        assert await alter("message.max.bytes", "2000") == 0
        assert await alter("message.max.bytes", "x") == ErrorCode.INVALID_REQUEST
        assert await alter("log.cleaner.threads", "50") == ErrorCode.INVALID_REQUEST
        configs = brokers.image(CONTROLLER_ID).broker_configs
        assert dict(configs) == {name: {"message.max.bytes": "2000"}}

    run(test)


def test_alter_configs_replaces_configs_at_the_controller(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        from odradek.protocol.messages import alter_configs_request as messages

        await brokers.call(CREATE, CreateTopicsResponse)
        config = messages.AlterableConfig("retention.ms", "7")
        topic = messages.AlterConfigsResource(ResourceType.TOPIC, "t", [config])
        response = await brokers.call(AlterConfigsRequest([topic]), AlterConfigsResponse)
        assert response.responses[0].error_code == 0
        configs = brokers.image(CONTROLLER_ID).topic_configs
        assert configs[TopicName("t")] == {"retention.ms": "7"}

    run(test)


def test_configs_report_a_timeout_and_a_bad_response(run: Any, short_timeouts: None) -> None:
    async def test(brokers: TwoBrokers) -> None:
        request = IncrementalAlterConfigsRequest(
            [resource(ResourceType.BROKER, "", "message.max.bytes", "2000")]
        )
        brokers.change_controller(None)
        response = await brokers.call(request, IncrementalAlterConfigsResponse)
        assert response.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster = brokers.other.services.cluster
        assert cluster is not None
        # A response without the resources of the request, but with its correlation id.
        empty = EnvelopeResponse(b"\0\0\0\2" + b"\0" + b"\0\0\0\0" + b"\1" + b"\0")
        cluster.channel.send = lambda *_, **__: Result(empty)  # type: ignore[method-assign]
        response = await brokers.call(request, IncrementalAlterConfigsResponse)
        assert response.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


# --- requests that need another one of the controller ---


def test_topics_are_created_automatically_by_the_controller(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        request = MetadataRequest([MetadataRequestTopic(name="auto")], True)
        response = await brokers.call(request, MetadataResponse)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert TopicName("auto") in brokers.image(CONTROLLER_ID).topics_by_name

    run(test)


def test_topics_are_created_automatically_with_a_version_that_the_controller_serves(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[int] = []
    handle = create_topics_handler.handle

    def spy(services: Any, context: Any, request: Any) -> Any:
        versions.append(context.api_version)
        return handle(services, context, request)

    monkeypatch.setattr(create_topics_handler, "handle", spy)

    async def test(brokers: TwoBrokers) -> None:
        cluster = brokers.other.services.cluster
        assert cluster is not None
        served: list[tuple[int, int] | None] = [None, (2, 5), (2, 99)]
        for number, each in enumerate(served):
            cluster.channel.versions = lambda _, each=each: each  # type: ignore[assignment,misc]
            request = MetadataRequest([MetadataRequestTopic(name=f"auto{number}")], True)
            await brokers.call(request, MetadataResponse)
        assert versions == [7, 5, 7]

    run(test)


def test_a_connection_is_served_while_a_topic_cannot_be_created(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no controller. A client that asks for a missing topic gets the existing ones."""
    monkeypatch.setattr(auto_topic_creation_manager, "WAIT_MS", 50)

    async def test(brokers: TwoBrokers) -> None:
        await brokers.other.services.controller.create_topics([NewTopic("existing")])
        brokers.change_controller(None)
        channel = brokers.channel(OTHER_ID)
        topics = [MetadataRequestTopic(name=name) for name in ("existing", "missing")]
        described = channel.send(MetadataRequest(topics, True), MetadataResponse)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        found = channel.send(find, FindCoordinatorResponse)
        errors = {each.name: each.error_code for each in (await wait(described)).topics}
        assert errors == {"existing": 0, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        code = (await wait(found)).coordinators[0].error_code
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        monkeypatch.setattr(auto_topic_creation_manager, "WAIT_MS", 30_000)
        brokers.change_controller(CONTROLLER_ID)
        await brokers.call(MetadataRequest(topics, True), MetadataResponse)
        await brokers.call(find, FindCoordinatorResponse)
        created = set(brokers.image(CONTROLLER_ID).topics_by_name)
        assert created == {"missing", "__consumer_offsets"}, "by the creations that continued"

    run(test)


def test_internal_topics_are_created_by_the_controller(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        response = await brokers.call(request, FindCoordinatorResponse)
        # The image of this broker does not have the topic yet. The client tries again.
        code = response.coordinators[0].error_code
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        topic = brokers.image(CONTROLLER_ID).topics_by_name[TopicName("__consumer_offsets")]
        assert topic.partition_count == 50
        configs = brokers.image(CONTROLLER_ID).topic_configs[topic.name]
        assert configs["cleanup.policy"] == "compact"
        again = await brokers.call(request, FindCoordinatorResponse)
        assert again.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_a_coordinator_topic_that_cannot_be_created_is_reported(
    run: Any, short_timeouts: None
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        response = await brokers.call(request, FindCoordinatorResponse)
        (found,) = response.coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "REQUEST_TIMED_OUT" in found.error_message

    run(test)


def test_blocks_of_producer_ids_come_from_the_controller(run: Any) -> None:
    """Each id is given out once, although each broker has metadata of its own."""

    async def test(brokers: TwoBrokers) -> None:
        image = brokers.image(OTHER_ID)
        (other,) = [each for each in image.brokers.values() if each.id == OTHER_ID]
        request = InitProducerIdRequest(None, 1_000)
        refused = await brokers.call(request, InitProducerIdResponse)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await publish_brokers(brokers.controller, replace(other, epoch=EPOCH))
        ids = []
        for broker_id in (OTHER_ID, CONTROLLER_ID, OTHER_ID, CONTROLLER_ID):
            response = await brokers.call(request, InitProducerIdResponse, broker_id)
            assert response.error_code == 0
            ids.append(response.producer_id)
        assert ids == [0, 1000, 1, 1001]

    run(test)


def test_a_block_of_producer_ids_does_not_wait_for_forwarded_requests(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection of brokers has one request in execution at a time."""
    pending: PendingResult[Any] = PendingResult(executed=False)
    monkeypatch.setattr(create_topics_handler, "handle", lambda *_: pending)

    async def test(brokers: TwoBrokers) -> None:
        image = brokers.image(OTHER_ID)
        (other,) = [each for each in image.brokers.values() if each.id == OTHER_ID]
        await publish_brokers(brokers.controller, replace(other, epoch=EPOCH))
        created = brokers.channel(OTHER_ID).send(CREATE, CreateTopicsResponse)
        cluster = brokers.other.services.cluster
        assert cluster is not None
        while not cluster.forwarded.used:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0)
        request = InitProducerIdRequest(None, 1_000)
        response = await brokers.call(request, InitProducerIdResponse)
        assert response.error_code == 0
        pending.complete(CreateTopicsResponse())
        await wait(created)

    run(test)


@pytest.mark.parametrize("error", [TooManyRequests("1000"), UnsupportedRequest("no version")])
def test_a_refused_request_for_producer_ids_is_retriable(run: Any, error: Exception) -> None:
    async def test(brokers: TwoBrokers) -> None:
        cluster = brokers.other.services.cluster
        assert cluster is not None
        failed: Result[Any] = Result.failed(error)
        cluster.block_channel.send = lambda *_, **__: failed  # type: ignore[method-assign]
        response = await brokers.call(InitProducerIdRequest(None, 1_000), InitProducerIdResponse)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(test)


def test_a_missing_block_of_producer_ids_is_retriable(run: Any, short_timeouts: None) -> None:
    async def test(brokers: TwoBrokers) -> None:
        brokers.change_controller(None)
        response = await brokers.call(InitProducerIdRequest(None, 1_000), InitProducerIdResponse)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(test)


# --- what a listener offers ---


def test_brokers_connect_while_clients_use_all_connections(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        for _ in range(2):
            await brokers.call(ApiVersionsRequest("a", "1"), ApiVersionsResponse, CONTROLLER_ID)
        assert (await brokers.call(CREATE, CreateTopicsResponse)).topics[0].error_code == 0

    run(test, **{"max.connections": "2"})


def test_apis_between_brokers_are_listed_on_the_inter_broker_listener_only(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        async def listed(listener: str) -> set[int]:
            response = await brokers.call(
                ApiVersionsRequest("a", "1"), ApiVersionsResponse, listener=listener
            )
            return {each.api_key for each in response.api_keys}

        assert await listed("CLIENTS") == set(API_BY_KEY)
        own = {int(api.key) for api in INTER_BROKER_APIS}
        assert await listed("BROKERS") == set(API_BY_KEY) | own

    run(test)


def test_forwarded_apis_are_listed_with_the_versions_that_the_controller_knows(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await brokers.call(CREATE, CreateTopicsResponse)
        cluster = brokers.other.services.cluster
        assert cluster is not None
        theirs = {int(ApiKey.CREATE_TOPICS): (3, 5), int(ApiKey.DELETE_TOPICS): (7, 9)}
        cluster.channel.versions = theirs.get  # type: ignore[method-assign]
        response = await brokers.call(ApiVersionsRequest("a", "1"), ApiVersionsResponse)
        listed = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert listed[ApiKey.CREATE_TOPICS] == (3, 5)
        assert ApiKey.DELETE_TOPICS not in listed
        assert listed[ApiKey.METADATA] == (0, 13)

    run(test)


def test_describe_quorum_names_the_controllers_address_on_the_clients_listener(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        partition = TopicData("__cluster_metadata", [QuorumPartition(0)])
        response = await brokers.call(DescribeQuorumRequest([partition]), DescribeQuorumResponse)
        assert response.topics[0].partitions[0].leader_id == CONTROLLER_ID
        (node,) = response.nodes
        assert node.node_id == CONTROLLER_ID
        assert [each.name for each in node.listeners] == ["CLIENTS"]

    run(test)
