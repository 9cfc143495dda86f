"""The environment of a broker: everything that it takes from outside the process, in one object.

The default is the real environment (the system's clock, the operating system's files). Tests and
the simulator replace single parts of it: a clock that they move, a file system that is slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.files import Files, RealFiles
from odradek.environment.interceptor import RequestInterceptor
from odradek.environment.timers import LoopTimers, Timers


@dataclass(frozen=True, slots=True)
class Environment:
    """Passed to a broker by constructor; the broker hands the parts to the components that use
    them.
    """

    clock: Clock = field(default_factory=SystemClock)
    timers: Timers = field(default_factory=LoopTimers)
    files: Files = field(default_factory=RealFiles)
    interceptor: RequestInterceptor | None = None
