"""`odradek cluster status` with brokers that accept connections and send no responses."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from odradek.cli import cluster_facts
from odradek.cli.cluster_facts import PROBE_S
from odradek.cli.cluster_status import print_status
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse


class Client:
    """A connection to a broker. `late` are the brokers that respond to no request for metadata."""

    late: ClassVar[set[int]] = set()

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id

    @classmethod
    def connect(cls, address: tuple[str, int], _timeout_s: float, _client_id: str) -> Client:
        return cls(address[1])

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def negotiate(self) -> None:
        pass

    def close(self) -> None:
        pass

    def call(self, request: Any, response: Any) -> Any:
        if isinstance(request, DescribeClusterRequest):
            brokers = [DescribeClusterBroker(each, "host", each) for each in (1, 2)]
            return DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers)
        if isinstance(request, DescribeQuorumRequest):
            partition = PartitionData(0, high_watermark=5)
            partition.observers = [ReplicaState(replica_id=2, log_end_offset=5)]
            return DescribeQuorumResponse(0, topics=[TopicData("__cluster_metadata", [partition])])
        if isinstance(request, MetadataRequest) and self._broker_id in self.late:
            raise TimeoutError
        if isinstance(request, MetadataRequest):
            return MetadataResponse()
        return response(results=[response_result()])


def response_result() -> Any:
    from odradek.protocol.messages.describe_configs_response import DescribeConfigsResult

    return DescribeConfigsResult()


def status(monkeypatch: pytest.MonkeyPatch, capsys: Any, *late: int, as_json: bool = False) -> str:
    monkeypatch.setattr(cluster_facts, "BlockingClient", Client)
    monkeypatch.setattr(Client, "late", set(late))
    print_status("host:1", None, as_json)
    return str(capsys.readouterr().out)


def test_a_broker_without_a_response_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = status(monkeypatch, capsys, 1)
    assert "Partitions: 0, without a leader 0" in text
    assert "broker 1 lacks a response to this command" in text
    assert f"no response within {PROBE_S:g} s" in text
    assert "broker 2 lacks a response" not in text


def test_partitions_are_unknown_if_no_broker_responds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Partitions: unknown" in status(monkeypatch, capsys, 1, 2)
    found = json.loads(status(monkeypatch, capsys, 1, 2, as_json=True))
    assert found["partitions"] is None
    assert found["partitions_without_leader"] is None
    assert [each["name"] for each in found["findings"]][-2:] == ["broker 1", "broker 2"]


def test_a_cluster_that_responds_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Nothing is missing." in status(monkeypatch, capsys)
