"""Topics of a killed broker process: all acknowledged changes exist afterwards, in order."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from testkit.requests import fetch, produce
from testkit.wire import ConnectionClosed, WireClient

KILLS = 4
CHANGES = 40
NAMES = [f"t{number}" for number in range(6)]
Topics = dict[str, int]


@contextmanager
def served(data: Path) -> Iterator[tuple[subprocess.Popen[str], WireClient]]:
    """Run a broker process on a free port, and kill it at the end if it still runs."""
    command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--data", str(data)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address = None
        for line in process.stderr:
            address = re.search(r"listens on PLAINTEXT://(\S+);", line)
            if address:
                break
        assert address, "the broker did not start"
        with WireClient(address[1]) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def described(client: WireClient) -> Topics:
    topics = client.call(MetadataRequest(None), 12).topics
    return {topic.name: len(topic.partitions) for topic in topics}


def planned(topics: Topics, numbers: random.Random) -> list[tuple[str, int]]:
    """Return a sequence of changes: a topic and its number of partitions, 0 to delete it."""
    present = set(topics)
    changes = []
    for _ in range(CHANGES):
        name = numbers.choice(NAMES)
        changes.append((name, 0 if name in present else numbers.randint(1, 12)))
        present ^= {name}
    return changes


def send(client: WireClient, name: str, partitions: int) -> None:
    if partitions == 0:
        client.send(DeleteTopicsRequest([DeleteTopicState(name)]), 6)
    else:
        config = CreatableTopicConfig("retention.ms", "12345")
        client.send(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], [config])]), 7)


def states(topics: Topics, changes: list[tuple[str, int]]) -> list[Topics]:
    """Return the topics before the first change and after each change."""
    found = [dict(topics)]
    for name, partitions in changes:
        after = dict(found[-1])
        if partitions:
            after[name] = partitions
        else:
            del after[name]
        found.append(after)
    return found


def test_killed_broker_has_every_acknowledged_topic(tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    possible: list[Topics] = [{}]
    for _ in range(KILLS):
        with served(tmp_path) as (process, client):
            topics = described(client)
            assert topics in possible
            changes = planned(topics, numbers)
            for change in changes:
                send(client, *change)
            acknowledged = 0
            kill_after = numbers.randint(0, CHANGES - 1)
            try:
                while True:
                    if acknowledged == kill_after:
                        process.kill()
                    response = client.receive()
                    (result,) = getattr(response, "topics", None) or response.responses
                    assert result.error_code == ErrorCode.NONE
                    acknowledged += 1
            except ConnectionClosed:
                assert acknowledged >= kill_after
            possible = states(topics, changes)[acknowledged:]


@pytest.mark.parametrize("partitions", [1, 3])
def test_topic_keeps_id_configs_and_records_after_a_kill(tmp_path: Path, partitions: int) -> None:
    with served(tmp_path) as (process, client):
        send(client, "t", partitions)
        (created,) = client.receive().topics
        (sent,) = client.call(produce("t"), 8).responses
        assert sent.partition_responses[0].error_code == ErrorCode.NONE
        process.kill()
    with served(tmp_path) as (process, client):
        (topic,) = client.call(MetadataRequest([MetadataRequestTopic(name="t")]), 12).topics
        assert topic.topic_id == created.topic_id
        assert topic.partitions[0].leader_epoch == 1
        assert client.call(fetch("t"), 11).responses[0].partitions[0].high_watermark == 1


def test_topic_created_again_after_a_kill_is_empty(tmp_path: Path) -> None:
    with served(tmp_path) as (process, client):
        send(client, "t", 1)
        client.receive()
        client.call(produce("t"), 8)
        send(client, "t", 0)
        client.receive()
        process.kill()
    with served(tmp_path) as (process, client):
        send(client, "t", 1)
        client.receive()
        assert client.call(fetch("t"), 11).responses[0].partitions[0].high_watermark == 0
