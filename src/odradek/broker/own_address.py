"""The check that a broker reaches its own advertised address, after it has registered.

Other brokers and clients connect to that address. If not even the broker itself can connect, they
cannot either, and a controller does not reach its own feed. The check changes nothing.
"""

from __future__ import annotations

import asyncio
import logging

from odradek.environment.network import Network
from odradek.metadata.image import Endpoint

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0


async def check_own_address(network: Network, endpoint: Endpoint) -> None:
    """Log a warning if this broker cannot connect to one of its advertised addresses."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await network.connect(endpoint.host, endpoint.port, asyncio.Protocol)
    except TimeoutError:
        reason = f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:  # ValueError: the name of the host is malformed
        reason = str(error)
    else:
        transport.abort()
        return
    logger.warning(
        "this broker cannot connect to its own advertised address %s:%d of listener %s (%s). Other "
        "brokers and clients use this address. Correct advertised.listeners, or the name service "
        "and the firewall of this machine",
        endpoint.host,
        endpoint.port,
        endpoint.listener,
        reason,
    )
