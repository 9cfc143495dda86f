"""The page docs/registry-clients.md, made from the recorded calls of all clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.report import DOCS
from conformance.schema_registry.cases import Calls
from conformance.schema_registry.endpoints import supported
from conformance.schema_registry.programs import CLIENTS, FORMATS

PAGE = DOCS / "registry-clients.md"
HEAD = Path(__file__).with_name("head.md")
PREFIX = "prefix `/contexts/{context}`"
YES = "yes"


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded run. Clients have their short names.

    Attributes:
        commit: The last commit that changed src/ before the run.
        date: The day of the run.
        versions: The version of each client.
        calls: By client and endpoint, the names of the parameters, sorted.
        prefixed: The clients that put a context in front of a path.
        not_found: By client, the endpoints that responded with a 404 of the path, sorted.
    """

    commit: str
    date: str
    versions: Mapping[str, str]
    calls: Mapping[str, Mapping[str, list[str]]]
    prefixed: list[str]
    not_found: Mapping[str, list[str]]


def record_of(calls: Calls, versions: Mapping[str, str], commit: str, date: str) -> Record:
    """Return the record of a run."""
    by_client: dict[str, dict[str, list[str]]] = {}
    prefixed = []
    for client in CLIENTS:
        parameters: dict[str, set[str]] = {}
        made = calls.made.get(client.name, Counter())
        for call in made:
            parameters.setdefault(call.endpoint, set()).update(call.parameters)
        by_client[client.short] = {each: sorted(parameters[each]) for each in sorted(parameters)}
        if any(call.has_prefix for call in made):
            prefixed.append(client.short)
    not_found = {
        client.short: sorted(
            {call.endpoint for call in calls.not_found.get(client.name, Counter())}
        )
        for client in CLIENTS
    }
    return Record(commit, date, dict(versions), by_client, prefixed, not_found)


def page(record: Record) -> str:
    """Return the page."""
    tables = {
        "clients": _clients(record),
        "endpoints": _endpoints(record),
        "not_found": _not_found(record),
        "uncalled": _uncalled(record),
        "commit": [f"`{record.commit[:7]}`"],
        "date": [record.date],
    }
    text = HEAD.read_text(encoding="utf-8")
    for name, lines in tables.items():
        text = text.replace(f"<{name}>", "\n".join(lines))
    return text


def _clients(record: Record) -> Iterator[str]:
    yield _line(["column", "client", "version", "records written", "records read"])
    yield _rule(5)
    for client in CLIENTS:
        formats = (", ".join(FORMATS[each] for each in of) for of in (client.writes, client.reads))
        yield _line([client.short, client.name, record.versions[client.short], *formats])


def _endpoints(record: Record) -> Iterator[str]:
    shorts = [client.short for client in CLIENTS]
    yield _line(["endpoint", *shorts, "parameters that the clients send"])
    yield _rule(len(shorts) + 2)
    for endpoint in supported():
        if _callers(record, endpoint):
            yield _line(
                [f"`{endpoint}`", *_marks(_callers(record, endpoint)), _sent(record, endpoint)]
            )
    yield _line([PREFIX, *_marks(record.prefixed), ""])


def _not_found(record: Record) -> Iterator[str]:
    shorts = [client.short for client in CLIENTS]
    yield _line(["request", *shorts])
    yield _rule(len(shorts) + 1)
    for endpoint in sorted({each for found in record.not_found.values() for each in found}):
        callers = [short for short in shorts if endpoint in record.not_found[short]]
        yield _line([f"`{endpoint}`", *_marks(callers)])


def _uncalled(record: Record) -> Iterator[str]:
    for endpoint in supported():
        if not _callers(record, endpoint):
            yield f"- `{endpoint}`"


def _callers(record: Record, endpoint: str) -> list[str]:
    return [short for short, calls in record.calls.items() if endpoint in calls]


def _sent(record: Record, endpoint: str) -> str:
    names = {name for calls in record.calls.values() for name in calls.get(endpoint, [])}
    return ", ".join(f"`{name}`" for name in sorted(names))


def _marks(callers: Iterable[str]) -> list[str]:
    chosen = set(callers)
    return [YES if client.short in chosen else "" for client in CLIENTS]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(count: int) -> str:
    return _line("---" for _ in range(count))
