"""Output of the commands: tables for users, JSON for programs, one line for an error."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

NUMBER_MAX = 2**63 - 1  # largest offset, and largest timestamp in ms
PARTITION_MAX = 2**31 - 1


class CommandError(Exception):
    """A command failed or was refused.

    Args:
        text: The line that the user sees.
        exit_code: The exit code of the command.
    """

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def print_json(value: object) -> None:
    """Print `value` as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], as_json: bool) -> None:
    """Print `rows` as a JSON array, or as a table with the given columns in order.

    Columns of numbers are aligned to the right.
    """
    if as_json:
        print_json([dict(row) for row in rows])
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(
            column.upper().replace("_", " "),
            justify="right" if rows and numeric else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console = _console()
    console.print(table, soft_wrap=not console.is_terminal)


def _console() -> Console:
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `app._Root` handles it; rich would exit with 1

    console = Output()
    # In piped output each row stays on one line of any length.
    return console if console.is_terminal else Output(width=10_000)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def parse_assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return `key=value` arguments as a dict.

    Raises:
        CommandError: A pair has no "=" or no key. The text names `option`.
    """
    result: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} takes key=value, not {pair!r}.")
        result[key.strip()] = value.strip()
    return result


def parse_time_ms(text: str, option: str) -> int:
    """Return a time as milliseconds since 1970.

    Times before 1970 become 0, because negative timestamps have other meanings in requests.

    Raises:
        CommandError: `text` is neither ISO 8601 nor a number. The text names `option`.
    """
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= NUMBER_MAX:
        return int(text)
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option} takes a time in ISO 8601 or milliseconds since 1970, not {text!r}."
        ) from None


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return `{name: text}`, or `{name_base64: ...}` if the bytes are not UTF-8."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
