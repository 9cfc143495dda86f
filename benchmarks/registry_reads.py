"""Schemas by id from the registry, against a bare Starlette route that returns as many bytes.

`make evidence-registry-reads`, or `python -m benchmarks.registry_reads`, alternates pairs of runs.
Both servers run on uvicorn and uvloop with the same settings, each in a process of its own. The
registry has 10,000 schemas, and the requests go around `IDS` of them. The figures are requests a
second and requests a second of the server's CPU time. The client may be the slower part of a run,
so the second figure is the ratio to judge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.processes import cpu_nanoseconds
from benchmarks.tables import median
from odradek.broker.main import loop_factory
from odradek.registry.app import create_app
from odradek.registry.compatibility.levels import incompatibilities
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.forwarding import ForwardableRequest
from odradek.registry.http_server import HttpServer
from odradek.registry.json_value import JsonValue
from odradek.registry.records import SchemaRecord
from odradek.registry.routes.encoded_schemas import EncodedSchemas
from odradek.registry.schemas.parsers import Parsers
from odradek.registry.service import Decide, Identity
from odradek.registry.state import RegistryState
from testkit.peer.artifacts import ROOT

KINDS = ("bare", "registry")
SCHEMAS = 10_000
IDS = 1_000
PAIRS = 9
REQUESTS = 20_000
METRICS = ("requests_s", "requests_cpu_s")
CONNECTIONS = 16
TIMESTAMP_MS = 1_700_000_000_000
ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json"

T = TypeVar("T")


class FilledRegistry:
    """A registry without a log, with `SCHEMAS` schemas of equal size."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.tools = SchemaTools(Parsers(), incompatibilities)
        self.identity = Identity("cluster", "group", "0")
        for number in range(1, SCHEMAS + 1):
            record = SchemaRecord(f"subject-{number:06}", 1, number, schema_text(number))
            self.state.apply(record, number - 1, TIMESTAMP_MS)

    async def write(self, decide: Decide, request: ForwardableRequest) -> JsonValue:
        raise NotImplementedError

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        return call()

    async def read_off_loop(self, read: Callable[[RegistryState], T]) -> T:
        return read(self.state)

    async def catch_up(self) -> bool:
        return False


def schema_text(number: int) -> str:
    """Return an Avro schema with 20 fields, whose length does not depend on the number."""
    fields = [{"name": f"field_{n:02}", "type": "string", "default": ""} for n in range(20)]
    record = {"type": "record", "name": f"Record{number:06}", "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def bare_app() -> Starlette:
    """Return an app with one route, which returns a body of the registry's size."""
    version = FilledRegistry().state.by_id(1)
    assert version is not None
    body = EncodedSchemas().encoded(version, with_subject=False).body

    async def by_id(_: Request) -> Response:
        return Response(body, media_type="application/vnd.schemaregistry.v1+json")

    return Starlette(routes=[Route("/schemas/ids/{id}", by_id)])


async def serve(kind: str) -> None:
    """Print the port and serve until the process is terminated."""
    app = bare_app() if kind == "bare" else create_app(FilledRegistry())
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = HttpServer(app, listener)
    await server.start()
    print(listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def load(port: int, requests: int) -> None:
    """Send requests on `CONNECTIONS` connections, each after the response to the one before."""
    await asyncio.gather(
        *(_connection(port, requests // CONNECTIONS, first) for first in range(CONNECTIONS))
    )


async def _connection(port: int, requests: int, first: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request(1))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    await reader.readexactly(length)
    for number in range(requests):
        writer.write(_request((first + number * CONNECTIONS) % IDS + 1))
        response = await reader.readexactly(len(head) + length)
        assert response.startswith(b"HTTP/1.1 200"), response[:200]
    writer.close()
    await writer.wait_closed()


def _request(schema_id: int) -> bytes:
    return (
        f"GET /schemas/ids/{schema_id} HTTP/1.1\r\nHost: localhost\r\nAccept: {ACCEPT}\r\n"
        "User-Agent: benchmark\r\n\r\n"
    ).encode()


class Servers:
    """Both servers, each in a process of its own. `with` ends them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pids: dict[str, int] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Servers:
        with ExitStack() as stack:
            for kind in KINDS:
                self._start(kind, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, kind: str, stack: ExitStack) -> None:
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.registry_reads", "serve", kind],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        stack.enter_context(server)
        stack.callback(server.terminate)
        assert server.stdout is not None
        self._pids[kind] = server.pid
        self._ports[kind] = int(server.stdout.readline())

    def pair(self, number: int, requests: int) -> dict[str, dict[str, float]]:
        """Return the figures of both servers. Every second pair begins with the registry."""
        order = KINDS if number % 2 else KINDS[::-1]
        return {kind: self._measure(kind, requests) for kind in order}

    def _measure(self, kind: str, requests: int) -> dict[str, float]:
        """Return requests a second, and requests a second of the server's CPU time."""
        pid = self._pids[kind]
        began, cpu = time.perf_counter(), cpu_nanoseconds(pid)
        asyncio.run(load(self._ports[kind], requests))
        elapsed = time.perf_counter() - began
        return {
            "requests_s": requests / elapsed,
            "requests_cpu_s": requests * 1e9 / (cpu_nanoseconds(pid) - cpu),
        }


def ratios(pairs: list[dict[str, dict[str, float]]], metric: str) -> list[float]:
    """Return the registry's figure divided by that of the bare route, for each pair."""
    return [pair["registry"][metric] / pair["bare"][metric] for pair in pairs]


def main() -> None:
    """Compare, or serve in a child process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry_reads")
    parser.add_argument("command", nargs="?", choices=["compare", "serve"], default="compare")
    parser.add_argument("kind", nargs="?", choices=KINDS, default="registry")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    if options.command == "serve":
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(options.kind))
    with Servers() as servers:
        servers.pair(0, options.requests)
        pairs = [servers.pair(n, options.requests) for n in range(1, options.pairs + 1)]
    for metric in METRICS:
        for kind in KINDS:
            print(metric, kind, " ".join(f"{pair[kind][metric]:.0f}" for pair in pairs))
        print(metric, f"registry/bare: median {median(ratios(pairs, metric)):.3f}")


if __name__ == "__main__":
    main()
