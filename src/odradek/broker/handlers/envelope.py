"""Envelope (58), version 0: execute a request that another broker forwards for its client.

Served on the inter-broker listener only. The active controller executes the embedded request with
the client's principal, address and listener, by the same path as every request. The response in the
envelope has its header. KIP-590.

Errors of the envelope, as in Kafka (``EnvelopeUtils``):

- NOT_CONTROLLER: this broker is not the active controller, or a part of the request failed with
  NOT_CONTROLLER, because the broker lost this role in the meantime. The other broker tries again.
- INVALID_REQUEST: the embedded request is malformed, or its API is not forwarded.
- UNSUPPORTED_VERSION: this broker does not serve the version of the embedded request.
- PRINCIPAL_DESERIALIZATION_FAILURE: the principal is missing or malformed.
- UNKNOWN_SERVER_ERROR: the embedded request cannot have a response.

The listener is a tagged field of Odradek. Without it, the client has the inter-broker listener.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.requests.apis import API_BY_KEY, Forwarding
from odradek.broker.requests.envelopes import ForwardedRequest, unwrap
from odradek.broker.requests.forwarding import response_has_error
from odradek.config.listeners import security_protocol
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.net.connection import CloseConnection
from odradek.net.session import SecurityProtocol, Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.headers import parse_request_header
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.envelope_request import EnvelopeRequest

logger = logging.getLogger(__name__)

NOT_CONTROLLER_BYTES = int(ErrorCode.NOT_CONTROLLER).to_bytes(2, "big")
"""A response without these bytes does not have the error. It is not decoded."""


def handle(
    services: Services, context: RequestContext, request: EnvelopeRequest
) -> Result[EnvelopeResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve Envelope"
    if not cluster.membership.is_controller:
        return _refused(ErrorCode.NOT_CONTROLLER)
    try:
        forwarded = unwrap(request)
        api_key, version = _checked_api(forwarded.frame)
    except KafkaError as error:
        logger.warning("refused an envelope of %s: %s", context.session.client_address, error)
        return _refused(error.code)

    def respond(frame: bytes) -> Result[EnvelopeResponse]:
        if NOT_CONTROLLER_BYTES not in frame:
            return Result(EnvelopeResponse(frame))
        return _respond(api_key, version, frame)

    def refuse(error: CloseConnection) -> EnvelopeResponse:
        logger.warning(
            "a forwarded %s has no response: %s. Its client gets UNKNOWN_SERVER_ERROR",
            ApiKey(api_key).name,
            error.reason,
        )
        return EnvelopeResponse(None, ErrorCode.UNKNOWN_SERVER_ERROR)

    session = _session(services, context, forwarded)
    try:
        executed = cluster.embedded.execute(session, forwarded.frame)
    except CloseConnection as error:
        return Result(refuse(error))
    return executed.chain(respond).recover(CloseConnection, refuse)


def _refused(code: ErrorCode) -> Result[EnvelopeResponse]:
    return Result(EnvelopeResponse(None, code))


def _checked_api(frame: bytes) -> tuple[int, int]:
    """Return API key and version of the embedded request.

    Raises:
        KafkaError: INVALID_REQUEST or UNSUPPORTED_VERSION.
    """
    try:
        api_key, version, *_ = parse_request_header(memoryview(frame))
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    api = API_BY_KEY.get(api_key)
    if api is None or api.forwarding is Forwarding.LOCAL:
        reason = f"API key {api_key} is not eligible for forwarding"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if not api.min_version <= version <= api.max_version:
        reason = f"{api.key.name} version {version} is not served"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    return api_key, version


def _session(services: Services, context: RequestContext, forwarded: ForwardedRequest) -> Session:
    """Return the session of the client, as if it had connected to this broker."""
    listener = forwarded.listener_name or context.session.listener_name
    protocol = security_protocol(services.config, listener) or SecurityProtocol.PLAINTEXT
    broker = services.image().brokers.get(BrokerId(services.node_id))
    endpoints = [] if broker is None else [e for e in broker.listeners if e.listener == listener]
    return Session(
        listener,
        SecurityProtocol(protocol),
        forwarded.principal,
        forwarded.client_address,
        (endpoints[0].host, endpoints[0].port) if endpoints else context.session.local_address,
        is_forwarded=True,
    )


@in_task
async def _respond(api_key: int, version: int, frame: bytes) -> Result[EnvelopeResponse]:
    """Respond with `frame`, unless any part of it has the error NOT_CONTROLLER."""
    if await response_has_error(api_key, version, frame, ErrorCode.NOT_CONTROLLER):
        return _refused(ErrorCode.NOT_CONTROLLER)
    return Result(EnvelopeResponse(frame))
