"""Python code on threads does not iterate over records, because it holds the interpreter lock."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.records.scan import RECORDS_A_SLICE
from odradek.records.validate_body import open_batch
from odradek.testing import Broker
from testkit.requests import list_offsets, produce
from testkit.wire import WireClient

COUNTS = (3_000, 15_000)
CALLS_MAX = 200
"""Limit for the executor's own calls and the calls for a batch of any size."""
NOW_MS = 1_700_000_000_000


class Calls:
    """Counter of the Python functions called on the threads that process batches."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _frame: object, event: str, _argument: object) -> None:
        if event == "call" and threading.current_thread().name.startswith("odradek-unpack"):
            self.count += 1


@pytest.fixture
def calls() -> Iterator[Calls]:
    """A profile of all threads started during the test. It must be set before the broker starts."""
    if sys.gettrace() is not None:
        pytest.skip("another profiler is in use")
    calls = Calls()
    threading.setprofile(calls)
    yield calls
    threading.setprofile(None)


@pytest.fixture
def fresh_broker(calls: Calls) -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def batch(count: int, compression: str = "gzip", size: int = 150) -> bytearray:
    # The records are large, so that even the smaller batch is decompressed on a thread.
    records = [Record(b"key-%d" % at, b"v" * size, NOW_MS + at) for at in range(count)]
    return build_batch(records, compression=compression)


@pytest.mark.parametrize(
    "config", [{"cleanup.policy": "compact"}, {"compression.type": "zstd"}], ids=str
)
@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_produce_validates_and_recompresses_without_python_code_per_record(
    fresh_broker: Broker, calls: Calls, config: dict[str, str], compression: str
) -> None:
    fresh_broker.create_topic("t", config=config)
    counts = []
    with WireClient(fresh_broker.bootstrap_servers) as client:
        for count in COUNTS:
            before = calls.count
            response = client.call(produce(records=batch(count, compression)), 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            counts.append(calls.count - before)
    assert max(counts) < CALLS_MAX


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_a_timestamp_lookup_searches_without_python_code_per_record(
    fresh_broker: Broker, calls: Calls, compression: str
) -> None:
    counts = []
    with WireClient(fresh_broker.bootstrap_servers) as client:
        for count in COUNTS:
            topic = f"t{count}"
            fresh_broker.create_topic(topic, config={"max.message.bytes": "10000000"})
            client.call(produce(topic, batch(count, compression)), 9)
            before = calls.count
            response = client.call(list_offsets(NOW_MS + count - 1, topic), 5)
            assert response.topics[0].partitions[0].offset == count - 1
            counts.append(calls.count - before)
    assert max(counts) < CALLS_MAX


def test_the_loop_serves_other_requests_after_each_slice_of_a_large_batch(broker: Broker) -> None:
    count = 40 * RECORDS_A_SLICE
    broker.create_topic("t", config={"cleanup.policy": "compact"})
    records = memoryview(batch(count, "none", 5))

    async def iterations(server: Any) -> int:
        services = server.services
        config = services.replica_manager.partition("t", 0).log.config
        seen = 0

        async def others() -> None:
            nonlocal seen
            while True:
                await asyncio.sleep(0)
                seen += 1

        task = asyncio.get_running_loop().create_task(others())
        work = open_batch(records, config, NOW_MS, checked=True)
        assert await services.replica_manager.decompression.run(work) is not None
        task.cancel()
        return seen

    assert broker.call(iterations) >= count // RECORDS_A_SLICE
