"""Applies byte quotas to requests: counts, says so in the answer, and mutes the connection.

Called only while somebody has a quota. As in Kafka (KIP-219) the answer leaves at once with its
`throttle_time_ms`, and no further request of the connection starts for that long.
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
                response.throttle_time_ms = shown(pause_ms)
        return response

    return result.then(count)


def fetch_limit(services: Services, context: RequestContext, max_bytes: int) -> int:
    """No more than what the quota gives in a whole window, or the fetch could never be answered."""
    burst = services.quotas.fetch.burst_bytes(
        context.session.principal.name, context.client_id or ""
    )
    return max_bytes if burst is None else min(max_bytes, burst)


def throttled_fetch(
    services: Services, context: RequestContext, size_bytes: int, session_id: int
) -> FetchResponse | None:
    """The answer without records that takes the place of one with `size_bytes` of them, if the
    client must pause; what it did not get is not counted.
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
    return FetchResponse(shown(pause_ms), 0, session_id, [])


def shown(pause_ms: int) -> int:
    """A pause as an int32 of the protocol."""
    return min(pause_ms, (1 << 31) - 1)
