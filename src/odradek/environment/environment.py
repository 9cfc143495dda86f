"""The environment of a broker: everything that it takes from outside the process, in one object.

The default is the real environment (the operating system's clock, files, sockets, threads and
random numbers, and the timers of the event loop). Tests and the simulator replace single parts, for
example by a clock under their control or a slow file system. Two further parts come to the broker
separately: the metadata store, and the factory of the workers that compact logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.executors import Executors
from odradek.environment.files import Files, RealFiles
from odradek.environment.interceptor import RequestInterceptor
from odradek.environment.network import Network
from odradek.environment.randomness import Randomness, SystemRandomness
from odradek.environment.sockets import SocketNetwork
from odradek.environment.thread_pool import ThreadExecutors
from odradek.environment.timers import LoopTimers, Timers


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of the environment.

    A broker takes it by constructor and passes the parts on to its components.
    """

    clock: Clock = field(default_factory=SystemClock)
    timers: Timers = field(default_factory=LoopTimers)
    files: Files = field(default_factory=RealFiles)
    network: Network = field(default_factory=SocketNetwork)
    executors: Executors = field(default_factory=ThreadExecutors)
    randomness: Randomness = field(default_factory=SystemRandomness)
    interceptor: RequestInterceptor | None = None
