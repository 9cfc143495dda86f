"""One broker process for the tests of a module, and a second client that must not be affected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient
from tests.hostile.attacks import Attacker
from tests.hostile.process import BrokerProcess

KEPT = "kept"
MEMORY_BYTES_MAX = 250 * 1_048_576
"""Maximum memory of a broker, which starts with 50 MB, after all attacks of a module. A module may
define a limit of its own with this name.
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def process(request: pytest.FixtureRequest, data_dir: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data_dir) as running:
        with WireClient(running.bootstrap_servers) as client:
            create_topic(client, KEPT)
            create_topic(client, "t")
        yield running
        bytes_max = getattr(request.module, "MEMORY_BYTES_MAX", MEMORY_BYTES_MAX)
        assert running.memory_bytes("VmHWM") < bytes_max
        bugs = [line for line in running.lines if "bug in" in line or "Traceback" in line]
        assert not bugs, "".join(running.lines)


@pytest.fixture
def canary(process: BrokerProcess) -> Iterator[Canary]:
    with Canary(process.bootstrap_servers) as running:
        yield running


@pytest.fixture
def attacker(process: BrokerProcess) -> Iterator[Attacker]:
    with Attacker(process) as client:
        yield client


def create_topic(client: WireClient, name: str, **configs: object) -> None:
    entries = [
        CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()
    ]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], entries)], 10_000, False)
    assert client.call(request, 7).topics[0].error_code == 0


class Canary:
    """A second client that sends, fetches its message, and asks for versions, in a loop."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = WireClient(bootstrap_servers)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._turned = threading.Condition()
        self.rounds = 0

    def round_trip(self) -> None:
        sent = self._client.call(produce(KEPT, batch(b"canary")), 9)
        response = sent.responses[0].partition_responses[0]
        assert response.error_code == 0
        got = self._client.call(fetch(KEPT, response.base_offset), 12)
        assert got.responses[0].partitions[0].high_watermark > response.base_offset
        assert self._client.call(ApiVersionsRequest("canary", "1"), 3).error_code == 0
        with self._turned:
            self.rounds += 1
            self._turned.notify_all()

    def wait_for_rounds(self, count: int) -> None:
        """Return when so many more rounds have ended."""
        with self._turned:
            last = self.rounds + count
            self._turned.wait_for(lambda: self.rounds >= last or self._error)
            assert self._error is None, "the canary died"

    def _run(self) -> None:
        try:
            while not self._ended.wait(0.01):
                self.round_trip()
        except BaseException as error:  # noqa: BLE001 - raised where the test ends
            with self._turned:
                self._error = error
                self._turned.notify_all()

    def __enter__(self) -> Canary:
        self.round_trip()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        self.round_trip()
        self._client.socket.close()
