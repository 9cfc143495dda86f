"""Brokers whose clocks differ by minutes from the one of the controller.

A broker writes the time of its clock into its node when it registers. The controller reads a new
node within seconds. Timestamps of records, retention by time and the expiration of offsets depend
on the clocks of the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.store.interface import Node

logger = logging.getLogger(__name__)

CLOCK_DIFFERENCE_MAX_MS = 60_000
"""A larger difference is reported."""


def clock_differences(nodes: Mapping[BrokerId, Node], now_ms: int) -> list[tuple[BrokerId, str]]:
    """Return the brokers whose clock differs from the controller's, with words like "5 min behind".

    Args:
        nodes: Nodes that were created a moment ago.
        now_ms: The time of the controller.
    """
    found = []
    for broker, node in nodes.items():
        try:
            ahead_ms = int(znodes.decode(node.data)["timestamp"]) - now_ms
        except (KeyError, TypeError, ValueError):
            continue  # the node of another program. Its registration reports what is missing
        if abs(ahead_ms) > CLOCK_DIFFERENCE_MAX_MS:
            where = "ahead of" if ahead_ms > 0 else "behind"
            found.append((broker, f"{duration(ahead_ms)} {where}"))
    return found


def warn_of_clocks(nodes: Mapping[BrokerId, Node], now_ms: int, controller: BrokerId) -> None:
    """Log a warning for each of `clock_differences`."""
    for broker, difference in clock_differences(nodes, now_ms):
        logger.warning(
            "the clock of broker %d is %s the clock of broker %d, the controller. Synchronize the "
            "clocks of both machines (NTP). Timestamps and retention depend on them",
            broker,
            difference,
            controller,
        )


def duration(milliseconds: int) -> str:
    """Return a duration such as "12 min 5 s", without its sign."""
    minutes, seconds = divmod(abs(milliseconds) // 1000, 60)
    return f"{minutes:,} min {seconds} s" if minutes else f"{seconds} s"
