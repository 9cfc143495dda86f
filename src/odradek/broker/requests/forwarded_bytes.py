"""The memory of requests that a broker has sent to the controller."""

from __future__ import annotations

FORWARDED_BYTES_MAX = 64 * 1_048_576
"""Bytes of forwarded requests without a response, over all requests of a broker.

They are a part of ``queued.max.request.bytes``, so that other frames never wait for them.
"""

FORWARDED_REQUEST_BYTES_MAX = 4 * 1_048_576
"""Largest request that is forwarded. It has room for 200,000 elements.

Its envelope is encoded in one time slice, and again for each attempt.
"""

ENVELOPE_BYTES_MAX = 1_024
"""Bytes of an envelope without the request in it: header, principal, address and listener."""


class ForwardedBytes:
    """The bytes of the requests that wait for the controller. Owned by the event loop.

    Attributes:
        request_bytes_max: Largest request. A controller ends its connection, with all requests in
            flight, if an envelope is above its ``socket.request.max.bytes``. All brokers are
            assumed to have the same value.
        used: The bytes of all requests.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        """Begin without requests.

        Args:
            frame_bytes_max: ``socket.request.max.bytes``.
        """
        envelope_max = frame_bytes_max - ENVELOPE_BYTES_MAX
        self.request_bytes_max = min(FORWARDED_REQUEST_BYTES_MAX, envelope_max)
        self.used = 0

    def acquire(self, size: int) -> bool:
        """Count the bytes of a request. Return False if there is no room for them."""
        if self.used + size > FORWARDED_BYTES_MAX:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Uncount the bytes of a request that has a response."""
        self.used -= size
