"""The lines that a broker logs when it starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners
from odradek.net.listener import Endpoint

logger = logging.getLogger("odradek.broker.broker")


def report_configs(config: BrokerConfig) -> None:
    """Name the configs that are given and have no effect."""
    if config.inapplicable_keys:
        logger.warning("configs without effect here: %s", ", ".join(config.inapplicable_keys))
    if config.unknown_keys:
        logger.warning("unknown configs: %s", ", ".join(config.unknown_keys))


def report_addresses(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> None:
    """Name the addresses on which the broker listens and those that it advertises, and its data
    directories. Warn once if other machines can connect.
    """
    advertised = advertised_listeners(config)
    addresses = (
        ", ".join(f"{each.name}://{each.host}:{each.port}" for each in advertised)
        or "the address at which each of them connected"
    )
    logger.info(
        "broker %d listens on %s; data is in %s; clients are told %s",
        config.node_id,
        ", ".join(map(str, endpoints)),
        ", ".join(config.log_dirs()),
        addresses,
    )
    exposed = [str(each) for each in endpoints if not each.is_loopback]
    if exposed:
        logger.warning(
            "clients are not authenticated: everyone who can connect to %s may read and change all "
            "data. Listen on 127.0.0.1, or restrict who can connect",
            ", ".join(exposed),
        )
