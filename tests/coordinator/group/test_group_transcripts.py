"""Golden transcripts of a group: the commands of its clients, and the responses.

A line that begins with ``>`` is a command. The lines after it are the expected outcome::

    > a join            a client joins (first without an id, then with the id of the response)
    > a sync a=x b=y    SyncGroup with the assignments of the leader
    > a heartbeat       > a leave       > a forget (the client restarts and has lost its id)
    > wait 10000        time passes, in milliseconds
    > restart           the coordinator restarts from its log

``UPDATE_TRANSCRIPTS=1`` writes a new or changed transcript. Read it before you commit it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_member import ClassicSettings
from odradek.errors import ErrorCode
from odradek.protocol.messages.leave_group_request import MemberIdentity
from tests.coordinator.group.group_machine import Machine

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@dataclass
class Client:
    """A client of the transcript. A name in capitals is a static member of that instance id."""

    name: str
    member_id: str = ""
    generation: int = -1
    tickets: dict[int, str] = field(default_factory=dict)

    @property
    def instance(self) -> str | None:
        return self.name if self.name.isupper() else None


class Transcript:
    """Runner of commands that reports their outcomes."""

    def __init__(self, delay_ms: int) -> None:
        self.machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=delay_ms))
        self.clients: dict[str, Client] = {}
        self.lines: list[str] = []

    def run(self, command: str) -> list[str]:
        self.lines = []
        words = command.split()
        if words[0] == "wait":
            self.machine.advance(int(words[1]))
        elif words[0] == "restart":
            self.machine = self.machine.restarted()
            for client in self.clients.values():
                client.tickets.clear()
        else:
            client = self.clients.setdefault(words[0], Client(words[0]))
            getattr(self, f"_{words[1]}")(client, *words[2:])
        self._report_responses()
        self._report_group()
        return self.lines

    # -- commands ----------------------------------------------------------------------------------

    def _join(self, client: Client, metadata: str = "topics") -> None:
        ticket = self.machine.join(
            client.member_id, protocols={"range": metadata.encode()}, instance=client.instance
        )
        client.tickets[ticket] = "join"

    def _sync(self, client: Client, *plan: str) -> None:
        named = dict(item.split("=") for item in plan)
        assignments = {self.clients[name].member_id: v.encode() for name, v in named.items()}
        ticket = self.machine.sync(
            client.member_id, assignments, generation=client.generation, instance=client.instance
        )
        client.tickets[ticket] = "sync"

    def _heartbeat(self, client: Client) -> None:
        code = self.machine.heartbeat(client.member_id, client.generation, client.instance)
        self.lines.append(f"{client.name}: heartbeat {code.name}")

    def _leave(self, client: Client) -> None:
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        (code,) = self.machine.leave(identity)
        self.lines.append(f"{client.name}: leave {ErrorCode(code).name}")

    def _forget(self, client: Client) -> None:
        client.member_id = ""

    # -- reporting ---------------------------------------------------------------------------------

    def _report_responses(self) -> None:
        for client in self.clients.values():
            for ticket in [each for each in client.tickets if each in self.machine.responses]:
                kind = client.tickets.pop(ticket)
                response = self.machine.responses[ticket]
                outcome = self._joined(client, response) if kind == "join" else _synced(response)
                self.lines.append(f"{client.name}: {kind} {outcome}")

    def _joined(self, client: Client, response: Any) -> str:
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
        if code is not ErrorCode.NONE:
            return code.name
        client.generation = response.generation_id
        members = " ".join(sorted(self._name(each.member_id) for each in response.members))
        leads = f", leads {members}" if response.leader == response.member_id else ""
        skips = ", skips the assignment" if response.skip_assignment else ""
        return f"generation {response.generation_id}{leads}{skips}"

    def _name(self, member_id: str | None) -> str:
        found = [p.name for p in self.clients.values() if p.member_id == member_id]
        return found[0] if found else "(a former self)"

    def _report_group(self) -> None:
        group = self.machine.group
        members = " ".join(sorted(self._name(each) for each in group.members)) or "nobody"
        self.lines.append(f"-- {group.state.value}, generation {group.generation_id}: {members}")


def _synced(response: Any) -> str:
    code = ErrorCode(response.error_code)
    return (
        code.name if code is not ErrorCode.NONE else f"-> {response.assignment.decode() or '(-)'}"
    )


def replayed(text: str) -> str:
    """Return the transcript with the present outcomes."""
    transcript = Transcript(3_000 if "initial delay 3000" in text else 0)
    out = []
    for line in text.splitlines():
        if line.startswith(">"):
            out.append(line)
            out += [f"    {each}" for each in transcript.run(line[1:].split("#")[0].strip())]
        elif not line.startswith("    "):
            out.append(line)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_has_the_recorded_outcomes(path: Path) -> None:
    text = path.read_text()
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(replayed(text))
    else:
        assert replayed(text) == text


def test_transcripts_exist() -> None:
    assert TRANSCRIPTS
