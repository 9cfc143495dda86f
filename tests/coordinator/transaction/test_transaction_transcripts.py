"""Golden transcripts of a transactional id: the commands of producers, and the responses.

A line that begins with ``>`` is a command. The lines after it are the expected outcome::

    > level 2           transaction.version, and the version of the producers
    > a init            InitProducerId; `a bump` sends the present id and epoch (KIP-360)
    > a add t0 t1       AddPartitionsToTxn; `a verify t0` only checks
    > a commit          > a abort
    > markers           all markers of the prepared transaction are written
    > wait 10000        time passes, in milliseconds, and what is due times out
    > restart           the coordinator restarts from its log

``UPDATE_TRANSCRIPTS=1`` writes a new or changed transcript. Read it before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.coordinator.transaction.transaction_decisions import TransactionResult
from odradek.errors import ErrorCode
from tests.coordinator.transaction.transaction_machine import Machine

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Transcript:
    """Runner of commands that reports their outcomes."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.identities: dict[str, tuple[int, int]] = {}
        self.client_version = 0

    def run(self, command: str) -> list[str]:
        words = command.split()
        outcome = []
        if words[0] == "wait":
            self.machine.now_ms += int(words[1])
            if self.machine.time_out():
                outcome.append("timed out")
        elif words[0] == "level":
            self.machine.transaction_version = int(words[1])
            self.client_version = 2 if words[1] == "2" else 0
        elif words[0] == "epoch":
            self.machine.set(producer_epoch=int(words[1]))
        elif words[0] == "markers":
            assert self.machine.finish()
        elif words[0] == "restart":
            self.machine.restart()
        else:
            outcome.append(f"{words[0]}: {self._client(words[0], words[1], words[2:])}")
        return [*outcome, self._state()]

    def _client(self, name: str, verb: str, names: list[str]) -> str:
        identity = self.identities.get(name, (-1, -1))
        if verb in ("init", "bump"):
            return self._report(name, self.machine.init(None if verb == "init" else identity))
        if verb == "add":
            return self.machine.add(identity, *names, version=self.client_version).name
        if verb == "verify":
            return " ".join(code.name for code in self.machine.verify(identity, *names))
        assert verb in ("commit", "abort"), verb
        decision = self.machine.end(identity, verb == "commit", self.client_version)
        return self._report(name, decision)

    def _report(self, name: str, decision: TransactionResult) -> str:
        if decision.response.code is not ErrorCode.NONE or decision.response.producer_id == -1:
            return decision.response.code.name
        self.identities[name] = (decision.response.producer_id, decision.response.producer_epoch)
        return f"you are {decision.response.producer_id}/{decision.response.producer_epoch}"

    def _state(self) -> str:
        current = self.machine.current
        if current is None:
            return "= nothing known"
        parts = " ".join(f"{topic}{number}" for topic, number in sorted(current.partitions))
        identity = f"{current.producer_id}/{current.producer_epoch}"
        return f"= {current.state.kafka_name} {identity} {parts}".rstrip()


def replayed(path: Path) -> str:
    transcript = Transcript()
    lines = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#") or not line:
            lines.append(line)
        elif line.startswith(">"):
            lines += [line, *transcript.run(line[1:].strip())]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_has_the_recorded_outcomes(path: Path) -> None:
    now = replayed(path)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(now, "utf-8")
    assert now == path.read_text("utf-8")


def test_transcripts_exist() -> None:
    assert TRANSCRIPTS
