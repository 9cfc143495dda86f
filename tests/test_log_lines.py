"""Each warning and error in the log says what happened, to which object, and what follows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parent.parent / "src" / "odradek"
LEVELS = {"warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log", "logger", "_logger", "logging"}
PLACEHOLDER = re.compile(r"%(?:\.\d+)?[a-z]")
WORDS_MIN = 4

WITHOUT_OBJECT = {
    "a pass of the log cleaner failed": "a pass covers all logs; the traceback names the cause",
    "another controller has taken over": "a broker has one metadata store",
    "bug in the suspension of partitions": "all partitions of the broker; the traceback follows",
    "cannot read the metadata store": "a broker has one metadata store",
    "cannot start a worker of the log cleaner": "a worker has no name",
    "cannot write the metadata store": "a broker has one metadata store",
    "configs of Kafka that have no effect": "the text after the colon is the configs",
    "the ZooKeeper session is not closed": "a broker has one session",
    "the session of the metadata store has ended": "a broker has one session",
    "unknown configs are ignored": "the text after the colon is the configs",
    "a response cannot be sent": "the sender does not know its peer; the next line names it",
}
"""Beginnings of lines that name no object, with the reason."""

TEXT_ELSEWHERE = {
    "log/directories/log_manager.py": "the text is a variable of the line before",
}
"""Modules with a log call whose text is not a literal, with the reason."""


class LogCall(NamedTuple):
    """A log call in module `where`. `text` is None if its first argument is not a literal."""

    where: str
    text: str | None


def log_calls(source: str, where: str) -> Iterator[LogCall]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        logger, level = node.func.value, node.func.attr
        if level not in LEVELS or not isinstance(logger, ast.Name) or logger.id not in LOGGERS:
            continue
        first = node.args[0]
        text = first.value if isinstance(first, ast.Constant) else None
        yield LogCall(where, text if isinstance(text, str) else None)


def all_calls() -> list[LogCall]:
    return [
        call
        for path in sorted(SRC.rglob("*.py"))
        for call in log_calls(path.read_text("utf-8"), path.relative_to(SRC).as_posix())
    ]


def faults(calls: list[LogCall]) -> list[str]:
    """Return the texts that name no object, or that consist of an object and a reason only."""
    found = []
    for where, text in calls:
        if text is None:
            if where not in TEXT_ELSEWHERE:
                found.append(f"{where}: the text is not a literal")
            continue
        # A placeholder after a colon is the reason, not the object.
        if not PLACEHOLDER.search(text.replace(": %s", "")) and not text.startswith(
            tuple(WITHOUT_OBJECT)
        ):
            found.append(f"{where}: names no object: {text}")
        if len(re.findall(r"[a-z]{2,}", PLACEHOLDER.sub("", text))) < WORDS_MIN:
            found.append(f"{where}: says too little: {text}")
        if ";" in text:
            found.append(f"{where}: two sentences in one: {text}")
    return found


def test_each_warning_and_error_names_its_object_and_says_what_follows() -> None:
    calls = all_calls()
    assert len(calls) > 60
    assert faults(calls) == []


@pytest.mark.parametrize(
    "line",
    [
        'logger.error("the disk failed, check it and start again")',
        'logger.warning("the disk failed, check it and start again: %s", error)',
        'logger.warning("closing %s: %s", name, error)',
        'logger.exception("stopping %s failed", name)',
        'logger.error(what + "the log of %s", name)',
        'logger.warning("the broker has lost %s; it is read again", name)',
    ],
)
def test_planted_fault_is_found(line: str) -> None:
    assert faults(list(log_calls(line, "planted.py")))


@pytest.mark.parametrize("beginning", WITHOUT_OBJECT)
def test_exception_is_still_needed(beginning: str) -> None:
    texts = [call.text for call in all_calls() if call.text is not None]
    assert any(text.startswith(beginning) for text in texts)


@pytest.mark.parametrize("module", TEXT_ELSEWHERE)
def test_module_with_a_text_elsewhere_has_one(module: str) -> None:
    assert any(call.where == module and call.text is None for call in all_calls())
