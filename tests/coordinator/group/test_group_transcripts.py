"""Golden transcripts: small stories of a group, and what everybody was told, as prose.

A line that begins with ``>`` is a command, what follows it is the expected outcome::

    > a join            a client asks to join (first without an id; again with what it was given)
    > a sync a=x b=y    SyncGroup; the leader names the assignments
    > a heartbeat       > a leave       > a forget (the client restarts and has lost its id)
    > wait 10000        time passes, in milliseconds
    > restart           the coordinator restarts from its log

A new or changed story is written with ``UPDATE_TRANSCRIPTS=1``, then read before it is committed.
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

STORIES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@dataclass
class Person:
    """A client of the story. A name in capitals is a static member of that instance id."""

    name: str
    member_id: str = ""
    generation: int = -1
    tickets: dict[int, str] = field(default_factory=dict)

    @property
    def instance(self) -> str | None:
        return self.name if self.name.isupper() else None


class Story:
    """Performs commands and tells what came of them."""

    def __init__(self, delay_ms: int) -> None:
        self.machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=delay_ms))
        self.people: dict[str, Person] = {}
        self.lines: list[str] = []

    def run(self, command: str) -> list[str]:
        self.lines = []
        words = command.split()
        if words[0] == "wait":
            self.machine.advance(int(words[1]))
        elif words[0] == "restart":
            self.machine = self.machine.restarted()
            for person in self.people.values():
                person.tickets.clear()
        else:
            person = self.people.setdefault(words[0], Person(words[0]))
            getattr(self, f"_{words[1]}")(person, *words[2:])
        self._tell_answers()
        self._tell_group()
        return self.lines

    # -- commands ----------------------------------------------------------------------------------

    def _join(self, person: Person, metadata: str = "topics") -> None:
        ticket = self.machine.join(
            person.member_id, protocols={"range": metadata.encode()}, instance=person.instance
        )
        person.tickets[ticket] = "join"

    def _sync(self, person: Person, *plan: str) -> None:
        named = dict(item.split("=") for item in plan)
        assignments = {self.people[name].member_id: v.encode() for name, v in named.items()}
        ticket = self.machine.sync(
            person.member_id, assignments, generation=person.generation, instance=person.instance
        )
        person.tickets[ticket] = "sync"

    def _heartbeat(self, person: Person) -> None:
        code = self.machine.heartbeat(person.member_id, person.generation, person.instance)
        self.lines.append(f"{person.name}: heartbeat {code.name}")

    def _leave(self, person: Person) -> None:
        identity = MemberIdentity(member_id=person.member_id, group_instance_id=person.instance)
        (code,) = self.machine.leave(identity)
        self.lines.append(f"{person.name}: leave {ErrorCode(code).name}")

    def _forget(self, person: Person) -> None:
        person.member_id = ""

    # -- telling -----------------------------------------------------------------------------------

    def _tell_answers(self) -> None:
        for person in self.people.values():
            for ticket in [each for each in person.tickets if each in self.machine.answers]:
                kind = person.tickets.pop(ticket)
                answer = self.machine.answers[ticket]
                told = self._joined(person, answer) if kind == "join" else _synced(answer)
                self.lines.append(f"{person.name}: {kind} {told}")

    def _joined(self, person: Person, answer: Any) -> str:
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            person.member_id = answer.member_id
        if code is not ErrorCode.NONE:
            return code.name
        person.generation = answer.generation_id
        members = " ".join(sorted(self._name(each.member_id) for each in answer.members))
        leads = f", leads {members}" if answer.leader == answer.member_id else ""
        skips = ", skips the assignment" if answer.skip_assignment else ""
        return f"generation {answer.generation_id}{leads}{skips}"

    def _name(self, member_id: str | None) -> str:
        found = [p.name for p in self.people.values() if p.member_id == member_id]
        return found[0] if found else "(a former self)"

    def _tell_group(self) -> None:
        group = self.machine.group
        members = " ".join(sorted(self._name(each) for each in group.members)) or "nobody"
        self.lines.append(f"-- {group.state.value}, generation {group.generation_id}: {members}")


def _synced(answer: Any) -> str:
    code = ErrorCode(answer.error_code)
    return code.name if code is not ErrorCode.NONE else f"-> {answer.assignment.decode() or '(-)'}"


def told(text: str) -> str:
    """The story with its outcomes as they are today."""
    story = Story(3_000 if "initial delay 3000" in text else 0)
    out = []
    for line in text.splitlines():
        if line.startswith(">"):
            out.append(line)
            out += [f"    {each}" for each in story.run(line[1:].split("#")[0].strip())]
        elif not line.startswith("    "):
            out.append(line)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_goes_as_it_was_told(path: Path) -> None:
    text = path.read_text()
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(told(text))
    else:
        assert told(text) == text


def test_there_are_stories() -> None:
    assert STORIES
