"""The compiled codec compared with the slow one: every message, every version, both ways."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import interpret
from odradek.protocol.codec import Message, decoder, encode, encoder
from tests.protocol.building import all_classes, build, kafkas_classes, versions

CLASSES = all_classes()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=True))
def test_compiled_codec_equals_the_slow_codec(cls: type[Message], random: Random) -> None:
    for version in versions(cls):
        message = build(cls, version, random)
        data = interpret.encode(message, version)
        assert encode(message, version) == data
        view = memoryview(b"skip" + data + b"rest")
        decoded, end = decoder(cls, version)(view, 4)
        assert end == 4 + len(data)
        assert decoded == message
        assert interpret.decode(cls, version, view, 4) == (message, end)


def test_all_of_kafkas_messages_exist() -> None:
    classes = kafkas_classes()
    assert len(classes) == 255
    assert sum(len(versions(cls)) for cls in classes) == 690


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_message_of_defaults_reads_back_unchanged(cls: type[Message]) -> None:
    for version in versions(cls):
        chunks: list[bytes] = []
        encoder(cls, version)(cls(), chunks.append)
        assert decoder(cls, version)(memoryview(b"".join(chunks)), 0)[0] == cls()
