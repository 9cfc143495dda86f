"""Log lines of a starting broker: ineffective configs, addresses and data directories."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners
from odradek.net.listener import Endpoint

logger = logging.getLogger("odradek.broker.broker")


def report_configs(config: BrokerConfig) -> None:
    """Log a warning for the configured keys that have no effect."""
    if config.inapplicable_keys:
        logger.warning(
            "configs of Kafka that have no effect in Odradek (see docs/configuration.md): %s",
            ", ".join(config.inapplicable_keys),
        )
    if config.unknown_keys:
        logger.warning(
            "unknown configs are ignored, check their spelling: %s", ", ".join(config.unknown_keys)
        )


def report_addresses(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> None:
    """Log the addresses on which the broker listens and that it advertises, and its directories.

    Log one warning if other machines can connect.
    """
    advertised = advertised_listeners(config)
    addresses = (
        ", ".join(f"{each.name}://{each.host}:{each.port}" for each in advertised)
        or "to each client the address that the client connected to"
    )
    logger.info(
        "broker %d listens on %s; data is in %s, and it advertises %s",
        config.node_id,
        ", ".join(map(str, endpoints)),
        ", ".join(map(os.path.abspath, config.log_dirs())),
        addresses,
    )
    exposed = [str(each) for each in endpoints if not each.is_loopback]
    if exposed:
        logger.warning(
            "clients are not authenticated: any client that can connect to %s may read and change "
            "all data. Listen on 127.0.0.1, or restrict access with a firewall",
            ", ".join(exposed),
        )
