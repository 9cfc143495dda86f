"""The registry's process: one instance on its own event loop, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from odradek.broker.main import loop_factory
from odradek.registry.server import RegistryServer, ServerOptions

logger = logging.getLogger(__name__)


def run(options: ServerOptions, *, lifeline: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then end the process.

    The process ends by `os._exit`. A regular end of the interpreter would wait for threads of
    librdkafka.

    Args:
        options: The options of the instance.
        lifeline: A descriptor of a pipe whose other end the parent process holds. The process ends
            when the parent has ended, too.

    Raises:
        InstanceFailure: The instance cannot start, or cannot continue.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(options, lifeline))
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(0)


async def _serve(options: ServerOptions, lifeline: int | None) -> None:
    loop = asyncio.get_running_loop()
    is_ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, is_ended.set)
    if lifeline is not None:
        loop.add_reader(lifeline, is_ended.set)
    server = RegistryServer(options)
    waiting = loop.create_task(is_ended.wait())
    starting = loop.create_task(server.start())
    # A signal also ends a start that still waits for brokers.
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("the registry stops on a signal before its start is complete")
        starting.cancel()
        await asyncio.wait([starting])
        return
    starting.result()
    failing = loop.create_task(server.failed())
    try:
        await asyncio.wait([waiting, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        logger.info("the registry stops on a signal, or because its parent process has ended")
    finally:
        if lifeline is not None:
            loop.remove_reader(lifeline)
        failing.cancel()
        await server.stop()
        logger.info("the registry has stopped")
