"""What a group's state machine asks of the world: answers to give, records to append, nothing else.

The machine is pure: (group, event, now) in, `Effects` out. A *ticket* stands for one waiting
request; the machine never looks inside it (the shell uses an ``asyncio.Future``, a test uses a
string). A ticket that was handed to the machine comes back in `Effects.answers` exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.coordinator.runtime import CoordinatorRecord
from odradek.errors import ErrorCode
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

Ticket = object
Answer = JoinGroupResponse | SyncGroupResponse


class Instant(NamedTuple):
    """One reading of the clock: `monotonic_ms` for deadlines, `time_ms` for what is written
    down."""

    monotonic_ms: float
    time_ms: int


class Client(NamedTuple):
    """Who sent a request, as the group's metadata remembers it."""

    client_id: str
    client_host: str


class GroupLimits(NamedTuple):
    """The settings that bound classic groups (``group.*`` of the broker's configuration)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000


@dataclass(slots=True)
class Effects:
    """The outcome of one event.

    `answers` are given at once. `records` are appended as one batch; when they are committed, or
    could not be, `on_stored` is called with the error code and the time, and its effects are
    performed too.
    """

    answers: list[tuple[Ticket, Answer]] = field(default_factory=list)
    records: list[CoordinatorRecord] = field(default_factory=list)
    on_stored: Callable[[ErrorCode, Instant], Effects] | None = None
