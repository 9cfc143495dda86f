"""SIGTERM ends the process of a broker within two seconds, and loses nothing that was acknowledged.

Every fsync takes ten seconds. So a stop that waits for a single one is found however busy the
machine is. Two seconds, and a next start without recovery, are asserted of the best of some
attempts: a machine that stands still makes any process late, and a stop that is late leaves logs
to recovery.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from testkit.requests import batch, fetch, produce
from testkit.wire import ConnectionClosed, WireClient
from tests.helpers.slow_fsync import FSYNC_S, WAITING, trigger_of
from tests.hostile.process import TIMEOUT_S, BrokerProcess

IN_A_PROGRAM = """
import sys
from tests.helpers.slow_fsync import run_inside_a_program
run_inside_a_program(sys.argv[1])
print("the program ends", flush=True)
"""
SLOW_DISK = "from tests.helpers.slow_fsync import serve; serve()"
BOUND_S = 2.0
ATTEMPTS = 3
PARTITIONS = 2_000


def create(client: WireClient, name: str, partitions: int, **configs: object) -> None:
    entries = [
        CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()
    ]
    topic = CreatableTopic(name, partitions, 1, [], entries)
    response = client.call(CreateTopicsRequest([topic], 60_000, False), 7)
    assert response.topics[0].error_code == 0


def fill(client: WireClient) -> None:
    """One record into each partition, acknowledged."""
    record = bytes(batch())
    data = [PartitionProduceData(at, bytearray(record)) for at in range(PARTITIONS)]
    request = ProduceRequest(None, 1, 60_000, [TopicProduceData("many", partition_data=data)])
    response = client.call(request, 9)
    assert all(not each.error_code for each in response.responses[0].partition_responses)


def end_offsets(client: WireClient, topic: str, partitions: int) -> set[int]:
    request = fetch(topic, partitions=tuple(range(partitions)))
    found = client.call(request, 11).responses[0].partitions
    assert all(not each.error_code for each in found)
    return {each.high_watermark for each in found}


def terminated(process: BrokerProcess) -> float:
    """How long the process takes to end after SIGTERM; its exit code is 0."""
    began = time.monotonic()
    process.terminate()
    assert process.close() == 0, "".join(process.lines[-20:])
    return time.monotonic() - began


def test_sigterm_ends_a_broker_with_many_dirty_logs_on_a_slow_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    attempts: list[tuple[float, bool]] = []
    for attempt in range(1, ATTEMPTS + 1):
        with (
            BrokerProcess(data, program=SLOW_DISK) as process,
            WireClient(process.bootstrap_servers) as client,
        ):
            if attempt == 1:
                create(client, "many", PARTITIONS)
                create(client, "durable", 1, flush_messages=1)
            acknowledged = client.call(produce("durable", acks=-1), 9)
            assert acknowledged.responses[0].partition_responses[0].error_code == 0
            fill(client)
            trigger_of(data).touch()
            client.send(produce("durable", acks=-1), 9)
            process.wait_for_line(re.compile(WAITING).search)
            took_s = terminated(process)
            with pytest.raises(ConnectionClosed):
                client.receive()
        trigger_of(data).unlink()
        assert took_s < FSYNC_S, "the stop waited for an fsync"
        with (
            BrokerProcess(data) as again,
            WireClient(again.bootstrap_servers) as client,
        ):
            is_clean = "was not closed" not in "".join(again.lines)
            assert end_offsets(client, "many", PARTITIONS) == {attempt}
            (durable,) = end_offsets(client, "durable", 1)
            assert durable >= attempt
        attempts.append((took_s, is_clean))
        if took_s < BOUND_S and is_clean:
            return
    raise AssertionError(f"no stop was in time and clean: {attempts}")


def test_sigterm_ends_a_start_that_waits_for_a_slow_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    trigger_of(data).touch()
    with BrokerProcess(data, program=SLOW_DISK, ready=False) as process:
        process.wait_for_line(re.compile(WAITING).search)
        assert terminated(process) < FSYNC_S
    with BrokerProcess(data) as again, WireClient(again.bootstrap_servers) as client:
        create(client, "t", 1)


def test_a_program_that_runs_a_broker_ends_while_the_broker_waits_for_a_slow_disk(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_PROGRAM, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline() == "the program ends\n", program.stderr.read()
        began = time.monotonic()
        assert program.wait(TIMEOUT_S) == 0
        assert time.monotonic() - began < FSYNC_S
