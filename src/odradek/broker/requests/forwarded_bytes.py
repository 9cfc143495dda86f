"""The memory of requests that a broker has sent to the controller."""

from __future__ import annotations

FORWARDED_BYTES_MAX = 64 * 1_048_576
"""Bytes of forwarded requests without a response, over all requests of a broker.

They are a part of ``queued.max.request.bytes``, so that other frames never wait for them.
"""


class ForwardedBytes:
    """The bytes of the requests that wait for the controller. Owned by the event loop."""

    def __init__(self) -> None:
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
