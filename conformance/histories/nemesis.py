"""Random faults from a seed: of the broker, of clients, and of the network between them.

Faults come one at a time, with pauses between them. A quarter of the time there is no fault. Kills
of the broker may be scheduled in addition. Each scheduled kill comes in its own part of the run, or
as soon as the fault before it has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from conformance.histories.clients import Client, Fleet
from conformance.histories.proxy import END_TXN, PRODUCE, Proxy
from testkit.peer import BrokerProcess

BROKER_KILL = "broker-kill"
BROKER_FAULTS = (BROKER_KILL, "broker-stop", "broker-pause")
NETWORK_FAULTS = ("net-cut", "net-mute", "net-delay", "net-overtake", "net-late")
CLIENT_FAULTS = ("client-kill", "client-pause", "client-zombie")
# A delayed EndTxn request may end the producer's next transaction. With clients of the first
# transaction protocol Kafka cannot distinguish the two transactions.
OTHER_FAULTS = ("net-late-end",)
KILLS_SHARE = 0.8
FAULTS = (*BROKER_FAULTS, *NETWORK_FAULTS, *CLIENT_FAULTS)


def kill_times(kills: int, seconds: float, seed: int) -> list[float]:
    """Return the times of the kills in seconds from the start: one in each equal part of a run.

    The last part ends early enough for a kill that waits for the fault before it.
    """
    random = Random(seed)
    part = seconds * KILLS_SHARE / max(kills, 1)
    return [part * (number + random.random()) for number in range(kills)]


class BrokerEnded(Exception):
    """The broker ended by itself, or cannot start again. The message has the end of its log."""


class ManagedBroker:
    """A broker process behind the proxy, which the nemesis may kill.

    The thread of the nemesis kills and starts it. Other threads only call `check`.
    """

    def __init__(self, process: BrokerProcess, proxy: Proxy) -> None:
        self.process = process
        self.proxy = proxy
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
        self.proxy.close()
        self.process.stop()


def _tail(process: BrokerProcess) -> str:
    return process.log_text()[-2000:]


class Nemesis:
    """The thread that injects faults until `stop`, which first ends all faults."""

    def __init__(
        self,
        fleet: Fleet,
        broker: ManagedBroker | None,
        faults: tuple[str, ...],
        seed: int,
        kills_at_s: Sequence[float] = (),
    ) -> None:
        self.fleet = fleet
        self.broker = broker
        self.faults = faults
        self.random = Random(seed)
        self.kills_at_s = list(kills_at_s)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self.ended.wait(0.5 + self.random.random() * 2.5):
            if self.kills_at_s and time.monotonic() - began >= self.kills_at_s[0]:
                self.kills_at_s.pop(0)
                fault = BROKER_KILL
            elif self.random.random() < 0.25 or not self.faults:
                continue
            else:
                fault = self.random.choice(self.faults)
            detail = self._actions()[fault]()
            self.fleet.history.event("fault", f=fault, detail=detail)

    def _actions(self) -> dict[str, Callable[[], Any]]:
        return {
            BROKER_KILL: self._broker_kill,
            "broker-stop": self._broker_stop,
            "broker-pause": self._broker_pause,
            "net-cut": self._net_cut,
            "net-mute": self._net_mute,
            "net-delay": self._net_delay,
            "net-overtake": self._net_overtake,
            "net-late": lambda: self._net_late(frozenset({PRODUCE})),
            "net-late-end": lambda: self._net_late(frozenset({END_TXN})),
            "client-kill": self._client_kill,
            "client-pause": self._client_pause,
            "client-zombie": self._client_zombie,
        }

    def _broker_kill(self) -> str:
        assert self.broker is not None
        down_s = self.random.choice([0.0, 0.0, 1.0]) * self.random.random()
        self.broker.kill(down_s)
        return f"down for {down_s:.2f} s and its start"

    def _broker_stop(self) -> str:
        assert self.broker is not None
        self.broker.stop()
        return "stopped and started"

    def _broker_pause(self) -> str:
        assert self.broker is not None
        for_s = 0.2 + self.random.random() * 3
        self.broker.pause(for_s)
        return f"{for_s:.2f} s"

    def _net_cut(self) -> str:
        assert self.broker is not None
        return f"{self.broker.proxy.cut(self.random.choice([0.3, 1.0]))} connections"

    def _net_mute(self) -> str:
        assert self.broker is not None
        for_s = 0.02 + self.random.random() * 0.4
        return f"{self.broker.proxy.mute(for_s)} connections, {for_s:.2f} s"

    def _net_delay(self) -> str:
        assert self.broker is not None
        for_s = 0.1 + self.random.random() * 0.9
        return f"{self.broker.proxy.delay(for_s, frozenset({PRODUCE}))} requests, {for_s:.2f} s"

    def _net_overtake(self) -> str:
        """Hold requests long enough for clients with a short delivery timeout to abort."""
        assert self.broker is not None
        for_s = 1.5 + self.random.random()
        return f"{self.broker.proxy.overtake(for_s)} times in {for_s:.2f} s"

    def _net_late(self, kinds: frozenset[int]) -> str:
        """Deliver held requests up to 2 s after a cut, when the client may have reconnected."""
        assert self.broker is not None
        held_s = 0.05 + self.random.random() * 0.5
        after_s = self.random.choice([0.0, 0.2, 2.0]) * self.random.random()
        caught = self.broker.proxy.late(held_s, after_s, kinds)
        return f"{caught} requests, {held_s + after_s:.2f} s"

    def _pick(self, suits: Callable[[Client], bool] = lambda _: True) -> Client | None:
        alive = self.fleet.alive(suits)
        return self.random.choice(alive) if alive else None

    def _client_kill(self) -> str:
        client = self._pick()
        if client is None:
            return "nobody"
        client.send_signal(signal.SIGKILL)
        return client.settings.role

    def _client_pause(self) -> str:
        """Pause a client, sometimes for longer than the group's session timeout."""
        client = self._pick()
        if client is None:
            return "nobody"
        for_s = self.random.choice([0.5, 2.0, 8.0]) * self.random.random()
        client.send_signal(signal.SIGSTOP)
        self.ended.wait(for_s)
        client.send_signal(signal.SIGCONT)
        return f"{client.settings.role} {for_s:.2f} s"

    def _client_zombie(self) -> str:
        """Replace a paused client by another with the same transactional id, then resume it."""
        client = self._pick(lambda c: c.settings.transacts)
        if client is None:
            return "nobody"
        client.send_signal(signal.SIGSTOP)
        client.retired = True
        self.fleet.add(client.settings)
        for_s = 1 + self.random.random() * 3
        self.ended.wait(for_s)
        client.send_signal(signal.SIGCONT)
        return f"{for_s:.2f} s"
