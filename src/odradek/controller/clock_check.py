"""Brokers whose clocks differ by minutes from the one of the controller.

A broker writes the time of its clock into its node when it registers. The controller reads a new
node within seconds. Timestamps of records, retention by time and the expiration of offsets depend
on the clocks of the brokers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.store.interface import Node

logger = logging.getLogger(__name__)

CLOCK_DIFFERENCE_MAX_MS = 60_000
"""A larger difference is reported."""


Difference = tuple[BrokerId, str]
"""A broker, and its difference, such as "2 min 3 s ahead of"."""


def clock_differences(nodes: Mapping[BrokerId, Node], now_ms: int) -> list[Difference]:
    """Return the brokers whose clock, or the controller's, is wrong.

    Args:
        nodes: Nodes that were created a moment ago.
        now_ms: The time of the controller.
    """
    return _differences(nodes, now_ms, lambda _: now_ms)


def differences_at_take_over(
    nodes: Mapping[BrokerId, Node], now_ms: int, controller: BrokerId
) -> list[Difference]:
    """Return the brokers whose clock is wrong, as far as that is certain.

    A node that was created after the controller's own is not older than that. Older nodes may have
    any age, so only a time in the future is certain.

    Args:
        nodes: All nodes, of any age.
        now_ms: The time of the controller.
        controller: The broker of the controller, which has registered itself.
    """
    own = nodes.get(controller)
    own_ms = None if own is None else _time(own)
    if own is None or own_ms is None:
        return []
    others = {broker: node for broker, node in nodes.items() if broker != controller}
    czxid = own.stat.czxid
    return _differences(
        others, now_ms, lambda node: own_ms if node.stat.czxid > czxid else -math.inf
    )


def warn_of_clocks(nodes: Mapping[BrokerId, Node], now_ms: int, controller: BrokerId) -> None:
    """Log a warning for each of `clock_differences`."""
    _warn(clock_differences(nodes, now_ms), controller)


def warn_at_take_over(nodes: Mapping[BrokerId, Node], now_ms: int, controller: BrokerId) -> None:
    """Log a warning for each of `differences_at_take_over`."""
    _warn(differences_at_take_over(nodes, now_ms, controller), controller)


def _warn(differences: Iterable[Difference], controller: BrokerId) -> None:
    for broker, difference in differences:
        logger.warning(
            "the clock of broker %d is %s the clock of broker %d, the controller. Synchronize the "
            "clocks of both machines (NTP). Timestamps and retention depend on them",
            broker,
            difference,
            controller,
        )


def _differences(
    nodes: Mapping[BrokerId, Node], now_ms: int, since_ms: Callable[[Node], float]
) -> list[Difference]:
    """Return the differences of nodes that were created between `since_ms` and now."""
    found = []
    for broker, node in nodes.items():
        time_ms = _time(node)
        if time_ms is None:
            continue
        ahead_ms = max(0, time_ms - now_ms) or min(0, time_ms - since_ms(node))
        if abs(ahead_ms) > CLOCK_DIFFERENCE_MAX_MS:
            where = "ahead of" if ahead_ms > 0 else "behind"
            found.append((broker, f"{duration(int(ahead_ms))} {where}"))
    return found


def _time(node: Node) -> int | None:
    """Return the time in a node. None: another program wrote it, which is reported elsewhere."""
    try:
        return int(znodes.decode(node.data)["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None


def duration(milliseconds: int) -> str:
    """Return a duration such as "12 min 5 s", without its sign."""
    minutes, seconds = divmod(abs(milliseconds) // 1000, 60)
    return f"{minutes:,} min {seconds} s" if minutes else f"{seconds} s"
