"""Random ids."""

from __future__ import annotations

from uuid import UUID

from odradek.environment.randomness import SystemRandomness, uuid_to_hex, version_4
from odradek.ids import uuid_to_string


def test_a_uuid_is_random_and_of_version_4() -> None:
    randomness = SystemRandomness()
    ids = {randomness.uuid() for _ in range(100)}
    assert len(ids) == 100
    assert {UUID(bytes=each).version for each in ids} == {4}
    assert {UUID(bytes=each).variant for each in ids} == {"specified in RFC 4122"}


def test_the_text_of_a_uuid_never_begins_with_a_dash() -> None:
    assert version_4(b"\xf8" + bytes(15)) is None
    accepted = version_4(b"\xf4" + bytes(15))
    assert accepted is not None
    assert not uuid_to_string(accepted).startswith("-")


def test_the_hex_text_of_a_uuid_is_that_of_the_standard_library() -> None:
    uuid = SystemRandomness().uuid()
    assert uuid_to_hex(uuid) == str(UUID(bytes=uuid))


def test_a_random_number_lies_between_its_bounds_both_included() -> None:
    randomness = SystemRandomness()
    assert {randomness.between(3, 5) for _ in range(200)} == {3, 4, 5}
