"""Random faults from a seed: of the broker, of clients, and of the network between them.

Faults come one at a time, with pauses between them. A quarter of the time there is no fault. Kills
of the broker may be scheduled in addition. Each scheduled kill comes in its own part of the run, or
as soon as the fault before it has ended.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from conformance.histories.clients import Client, Fleet
from conformance.histories.managed_broker import BROKER_FAULTS, NETWORK_FAULTS, Actions, Managed

CLIENT_FAULTS = ("client-kill", "client-pause", "client-zombie")
KILLS_SHARE = 0.8
FAULTS = (*BROKER_FAULTS, *NETWORK_FAULTS, *CLIENT_FAULTS)


def kill_times(kills: int, seconds: float, seed: int) -> list[float]:
    """Return the times of the kills in seconds from the start: one in each equal part of a run.

    The last part ends early enough for a kill that waits for the fault before it.
    """
    random = Random(seed)
    part = seconds * KILLS_SHARE / max(kills, 1)
    return [part * (number + random.random()) for number in range(kills)]


class Nemesis:
    """The thread that injects faults until `stop`, which first ends all faults."""

    def __init__(
        self,
        fleet: Fleet,
        broker: Managed | None,
        faults: tuple[str, ...],
        seed: int,
        kills_at_s: Sequence[float] = (),
    ) -> None:
        self.fleet = fleet
        self.broker = broker
        self.random = Random(seed)
        self.kills_at_s = list(kills_at_s)
        self.actions: Actions = {
            **(broker.actions(self.random) if broker else {}),
            "client-kill": self._client_kill,
            "client-pause": self._client_pause,
            "client-zombie": self._client_zombie,
        }
        # Without a broker of its own a run has the faults of clients only.
        self.faults = tuple(fault for fault in faults if fault in self.actions)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self.ended.wait(self._pause_s(time.monotonic() - began)):
            if self.kills_at_s and time.monotonic() - began >= self.kills_at_s[0]:
                assert self.broker is not None
                self.kills_at_s.pop(0)
                fault = self.broker.scheduled
            elif self.random.random() < 0.25 or not self.faults:
                continue
            else:
                fault = self.random.choice(self.faults)
            detail = self.actions[fault]()
            self.fleet.history.event("fault", f=fault, detail=detail)

    def _pause_s(self, elapsed_s: float) -> float:
        """Return the time until the next fault. It ends at the next scheduled kill."""
        pause_s = 0.5 + self.random.random() * 2.5
        if self.kills_at_s:
            pause_s = min(pause_s, max(0.0, self.kills_at_s[0] - elapsed_s))
        return pause_s

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
