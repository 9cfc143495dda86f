"""Recursive functions that do not use Python's stack."""

from __future__ import annotations

import sys

import pytest

from odradek.registry.recursion import Recursion, run


def _sum_to(number: int) -> Recursion[int]:
    if number == 0:
        return 0
    below: int = yield _sum_to(number - 1)
    return number + below


def test_a_call_may_be_deeper_than_pythons_stack() -> None:
    depth = 50 * sys.getrecursionlimit()
    assert run(_sum_to(depth)) == depth * (depth + 1) // 2


def test_a_call_receives_the_results_of_its_calls_in_order() -> None:
    def named(name: str) -> Recursion[str]:
        return name
        yield

    def joined() -> Recursion[str]:
        first: str = yield named("a")
        second: str = yield named("b")
        return first + second

    assert run(joined()) == "ab"


def test_an_exception_ends_all_calls() -> None:
    def failing(depth: int) -> Recursion[None]:
        if depth == 0:
            raise ValueError("no")
        yield failing(depth - 1)

    with pytest.raises(ValueError, match="no"):
        run(failing(10))
