"""In the process of `serve`, a thread imports the modules of the first request of each kind."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.broker.main import _make_server
from odradek.broker.requests import first_use as first_use_module
from odradek.broker.requests.apis import APIS, INTER_BROKER_APIS
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.first_use import FirstUse
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.metadata.record_classes import RECORD_TYPES
from odradek.metadata.records import decode_record, encode_record, record_class
from odradek.metadata.store.memory import MemoryStore
from odradek.net.connection import Connection
from odradek.protocol import codec
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.slicing import begin, end_slice
from tests.broker.test_call_count import framed, received, running_broker
from tests.helpers import cluster_brokers
from tests.helpers.mock_transport import MockTransport, open_connection

ROOT = Path(__file__).parents[3]


class ManualExecutor(Executor):
    """An executor whose calls the test runs."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - of the caller
                future.set_exception(error)

        self.calls.append(call)
        return future

    async def run(self) -> None:
        calls, self.calls = self.calls, []
        for each in calls:
            each()
        await settled()


async def settled() -> None:
    for _ in range(10):
        await end_slice()


def responses(transport: MockTransport) -> list[int]:
    """Return the correlation ids or the first fields of the responses that were sent."""
    found, data = [], bytes(transport.written)
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(struct.unpack(">i", data[4:8])[0])
        data = data[4 + size :]
    return found


def with_broker(
    tmp_path: Path, test: Callable[[Dispatcher, FirstUse, ManualExecutor], Awaitable[None]]
) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def run() -> None:
            executor = ManualExecutor()
            first_use = FirstUse(executor)
            await test(Dispatcher(server.services, first_use=first_use), first_use, executor)

        runner.run(run())


def send(connection: Connection, *requests: tuple[Any, int]) -> None:
    received(connection, b"".join(framed(*each) for each in requests))()


def test_the_first_request_of_a_kind_waits_for_its_imports_and_others_do_not(
    tmp_path: Path,
) -> None:
    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        await prepared(first_use, executor, ApiKey.API_VERSIONS, 3)
        first, first_transport = open_connection(dispatcher.dispatch)
        other, other_transport = open_connection(dispatcher.dispatch)
        send(first, (DescribeClusterRequest(), 0), (ApiVersionsRequest("a", "1"), 3))
        send(other, (ApiVersionsRequest("a", "1"), 3))
        await settled()
        assert len(responses(other_transport)) == 1
        assert not responses(first_transport), "the later request of the connection waits, too"
        await executor.run()
        assert len(responses(first_transport)) == 2
        send(other, (DescribeClusterRequest(), 0))
        assert len(responses(other_transport)) == 2, "executed at once, without a thread"
        assert not executor.calls

    with_broker(tmp_path, test)


async def prepared(
    first_use: FirstUse, executor: ManualExecutor, api_key: int, version: int
) -> None:
    waiting = asyncio.ensure_future(first_use.prepare(api_key, version))
    await end_slice()
    await executor.run()
    await waiting
    assert first_use.is_prepared(api_key, version)


def test_many_first_requests_of_a_kind_share_one_import(tmp_path: Path) -> None:
    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        opened = [open_connection(dispatcher.dispatch) for _ in range(20)]
        for connection, _ in opened:
            send(connection, (ListGroupsRequest(), 4))
        await settled()
        assert len(executor.calls) == 1
        await executor.run()
        assert [len(responses(transport)) for _, transport in opened] == [1] * 20

    with_broker(tmp_path, test)


def test_each_version_is_prepared_separately(tmp_path: Path) -> None:
    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        await prepared(first_use, executor, ApiKey.LIST_GROUPS, 4)
        assert not first_use.is_prepared(ApiKey.LIST_GROUPS, 3)

    with_broker(tmp_path, test)


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.METADATA, 99), (9_999, 0)])
def test_a_request_that_is_not_served_is_refused_without_a_thread(
    tmp_path: Path, api_key: int, version: int
) -> None:
    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        connection, transport = open_connection(dispatcher.dispatch)
        frame = struct.pack(">ihhih", 10, api_key, version, 1, -1)
        received(connection, frame)()
        await settled()
        assert transport.closing
        assert not executor.calls

    with_broker(tmp_path, test)


def test_a_failed_import_fails_its_request_and_not_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ImportError("no such module")

    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        connection, transport = open_connection(dispatcher.dispatch)
        monkeypatch.setattr(first_use_module, "import_for", fail)
        monkeypatch.setattr("odradek.broker.requests.dispatch._new_entry", fail)
        send(connection, (ListGroupsRequest(), 4))
        await settled()
        await executor.run()
        assert transport.closing
        monkeypatch.undo()
        other, other_transport = open_connection(dispatcher.dispatch)
        send(other, (ListGroupsRequest(), 4))
        assert len(responses(other_transport)) == 1

    with_broker(tmp_path, test)
    assert "the modules of LIST_GROUPS cannot be imported" in caplog.text


def test_a_broker_that_stops_imports_on_the_event_loop(tmp_path: Path) -> None:
    async def test(dispatcher: Dispatcher, first_use: FirstUse, executor: ManualExecutor) -> None:
        connection, transport = open_connection(dispatcher.dispatch)
        first_use.stop()
        send(connection, (ListGroupsRequest(), 4))
        assert len(responses(transport)) == 1
        assert not executor.calls

    with_broker(tmp_path, test)


def test_a_broker_of_a_cluster_prepares_all_kinds_one_after_the_other() -> None:
    async def test() -> None:
        executor = ManualExecutor()
        first_use = FirstUse(executor)
        begin(first_use.preparing(), "the test")
        steps = 0
        while executor.calls:
            assert len(executor.calls) == 1
            steps += 1
            await executor.run()
        assert steps == len(APIS) + len(INTER_BROKER_APIS) + len(RECORD_TYPES) + 2
        assert all(
            first_use.is_prepared(each.key, each.highest) for each in (*APIS, *INTER_BROKER_APIS)
        )

    asyncio.run(test())


@pytest.mark.parametrize("api_key", RECORD_TYPES)
def test_the_first_record_of_a_type_compiles_nothing_on_the_event_loop(
    api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_use_module.compile_record(api_key)
    monkeypatch.delattr(codec, "_link")
    cls = record_class(api_key)
    assert cls is not None
    assert decode_record(encode_record(cls())) == cls()  # type: ignore[arg-type]


def test_a_stop_ends_the_preparation() -> None:
    async def test() -> None:
        executor = ManualExecutor()
        first_use = FirstUse(executor)
        begin(first_use.preparing(), "the test")
        await executor.run()
        first_use.stop()
        await executor.run()
        assert not executor.calls

    asyncio.run(test())


def test_only_the_process_of_serve_imports_on_threads(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
    assert _make_server(config, Environment(), None)._first_use is not None
    with running_broker(tmp_path) as (_, server):
        assert server._first_use is None


def test_a_cluster_imports_on_threads_and_serves_requests_in_that_time(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = partial(BrokerServer, imports_on_threads=True)
    monkeypatch.setattr(cluster_brokers, "BrokerServer", server)

    async def test(cluster: cluster_brokers.ClusterBrokers) -> None:
        prepared = [each._first_use for each in cluster.servers.values()]
        await cluster.create_topic("t", 2, 2)
        for number in range(2):
            assert not (await cluster.produce("t", b"a", partition=number)).error_code
            assert await cluster.fetch("t", number) == [b"a"]
        await cluster.until(
            lambda: all(
                first_use is not None and first_use.is_prepared(api.key, api.highest)
                for api in (*APIS, *INTER_BROKER_APIS)
                for first_use in prepared
            )
        )

    cluster_brokers.run_with_cluster(tmp_path, test, count=2)


@pytest.mark.parametrize("stops", [True, False])
def test_the_log_cleaner_starts_after_its_import_unless_the_broker_stops(
    tmp_path: Path, *, stops: bool
) -> None:
    async def test() -> None:
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        config = BrokerConfig.from_properties(properties)
        server = BrokerServer(config, store=MemoryStore(), imports_on_threads=True)
        await server.start()
        started: list[None] = []
        monkey = pytest.MonkeyPatch()
        monkey.setattr(server.log_cleaner, "start", lambda: started.append(None))
        starting = server._start_cleaner()
        imported = next(starting)
        assert not started
        await imported
        if stops:
            await server.stop()
        assert next(starting, None) is None
        assert len(started) == (not stops)
        if not stops:
            await server.stop()

    asyncio.run(test())


ALL_REQUESTS = """
import contextlib, sys
from odradek.broker.requests.apis import APIS, INTER_BROKER_APIS
from odradek.broker.requests.first_use import LATER_MODULES, import_for, import_modules
from odradek.testing import Broker
from testkit.wire import WireClient
from testkit.many_elements import long_requests

def modules():
    return {name for name in sys.modules if name.startswith("odradek.")}

with Broker() as broker:
    for api in (*INTER_BROKER_APIS, *APIS):
        import_for(api, api.max_version)
    import_modules(*LATER_MODULES)
    before = modules()
    for topic in ("t", "__consumer_offsets", "__transaction_state"):
        broker.create_topic(topic, 1)
    sent = set()
    for api, name, request in long_requests(1):
        with contextlib.suppress(OSError), WireClient(broker.bootstrap_servers) as client:
            client.call(request, api.max_version)
            client.call(request, api.max_version)
            sent.add(api.handler)
    broker.server.log_cleaner
    print(len(sent), sorted(modules() - before))
"""


def test_a_request_of_a_prepared_kind_imports_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_REQUESTS], capture_output=True, text=True, check=True, cwd=ROOT
    )
    sent, imported = done.stdout.split(maxsplit=1)
    assert imported.strip() == "[]"
    assert int(sent) > 30
