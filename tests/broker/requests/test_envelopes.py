"""The contents of Envelope requests: identity and request, as Kafka serializes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.requests.envelopes import ForwardedRequest, unwrap, wrap
from odradek.errors import ErrorCode, KafkaError
from odradek.net.session import ANONYMOUS, Principal, SecurityProtocol, Session
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.envelope_request import EnvelopeRequest

NAMES = st.text(max_size=50)
ADDRESSES = st.ip_addresses().map(str)


def session(principal: Principal, address: str, listener: str = "CLIENTS") -> Session:
    return Session(listener, SecurityProtocol.PLAINTEXT, principal, address, ("10.0.0.1", 9092))


@given(NAMES, NAMES, ADDRESSES, NAMES, st.binary(max_size=100))
def test_an_envelope_keeps_the_client_and_its_request(
    kind: str, name: str, address: str, listener: str, frame: bytes
) -> None:
    client = session(Principal(kind, name), address, listener)
    data = encode(wrap(client, frame), 0)
    expected = ForwardedRequest(Principal(kind, name), address, listener, frame)
    assert unwrap(decode(EnvelopeRequest, 0, data)) == expected


def test_the_principal_has_kafkas_bytes() -> None:
    """Version 0 as int16, then compact strings, the token flag and no tags."""
    envelope = wrap(session(Principal("User", "al"), "1.2.3.4"), b"r")
    assert envelope.request_principal == b"\0\0" + b"\x05User" + b"\x03al" + b"\0" + b"\0"
    assert envelope.client_host_address == b"\1\2\3\4"


def test_an_address_of_ipv6_has_16_bytes() -> None:
    assert wrap(session(ANONYMOUS, "::1"), b"").client_host_address == bytes(15) + b"\1"


def test_a_connection_without_an_ip_address_has_the_unspecified_address() -> None:
    assert unwrap(wrap(session(ANONYMOUS, "host-1"), b"")).client_address == "0.0.0.0"


@pytest.mark.parametrize(
    "principal",
    [None, b"", b"\0", b"\0\1\5User\2a\0\0", b"\xff\xff\5User\2a\0\0", b"\0\0", b"\0\0\5Us"],
)
def test_a_principal_that_is_not_one_is_refused(principal: bytes | None) -> None:
    with pytest.raises(KafkaError) as caught:
        unwrap(EnvelopeRequest(b"", principal, b"\1\2\3\4"))
    assert caught.value.code is ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@pytest.mark.parametrize("size", [0, 3, 5, 17])
def test_an_address_of_another_length_is_refused(size: int) -> None:
    good = wrap(session(ANONYMOUS, "1.2.3.4"), b"")
    with pytest.raises(KafkaError) as caught:
        unwrap(EnvelopeRequest(b"", good.request_principal, bytes(size)))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_are_an_identity_or_an_error(principal: bytes, address: bytes) -> None:
    try:
        found = unwrap(EnvelopeRequest(b"", principal, address))
    except KafkaError as error:
        assert error.code in (
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            ErrorCode.INVALID_REQUEST,
        )
    else:
        assert len(address) in (4, 16)
        assert found.principal.type is not None
