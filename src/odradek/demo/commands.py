"""Commands to try after the demo, in a form that the user's shell can run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

CLUSTER = "cluster"
"""Directory of the demo's cluster, below its output."""
QUERY = "SELECT partition, count(*) AS records FROM t GROUP BY partition"


def shown(path: Path) -> str:
    """Return `path` relative to the current directory, or absolute if it is outside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def program() -> str:
    """Return the command that runs this installation's `odradek`.

    It is the name if PATH contains this script, otherwise the path of the script, otherwise
    `python -m odradek`.
    """
    scripts = (Path(sys.argv[0]).absolute(), Path(sys.executable).with_name("odradek"))
    script = next((one for one in scripts if one.name == "odradek" and _can_run(one)), None)
    if script is None:
        return f"{_runnable(Path(sys.executable))} -m odradek"
    found = shutil.which("odradek")
    if found is not None and Path(found).samefile(script):
        return "odradek"
    return _runnable(script)


def _can_run(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _runnable(path: Path) -> str:
    """Return a quoted path with a slash, because a shell searches PATH for a name without one."""
    text = shown(path)
    return shlex.quote(text if "/" in text else f"./{text}")


def commands(
    topic: str,
    out: Path,
    parser: str,
    record: str,
    bootstrap_servers: str | None,
    brokers: int = 1,
) -> list[tuple[str, str]]:
    """Return pairs of a description and a command.

    An empty description means that the command belongs to the one before it.

    Args:
        topic: Topic of the demo.
        out: Output directory of the demo.
        parser: The parser options of the ingest.
        record: A value that the parser accepts.
        bootstrap_servers: The broker that the demo used. With None the data of the demo's own
            broker are in `out`, and the first command starts it.
        brokers: The number of the demo's own brokers.
    """
    odradek = program()
    lake = shlex.quote(shown(out / "lake"))
    ingest = f"{odradek} pipeline ingest --topics {topic} --table-dir {lake} {parser} --once"
    echo = f"echo {shlex.quote(record)}"
    at = "" if bootstrap_servers is None else f" --bootstrap-server {bootstrap_servers}"
    lines = [
        ("read some events", f"{odradek} consume {topic} --max 5{at}"),
        ("send one more event and ingest it", f"{echo} | {odradek} produce {topic}{at}"),
        ("", f"{ingest}{at}"),
        ("query the tables", f'{odradek} pipeline sql --table-dir {lake} "{QUERY}"'),
    ]
    if bootstrap_servers is None and brokers > 1:
        data = shlex.quote(shown(out / CLUSTER))
        up = f"{odradek} cluster up --brokers {brokers} --data {data} &"
        lines.insert(0, ("start the cluster again, with its topic", up))
    elif bootstrap_servers is None:
        broker = shlex.quote(shown(out / "broker"))
        serve = f"{odradek} serve --data {broker} &"
        lines.insert(0, ("start the broker again, with its topic", serve))
    return lines
