"""The limits of the network layer, by name. They bound the memory that peers can take.

Over all connections of a server:

* `request_bytes_queued_max`: frames too large for the shared receive buffer (`MemoryBudget`).
* `received_ahead_bytes_max`: torn frames, and requests that may not start (`ReceivedAhead`).
* `lent_bytes_max`: shared receive buffers that requests in execution use (`Scratch`). Above it each
  such request has `SCRATCH_BYTES_MIN`.
* `response_bytes_queued_total_max`: requests in flight, and responses that wait for an earlier one
  of their connection (`QueuedAnswers`). Each connection may have one request beyond it.
* `response_bytes_unsent_max`: responses that were handed to a socket that is full
  (`UnsentAnswers`).

Other packages bound the other things that requests leave in memory:

* `SHAPE_BYTES_MAX` in `broker.requests.shape_budget`: remembered request shapes.
* `OPERATIONS_WAITING_MAX` and `PARTITIONS_WAITING_MAX` in `replication.purgatory`: waiting fetches.
* `PARTITIONS_MAX` in `broker.requests.fetch_sessions`.
* `WINDOWS_MAX` and `WINDOW_NAME_CHARACTERS_MAX` in `broker.requests.quotas`.
* `LONG_REQUESTS_MAX` in `broker.requests.dispatch`: long requests that are decoded.

Members of groups are state of the coordinator. They end with their sessions.

A connection also has memory that only the number of connections bounds, which is bounded by
`connections_max` and by the limit of open files:

* its objects, some 6 KB, with one callback for its end,
* `KEPT_FREE_BYTES` of a later request,
* the name of its client's software (`CLIENT_SOFTWARE_CHARACTERS_MAX`),
* one request in execution, and the response that is being sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCRATCH_BYTES = 131_072
"""The receive buffer that the connections of a server share: one read fills at most this much."""

SCRATCH_BYTES_MIN = 32_768
"""Its size while the requests in execution use `lent_bytes_max` of such buffers."""

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

IN_FLIGHT_BYTES = 4_096
"""Memory of a request in flight, without its frame and its response: results, context, timer."""

IN_FLIGHT_FRAME_BYTES_MAX = 65_536
"""Up to so many bytes of its frame count too, for the decoded fields. Records are not kept."""

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
    """Bytes of such answers, and of requests in flight (`IN_FLIGHT_BYTES` and their frames), over
    all connections. At the limit a connection that has a request in flight starts no further one.
    """
    response_bytes_unsent_max: int = 256 * 1_048_576
    """Bytes of answers that peers do not take, over all connections: who took none longest goes."""
    received_ahead_bytes_max: int = 256 * 1_048_576
    """Bytes of torn frames and of requests that may not start, over all connections. Above half of
    it a connection keeps no more than what was read. At the limit the connection is closed that
    has kept some for longest.
    """
    lent_bytes_max: int = 128 * 1_048_576
    """Receive buffers that are used by requests in execution, over all connections. Above it the
    connections read into small buffers, of `SCRATCH_BYTES_MIN`.
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
