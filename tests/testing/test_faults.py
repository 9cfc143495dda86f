"""Faults on a real broker, with real clients."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from odradek.broker.requests.apis import APIS, Api
from odradek.broker.requests.error_responses import error_response
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.registry import request_class, response_class
from odradek.testing import Broker, Fault, WaitTimeoutError
from odradek.testing.faults import Faults
from testkit.requests import batch, produce
from testkit.wire import ConnectionClosed, WireClient

TIMEOUT_S = 120


class Sender:
    """A producer whose `send` returns the error of one record, or None."""

    def __init__(self, broker: Broker, **options: object) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "linger.ms": 0,
                "retry.backoff.ms": 1,
                **options,
            }
        )

    def send(self, topic: str, value: bytes = b"1") -> KafkaError | None:
        outcome = self.begin(topic, value)
        assert self.producer.flush(TIMEOUT_S) == 0
        return outcome()

    def begin(self, topic: str, value: bytes = b"1") -> Callable[[], KafkaError | None]:
        errors: list[KafkaError | None] = []
        self.producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        return lambda: errors[0]


def test_error_affects_a_limited_number_of_requests_and_the_client_retries(kafka: Broker) -> None:
    kafka.create_topic("pages")
    fault = kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert Sender(kafka).send("pages") is None
    assert fault.struck == 2
    assert not fault.active
    kafka.wait_for_high_watermark("pages", 1, timeout_s=0)


def test_error_that_cannot_be_retried_reaches_the_application(kafka: Broker) -> None:
    kafka.create_topic("pages")
    kafka.create_topic("words")
    sender = Sender(kafka)
    with kafka.fail("produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="pages") as fault:
        error = sender.send("pages")
        assert error is not None
        assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
        assert sender.send("words") is None
    assert sender.send("pages") is None
    assert fault.struck == 1


def test_fault_of_one_client_id_spares_the_others(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with kafka.fail("produce", "INVALID_RECORD", client_id="unlucky") as fault:
        assert Sender(kafka, **{"client.id": "lucky"}).send("pages") is None
        assert Sender(kafka, **{"client.id": "unlucky"}).send("pages") is not None
    assert fault.struck == 1


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("Metadata", "LEADER_NOT_AVAILABLE"),
    ],
)
def test_consumer_recovers_from_temporary_errors(kafka: Broker, api: str, error: str) -> None:
    kafka.create_topic("pages")
    assert Sender(kafka).send("pages") is None
    fault = kafka.fail(api, error, times=2)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": 1,
            "fetch.error.backoff.ms": 1,
        }
    )
    try:
        consumer.subscribe(["pages"])
        received = kafka.wait_until(
            lambda: [each for each in consumer.consume(1, 0.1) if each.error() is None],
            "a record",
            timeout_s=TIMEOUT_S,
        )
        assert received[0].value() == b"1"
    finally:
        consumer.close()
    assert fault.struck == 2


def test_metadata_has_the_error_only_in_the_topic(kafka: Broker) -> None:
    kafka.create_topic("pages")
    kafka.create_topic("words")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    with kafka.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="pages"):
        found = admin.list_topics("pages", timeout=TIMEOUT_S).topics
        assert found["pages"].error.name() == "TOPIC_AUTHORIZATION_FAILED"
        assert admin.list_topics("words", timeout=TIMEOUT_S).topics["words"].error is None


def test_delayed_response_is_sent_when_the_time_is_moved(kafka: Broker) -> None:
    kafka.create_topic("pages")
    sender = Sender(kafka)
    with kafka.delay("Produce", 3600, times=1) as fault:
        outcome = sender.begin("pages")
        fault.wait(timeout_s=TIMEOUT_S)
        kafka.wait_for_high_watermark("pages", 1, timeout_s=TIMEOUT_S)
        assert sender.producer.flush(0) == 1
        kafka.advance(3600)
        assert sender.producer.flush(TIMEOUT_S) == 0
        assert outcome() is None


def test_delayed_fetch_response_contains_the_records(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client:
        client.call(produce("pages", records=batch(b"1")), 9)
        with kafka.delay("Fetch", 600) as fault:
            client.send(fetch_of("pages"), 11)
            fault.wait(timeout_s=TIMEOUT_S)
            kafka.advance(600)
            [topic] = client.receive().responses
            assert len(topic.partitions[0].records) > 0


def test_lost_response_of_an_executed_request_makes_no_duplicate(kafka: Broker) -> None:
    kafka.create_topic("pages")
    sender = Sender(kafka, **{"enable.idempotence": True})
    with kafka.disconnect("Produce", executed=True, times=1) as fault:
        assert sender.send("pages") is None
    assert fault.struck == 1
    kafka.wait_for_high_watermark("pages", 1, timeout_s=0)
    assert sender.send("pages", b"2") is None
    with pytest.raises(WaitTimeoutError, match="high watermark 2"):
        kafka.wait_for_high_watermark("pages", 3, timeout_s=0)


def test_request_with_a_disconnect_is_not_executed(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client, kafka.disconnect("Produce"):
        with pytest.raises((ConnectionClosed, ConnectionError)):
            client.call(produce("pages", records=batch(b"1")), 9)
    with pytest.raises(WaitTimeoutError, match="high watermark 0"):
        kafka.wait_for_high_watermark("pages", 1, timeout_s=0)


def test_blackhole_keeps_one_client_without_responses_until_it_is_cleared(kafka: Broker) -> None:
    kafka.create_topic("pages")
    lost = Sender(kafka, **{"client.id": "lost", "reconnect.backoff.ms": 1})
    assert lost.send("pages") is None
    with kafka.blackhole(None, client_id="lost") as fault:
        outcome = lost.begin("pages", b"2")
        fault.wait(timeout_s=TIMEOUT_S)
        assert Sender(kafka).send("pages", b"3") is None
        assert lost.producer.flush(0) == 1
    assert lost.producer.flush(TIMEOUT_S) == 0
    assert outcome() is None
    kafka.wait_for_high_watermark("pages", 3, timeout_s=0)


def test_blackhole_with_executed_executes_the_requests(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client:
        fault = kafka.blackhole("Produce", executed=True, times=1)
        client.send(produce("pages", records=batch(b"1")), 9)
        kafka.wait_for_high_watermark("pages", 1, timeout_s=TIMEOUT_S)
        client.socket.settimeout(0.01)
        with pytest.raises((TimeoutError, socket.timeout)):
            client.socket.recv(1)
        fault.clear()
        client.socket.settimeout(TIMEOUT_S)
        with pytest.raises((ConnectionClosed, ConnectionError)):
            client.receive()


def test_first_matching_fault_applies(kafka: Broker) -> None:
    with (
        kafka.fail("Heartbeat", "REBALANCE_IN_PROGRESS", times=1) as first,
        kafka.fail("Heartbeat", "FENCED_INSTANCE_ID") as second,
        WireClient(kafka.bootstrap_servers) as client,
    ):
        codes = [client.call(HeartbeatRequest(group_id="g"), 3).error_code for _ in range(3)]
    assert codes == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert (first.struck, second.struck) == (1, 2)


def test_fault_of_a_topic_ends_a_fetch_session_and_affects_the_full_fetch(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client:
        full = fetch_of("pages")
        full.session_epoch = 0
        session_id = client.call(full, 11).session_id
        assert session_id
        with kafka.fail("Fetch", "KAFKA_STORAGE_ERROR", topic="pages") as fault:
            incremental = FetchRequest(
                max_wait_ms=0, session_id=session_id, session_epoch=1, topics=[]
            )
            response = client.call(incremental, 11)
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert fault.struck == 0
            [topic] = client.call(full, 11).responses
            assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_requests_are_executed_without_decoding_while_no_fault_is_set() -> None:
    faults = Faults(lambda _: None, LoopTimers())
    unreadable = memoryview(b"")
    connection: Any = object()
    assert faults.intercept(connection, unreadable, lambda: "executed") == "executed"


def test_fault_affects_connections_that_are_open_or_being_accepted(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as opened:
        assert error_of_produce(opened) == 0
        for _ in range(20):
            with (
                WireClient(kafka.bootstrap_servers) as accepted,
                kafka.fail("Produce", "INVALID_RECORD"),
            ):
                assert error_of_produce(accepted) == ErrorCode.INVALID_RECORD
                assert error_of_produce(opened) == ErrorCode.INVALID_RECORD
        assert error_of_produce(opened) == 0


def error_of_produce(client: WireClient) -> int:
    response = client.call(produce("pages", records=batch(b"1")), 9)
    return int(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("end", ["reset", "clear_faults"])
def test_all_faults_end_together(kafka: Broker, end: str) -> None:
    faults: list[Fault] = [
        kafka.fail("Produce", "INVALID_RECORD"),
        kafka.blackhole("Fetch"),
    ]
    getattr(kafka, end)()
    assert not any(fault.active for fault in faults)
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client:
        assert error_of_produce(client) == 0


def test_broker_closes_while_requests_are_held() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        held, late = broker.blackhole("Produce"), broker.delay("Fetch", 3600)
        client.send(fetch_of("pages"), 11)
        client.send(produce("pages", records=batch(b"1")), 9)
        late.wait(timeout_s=TIMEOUT_S)
        held.wait(timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Produse", "INVALID_RECORD"), r"no API 'Produse'; did you mean 'Produce'\?"),
        (("Produce", "NOT_LEADER"), r"no error 'NOT_LEADER'"),
        (("Produce", "INVALID_RECRD"), r"did you mean 'INVALID_RECORD'\?"),
        (("Produce", 0), "NONE is not an error"),
        ((999, 1), "no API with key 999"),
        ((None, 1), "needs an API"),
    ],
)
def test_wrong_apis_and_errors_are_refused(
    kafka: Broker, arguments: tuple[Any, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kafka.fail(*arguments)


def test_invalid_limits_are_refused(kafka: Broker) -> None:
    with pytest.raises(ValueError, match="Heartbeat requests name no topic"):
        kafka.fail("Heartbeat", "REBALANCE_IN_PROGRESS", topic="pages")
    with pytest.raises(ValueError, match="times is 1 or more"):
        kafka.delay("Heartbeat", 1, times=0)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not negative"):
            kafka.delay("Heartbeat", seconds)


def test_timeout_of_a_wait_for_a_fault_describes_the_fault(kafka: Broker) -> None:
    with kafka.fail("Produce", "INVALID_RECORD", client_id="x", topic="t", times=3) as fault:
        expected = r"<error INVALID_RECORD: Produce of client 'x' for topic 't', struck 0 of 3>"
        with pytest.raises(WaitTimeoutError, match=expected):
            fault.wait(timeout_s=0)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.message_name)
def test_every_api_and_version_has_an_error_response(api: Api) -> None:
    """Each array of the request has one element, and the response must contain the code."""
    of_request, of_response = request_class(api.key), response_class(api.key)
    for version in range(max(api.min_version, of_request.MIN_VERSION), api.max_version + 1):
        request = filled(of_request, version)
        try:
            response = error_response(of_response, request, version, ErrorCode.CORRUPT_MESSAGE)
        except LookupError:
            assert (api.key, version) in WITHOUT_ERRORS
            continue
        back = decode(of_response, version, memoryview(encode(response, version)))
        assert f"error_code={ErrorCode.CORRUPT_MESSAGE.value}," in repr(back).replace(")", ",")


# Versions whose responses have no field for an error code.
WITHOUT_ERRORS: set[tuple[ApiKey, int]] = set()


def filled(request_class: Any, version: int) -> Any:
    """Return a request with one element in each array and a name in each string."""
    import importlib

    from odradek.protocol.spec import StructSpec, load

    module = importlib.import_module(request_class.__module__)

    def fill(spec: StructSpec, value: Any) -> Any:
        for field in spec.present(version):
            if field.struct is not None:
                made = fill(field.struct, getattr(module, field.struct.name)())
                setattr(value, field.attribute, [made] if field.is_array else made)
            elif field.is_array:
                scalar = {"string": "x", "uuid": bytes(range(16)), "bytes": b""}.get(field.kind, 7)
                setattr(value, field.attribute, [scalar])
            elif field.kind == "string":
                setattr(value, field.attribute, "x")
        return value

    return fill(load(request_class.SPEC).body, request_class())


def fetch_of(topic: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[partition])])
