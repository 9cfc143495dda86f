"""Brokers whose clocks differ by minutes from the one of the controller. Pure.

A broker writes the time of its clock into its node when it registers. The controller reads a new
node within seconds. Timestamps of records, retention by time and the expiration of offsets depend
on the clocks of the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.store.interface import Node

CLOCK_DIFFERENCE_MAX_MS = 60_000
"""A larger difference is reported."""


def clock_lines(nodes: Mapping[BrokerId, Node], now_ms: int, controller: BrokerId) -> list[str]:
    """Return a line for each new node of a broker whose clock is wrong, or the controller's is.

    Args:
        nodes: Nodes that were created a moment ago.
        now_ms: The time of the controller.
        controller: The broker of the controller.
    """
    lines = []
    for broker, node in nodes.items():
        try:
            ahead_ms = int(znodes.decode(node.data)["timestamp"]) - now_ms
        except (KeyError, TypeError, ValueError):
            continue  # the node of another program. Its registration reports what is missing
        if abs(ahead_ms) > CLOCK_DIFFERENCE_MAX_MS:
            where = "ahead of" if ahead_ms > 0 else "behind"
            lines.append(
                f"the clock of broker {broker} is {duration(ahead_ms)} {where} the clock of broker "
                f"{controller}, the controller. Synchronize the clocks of both machines (NTP). "
                "Timestamps and retention depend on them"
            )
    return lines


def duration(milliseconds: int) -> str:
    """Return a duration such as "12 min 5 s", without its sign."""
    minutes, seconds = divmod(abs(milliseconds) // 1000, 60)
    return f"{minutes:,} min {seconds} s" if minutes else f"{seconds} s"
