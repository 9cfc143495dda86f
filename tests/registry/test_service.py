"""Writes through the writer and by forwarding, and the limits of an instance."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.registry.app import create_app
from odradek.registry.applied_log import AppliedLog
from odradek.registry.decisions.decision import Decision
from odradek.registry.election import Leader
from odradek.registry.errors import RegistryError, operation_timeout, unknown_leader
from odradek.registry.forwarding import (
    ForwardableRequest,
    Forwarder,
)
from odradek.registry.json_value import JsonValue
from odradek.registry.records import NoopRecord, Record, decode, encode
from odradek.registry.request_budget import TIME_MS_MAX, BudgetExceeded
from odradek.registry.schemas.parsed import SchemaKind
from odradek.registry.schemas.parsers import Parsers
from odradek.registry.schemas_log import LogBatch, LogEntry
from odradek.registry.service import (
    CATCH_UPS_MAX,
    PARSES_RUNNING_MAX,
    PARSES_WAITING_MAX,
    WRITER_WAIT_S,
    WRITES_MAX,
    Identity,
    RegistryService,
)
from odradek.registry.state import RegistryState

WRITER_URL = "http://writer:8081"
TIMESTAMP_MS = 1_700_000_000_000
SCHEMA = '{"type":"record","name":"Order","fields":[]}'
IDENTITY = Identity("cluster", "group", "0.1.0")
REQUEST = ForwardableRequest("PUT", "/config", {}, b'{"compatibility":"FULL"}')


class Log:
    """A log that several instances read. The test decides when."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.written = asyncio.Event()

    def append(self, *records: Record) -> int:
        self.records += records
        if records:
            self.written.set()
        return len(self.records)

    def deliver(self, applied: AppliedLog) -> None:
        """Have an instance apply all records that it has not applied yet."""
        entries = tuple(
            LogEntry(offset, decode(*encode(record)), TIMESTAMP_MS)
            for offset, record in enumerate(self.records)
            if offset >= applied.position
        )
        applied.apply(LogBatch(entries, len(self.records), True))


class MemoryWriter:
    """A writer whose instance applies each record at once."""

    def __init__(self, log: Log, applied: AppliedLog) -> None:
        self._log = log
        self._applied = applied
        self.executed = 0

    async def execute(self, decide: Callable[[RegistryState], Decision]) -> JsonValue:
        self.executed += 1
        self._log.deliver(self._applied)
        decision = decide(self._applied.state)
        self._log.append(*decision.records)
        self._log.deliver(self._applied)
        return decision.response


class FixedLeadership:
    """What an instance knows about the writer, as the test sets it."""

    def __init__(self) -> None:
        self.writer: Any = None
        self.urls: list[str | None] = []
        self.refreshes: list[bool] = []
        self.known_epoch = 1

    async def leader(self, *, refresh: bool = False) -> Leader | None:
        self.refreshes.append(refresh)
        url = self.urls.pop(0) if len(self.urls) > 1 else self.urls[0]
        return None if url is None else Leader(url, self.known_epoch)


class PromptTimers(LoopTimers):
    """Timers whose pauses end in the next iteration of the event loop."""

    async def sleep(self, delay_s: float) -> None:
        assert delay_s > 0
        await asyncio.sleep(0)


class Instance:
    """One instance of a registry in a test."""

    def __init__(
        self,
        log: Log,
        client: httpx.AsyncClient,
        executor: ThreadPoolExecutor,
        identity: Identity = IDENTITY,
    ) -> None:
        self.applied = AppliedLog(RegistryState(), "_schemas")
        self.leadership = FixedLeadership()
        self.leadership.urls = [None]
        self.clock = ManualClock()
        self.service = RegistryService(
            self.applied.state,
            Parsers(),
            identity,
            self.leadership,
            self.applied,
            Forwarder(lambda: client, identity.registry),
            executor,
            self.clock,
            PromptTimers(),
        )
        self.app = create_app(self.service)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://instance"
        )
        self.writer = MemoryWriter(log, self.applied)


class Network:
    """Two instances: the writer at `WRITER_URL`, and a follower that forwards to it."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.log = Log()
        self.requests: list[httpx.Request] = []
        self.requested = asyncio.Event()
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._respond))
        self.writer = Instance(self.log, client, executor)
        self.writer.leadership.writer = self.writer.writer
        self.follower = Instance(self.log, client, executor)
        self.follower.leadership.urls = [WRITER_URL]
        self.delivers = True

    async def _respond(self, request: httpx.Request) -> httpx.Response:
        """Pass a request to the writer, and then its records to the follower."""
        self.requests.append(request)
        self.requested.set()
        if request.url.host != "writer":
            raise httpx.ConnectError("refused")
        response = await httpx.ASGITransport(self.writer.app).handle_async_request(request)
        await response.aread()
        if self.delivers:
            self.log.deliver(self.follower.applied)
        return response


def run(test: Callable[[Network], Coroutine[Any, Any, None]]) -> None:
    """Run a test on an event loop with two instances."""

    async def main() -> None:
        with ThreadPoolExecutor(PARSES_RUNNING_MAX) as executor:
            await test(Network(executor))

    asyncio.run(main())


async def register(instance: Instance, subject: str, text: str = SCHEMA) -> httpx.Response:
    return await instance.http.post(f"/subjects/{subject}/versions", json={"schema": text})


def noop(_: RegistryState) -> Decision:
    return Decision((NoopRecord(),), {"written": True})


def test_each_request_has_a_budget_of_its_own() -> None:
    async def test(network: Network) -> None:
        service, clock = network.writer.service, network.writer.clock
        parsers = service.tools.parsers
        parsers.parse(SchemaKind.AVRO, '"int"')
        clock.advance(int(TIME_MS_MAX))
        response = await register(network.writer, "orders")
        assert response.status_code == 200
        with pytest.raises(BudgetExceeded):
            parsers.parse(SchemaKind.AVRO, '"int"')

    run(test)


def test_writer_executes_a_write() -> None:
    async def test(network: Network) -> None:
        response = await register(network.writer, "orders")
        assert (response.status_code, response.json()["id"]) == (200, 1)
        assert network.requests == []

    run(test)


def test_follower_forwards_a_write_and_reads_it_afterwards() -> None:
    async def test(network: Network) -> None:
        url = "/contexts/sales/subjects/a%2Fb/versions?normalize=true"
        response = await network.follower.http.post(url, json={"schema": SCHEMA})
        assert (response.status_code, response.json()["id"]) == (200, 1)
        (request,) = network.requests
        assert request.url.raw_path == url.encode()
        assert request.headers["x-forward"] == "true"
        read = await network.follower.http.get("/subjects/:.sales:a%2Fb/versions/1")
        assert read.json()["schema"] == SCHEMA

    run(test)


def test_follower_responds_after_it_has_applied_the_write() -> None:
    async def test(network: Network) -> None:
        network.delivers = False
        write = asyncio.create_task(register(network.follower, "orders"))
        await network.log.written.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not write.done()
        network.log.deliver(network.follower.applied)
        assert (await write).json()["id"] == 1

    run(test)


def test_follower_that_does_not_apply_a_write_in_time_reports_50002(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.registry.service.APPLY_WAIT_S", 0.01)

    async def test(network: Network) -> None:
        network.delivers = False
        response = await register(network.follower, "orders")
        assert response.json()["error_code"] == 50002

    run(test)


def test_errors_of_the_writer_reach_the_client() -> None:
    async def test(network: Network) -> None:
        response = await register(network.follower, "orders", "{")
        assert (response.status_code, response.json()["error_code"]) == (422, 42201)
        deleted = await network.follower.http.delete("/subjects/nothing")
        assert deleted.json() == {"error_code": 40401, "message": "Subject 'nothing' not found."}

    run(test)


def test_response_without_a_body_is_forwarded() -> None:
    async def test(network: Network) -> None:
        response = await network.follower.http.delete("/contexts/.empty")
        assert (response.status_code, response.content) == (204, b"")

    run(test)


def test_repeated_registration_needs_no_writer() -> None:
    async def test(network: Network) -> None:
        await register(network.follower, "orders")
        network.follower.leadership.urls = ["http://gone:8081"]
        again = await register(network.follower, "orders")
        assert (again.status_code, again.json()["id"]) == (200, 1)
        assert len(network.requests) == 1

    run(test)


def test_forwarded_request_is_not_forwarded_again() -> None:
    async def test(network: Network) -> None:
        response = await network.follower.http.put(
            "/config", json={"compatibility": "FULL"}, headers={"X-Forward": "true"}
        )
        assert response.json()["error_code"] == 50004
        assert network.requests == []

    run(test)


def test_write_finds_the_next_writer() -> None:
    """The known URL refuses connections, then the group has no writer, then there is a new one."""

    async def test(network: Network) -> None:
        leadership = network.follower.leadership
        leadership.urls = ["http://gone:8081", None, WRITER_URL]
        response = await register(network.follower, "orders")
        assert response.json()["id"] == 1
        assert leadership.refreshes == [False, True, True]
        assert [request.url.host for request in network.requests] == ["gone", "writer"]

    run(test)


def test_write_is_repeated_if_the_instance_becomes_the_writer() -> None:
    async def test(network: Network) -> None:
        follower = network.follower
        follower.leadership.urls = [None]
        write = asyncio.create_task(follower.service.write(noop, REQUEST))
        await asyncio.sleep(0)
        follower.leadership.writer = follower.writer
        assert await write == {"written": True}

    run(test)


class Resigned:
    """A writer that has resigned in the meantime: it fails once, before it writes anything."""

    def __init__(self, next_writer: MemoryWriter, error: RegistryError) -> None:
        self._next = next_writer
        self._error = error
        self.calls = 0

    async def execute(self, decide: Callable[[RegistryState], Decision]) -> JsonValue:
        self.calls += 1
        if self.calls == 1:
            raise self._error
        return await self._next.execute(decide)


def test_write_that_was_not_executed_is_repeated() -> None:
    async def test(network: Network) -> None:
        writer = network.writer
        resigned = Resigned(writer.writer, unknown_leader())
        writer.leadership.writer = resigned
        assert await writer.service.write(noop, REQUEST) == {"written": True}
        assert resigned.calls == 2

    run(test)


def test_write_that_may_have_been_executed_is_not_repeated() -> None:
    async def test(network: Network) -> None:
        writer = network.writer
        resigned = Resigned(writer.writer, operation_timeout("unknown"))
        writer.leadership.writer = resigned
        with pytest.raises(RegistryError) as raised:
            await writer.service.write(noop, REQUEST)
        assert (raised.value.code, resigned.calls) == (50002, 1)

    run(test)


def test_write_without_a_writer_ends_with_50004() -> None:
    async def test(network: Network) -> None:
        follower = network.follower
        follower.leadership.urls = [None]
        write = asyncio.create_task(follower.service.write(noop, REQUEST))
        await asyncio.sleep(0)
        assert not write.done()
        follower.clock.advance(int(WRITER_WAIT_S * 1_000))
        with pytest.raises(RegistryError) as raised:
            await write
        assert raised.value.code == 50004

    run(test)


def test_a_path_that_is_too_long_is_not_forwarded() -> None:
    async def test(network: Network) -> None:
        response = await network.follower.http.request("DELETE", "/subjects/" + "s" * 65_510)
        assert response.json()["error_code"] == 414
        assert network.requests == []

    run(test)


def test_config_of_a_subject_of_dots_is_forwarded_for_this_subject() -> None:
    async def test(network: Network) -> None:
        http = network.follower.http
        response = await http.put("/config/%2E", json={"compatibility": "NONE"})
        assert response.status_code == 200
        assert (await http.get("/config")).json() == {"compatibilityLevel": "BACKWARD"}
        assert (await http.get("/config/%2E")).json() == {"compatibilityLevel": "NONE"}

    run(test)


@pytest.mark.parametrize(
    ("identity", "epoch"), [(Identity("other", "group", "0.1.0"), 1), (IDENTITY, 0)]
)
def test_an_instance_of_another_registry_or_an_earlier_epoch_executes_nothing(
    identity: Identity, epoch: int
) -> None:
    async def test(network: Network) -> None:
        other = network.writer
        other.service.identity = identity
        other.leadership.known_epoch = epoch
        write = asyncio.create_task(register(network.follower, "orders"))
        await network.requested.wait()
        network.follower.clock.advance(int(WRITER_WAIT_S * 1_000))
        assert (await write).json()["error_code"] == 50004
        assert other.writer.executed == 0

    run(test)


def test_number_of_writes_is_bounded() -> None:
    async def test(network: Network) -> None:
        follower = network.follower
        follower.leadership.urls = [None]
        writes = [
            asyncio.create_task(follower.service.write(noop, REQUEST)) for _ in range(WRITES_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(RegistryError) as raised:
            await follower.service.write(noop, REQUEST)
        assert raised.value.status == 503
        follower.leadership.writer = follower.writer
        assert await asyncio.gather(*writes) == [{"written": True}] * WRITES_MAX
        assert await follower.service.write(noop, REQUEST) == {"written": True}

    run(test)


def test_number_of_parses_is_bounded() -> None:
    async def test(network: Network) -> None:
        service = network.writer.service
        release = threading.Event()
        parses_max = PARSES_RUNNING_MAX + PARSES_WAITING_MAX
        parses = [
            asyncio.create_task(service.parse_off_loop(release.wait)) for _ in range(parses_max)
        ]
        await asyncio.sleep(0)
        try:
            with pytest.raises(RegistryError) as raised:
                await service.parse_off_loop(lambda: True)
            assert raised.value.status == 503
        finally:
            release.set()
        assert await asyncio.gather(*parses) == [True] * parses_max
        assert await service.parse_off_loop(lambda: True) is True

    run(test)


def test_schemas_are_parsed_in_threads() -> None:
    threads: set[str] = set()

    async def test(network: Network) -> None:
        def parse_off_loop(call: Callable[[], None]) -> Any:
            return original(lambda: (threads.add(threading.current_thread().name), call())[1])

        original = network.writer.service.parse_off_loop
        network.writer.service.parse_off_loop = parse_off_loop  # type: ignore[method-assign]
        await register(network.writer, "orders")
        body = json.dumps({"schema": SCHEMA})
        for path in ("/subjects/orders", "/compatibility/subjects/orders/versions"):
            assert (await network.writer.http.post(path, content=body)).status_code == 200
        formatted = await network.writer.http.get("/schemas/ids/1?format=resolved")
        assert formatted.json()["schema"] == SCHEMA
        assert threads
        assert threading.current_thread().name not in threads

    run(test)


READS = [
    ("GET", "/schemas/ids/1", None),
    ("GET", "/schemas/ids/1/schema", None),
    ("GET", "/schemas/ids/1/subjects", None),
    ("GET", "/schemas/ids/1/versions", None),
    ("GET", "/subjects/orders/versions", None),
    ("GET", "/subjects/orders/versions/latest", None),
    ("GET", "/subjects/orders/versions/1/schema", None),
    ("GET", "/subjects/orders/versions/1/referencedby", None),
    ("POST", "/subjects/orders", {"schema": SCHEMA}),
    ("POST", "/compatibility/subjects/orders/versions/1", {"schema": SCHEMA}),
]


@pytest.mark.parametrize(("method", "url", "body"), READS)
def test_follower_finds_a_schema_that_it_has_not_read_yet(
    method: str, url: str, body: JsonValue
) -> None:
    async def test(network: Network) -> None:
        await register(network.writer, "orders")
        response = await network.follower.http.request(method, url, json=body)
        assert response.status_code == 200, response.text
        (asked,) = network.requests
        assert (asked.method, asked.url.path) == ("GET", "/")

    run(test)


def test_schema_that_the_writer_does_not_have_either_is_not_found() -> None:
    async def test(network: Network) -> None:
        for requests in (1, 2):
            response = await network.follower.http.get("/schemas/ids/1")
            assert response.json()["error_code"] == 40403
            assert len(network.requests) == requests
        for url in ("/config/orders", "/subjects/orders/versions/x", "/nothing"):
            await network.follower.http.get(url)
        assert (await network.writer.http.get("/schemas/ids/1")).status_code == 404
        assert len(network.requests) == 2

    run(test)


def test_read_without_a_reachable_writer_is_not_found() -> None:
    async def test(network: Network) -> None:
        for url in (None, "http://gone:8081"):
            network.follower.leadership.urls = [url]
            response = await network.follower.http.get("/schemas/ids/1")
            assert response.json()["error_code"] == 40403

    run(test)


def test_read_does_not_wait_for_the_log_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.registry.service.CATCH_UP_WAIT_S", 0.01)

    async def test(network: Network) -> None:
        network.delivers = False
        await register(network.writer, "orders")
        response = await network.follower.http.get("/schemas/ids/1")
        assert response.json()["error_code"] == 40403

    run(test)


def test_number_of_reads_that_ask_the_writer_is_bounded() -> None:
    async def test(network: Network) -> None:
        network.delivers = False
        await register(network.writer, "orders")
        follower = network.follower
        reads = [
            asyncio.create_task(follower.http.get("/schemas/ids/1")) for _ in range(CATCH_UPS_MAX)
        ]
        for _ in range(50):
            await asyncio.sleep(0)
        refused = await follower.http.get("/schemas/ids/1")
        assert refused.json()["error_code"] == 40403
        network.log.deliver(follower.applied)
        assert {each.status_code for each in await asyncio.gather(*reads)} == {200}
        assert len(network.requests) == CATCH_UPS_MAX

    run(test)
