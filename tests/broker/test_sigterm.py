"""SIGTERM ends the process of a broker within two seconds, and loses nothing that was acknowledged.

No fsync returns, so a stop that waits for a single fsync never ends. The time during which the
threads of the process waited for a processor does not count. The best of several attempts must meet
the two seconds, because a machine that stalls delays every process. A further test checks that the
next start has nothing to recover, with a clock that gives the stop enough time.
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
from tests.helpers.hanging_fsync import DELAYED, WAITING, run_delay_ms, trigger_of
from tests.hostile.process import TIMEOUT_S, BrokerProcess

IN_A_PROGRAM = """
import sys
from tests.helpers.hanging_fsync import run_inside_a_program
run_inside_a_program(sys.argv[1], float(sys.argv[2]))
print("the program ends", flush=True)
"""
HANGING_DISK = "from tests.helpers.hanging_fsync import serve; serve()"
WITH_TIME = "from tests.helpers.hanging_fsync import serve_with_time; serve_with_time()"
BOUND_S = 2.0
ATTEMPTS = 3
PARTITIONS = 2_000
PARTITIONS_WITH_TIME = 500


def create(client: WireClient, name: str, partitions: int, **configs: object) -> None:
    entries = [
        CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()
    ]
    topic = CreatableTopic(name, partitions, 1, [], entries)
    response = client.call(CreateTopicsRequest([topic], 60_000, False), 7)
    assert response.topics[0].error_code == 0


def fill(client: WireClient, partitions: int) -> None:
    """Write one acknowledged record to each partition."""
    record = bytes(batch())
    data = [PartitionProduceData(at, bytearray(record)) for at in range(partitions)]
    request = ProduceRequest(None, 1, 60_000, [TopicProduceData("many", partition_data=data)])
    response = client.call(request, 9)
    assert all(not each.error_code for each in response.responses[0].partition_responses)


def end_offsets(client: WireClient, topic: str, partitions: int) -> set[int]:
    request = fetch(topic, partitions=tuple(range(partitions)))
    found = client.call(request, 11).responses[0].partitions
    assert all(not each.error_code for each in found)
    return {each.high_watermark for each in found}


def terminated(process: BrokerProcess) -> float:
    """Return the seconds from SIGTERM to the end of the process, which must exit with status 0.

    The time in which its threads were ready to run and had no processor is subtracted.
    """
    delay_ms, began = run_delay_ms(process.pid), time.monotonic()
    process.terminate()
    assert process.close() == 0, "".join(process.lines[-20:])
    took_s = time.monotonic() - began
    delayed = process.wait_for_line(re.compile(f"{DELAYED} (.+)").search)
    return took_s - (float(delayed[1]) - delay_ms) / 1000


def hang_with_dirty_logs(client: WireClient, process: BrokerProcess, data: Path, many: int) -> None:
    """Write a record to each partition of `many`. Then make a request wait forever for an fsync."""
    acknowledged = client.call(produce("durable", acks=-1), 9)
    assert acknowledged.responses[0].partition_responses[0].error_code == 0
    fill(client, many)
    trigger_of(data).touch()
    client.send(produce("durable", acks=-1), 9)
    process.wait_for_line(re.compile(WAITING).search)


def test_sigterm_ends_a_broker_with_many_dirty_logs_on_a_disk_that_hangs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    took_s: list[float] = []
    for attempt in range(1, ATTEMPTS + 1):
        with (
            BrokerProcess(data, program=HANGING_DISK) as process,
            WireClient(process.bootstrap_servers) as client,
        ):
            if attempt == 1:
                create(client, "many", PARTITIONS)
                create(client, "durable", 1, flush_messages=1)
            hang_with_dirty_logs(client, process, data, PARTITIONS)
            took_s.append(terminated(process))
            with pytest.raises(ConnectionClosed):
                client.receive()
        trigger_of(data).unlink()
        with (
            BrokerProcess(data) as again,
            WireClient(again.bootstrap_servers) as client,
        ):
            assert end_offsets(client, "many", PARTITIONS) == {attempt}
            (durable,) = end_offsets(client, "durable", 1)
            assert durable >= attempt
        if took_s[-1] < BOUND_S:
            return
    raise AssertionError(f"no stop was in time: {took_s}")


def test_a_stop_on_a_hanging_disk_leaves_no_log_to_recovery(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        BrokerProcess(data, program=WITH_TIME) as process,
        WireClient(process.bootstrap_servers) as client,
    ):
        create(client, "many", PARTITIONS_WITH_TIME)
        create(client, "durable", 1, flush_messages=1)
        hang_with_dirty_logs(client, process, data, PARTITIONS_WITH_TIME)
        process.terminate()
        assert process.close() == 0, "".join(process.lines[-20:])
        assert "takes too long" not in "".join(process.lines)
    trigger_of(data).unlink()
    with BrokerProcess(data) as again, WireClient(again.bootstrap_servers) as client:
        assert "was not closed" not in "".join(again.lines), "unnecessary recovery"
        assert end_offsets(client, "many", PARTITIONS_WITH_TIME) == {1}


def test_sigterm_ends_a_start_that_waits_for_a_disk_that_hangs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    trigger_of(data).touch()
    with BrokerProcess(data, program=HANGING_DISK, ready=False) as process:
        process.wait_for_line(re.compile(WAITING).search)
        process.terminate()
        assert process.close() == 0, "".join(process.lines[-20:])
    with BrokerProcess(data) as again, WireClient(again.bootstrap_servers) as client:
        create(client, "t", 1)


def test_a_program_that_runs_a_broker_ends_while_the_broker_waits_for_a_disk_that_hangs(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_PROGRAM, str(tmp_path / "data"), str(TIMEOUT_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        try:
            assert program.stdout.readline() == "the program ends\n", program.stderr.read()
            assert program.wait(TIMEOUT_S) == 0
        finally:
            program.kill()
