"""Log directories of Apache Kafka 4.3.0, and a broker on one of them with a clock of their time."""

from __future__ import annotations

import asyncio
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.broker.broker import BrokerServer
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.environment.environment import Environment
from testkit.wire import WireClient

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.0"
KINDS = ("killed", "stopped")
# Some seconds after Kafka ended, when no data in the directories has expired.
TIME_MS = 1_795_322_670_000
NODE_ID = 7
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PLAIN_ID = "PsJ4mzURTbWdxkNgyUolGg"


def unpack(kind: str, target: Path) -> Path:
    """Unpack one of the directories into `target`. Its indexes are as sparse as Kafka's."""
    with tarfile.open(DATA / f"{kind}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target


def config_for(directory: Path, **more: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "log.dirs": str(directory),
            "node.id": str(NODE_ID),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **more,
        }
    )


@contextmanager
def served(
    directory: Path, config: BrokerConfig | None = None, time_ms: int = TIME_MS
) -> Iterator[tuple[BrokerServer, WireClient]]:
    """Run a broker on `directory` in a thread, with a clock that stands still at `time_ms`."""
    loop = asyncio.new_event_loop()
    environment = Environment(clock=ManualClock(time_ms))
    server = BrokerServer(config or config_for(directory), environment=environment)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(120)
        try:
            with WireClient(server.bootstrap_servers) as client:
                yield server, client
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(120)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
