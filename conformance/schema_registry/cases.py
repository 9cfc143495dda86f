"""The cases: scenarios of each client, and records of all clients that each client reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from conformance import stacks
from conformance.harness import Case, Context
from conformance.schema_registry.endpoints import Call, call_of, unexpected
from conformance.schema_registry.exchanges import Exchange
from conformance.schema_registry.programs import (
    CLIENTS,
    FORMATS,
    SCENARIOS,
    SCHEMAS,
    Client,
)
from conformance.schema_registry.recorder import Recorder
from odradek.testing import Registry
from testkit.topics import create_topic

PROGRAM_S = 180.0
CASE_TIMEOUT_S = 900.0
ORDERS = 3
OUTPUT_CHARACTERS = 1500


@dataclass(slots=True)
class Calls:
    """The calls of each client. Only the running case adds to them.

    Attributes:
        made: By client, how often each call was made.
        not_found: By client, the calls that got a 404 of the path.
    """

    made: dict[str, Counter[Call]] = field(default_factory=dict)
    not_found: dict[str, Counter[Call]] = field(default_factory=dict)

    def add(self, client: Client, exchanges: list[Exchange]) -> None:
        made = self.made.setdefault(client.name, Counter())
        not_found = self.not_found.setdefault(client.name, Counter())
        for each in exchanges:
            made[call_of(each)] += 1
            if each.status == 404 and each.error_code == 404:
                not_found[call_of(each)] += 1


def cases(calls: Calls) -> tuple[Case, ...]:
    """Return all cases. They add the requests of the clients to `calls`."""
    return (*_scenario_cases(calls), *_record_cases(calls))


def _scenario_cases(calls: Calls) -> Iterator[Case]:
    for client in CLIENTS:
        for scenario in client.scenarios:
            name = f"{client.name}: {SCENARIOS[scenario]}"
            run = _scenario(client, scenario, calls)
            yield Case(name, run, ci=client.ci, timeout_s=CASE_TIMEOUT_S)
        for form in dict.fromkeys((*client.writes, *client.reads)):
            name = f"{client.name}: records in {FORMATS[form]}"
            run = _records((client,), (client,), form, calls)
            yield Case(name, run, ci=client.ci, timeout_s=CASE_TIMEOUT_S)


def _record_cases(calls: Calls) -> Iterator[Case]:
    for form, title in FORMATS.items():
        writers = tuple(each for each in CLIENTS if form in each.writes)
        readers = tuple(each for each in CLIENTS if form in each.reads)
        run = _records(writers, readers, form, calls)
        yield Case(f"each client reads {title} of all", run, timeout_s=CASE_TIMEOUT_S)


def _scenario(client: Client, scenario: str, calls: Calls) -> Callable[[Context], None]:
    def run(context: Context) -> None:
        command = client.command(context.work)
        with Registry(context.bootstrap, topic=context.topic("schemas")) as registry:
            _run(client, command, scenario, registry, calls)

    return run


def _records(
    writers: tuple[Client, ...], readers: tuple[Client, ...], form: str, calls: Calls
) -> Callable[[Context], None]:
    """Return a case in which each reader reads the records of each writer."""

    def run(context: Context) -> None:
        commands = {each.name: each.command(context.work) for each in (*writers, *readers)}
        topics = {each.name: context.topic(each.short.replace(" ", "-")) for each in writers}
        with Registry(context.bootstrap, topic=context.topic("schemas")) as registry:
            for client in writers:
                topic = topics[client.name]
                create_topic(context.bootstrap, topic)
                written = (context.bootstrap, form, topic, client.short)
                _run(client, commands[client.name], "write", registry, calls, *written)
            expected = {topics[each.name]: _orders(each.short) for each in writers}
            for client in readers:
                words = (context.bootstrap, form, str(ORDERS), *topics.values())
                output = _run(client, commands[client.name], "read", registry, calls, *words)
                found = _decoded(output, topics.values())
                assert found == expected, f"{client.name} read {found} instead of {expected}"

    return run


def _run(
    client: Client,
    command: list[str],
    scenario: str,
    registry: Registry,
    calls: Calls,
    *arguments: str,
) -> str:
    """Run a program behind a proxy. Return its output."""
    with Recorder(registry.url) as recorder:
        done = stacks.run(
            [*command, scenario, recorder.url, str(SCHEMAS), *arguments], timeout_s=PROGRAM_S
        )
    output = (done.stdout + done.stderr)[-OUTPUT_CHARACTERS:]
    assert done.returncode == 0, f"{client.name}: {scenario}: {output}"
    check(client, scenario, recorder, calls)
    return done.stdout


def check(client: Client, scenario: str, recorder: Recorder, calls: Calls) -> None:
    """Add the requests of a program to `calls`. Fail if the registry refused one by itself."""
    calls.add(client, recorder.exchanges)
    assert not recorder.failures, recorder.failures
    wrong = unexpected(recorder.exchanges)
    assert not wrong, f"{client.name}: {scenario}: {wrong}"


def _orders(name: str) -> list[dict[str, object]]:
    """Return the orders that the program of a client writes."""
    return [
        {"id": f"{name}-1", "amount": 1, "note": ""},
        {"id": f"{name}-2", "amount": 2, "note": "a note"},
        {"id": f"{name}-ä€", "amount": -(2**31), "note": "a note"},
    ]


def _decoded(output: str, topics: Iterable[str]) -> dict[str, list[dict[str, object]]]:
    """Return the printed orders by topic. A missing note is an empty one."""
    found: dict[str, list[dict[str, object]]] = {topic: [] for topic in topics}
    for line in output.splitlines():
        order = json.loads(line)
        found[order.pop("topic")].append({**order, "note": order.get("note") or ""})
    return found
