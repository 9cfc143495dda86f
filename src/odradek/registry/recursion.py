"""Runs recursive functions without Python's stack. Pure.

A recursive function is a generator. It yields the call to make and receives that call's result, so
a schema of any depth costs memory and no stack frames::

    def depth(node: Node) -> Recursion[int]:
        below = yield depth(node.child)
        return below + 1
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")

Recursion: TypeAlias = Generator[Generator[Any, Any, Any], Any, T]
"""A recursive call with a result of type T. It yields calls with results of other types."""


def run(call: Recursion[T]) -> T:
    """Return the result of a recursive call. An exception in any call ends all of them."""
    stack: list[Generator[Any, Any, Any]] = [call]
    value: object = None
    while stack:
        try:
            stack.append(stack[-1].send(value))
        except StopIteration as done:
            stack.pop()
            value = done.value
        else:
            value = None
    return cast(T, value)
