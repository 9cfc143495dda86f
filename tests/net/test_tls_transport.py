"""A connection on the TLS transport of each event loop: large responses arrive whole."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odradek.net.connection import Connection, Reply
from odradek.net.session import TLS, SecurityProtocol
from tests.helpers.mock_transport import open_connection
from tests.net.support import CountedRegion, OpenFile, body, frame, on_both_loops, run

RESPONSES = 20
REGION_BYTES = 700_000

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for this machine, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    return certificate, key


@on_both_loops
def test_responses_and_regions_arrive_encrypted_and_in_order(
    tmp_path: Path, certificate: tuple[Path, Path], loop: str
) -> None:
    content = body(3, REGION_BYTES)
    (tmp_path / "log").write_bytes(content)
    regions = [0]

    def dispatch(_: Any, view: memoryview) -> Reply:
        region = CountedRegion(regions, OpenFile(tmp_path / "log"), 0, REGION_BYTES)
        return [bytes(view), region, b"end"]

    async def main() -> None:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*certificate)
        calling = ssl.create_default_context(cafile=str(certificate[0]))
        calling.check_hostname = False
        running = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            opened, _ = open_connection(dispatch)
            client = asyncio.ensure_future(
                asyncio.open_connection(*listening.getsockname(), ssl=calling)
            )
            accepted, _ = await running.sock_accept(listening)
            connection = Connection(
                opened._shared,
                "SSL",
                None,
                security_protocol=SecurityProtocol.SSL,
                transport_kind=TLS,
            )
            await running.connect_accepted_socket(lambda: connection, accepted, ssl=serving)
            reader, writer = await client
        writer.write(b"".join(frame(b"%02d" % number) for number in range(RESPONSES)))
        for number in range(RESPONSES):
            expected = frame(b"%02d" % number + content + b"end")
            assert await reader.readexactly(len(expected)) == expected
        writer.close()
        while not connection.closed:  # noqa: ASYNC110 - bounded by `run`
            await asyncio.sleep(0)
        assert regions == [0]

    run(main(), loop)
