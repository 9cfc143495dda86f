"""Random ids."""

from __future__ import annotations

from uuid import UUID

from odradek.environment.randomness import random_between, random_uuid


def test_a_uuid_is_random_and_of_version_4() -> None:
    ids = {random_uuid() for _ in range(100)}
    assert len(ids) == 100
    assert {UUID(bytes=each).version for each in ids} == {4}
    assert {UUID(bytes=each).variant for each in ids} == {"specified in RFC 4122"}


def test_a_random_number_lies_between_its_bounds_both_included() -> None:
    assert {random_between(3, 5) for _ in range(200)} == {3, 4, 5}
