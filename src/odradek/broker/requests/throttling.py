"""Byte quotas applied to requests: count bytes, set the throttle time, and mute the connection.

Callers use these functions only while some client has a quota. As in Kafka (KIP-219) the broker
sends the response immediately, with its `throttle_time_ms`. It starts no further request of the
connection for that long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.codec import Message
    from odradek.protocol.messages.fetch_response import FetchResponse


def throttled_produce(
    services: Services,
    context: RequestContext,
    size_bytes: int,
    result: Result[Message | None],
) -> Result[Message | None]:
    """Count a produce request of `size_bytes` when its response is known."""
    from odradek.protocol.messages.produce_response import ProduceResponse

    def count(response: Message | None) -> Message | None:
        now_ms = int(services.clock.monotonic_ms())
        pause_ms = services.quotas.produce.record(
            context.session.principal.name, context.client_id or "", size_bytes, now_ms
        )
        if pause_ms:
            context.mute(pause_ms)
            if isinstance(response, ProduceResponse):  # None with acks=0
                response.throttle_time_ms = as_int32(pause_ms)
        return response

    return result.then(count)


def fetch_limit(services: Services, context: RequestContext, max_bytes: int) -> int:
    """Return `max_bytes`, or fewer: at most the bytes that the quota allows in a whole window.

    A larger response would always exceed the quota, and the client would never get it.
    """
    burst = services.quotas.fetch.burst_bytes(
        context.session.principal.name, context.client_id or ""
    )
    return max_bytes if burst is None else min(max_bytes, burst)


def throttled_fetch(
    services: Services, context: RequestContext, size_bytes: int, session_id: int
) -> FetchResponse | None:
    """Return the response without records that a client gets if it must pause, otherwise None.

    It replaces a response with `size_bytes` of records. These bytes are then not counted, because
    the client does not get them.
    """
    from odradek.protocol.messages.fetch_response import FetchResponse

    quota, client_id = services.quotas.fetch, context.client_id or ""
    user = context.session.principal.name
    now_ms = int(services.clock.monotonic_ms())
    pause_ms = quota.record(user, client_id, size_bytes, now_ms)
    if not pause_ms:
        return None
    quota.unrecord(user, client_id, size_bytes, now_ms)
    context.mute(pause_ms)
    return FetchResponse(as_int32(pause_ms), 0, session_id, [])


def as_int32(pause_ms: int) -> int:
    """Return the pause as a throttle time of the protocol, which is an int32."""
    return min(pause_ms, (1 << 31) - 1)
