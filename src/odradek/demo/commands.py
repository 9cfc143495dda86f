"""The commands to go on with after the demo, as the user's shell here can run them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

QUERY = "SELECT partition, count(*) AS records FROM t GROUP BY partition"


def shown(path: Path) -> str:
    """`path` as a user here would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def program() -> str:
    """How this installation's `odradek` is run from here: by its name when the PATH finds it, else
    by the path of its script, else as a module."""
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
    """A shell looks a name without a slash up on the PATH."""
    text = shown(path)
    return shlex.quote(text if "/" in text else f"./{text}")


def commands(
    topic: str, out: Path, parser: str, bootstrap_servers: str | None
) -> list[tuple[str, str]]:
    """What each is for ("": as the one before) and the command; `parser` are the ingest's options.

    Without `bootstrap_servers` the broker's data are in `out`, and the first command starts it.
    """
    odradek = program()
    lake = shlex.quote(shown(out / "lake"))
    ingest = f"{odradek} pipeline ingest --topics {topic} --table-dir {lake} {parser} --once"
    at = "" if bootstrap_servers is None else f" --bootstrap-server {bootstrap_servers}"
    lines = [
        ("read some of the events", f"{odradek} consume {topic} --max 5{at}"),
        ("send one more, and have it ingested", f"echo '{{}}' | {odradek} produce {topic}{at}"),
        ("", f"{ingest}{at}"),
        ("ask the tables", f'{odradek} pipeline sql --table-dir {lake} "{QUERY}"'),
    ]
    if bootstrap_servers is None:
        broker = shlex.quote(shown(out / "broker"))
        serve = f"{odradek} serve --data {broker} &"
        lines.insert(0, ("the broker again, with its topic", serve))
    return lines
