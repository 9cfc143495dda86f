"""Renders docs/commands.md from the commands: ``python -m tests.helpers.command_docs``."""

from __future__ import annotations

import re
from argparse import Action
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from odradek.cli.app import app
from odradek.cli.serve import _parser

PATH = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
HEAD = """# Command reference

On this page you look up the arguments and options of each command.

The page is generated from the commands (`python -m tests.helpers.command_docs`). Every command has
`--help`. [Work with topics, groups and transactions](cli.md) shows them in use.

| environment variable | meaning |
|---|---|
| `ODRADEK_BOOTSTRAP_SERVER` | default of `--bootstrap-server` |
| `ODRADEK_DEBUG` | if set, commands print the log of their Kafka client |
| `SCHEMA_REGISTRY_URL` | default of `--registry` (`odradek consume`: of `--decode`) |
| `SCHEMA_REGISTRY_USER` | default of `--user` and `--registry-user` |
| `SCHEMA_REGISTRY_PASSWORD` | password of this user |
| `ODRADEK_FORCE_FALLBACKS` | if set, the broker works without uvloop, `sendfile` and `RWF_NOWAIT` |
"""
COMMON = {"--help"}


def render() -> str:
    return "\n".join([HEAD, *_sections()])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name: `odradek topic create`."""
    yield from _leaves(typer.main.get_command(app), "odradek")


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children: dict[str, Any] = getattr(command, "commands", {})
    if not children:
        yield name, command
    for child in sorted(children):
        yield from _leaves(children[child], f"{name} {child}")


def _sections() -> Iterator[str]:
    for name, command in commands():
        yield f"## {name}\n"
        yield _paragraphs(command.help or "") + "\n"
        yield from _serve() if name == "odradek serve" else _parameters(command)
        yield ""


def _serve() -> Iterator[str]:
    """`serve` has a parser of its own, without Typer."""
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for action in _parser()._actions:
        if not COMMON.intersection(action.option_strings):
            yield _serve_row(action)


def _serve_row(action: Action) -> str:
    text = action.help or ""
    value = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or ())
    text, _, default = re.sub(r"(^|, )default ", "\0", text).partition("\0")
    cell = ", or ".join(f"`{each}`" for each in default.split(", or ")) if default else ""
    return _row(f"`{action.option_strings[0]} {value}`", cell, text)


def _parameters(command: Any) -> Iterator[str]:
    yield "| argument or option | default | meaning |"
    yield "|---|---|---|"
    for parameter in command.params:
        if not COMMON.intersection(parameter.opts) and not getattr(parameter, "hidden", False):
            yield _row(_name(parameter), _default(parameter), _meaning(parameter))


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    is_number = parameter.min is not None or isinstance(parameter.default, int | float)
    value = "" if parameter.is_flag else f" {parameter.metavar or ('N' if is_number else 'VALUE')}"
    return ", ".join(f"`{each}{value}`" for each in sorted(parameter.opts, key=len, reverse=True))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value is None or value is False or value == "" else f"`{value}`"


def _meaning(parameter: Any) -> str:
    text: str = parameter.help or ""
    return text + (" Repeatable." if parameter.multiple and "repeatable" not in text else "")


def _row(*cells: str) -> str:
    shown = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(shown)} |"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
