"""Counts Python calls: what a path costs, in a number that does not depend on the machine.

`call` is a Python function entered (or a generator or coroutine resumed), `c_call` a built-in
function or method called from Python code. Classes and slots called from C are not events.
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
    """`total` = `calls` + `c_calls`; `names` says which ones, for the message of an assertion."""

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
    """Runs `function(*args)` and counts the calls inside it, its own not included.

    The collector is off meanwhile: a library's hook in `gc.callbacks` (hypothesis has one) would be
    counted whenever a collection happens to fall due here.
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
    if name is not None:  # a Python function: its own entry was counted
        count.calls -= 1
        own = f"{name.co_filename.rpartition('/')[2]}:{name.co_qualname}"
        count.names[own] -= 1
    return count
