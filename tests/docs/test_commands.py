"""The command reference agrees with the commands' help and has every option."""

from __future__ import annotations

import pytest

from tests.helpers.command_docs import PATH, commands, render

PAGE = PATH.read_text("utf-8")


def test_the_page_agrees_with_the_help_of_the_commands() -> None:
    assert render() == PAGE, "run: python -m tests.helpers.command_docs"


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_option_of_the_command_is_in_its_section(name: str) -> None:
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    parameters = dict(commands())[name].params
    assert parameters
    shown = [one for one in parameters if not getattr(one, "hidden", False)]
    for option in (each for one in shown for each in one.opts if each.startswith("-")):
        if option != "--help":
            assert f"`{option}" in section, option
