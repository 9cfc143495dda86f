"""The brokers of a run, as the run and the nemesis see them, and one broker behind the proxy."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from random import Random
from typing import Protocol

from conformance.histories.proxy import END_TXN, PRODUCE, Proxy
from testkit.peer import BrokerProcess

BROKER_KILL = "broker-kill"
BROKER_FAULTS = (BROKER_KILL, "broker-stop", "broker-pause")
NETWORK_FAULTS = ("net-cut", "net-mute", "net-delay", "net-overtake", "net-late")
# A delayed EndTxn request may end the producer's next transaction. With clients of the first
# transaction protocol Kafka cannot distinguish the two transactions.
OTHER_FAULTS = ("net-late-end",)

Actions = dict[str, Callable[[], str]]
"""Faults by name. An action injects the fault, ends it, and returns a text for the history."""


class BrokerEnded(Exception):
    """The broker ended by itself, or cannot start again. The message has the end of its log."""


class Managed(Protocol):
    """The brokers of a run. The thread of the nemesis injects their faults."""

    @property
    def bootstrap(self) -> str:
        """The addresses for the clients."""

    @property
    def scheduled(self) -> str:
        """The name of the fault that comes at scheduled times."""

    def check(self) -> None:
        """Raise BrokerEnded if a broker has ended and the nemesis has not ended it."""

    def actions(self, random: Random) -> Actions: ...


class KillableBroker:
    """A broker process. One thread kills and starts it. Other threads only call `check`."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self._to_end: BrokerProcess | None = None
        self._ended = ""

    def check(self) -> None:
        """Raise BrokerEnded if the broker has ended and the nemesis has not ended it."""
        process = self.process
        code = process.process.poll()
        if code is not None and process is not self._to_end:
            self._ended = f"the broker ended by itself with {code}: {_tail(process)}"
        if self._ended:
            raise BrokerEnded(self._ended)

    def kill(self, after_s: float) -> None:
        self._begin_end()
        self.process.kill()
        threading.Event().wait(after_s)
        self._restart()

    def stop(self) -> None:
        self._begin_end()
        self.process.stop()
        self._restart()

    def pause(self, for_s: float) -> None:
        with contextlib.suppress(ProcessLookupError):  # reported by `check`
            os.killpg(self.process.pid, signal.SIGSTOP)
            threading.Event().wait(for_s)
            os.killpg(self.process.pid, signal.SIGCONT)

    def _begin_end(self) -> None:
        with contextlib.suppress(BrokerEnded):
            self.check()
        self._to_end = self.process

    def _restart(self) -> None:
        try:
            self.process = self.process.restart()
        except RuntimeError as error:
            self._ended = str(error)

    def close(self) -> None:
        """Stop the broker for good."""
        self._begin_end()
        self.process.stop()


def _tail(process: BrokerProcess) -> str:
    return process.log_text()[-2000:]


class ManagedBroker(KillableBroker):
    """A broker process behind the proxy."""

    scheduled = BROKER_KILL

    def __init__(self, process: BrokerProcess, proxy: Proxy) -> None:
        super().__init__(process)
        self.proxy = proxy

    @property
    def bootstrap(self) -> str:
        return self.proxy.address

    def close(self) -> None:
        self.proxy.close()
        super().close()

    def actions(self, random: Random) -> Actions:
        faults = _Faults(self, random)
        return {
            BROKER_KILL: faults.kill,
            "broker-stop": faults.stop,
            "broker-pause": faults.pause,
            "net-cut": faults.cut,
            "net-mute": faults.mute,
            "net-delay": faults.delay,
            "net-overtake": faults.overtake,
            "net-late": lambda: faults.late(frozenset({PRODUCE})),
            "net-late-end": lambda: faults.late(frozenset({END_TXN})),
        }


class _Faults:
    """The faults of a broker and of its network, with random durations."""

    def __init__(self, broker: ManagedBroker, random: Random) -> None:
        self.broker = broker
        self.proxy = broker.proxy
        self.random = random

    def kill(self) -> str:
        down_s = self.random.choice([0.0, 0.0, 1.0]) * self.random.random()
        self.broker.kill(down_s)
        return f"down for {down_s:.2f} s and its start"

    def stop(self) -> str:
        self.broker.stop()
        return "stopped and started"

    def pause(self) -> str:
        for_s = 0.2 + self.random.random() * 3
        self.broker.pause(for_s)
        return f"{for_s:.2f} s"

    def cut(self) -> str:
        return f"{self.proxy.cut(self.random.choice([0.3, 1.0]))} connections"

    def mute(self) -> str:
        for_s = 0.02 + self.random.random() * 0.4
        return f"{self.proxy.mute(for_s)} connections, {for_s:.2f} s"

    def delay(self) -> str:
        for_s = 0.1 + self.random.random() * 0.9
        return f"{self.proxy.delay(for_s, frozenset({PRODUCE}))} requests, {for_s:.2f} s"

    def overtake(self) -> str:
        """Hold requests long enough for clients with a short delivery timeout to abort."""
        for_s = 1.5 + self.random.random()
        return f"{self.proxy.overtake(for_s)} times in {for_s:.2f} s"

    def late(self, kinds: frozenset[int]) -> str:
        """Deliver held requests up to 2 s after a cut, when the client may have reconnected."""
        held_s = 0.05 + self.random.random() * 0.5
        after_s = self.random.choice([0.0, 0.2, 2.0]) * self.random.random()
        caught = self.proxy.late(held_s, after_s, kinds)
        return f"{caught} requests, {held_s + after_s:.2f} s"
