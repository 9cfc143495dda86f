"""The contents of an Envelope request: a client's request with the identity of the client.

The embedded request has its header, as the client sent it. The principal is serialized as in Kafka
(``DefaultKafkaPrincipalBuilder``): the version of ``DefaultPrincipalData`` as int16, then the
message. The client's address has the 4 or 16 bytes of an IP address. The name of the listener is a
tagged field of Odradek.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.net.session import Principal, Session
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.default_principal_data import DefaultPrincipalData
from odradek.protocol.messages.envelope_request import EnvelopeRequest

_PRINCIPAL_VERSION = DefaultPrincipalData.MAX_VERSION
_VERSION_BYTES = 2
_UNKNOWN_ADDRESS = bytes(4)


class ForwardedRequest(NamedTuple):
    """A request in an envelope, and the client that sent it."""

    principal: Principal
    client_address: str
    listener_name: str
    frame: bytes


def wrap(session: Session, frame: bytes) -> EnvelopeRequest:
    """Return the envelope of a request.

    Args:
        session: The session of the client's connection.
        frame: The request with its header, without the size in front.
    """
    return EnvelopeRequest(
        frame,
        _serialized(session.principal),
        _packed(session.client_address),
        session.listener_name,
    )


def unwrap(envelope: EnvelopeRequest) -> ForwardedRequest:
    """Return the contents of an envelope.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE if the principal is missing or malformed.
            INVALID_REQUEST if the address is no IP address.
    """
    return ForwardedRequest(
        _deserialized(envelope.request_principal),
        _unpacked(envelope.client_host_address),
        envelope.listener_name,
        envelope.request_data,
    )


def _serialized(principal: Principal) -> bytes:
    data = encode(DefaultPrincipalData(principal.type, principal.name), _PRINCIPAL_VERSION)
    return _PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES, "big") + data


def _deserialized(data: bytes | None) -> Principal:
    version = int.from_bytes((data or b"")[:_VERSION_BYTES], "big", signed=True)
    known = range(DefaultPrincipalData.MIN_VERSION, _PRINCIPAL_VERSION + 1)
    if data is None or len(data) < _VERSION_BYTES or version not in known:
        raise _bad_principal()
    try:
        principal = decode(DefaultPrincipalData, version, data, _VERSION_BYTES)
    except MalformedMessage as error:
        raise _bad_principal() from error
    return Principal(principal.type, principal.name)


def _bad_principal() -> KafkaError:
    return KafkaError(
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "Client principal deserialization failed"
    )


def _packed(address: str) -> bytes:
    try:
        return ipaddress.ip_address(address).packed
    except ValueError:  # the transport of the connection has no IP address
        return _UNKNOWN_ADDRESS


def _unpacked(data: bytes) -> str:
    try:
        return str(ipaddress.ip_address(data))
    except ValueError:
        reason = f"the client address in the envelope has {len(data)} bytes"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None
