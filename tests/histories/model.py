"""A model of a correct broker of one node, with clients that a scheduler interleaves at random.

It writes the history that real clients would write. `broken` names a rule that the model breaks. A
test shows that the checker finds each of them:

- no-dedupe: a send whose response was lost is written again.
- lso-high: the last stable offset is one too high.
- abort-list: aborted transactions are not returned to readers.
- lost-batch: a batch is acknowledged and not kept.
- late-produce: a batch of an aborted transaction is written after its marker.
- torn-commit: a commit leaves out a partition.
- offsets-always: an aborted transaction's offsets count.
- skip: a fetch begins one record late.
- late-end: a repeated EndTxn ends the producer's next transaction (KIP-890).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

KEYS = 3
BROKEN = {
    "no-dedupe": {"duplicate"},
    "lso-high": {"G1a", "precommitted-read"},
    "abort-list": {"G1a"},
    "lost-batch": {"lost-write", "unseen"},
    "late-produce": {"hanging-transaction", "G1a"},
    "torn-commit": {"torn-transaction"},
    "offsets-always": {"group-skip"},
    "skip": {"poll-skip", "group-skip"},
    "late-end": {"G1a", "precommitted-read", "torn-transaction"},
}


@dataclass(slots=True)
class Entry:
    """A record, or a marker (value None). `txn` None: plain."""

    value: int | None
    txn: int | None


@dataclass(slots=True)
class Broker:
    random: Random
    broken: str = ""
    logs: list[list[Entry]] = field(default_factory=lambda: [[] for _ in range(KEYS)])
    open: dict[int, set[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    late: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, key: int, value: int, txn: int | None) -> int:
        log = self.logs[key]
        if txn is not None:
            self.open.setdefault(txn, set()).add(key)
        if self.broken == "lost-batch" and self.random.random() < 0.2:
            return len(log)
        log.append(Entry(value, txn))
        if self.broken == "no-dedupe" and self.random.random() < 0.2:
            log.append(Entry(value, txn))
        return len(log) - 1

    def end(self, txn: int, *, commit: bool) -> None:
        keys = sorted(self.open.pop(txn, set()))
        if not commit:
            self.aborted.add(txn)
        if commit and self.broken == "torn-commit" and len(keys) > 1:
            self.logs[keys[0]] = [
                e if e.txn != txn else Entry(None, None) for e in self.logs[keys[0]]
            ]
        for key in keys:
            self.logs[key].append(Entry(None, txn))
        if not commit and keys and self.broken == "late-produce":
            self.open[txn] = {keys[0]}
            self.logs[keys[0]].append(Entry(-1, txn))

    def last_stable_offset(self, key: int) -> int:
        firsts = [
            offset
            for offset, entry in enumerate(self.logs[key])
            if entry.txn in self.open and key in self.open[entry.txn]
        ]
        stable = min(firsts, default=len(self.logs[key]))
        return min(stable + (self.broken == "lso-high"), len(self.logs[key]))

    def read(self, key: int, position: int, most: int) -> tuple[list[tuple[int, int]], int]:
        """Records and the next position."""
        found: list[tuple[int, int]] = []
        position += self.broken == "skip" and self.random.random() < 0.2
        end = self.last_stable_offset(key)
        while position < end and len(found) < most:
            entry = self.logs[key][position]
            hidden = entry.txn in self.aborted and self.broken != "abort-list"
            if entry.value is not None and not hidden:
                found.append((position, entry.value))
            position += 1
        return found, position


class World:
    """Broker and clients; `lines` is the history."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.random = Random(seed)
        self.broker = Broker(self.random, broken)
        self.lines: list[str] = []
        self.time = 0
        self.values = iter(range(1, 1 << 30))
        self.processes = iter(range(1, 1 << 30))
        self.transactions = iter(range(1, 1 << 30))

    def run(self, steps: int) -> list[str]:
        clients = {slot: self._client(slot) for slot in range(5)}
        owned: dict[int, Iterator[None]] = dict(clients)
        for _ in range(steps):
            slot = self.random.randrange(len(owned))
            if self.random.random() < 0.01:  # a crash; the next incarnation begins
                owned[slot].close()  # type: ignore[attr-defined]
                owned[slot] = self._client(slot)
            next(owned[slot])
        for client in owned.values():
            client.close()  # type: ignore[attr-defined]
        self._finish()
        return self.lines

    def _event(self, kind: str, **fields: Any) -> None:
        self.time += 1
        self.lines.append(json.dumps({"type": kind, "time": self.time, **fields}))

    def _client(self, slot: int) -> Iterator[None]:
        process = next(self.processes)
        if slot < 3:
            return self._transactor(process, f"g{slot}")
        return self._sender(process) if slot == 3 else self._poller(process)

    def _sender(self, process: int) -> Iterator[None]:
        for number in range(1 << 30):
            me = {"process": process, "op": number, "f": "send"}
            key, value = self.random.randrange(KEYS), next(self.values)
            self._event("invoke", **me, sends=[[key, value]])
            yield
            offset = self.broker.append(key, value, None)
            yield
            is_acknowledged = self.random.random() < 0.9
            end = [key, value, offset, "ok"] if is_acknowledged else [key, value, None, "info"]
            self._event("ok" if is_acknowledged else "info", **me, sends=[end])

    def _poller(self, process: int) -> Iterator[None]:
        position = dict.fromkeys(range(KEYS), 0)
        for number in range(1 << 30):
            me = {"process": process, "op": number, "f": "poll"}
            self._event("invoke", **me)
            reads = self._poll(position)
            yield
            self._event("ok", **me, reads=reads)

    def _poll(self, position: dict[int, int]) -> list[list[int]]:
        reads: list[list[int]] = []
        for key in position:
            found, position[key] = self.broker.read(key, position[key], self.random.randint(0, 4))
            reads += [[key, offset, value] for offset, value in found]
        return reads

    def _transactor(self, process: int, group: str) -> Iterator[None]:
        position = {k: self.broker.offsets.get((group, k), 0) for k in range(KEYS)}
        sought: dict[int, int] = dict(position)
        last_end: bool | None = None
        for number in range(1 << 30):
            me = {"process": process, "op": number, "f": "txn", "group": group}
            txn = next(self.transactions)
            ended = False
            before = dict(position)
            try:
                sends = [[self.random.randrange(KEYS), next(self.values)] for _ in range(3)]
                self._event("invoke", **me, sends=sends)
                yield
                reads = self._poll(position)
                done: list[list[Any]] = []
                for key, value in sends:
                    done.append([key, value, self.broker.append(key, value, txn), "ok"])
                    txn = self._ended_late(txn, last_end)
                    yield
                seen: dict[str, Any] = {"sends": done, "reads": reads}
                if self.random.random() < 0.3:
                    self.broker.end(txn, commit=False)
                    ended, last_end = True, False
                    if self.broker.broken == "offsets-always":
                        self._commit_offsets(group, position)
                        sought = {}
                    else:
                        position, sought = before, before
                    self._event("fail", **me, **seen, sought=sought)
                    continue
                self._event("committing", **me, **seen, positions=position)
                self._commit_offsets(group, position)
                self.broker.end(txn, commit=True)
                ended, last_end = True, True
                yield
                self._event("ok", **me, **seen, positions=position)
            finally:
                if not ended:
                    self.broker.end(txn, commit=False)

    def _ended_late(self, txn: int, last_end: bool | None) -> int:
        """Repeat the last EndTxn if "late-end" is broken. Return the next transaction."""
        if self.broker.broken != "late-end" or last_end is None or self.random.random() > 0.1:
            return txn
        self.broker.end(txn, commit=last_end)
        return next(self.transactions)

    def _commit_offsets(self, group: str, position: dict[int, int]) -> None:
        self.broker.offsets |= {(group, key): offset for key, offset in position.items()}

    def _finish(self) -> None:
        for key in range(KEYS):
            stable, end = self.broker.last_stable_offset(key), len(self.broker.logs[key])
            if stable < end:
                self._event("stuck", key=key, last_stable_offset=stable, high_watermark=end)
        me = {"process": 1 << 30, "op": 0, "f": "poll"}
        self._event("invoke", **me)
        reads = [
            [key, offset, value]
            for key in range(KEYS)
            for offset, value in self.broker.read(key, 0, 1 << 30)[0]
        ]
        self._event("ok", **me, reads=reads)
        self._event("final")
