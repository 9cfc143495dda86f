"""The broker process: it runs a broker on its own event loop until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Protocol

from odradek.collector import Collector, enable_after_imports
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer
    from odradek.broker.stopping import StopLimits
    from odradek.config.broker import BrokerConfig
    from odradek.environment.environment import Environment

log = logging.getLogger("odradek.broker")

FORCE_FALLBACKS = "ODRADEK_FORCE_FALLBACKS"
SWITCH_INTERVAL_S = 0.0002
"""Time after which a thread has to pass the interpreter on, if the event loop waits for it.

The loop releases the interpreter in each system call. With Python's default of 5 ms, another
thread with Python code, for example the maintenance of 10,000 logs, then stops a time slice for as
long.
"""


class Companion(Protocol):
    """A process that runs beside the broker and is a client of it."""

    def start(self, bootstrap_servers: str) -> None:
        """Start the process, which connects to ``HOST:PORT``."""

    def stop(self) -> None:
        """End the process, and wait for its end. Blocks for seconds."""


def run(
    config: BrokerConfig,
    *,
    environment: Environment | None = None,
    stop_limits: StopLimits | None = None,
    companion: Companion | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then end the process. A companion ends before the broker.

    If the broker cannot start, print one line to stderr and exit with status 1.

    The process ends by `os._exit` after all data is written. A regular end of the interpreter would
    free every object first, which takes half a second with some thousand partitions.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, environment, stop_limits, companion))
    except (KafkaError, OSError) as error:
        message = error.message if isinstance(error, KafkaError) else str(error)
        print(f"odradek: {message}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(0)


def fallbacks_forced() -> bool:
    """Return whether this process must not use uvloop, sendfile and RWF_NOWAIT.

    Tests force this to check the code for systems without them.
    """
    return bool(os.environ.get(FORCE_FALLBACKS))


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop, or None for asyncio's own.

    None is returned if uvloop is not installed or if fallbacks are forced.
    """
    if fallbacks_forced():
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


def real_environment() -> Environment:
    """Return the real environment, with portable file operations if fallbacks are forced."""
    from odradek.environment.environment import Environment
    from odradek.environment.files import PortableFiles, RealFiles

    return Environment(files=PortableFiles() if fallbacks_forced() else RealFiles())


def _make_server(
    config: BrokerConfig, environment: Environment, stop_limits: StopLimits | None
) -> BrokerServer:
    from odradek.broker.broker import BrokerServer
    from odradek.broker.zookeeper_cluster import cluster_on_zookeeper

    cluster = cluster_on_zookeeper(config, environment)
    return BrokerServer(
        config,
        environment=environment,
        stop_limits=stop_limits,
        cluster_store=None if cluster is None else cluster.create_store,
        cluster_settings=None if cluster is None else cluster.settings,
        collector=Collector(),
        imports_on_threads=True,
    )


async def _serve(
    config: BrokerConfig,
    environment: Environment | None,
    stop_limits: StopLimits | None,
    companion: Companion | None,
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = _make_server(config, environment or real_environment(), stop_limits)
    enable_after_imports()
    starting = loop.create_task(server.start())
    waiting = loop.create_task(ended.wait())
    # A signal also ends a start that is still running. Recovery of many logs takes longer than the
    # process has to end.
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("stopping on a signal before the start is complete")
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled() and (error := starting.exception()) is not None:
            log.warning("the start failed while it was cancelled: %r", error)
        return
    starting.result()
    failing = loop.create_task(server.failed())
    try:
        if companion is not None:
            companion.start(server.bootstrap_servers)
        await asyncio.wait([waiting, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            raise _reported(failing.result())
        log.info("stopping on a signal")
    finally:
        failing.cancel()
        if companion is not None:
            await asyncio.to_thread(companion.stop)
        await server.stop()


def _reported(error: Exception) -> KafkaError | OSError:
    """Return the error of a running broker in the form that is printed in one line."""
    if isinstance(error, KafkaError | OSError):
        return error
    reason = f"the broker stops after an error: {error!r}. Its log has the traceback"
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
