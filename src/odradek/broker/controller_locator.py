"""The address of the active controller, for the channels of a broker.

The id of the controller comes from ``/controller``. Its address comes from its registration in the
metadata store. The image of a broker that starts is empty, and the image of any broker may have the
address of an earlier process. While the store cannot be reached, the controller that was
known last stays known, so that a broker follows the metadata without ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from odradek.environment.backoff import Backoff
from odradek.environment.timers import Timers
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.controller_channel import ControllerNode
from odradek.metadata.image import NO_LEADER
from odradek.metadata.store.interface import MetadataStore, StoreError, StoreFailure

logger = logging.getLogger(__name__)

RETRY_MS = 100.0
RETRY_MAX_MS = 1_000.0
"""Delays before the registration of the controller is read again. They double up to the second."""


class ControllerLocator:
    """Owned by the event loop.

    Args:
        store: The session of this broker.
        listener: The name of the inter-broker listener.
        timers: The environment's timers.
        located: Called when a controller was located. It may be the same one as before.
    """

    def __init__(
        self, store: MetadataStore, listener: str, timers: Timers, located: Callable[[], None]
    ) -> None:
        self._store = store
        self._listener = listener
        self._timers = timers
        self._located = located
        self._search: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.node: ControllerNode | None = None
        """The controller that was located last. None: there was none yet."""

    def controller_changed(self, controller_id: BrokerId) -> None:
        """Locate the controller, which may be another process with the same id. -1: unknown."""
        self._cancel()
        if controller_id != NO_LEADER and not self._is_stopped:
            self._search = asyncio.get_running_loop().create_task(self._locate(controller_id))

    def stop(self) -> None:
        """End the search. An election in flight may report a controller afterwards."""
        self._is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._search is not None:
            self._search.cancel()
            self._search = None

    async def _locate(self, broker: BrokerId) -> None:
        backoff = Backoff(self._timers, RETRY_MS, RETRY_MAX_MS)
        while (node := await self._read(broker)) is None:
            await backoff.wait()
        self.node = node
        self._located()

    async def _read(self, broker: BrokerId) -> ControllerNode | None:
        """Return the controller, or None if it is not registered or the store is not connected."""
        try:
            node = await self._store.get(f"{znodes.BROKER_IDS}/{broker}")
            registration = znodes.decode_broker(broker, node.data, node.stat.czxid)
        except (StoreError, StoreFailure):
            return None
        except ValueError as error:
            logger.error(
                "the controller, broker %d, cannot be located: %s. It is tried again", broker, error
            )
            return None
        for endpoint in registration.listeners:
            if endpoint.listener == self._listener:
                return ControllerNode(broker, endpoint.host, endpoint.port)
        logger.error(
            "the controller, broker %d, has no listener %s. Use the same inter-broker listener for "
            "all brokers",
            broker,
            self._listener,
        )
        return None
