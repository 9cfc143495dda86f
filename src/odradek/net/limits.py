"""The limits of the network layer. They bound the memory that peers can make the broker use.

Over all connections of a server:

* `request_bytes_queued_max`: frames too large for the shared receive buffer (`MemoryBudget`).
* `received_ahead_bytes_max`: torn frames, and requests that may not start (`ReceivedAhead`).
* `lent_bytes_max`: shared receive buffers that requests in execution use (`Scratch`). Above it each
  such request has a buffer of `SCRATCH_BYTES_MIN`.
* `response_bytes_queued_total_max`: requests in flight, and responses that wait for an earlier one
  of their connection (`QueuedResponses`). Each connection may have one request beyond it.
* `response_bytes_unsent_max`: responses that were handed to a socket that is full
  (`UnsentResponses`).

Other packages bound the other memory that requests leave behind:

* `SHAPE_BYTES_MAX` in `broker.requests.shape_budget`: remembered request shapes.
* `OPERATIONS_WAITING_MAX` and `PARTITIONS_WAITING_MAX` in `replication.purgatory`: waiting fetches.
* `PARTITIONS_MAX` in `broker.requests.fetch_sessions`.
* `WINDOWS_MAX` and `WINDOW_NAME_CHARACTERS_MAX` in `broker.requests.quotas`.
* `LONG_REQUESTS_MAX` in `broker.requests.dispatch`: long requests that are decoded.
* `FORWARDED_BYTES_MAX` in `broker.requests.forwarded_bytes`: requests that wait for the controller.

The members of groups are state of the coordinator. They are removed when their sessions expire.

A connection also has memory that only the number of connections bounds, which is bounded by
`connections_max` and by the limit of open files:

* its objects, some 6 KB, with one callback for its end,
* `KEPT_FREE_BYTES` of a later request,
* the name of its client's software (`CLIENT_SOFTWARE_CHARACTERS_MAX`),
* the shape of one fetch (`FRAME_BYTES_MAX` in `broker.requests.fetch_shapes`), 2 to 4 KB,
* one request in execution, and the response that is being sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

SCRATCH_BYTES = 132_096
"""The receive buffer that the connections of a server share. One read fills at most this much.

The frame of a produce request with a batch of 128 KiB, a usual `batch.size`, fits into it. In a
larger buffer, such a read ends with more than `KEPT_FREE_BYTES` of the next frame.
"""

SCRATCH_BYTES_MIN = 32_768
"""Size of the shared receive buffer while requests in execution use `lent_bytes_max` of them."""

TAIL_BYTES = 16_384
"""First bytes of a torn frame that are kept until the rest arrives, without asking the budget."""

CLAIM_BYTES = 1_048_576
"""A larger frame is charged in steps of this size, as its bytes arrive."""

PROGRESS_BYTES_MIN = 65_536
"""Bytes that a holder of request memory has to send in `request_bytes_wait_ms` while others wait.

A connection that sends fewer is closed.
"""

KEPT_FREE_BYTES = 2_048
"""Bytes that a connection may keep for a later request without being counted.

A client that pipelines one more request behind a long poll is therefore never closed for it.
"""

IN_FLIGHT_BYTES = 4_096
"""Memory of a request in flight, without its frame and its response: results, context, timer."""

IN_FLIGHT_FRAME_BYTES_MAX = 65_536
"""Bytes of the frame that count too, at most, for the decoded fields. Records are not kept."""

BACKLOG_BYTES = 65_536
"""Bytes read ahead on a connection whose requests may not start yet. Above it reading stops."""

FLUSH_BYTES = 65_536
"""Approximate upper bound of one write of responses that are ready together."""

WRITE_PIECE_BYTES = 524_288
"""Bytes of one write. A response with more bytes in memory is written in pieces of this size.

asyncio's transport copies the bytes that the socket does not accept. A write of 8 MiB takes 8 ms of
CPU there, and to join the chunks before it 4 ms. A piece takes 0.3 ms, and 8 MiB in pieces half the
CPU.
"""

SLICE_REQUESTS_MAX = 256
"""Requests of one connection that start in one time slice, before other connections continue.

Fewer start if they take longer than `odradek.slicing.SLICE_MS`.
"""

PUMP_BYTES_MAX = 1_048_576
"""Bytes of one connection that are sent in one time slice, before other connections continue.

The last piece may exceed it. On loopback the system also does the receiver's work in these calls,
so sendfile of 4 MiB takes 2 ms of CPU. More slices cost no throughput: the socket holds as much.
"""

COLD_PIECE_BYTES = 1_048_576
"""Bytes of a region that one task of the executor brings into the page cache."""

SMALL_REGION_BYTES = 16_384
"""A region up to this size is sent in one write with its header, instead of by sendfile."""

SMALL_REGION_COST_BYTES = 32_768
"""Bytes of a time slice that a small region counts as. It takes two system calls, some 20 us."""

PLUG_BYTES = 4_096
"""Bytes handed to the transport when sendfile would block.

The transport calls `resume_writing` when it has sent them, and sendfile continues.
"""

SEND_BUFFER_BYTES = 614_400
"""Size of a socket's send buffer (SO_SNDBUF).

It holds more than half of a usual fetch response, so the response is sent in two steps. Measured
over loopback: with 100 KiB, Kafka's default, the same fetch costs a third more CPU.
"""

READ_PIECE_BYTES = 131_072
"""Bytes of a region that are held in memory at a time where sendfile does not exist."""


class NetLimits(NamedTuple):
    """Limits of one server, with Kafka's names where Kafka has the limit. Sizes are in bytes."""

    request_bytes_max: int = 104_857_600
    """socket.request.max.bytes: a connection that sends a larger frame is closed."""
    request_bytes_queued_max: int = 512 * 1_048_576
    """queued.max.request.bytes: frames being received or executed, over all connections."""
    request_bytes_wait_ms: int = 5_000
    """Time for which a connection waits for that memory. Then the server closes the connections
    that hold some of it and have sent fewer than `PROGRESS_BYTES_MIN` bytes in that time.
    """
    requests_in_flight_max: int = 256
    """Requests of one connection that were started and whose responses are not sent."""
    response_bytes_queued_max: int = 1_048_576
    """Bytes of one connection's responses that wait behind an earlier response."""
    response_bytes_queued_total_max: int = 256 * 1_048_576
    """Bytes of such responses, and of requests in flight (`IN_FLIGHT_BYTES` and their frames), over
    all connections. At the limit a connection that has a request in flight starts no further one.
    """
    response_bytes_unsent_max: int = 256 * 1_048_576
    """Bytes of responses that peers do not receive, over all connections. Above it the server
    closes the connection whose transport has been full for the longest time.
    """
    received_ahead_bytes_max: int = 256 * 1_048_576
    """Bytes of torn frames and of requests that may not start, over all connections. Above half of
    it a connection keeps only the bytes that were read, without room for more. At the limit the
    server closes the connection that has kept some for the longest time.
    """
    lent_bytes_max: int = 128 * 1_048_576
    """Receive buffers that requests in execution use, over all connections. Above it the
    connections read into small buffers of `SCRATCH_BYTES_MIN`.
    """
    connections_max: int = 2_147_483_647
    """max.connections: at the limit new connections wait in the system's accept queue. Those of a
    protected listener replace a connection of another listener.
    """
    connections_max_per_ip: int = 2_147_483_647
    """max.connections.per.ip: further connections from the same address are closed."""
    connections_max_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    """max.connections.per.ip.overrides."""
    connections_max_idle_ms: int = 600_000
    """connections.max.idle.ms: a connection that neither sent nor received a byte is closed."""
    closing_ms_max: int = 5_000
    """Time in which the peer of a connection that is closing has to receive the last responses."""
    backlog: int = 50
    """socket.listen.backlog.size."""
    send_buffer_bytes: int = SEND_BUFFER_BYTES
    """socket.send.buffer.bytes when it is set. -1 leaves the size to the system."""
    receive_buffer_bytes: int = -1
    """socket.receive.buffer.bytes. -1 leaves the size to the system."""
