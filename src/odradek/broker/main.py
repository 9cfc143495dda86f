"""A broker as a process: an event loop of its own, ended by SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from odradek.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.stopping import StopLimits
    from odradek.config.broker import BrokerConfig
    from odradek.environment.environment import Environment

log = logging.getLogger("odradek.broker")

FORCE_FALLBACKS = "ODRADEK_FORCE_FALLBACKS"


def run(
    config: BrokerConfig,
    *,
    environment: Environment | None = None,
    stop_limits: StopLimits | None = None,
) -> None:
    """Serve until a signal ends the process. Exit with 1 and one line when the broker cannot start.

    The process ends here, without the end of the interpreter, which frees every object: half a
    second with some thousand partitions. All that has to be written was written by then.
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, environment, stop_limits))
    except (KafkaError, OSError) as error:
        message = error.message if isinstance(error, KafkaError) else str(error)
        print(f"odradek: {message}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(0)


def fallbacks_forced() -> bool:
    """Whether this process does without uvloop, sendfile and RWF_NOWAIT, as some systems must."""
    return bool(os.environ.get(FORCE_FALLBACKS))


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's loop, or None for asyncio's own (no uvloop here, or fallbacks forced)."""
    if fallbacks_forced():
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


def real_environment() -> Environment:
    """The environment that this system offers, or the portable part of it if that is forced."""
    from odradek.environment.environment import Environment
    from odradek.environment.files import PortableFiles, RealFiles

    return Environment(files=PortableFiles() if fallbacks_forced() else RealFiles())


async def _serve(
    config: BrokerConfig, environment: Environment | None, stop_limits: StopLimits | None
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    from odradek.broker.broker import BrokerServer

    server = BrokerServer(
        config, environment=environment or real_environment(), stop_limits=stop_limits
    )
    starting = loop.create_task(server.start())
    waiting = loop.create_task(ended.wait())
    # A signal ends a start, too: recovery of many logs takes longer than a process may take to end.
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("stopping, before the start has ended")
        starting.cancel()
        await asyncio.wait([starting])
        return
    starting.result()
    try:
        await waiting
        log.info("stopping")
    finally:
        await server.stop()
