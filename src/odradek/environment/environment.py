"""The environment of a broker: everything that it takes from outside the process, in one object.

The default is the real environment (the system's clock, the operating system's files). Tests and
the simulator replace single parts, for example by a clock under their control or a slow file
system.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.files import Files, RealFiles
from odradek.environment.interceptor import RequestInterceptor
from odradek.environment.timers import LoopTimers, Timers


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of the environment.

    A broker takes it by constructor and passes the parts on to its components.
    """

    clock: Clock = field(default_factory=SystemClock)
    timers: Timers = field(default_factory=LoopTimers)
    files: Files = field(default_factory=RealFiles)
    interceptor: RequestInterceptor | None = None
