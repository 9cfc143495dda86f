"""`Broker`: a real broker in this process, with its own thread and event loop.

The broker listens on a free port of the loopback interface. It keeps its log in a temporary
directory and its metadata in memory. It is ready when `with` or `start` returns. After `close`
nothing is left: no port, descriptor, thread or directory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.stopping import StopLimits
from odradek.environment.environment import Environment
from odradek.testing.broker_thread import BrokerThread, text_of
from odradek.testing.state import reset

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer

STOP_LIMITS = StopLimits(
    responses_ms=1_000, parts_ms=40_000, syncs_ms=40_000, logs_ms=50_000, threads_ms=9_000
)
"""Longer limits than in production, so that `close` returns only when nothing is left."""


class Broker(BrokerThread):
    """A broker of one node for tests.

    Methods may be called from each thread except the broker's own.

    Args:
        config: Kafka's broker configs by name, such as ``{"num.partitions": 3}``.
        port: The port to listen on; 0 means a free one.
        data_dir: Directory of the log, which remains after `close`. None means a temporary
            directory.
        environment: Another file system in place of the operating system's. Its clock, timers and
            interceptor are replaced.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        environment: Environment | None = None,
    ) -> None:
        super().__init__(config)
        self._port = port
        self._environment = environment
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._temporary: Path | None = None

    def reset(self) -> None:
        """Delete all topics, groups, offsets, transactions and faults, and reset the clock.

        The broker is then like a new one. Clients may stay connected.
        """
        self.call(self._reset)

    async def _reset(self, server: BrokerServer) -> None:
        self._faults.clear()
        self._clock.reset()
        await reset(server)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, which is usable when this returns.

        Raises:
            KafkaError: The broker refused the topic.
        """
        texts = {key: text_of(value) for key, value in (config or {}).items()}
        self.call(lambda server: server.create_topic(name, partitions, texts))

    def _prepare(self) -> None:
        if self._data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="odradek-"))

    def _properties(self) -> dict[str, str]:
        directory = self._data_dir or self._temporary
        assert directory is not None
        return {
            # Clients stay connected when a test moves the time.
            "connections.max.idle.ms": "-1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": str(directory),
            **self._config,
        }

    def _make_server(self, environment: Environment) -> BrokerServer:
        from odradek.broker.broker import BrokerServer
        from odradek.config.broker import BrokerConfig
        from odradek.metadata.store.memory import MemoryStore

        config = BrokerConfig.from_properties(self._properties())
        # A directory of the user outlives this broker, and so must the metadata of its topics.
        # It is then kept in SQLite in that directory.
        store = MemoryStore() if self._data_dir is None else None
        if self._environment is not None:
            environment = replace(
                self._environment,
                clock=environment.clock,
                timers=environment.timers,
                interceptor=environment.interceptor,
            )
        return BrokerServer(config, environment=environment, store=store, stop_limits=STOP_LIMITS)

    def _clean_up(self) -> None:
        super()._clean_up()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
