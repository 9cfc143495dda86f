"""The faults of a run from its seed. Pure.

A deck has 25 faults, of which 15 are SIGKILLs of brokers. The seed shuffles each deck. It also
decides which faults of the network, of ZooKeeper and of suspended processes last while the next
SIGKILL happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

KILL_ALL = "kill-all"
KILL_PREPARED = "kill-prepared"
EXPIRE_SESSION = "expire-session"
KILLS: dict[str, int] = {
    "kill-leader": 5,
    KILL_ALL: 2,
    KILL_PREPARED: 2,
    "kill-group-coordinator": 2,
    "kill-controller": 2,
    "kill-starting": 1,
    "kill-two": 1,
}
"""Faults by SIGKILL, with their number in a deck."""
LASTING: dict[str, int] = {
    "pause-leader": 1,
    "pause-controller": 1,
    "one-way": 1,
    "slow-link": 1,
    "cut-from-controller": 1,
    "cut-from-zookeeper": 1,
    "zookeeper-kill": 1,
}
"""Faults that may last while a SIGKILL happens."""
OTHERS: dict[str, int] = {EXPIRE_SESSION: 1, "disk-full": 1, "rolling-restart": 1}
DECK = {**KILLS, **LASTING, **OTHERS}
ALONE = frozenset({KILL_ALL, KILL_PREPARED, "kill-two"})
"""SIGKILLs that do not happen during another fault. They need a cluster that makes progress."""
OVERLAP_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, and the SIGKILL that happens while it lasts, if any."""

    fault: str
    during: str = ""


def steps(seed: int, faults: int) -> list[Step]:
    """Return the steps of a run with so many faults."""
    random = Random(seed)
    names: list[str] = []
    while len(names) < faults:
        deck = [name for name, number in DECK.items() for _ in range(number)]
        random.shuffle(deck)
        names += deck
    return _paired(names[:faults], random)


def _paired(names: Sequence[str], random: Random) -> list[Step]:
    left, found = list(names), []
    while left:
        name = left.pop(0)
        partner = next((each for each in left if each in KILLS and each not in ALONE), None)
        if name in LASTING and partner is not None and random.random() < OVERLAP_SHARE:
            left.remove(partner)
            found.append(Step(name, partner))
        else:
            found.append(Step(name))
    return found
