"""Errors of the registry's Kafka clients: log lines, and the ends of their threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.registry.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

logger = logging.getLogger(__name__)

REPEATED_ERROR_MS = 30_000.0
"""Interval between log lines about the same error of a client."""


class RepeatedErrors:
    """Log lines about errors of a client, at most one of each kind in `REPEATED_ERROR_MS`.

    A client reports its errors on one thread.
    """

    def __init__(self, settings: KafkaSettings, monotonic_ms: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._logged_ms: dict[int, float] = {}

    def report(self, error: KafkaError) -> None:
        """Log an error, unless an error with its code was logged a short time before."""
        now_ms = self._monotonic_ms()
        logged_ms = self._logged_ms.get(error.code())
        if logged_ms is not None and now_ms - logged_ms < REPEATED_ERROR_MS:
            return
        self._logged_ms[error.code()] = now_ms
        logger.warning(
            "a Kafka client of %s has an error and tries again: %s",
            self._settings.bootstrap_servers,
            self._settings.hide(error.str()),
        )


async def joined(thread: threading.Thread, timeout_s: float) -> bool:
    """Return when a thread has ended, or after `timeout_s` seconds. Return whether it has ended."""
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()

    def wait() -> None:
        thread.join(timeout_s)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(is_over.set)

    waiter = threading.Thread(target=wait, name=f"{thread.name}-end", daemon=True)
    waiter.start()
    await is_over.wait()
    waiter.join()  # the call above was its last one
    return not thread.is_alive()
