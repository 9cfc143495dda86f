"""One instance of the registry: topic, log, state, election and HTTP server.

The instance listens when its state has applied the log up to its end, and takes part in the
election from then on. It stops in the reverse order: open requests end first, then the instance
leaves the group, so that another one takes over at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from dataclasses import dataclass

from odradek import __version__
from odradek.environment.clock import Clock, SystemClock
from odradek.environment.executors import Executors, Pool
from odradek.environment.thread_pool import ThreadExecutors
from odradek.environment.timers import LoopTimers, Timers, wait_at_most
from odradek.registry.app import create_app
from odradek.registry.applied_log import AppliedLog
from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.election import URL_LENGTH_MAX
from odradek.registry.forwarding import Forwarder, forwarding_client
from odradek.registry.http_server import HttpServer
from odradek.registry.kafka_settings import InstanceFailure, KafkaSettings, RefusedSetting
from odradek.registry.leadership import WriterElection
from odradek.registry.log_identity import KafkaIdentity, LogIdentityWatch, LogLost
from odradek.registry.schemas.parsers import Parsers
from odradek.registry.schemas_log import SchemasLog
from odradek.registry.schemas_topic import BrokersUnavailable, SchemasTopic, prepare_topic
from odradek.registry.service import PARSES_RUNNING_MAX, Identity, RegistryService
from odradek.registry.state import DEFAULT_LEVEL, RegistryState

logger = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8081
START_PATIENCE_MS = 60_000.0
"""Time for which a start waits for brokers that do not respond yet."""
START_RETRY_S = 1.0
"""Pause between two attempts to reach a broker."""
LEAVE_TIMEOUT_S = 3.0
"""Time limit for leaving the group."""
READER_TIMEOUT_S = 1.0
"""Time limit for the end of the thread that reads the log."""
POOLS_TIMEOUT_MS = 1_000.0
"""Time limit for the calls that threads of the instance still execute."""


class RefusedAddress(InstanceFailure):
    """The address is in use, or does not exist on this machine."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of an instance.

    Attributes:
        kafka: The cluster and the topic.
        host: The address on which it listens.
        port: Its port. 0: a free one.
        advertised_url: The URL for the other instances. None: host and port.
        default_level: The compatibility level of subjects without a config.
    """

    kafka: KafkaSettings
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    advertised_url: str | None = None
    default_level: CompatibilityLevel = DEFAULT_LEVEL


class RegistryServer:
    """One instance. Owned by the running event loop.

    Args:
        options: The options.
        clock: The clock.
        timers: The timers of the event loop.
        executors: The source of threads.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        executors: Executors | None = None,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._timers = timers or LoopTimers()
        executors = executors or ThreadExecutors()
        self._writer_pool = executors.pool(1, "odradek-registry-writer")
        self._parse_pool = executors.pool(PARSES_RUNNING_MAX, "odradek-registry-parse")
        self._failure: asyncio.Future[None] | None = None
        self._listener: socket.socket | None = None
        self._port: int | None = None
        self._parts: _Parts | None = None

    @property
    def port(self) -> int:
        """The port on which the instance listens, also if it was chosen by the system."""
        assert self._port is not None, "the instance was started"
        return self._port

    @property
    def url(self) -> str:
        """The URL of the instance for clients on this machine."""
        return _url(_reachable(self._options.host), self.port)

    @property
    def is_writer(self) -> bool:
        """Whether this instance is the writer."""
        return self._parts is not None and self._parts.election.writer is not None

    async def start(self) -> None:
        """Start the instance. It accepts requests when this returns.

        Raises:
            InstanceFailure: A setting, the address or the topic is refused, or no broker responds.
        """
        self._failure = asyncio.get_running_loop().create_future()
        self._listener = _bound(self._options.host, self._options.port)
        self._port = self._listener.getsockname()[1]
        began_ms = self._clock.monotonic_ms()
        try:
            url = self._advertised_url()
            topic = await self._prepared_topic()
            self._parts = parts = self._make_parts(topic, url)
            parts.log.start()
            parts.watch.start()
            parts.election.start()
            await self._read_log(parts.applied)
            await parts.http.start()
        except BaseException:
            await self.stop()
            raise
        parts.election.serving()
        self._report_start(parts.applied, url, began_ms)

    async def failed(self) -> None:
        """Raise the error after which the instance cannot continue. Never return."""
        assert self._failure is not None, "the instance was started"
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop the instance within 10 seconds. A second call does nothing."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.http.stop()
            await parts.election.stop(LEAVE_TIMEOUT_S)
            await parts.watch.close()
            await parts.log.close(READER_TIMEOUT_S)
            self._writer_pool.submit(parts.identity.close)
            await parts.forwarder.aclose()
        elif self._listener is not None:
            self._listener.close()
        await self._end_pools(self._writer_pool, self._parse_pool)
        if self._failure is not None and not self._failure.done():
            self._failure.cancel()

    async def _end_pools(self, *pools: Pool) -> None:
        for each in pools:
            # The writer pool still has to drop its producer.
            each.shutdown(wait=False, cancel_futures=each is self._parse_pool)
        ended = [asyncio.wrap_future(each.ended) for each in pools]
        await wait_at_most(self._timers, ended, POOLS_TIMEOUT_MS)
        for each in pools:
            if each.ended.done():
                each.shutdown()  # its threads have executed their last call

    def _advertised_url(self) -> str:
        """Return the URL for the other instances.

        Raises:
            RefusedSetting: It is too long for the metadata of an offset.
        """
        chosen = self._options.advertised_url
        url = _url(_own_name(self._options.host), self.port) if chosen is None else chosen
        if len(url) > URL_LENGTH_MAX:
            raise RefusedSetting(f"--advertise takes a URL of at most {URL_LENGTH_MAX} characters.")
        return url.rstrip("/")

    async def _prepared_topic(self) -> SchemasTopic:
        """Check or create the topic. Wait for brokers that are still starting."""
        loop = asyncio.get_running_loop()
        deadline_ms = self._clock.monotonic_ms() + START_PATIENCE_MS
        while True:
            try:
                return await loop.run_in_executor(
                    self._writer_pool, prepare_topic, self._options.kafka
                )
            except BrokersUnavailable as error:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
                logger.warning(
                    "the start of the registry waits for topic '%s' and tries again: %s",
                    self._options.kafka.topic,
                    error,
                )
            await self._timers.sleep(START_RETRY_S)

    def _make_parts(self, topic: SchemasTopic, url: str) -> _Parts:
        settings = self._options.kafka
        assert self._failure is not None and self._listener is not None, "in the start"
        state = RegistryState(self._options.default_level)
        applied = AppliedLog(state, settings.topic)
        identity = KafkaIdentity(settings, self._writer_pool)
        watch = LogIdentityWatch(
            settings.topic, topic.identity, identity, self._clock, self._timers, self._fail
        )
        log = SchemasLog(
            settings, applied.apply, self._fail, self._clock.monotonic_ms, watch.suspect
        )
        election = WriterElection(
            settings,
            topic.cluster_id,
            url,
            log,
            watch,
            applied,
            self._writer_pool,
            self._clock,
            self._timers,
            self._fail,
        )
        names = Identity(topic.cluster_id, settings.group, __version__)
        forwarder = Forwarder(forwarding_client, names.registry)
        service = RegistryService(
            state,
            Parsers(),
            names,
            election,
            applied,
            forwarder,
            self._parse_pool,
            self._clock,
            self._timers,
        )
        http = HttpServer(create_app(service), self._listener)
        return _Parts(applied, identity, watch, log, election, forwarder, http)

    async def _read_log(self, applied: AppliedLog) -> None:
        """Return when the log was read to its end. Raise the failure of a thread."""
        ready = asyncio.get_running_loop().create_task(applied.ready())
        assert self._failure is not None, "in the start"
        try:
            await asyncio.wait([ready, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
        finally:
            ready.cancel()

    def _fail(self, error: Exception) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
        if self._parts is not None and isinstance(error, LogLost):
            self._parts.election.log_lost(error)

    def _report_start(self, applied: AppliedLog, url: str, began_ms: float) -> None:
        logger.info(
            "the registry listens on %s:%d and advertises %s. Topic '%s' at %s was read up to"
            " offset %d in %.2f s",
            self._options.host,
            self.port,
            url,
            self._options.kafka.topic,
            self._options.kafka.bootstrap_servers,
            applied.position,
            (self._clock.monotonic_ms() - began_ms) / 1000,
        )
        if not _is_loopback(self._options.host):
            logger.warning(
                "clients are not authenticated: any client that can connect to %s:%d may read and"
                " change all schemas. Listen on 127.0.0.1, or restrict access with a firewall",
                self._options.host,
                self.port,
            )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a running instance."""

    applied: AppliedLog
    identity: KafkaIdentity
    watch: LogIdentityWatch
    log: SchemasLog
    election: WriterElection
    forwarder: Forwarder
    http: HttpServer


def _bound(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet, so that connections are refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off for sockets with this protocol only.
    listener = socket.socket(family, proto=socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise RefusedAddress(
            f"The registry cannot listen on {host}:{port}: {error.strerror or error}. Choose"
            " another address with --listen."
        ) from None
    return listener


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")  # noqa: S104


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """Return the host of a URL for clients on this machine."""
    return DEFAULT_HOST if _is_wildcard(host) else host


def _own_name(host: str) -> str:
    """Return the host of a URL for other machines."""
    return socket.gethostname() if _is_wildcard(host) else host
