"""The limits of the network layer, by name. What a peer can make us hold is bounded by these.

Per connection: one receive buffer (`BACKLOG_BYTES` while its requests wait, else at most
`TAIL_BYTES`), one frame of at most `request_bytes_max`, `requests_in_flight_max` requests whose
answers are due, `response_bytes_queued_max` bytes of answers that wait for an earlier one.
In all: `request_bytes_queued_max` bytes of frames larger than what every connection may hold,
`response_bytes_queued_total_max` bytes of answers that wait for an earlier one of their connection,
and `response_bytes_unsent_max` bytes of answers that were handed to a socket that is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCRATCH_BYTES = 131_072
"""The receive buffer that the connections of a server share: one read fills at most this much."""

TAIL_BYTES = 16_384
"""A torn frame's first bytes, kept aside until the rest arrives, without asking the budget."""

CLAIM_BYTES = 1_048_576
"""A frame larger than this claims its memory in steps of this size, as its bytes arrive."""

PROGRESS_BYTES_MIN = 65_536
"""While others wait for memory, who holds some has to send so much in `request_bytes_wait_ms`."""

KEPT_FREE_BYTES = 2_048
"""Bytes that a connection may keep for a later request without being counted. A client that
pipelines one more request behind a long poll is so never closed for it.
"""

BACKLOG_BYTES = 65_536
"""Bytes read ahead on a connection whose requests may not start yet; then reading stops."""

FLUSH_BYTES = 65_536
"""Answers that are ready together leave in one write of about this size at most."""

TURN_REQUESTS_MAX = 256
"""Requests of one connection started in a turn of the loop, before the others have theirs."""

PUMP_BYTES_MAX = 4 * 1_048_576
"""Bytes of one connection sent in a turn of the loop, before the others have theirs."""

COLD_PIECE_BYTES = 1_048_576
"""Bytes of a region brought into the page cache by one task of the executor."""

SMALL_REGION_BYTES = 16_384
"""A region up to this size leaves with its header in one write instead of by sendfile."""

PLUG_BYTES = 4_096
"""Bytes handed to the transport when sendfile would block: their departure is the wake-up call."""

SEND_BUFFER_BYTES = 614_400
"""What a socket holds of our answers: more than half of a usual fetch, so that it leaves in two
goes. Measured over loopback: with 100 KiB (Kafka's) the same fetch costs a third more CPU.
"""

READ_PIECE_BYTES = 131_072
"""Bytes of a region held in memory at a time where there is no sendfile."""


@dataclass(frozen=True, slots=True)
class NetLimits:
    """Kafka's names where Kafka has the limit; sizes in bytes, times in milliseconds."""

    request_bytes_max: int = 104_857_600
    """socket.request.max.bytes: a larger frame closes the connection."""
    request_bytes_queued_max: int = 512 * 1_048_576
    """queued.max.request.bytes: frames being received or executed, over all connections."""
    request_bytes_wait_ms: int = 5_000
    """After so long a wait for that memory the connections go that hold some and hardly send."""
    requests_in_flight_max: int = 256
    """Requests of one connection that were started and not answered."""
    response_bytes_queued_max: int = 1_048_576
    """Bytes of one connection's answers that wait behind an earlier answer."""
    response_bytes_queued_total_max: int = 256 * 1_048_576
    """Bytes of such answers over all connections. At the limit a connection that has a request in
    flight starts no further one.
    """
    response_bytes_unsent_max: int = 256 * 1_048_576
    """Bytes of answers that peers do not take, over all connections: who took none longest goes."""
    received_ahead_bytes_max: int = 256 * 1_048_576
    """Bytes of torn frames and of requests that may not start, over all connections. Above half of
    it a connection keeps no more than what was read. At the limit the connection is closed that
    has kept some for longest.
    """
    connections_max: int = 2_147_483_647
    """max.connections: at the limit new ones wait in the accept queue of the system."""
    connections_max_per_ip: int = 2_147_483_647
    """max.connections.per.ip: one more from the same address is closed."""
    connections_max_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides."""
    connections_max_idle_ms: int = 600_000
    """connections.max.idle.ms: a connection that neither sent nor took a byte is closed."""
    closing_ms_max: int = 5_000
    """How long a connection that is being closed may take over its last answers."""
    backlog: int = 50
    """socket.listen.backlog.size."""
    send_buffer_bytes: int = SEND_BUFFER_BYTES
    """socket.send.buffer.bytes when it is set; -1: the system's own tuning."""
    receive_buffer_bytes: int = -1
    """socket.receive.buffer.bytes; -1: the system's own tuning."""
