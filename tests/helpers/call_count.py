"""Counts of Python calls, which measure the cost of a path independently of the machine.

A `call` is a Python function that is entered, or a generator or coroutine that is resumed. A
`c_call` is a built-in function or method that Python code calls. Calls of classes, and of slots
from C code, are not counted.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


@dataclass(slots=True)
class CallCount:
    """A number of calls. `names` has the count of each function, for messages of assertions."""

    calls: int = 0
    c_calls: int = 0
    names: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.calls + self.c_calls

    def __str__(self) -> str:
        listed = "\n".join(f"{count:5d} {name}" for name, count in self.names.most_common())
        return f"{self.total} calls: {self.calls} call, {self.c_calls} c_call\n{listed}"


def count_calls(function: Callable[..., Any], *args: Any) -> CallCount:
    """Run `function(*args)`. Return the number of calls inside it, without its own.

    The garbage collector is disabled during the call. Otherwise the hook of a library in
    `gc.callbacks` (hypothesis has one) would be counted if a collection happens during the call.
    """
    count = CallCount()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            count.calls += 1
            code = frame.f_code
            count.names[f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}"] += 1
        elif event == "c_call" and argument is not sys.setprofile:
            count.c_calls += 1
            count.names[getattr(argument, "__qualname__", repr(argument))] += 1

    before = sys.getprofile()
    collecting = gc.isenabled()
    gc.disable()
    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    name = getattr(getattr(function, "__func__", function), "__code__", None)
    if name is not None:  # the entry of a Python function was counted
        count.calls -= 1
        own = f"{name.co_filename.rpartition('/')[2]}:{name.co_qualname}"
        count.names[own] -= 1
    return count
