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
KILL_CUT_LEADER = "kill-cut-leader"
EXPIRE_SESSION = "expire-session"
KILLS: dict[str, int] = {
    "kill-leader": 4,
    KILL_CUT_LEADER: 1,
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
ALONE = frozenset({KILL_ALL, KILL_PREPARED, KILL_CUT_LEADER, "kill-two"})
"""SIGKILLs that do not happen during another fault. They need a cluster that makes progress, or
set the conditions of the links themselves."""
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


def listed(text: str) -> list[Step]:
    """Return the steps of `FAULT[+SIGKILL][,...]`. The SIGKILL happens while the fault lasts.

    Raises:
        ValueError: No fault has such a name, or no SIGKILL may happen during it.
    """
    found = [Step(*each.partition("+")[::2]) for each in text.split(",")]
    for step in found:
        if step.fault not in DECK:
            raise ValueError(f"no fault {step.fault}, but {', '.join(DECK)}")
        if step.during and not (step.fault in LASTING and step.during in KILLS.keys() - ALONE):
            raise ValueError(f"{step.during} does not happen during {step.fault}")
    return found


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
