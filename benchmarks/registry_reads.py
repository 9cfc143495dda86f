"""Schemas by id from the registry, against a bare Starlette route that returns as many bytes.

`python -m benchmarks.registry_reads` alternates pairs of runs. Both servers run on uvicorn with the
same settings, each in a process of its own. The registry has 10,000 schemas, and the requests go
around `IDS` of them. The figures are requests a second and requests a second of the server's CPU
time. The client may be the slower part of a run, so the second figure is the ratio to judge.
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
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.processes import cpu_nanoseconds, memory_bytes
from benchmarks.tables import MIB, median
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

KINDS = ("bare", "registry")
SCHEMAS = 10_000
IDS = 1_000
PAIRS = 9
REQUESTS = 20_000
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
            record = SchemaRecord(f"subject-{number:06}", 1, number, _text(number))
            self.state.apply(record, number - 1, TIMESTAMP_MS)

    async def write(self, decide: Decide, request: ForwardableRequest) -> JsonValue:
        raise NotImplementedError

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        return call()

    async def read_off_loop(self, read: Callable[[RegistryState], T]) -> T:
        return read(self.state)

    async def catch_up(self) -> bool:
        return False


def _text(number: int) -> str:
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
    listener = socket.socket()
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


def measure(server: subprocess.Popen[str], port: int) -> tuple[float, float]:
    """Return requests a second, and requests a second of the server's CPU time."""
    began, cpu = time.perf_counter(), cpu_nanoseconds(server.pid)
    asyncio.run(load(port, REQUESTS))
    elapsed = time.perf_counter() - began
    return REQUESTS / elapsed, REQUESTS * 1e9 / (cpu_nanoseconds(server.pid) - cpu)


def compare() -> None:
    """Print all values, the medians and the ratios."""
    servers = {
        kind: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.registry_reads", "serve", kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in KINDS
    }
    try:
        ports = {kind: int(_line(server)) for kind, server in servers.items()}
        for kind, server in servers.items():
            measure(server, ports[kind])
        values: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for pair in range(PAIRS):
            for kind in KINDS if pair % 2 == 0 else KINDS[::-1]:
                values[kind].append(measure(servers[kind], ports[kind]))
        _print(values)
        for kind, server in servers.items():
            print(f"{kind}: {memory_bytes(server.pid) / MIB:.1f} MiB")
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()


def _line(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline()


def _print(values: dict[str, list[tuple[float, float]]]) -> None:
    for index, name in enumerate(("requests/s", "requests/CPU-s")):
        columns = {kind: [value[index] for value in values[kind]] for kind in KINDS}
        for kind, column in columns.items():
            print(f"{name} {kind}: {' '.join(f'{value:.0f}' for value in column)}")
        pairs = zip(columns["registry"], columns["bare"], strict=True)
        ratios = [registry / bare for registry, bare in pairs]
        print(f"{name} registry/bare: median {median(ratios):.3f}")


def main() -> None:
    """Compare, or serve in a child process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry_reads")
    parser.add_argument("command", nargs="?", choices=["compare", "serve"], default="compare")
    parser.add_argument("kind", nargs="?", choices=KINDS, default="registry")
    options = parser.parse_args()
    if options.command == "serve":
        asyncio.run(serve(options.kind))
    else:
        compare()


if __name__ == "__main__":
    main()
