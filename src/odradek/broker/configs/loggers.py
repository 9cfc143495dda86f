"""The BROKER_LOGGER resource: each config is a logger, and its value is a level named as in Log4j.

Kafka's tools set the log levels of a running broker (KIP-412). The levels are not stored, so they
are lost when the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.config_changes import ConfigOp, OpType

ROOT_LOGGER = "root"
_TRACE = 5
LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Return the effective level of every logger of this process, by name."""
    names = [ROOT_LOGGER, *_known_loggers()]
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in names}


def alter_loggers(ops: Sequence[ConfigOp], validate_only: bool) -> None:
    """Set levels, or reset loggers to the level of their parent. Apply all changes or none.

    Args:
        ops: The changes. SET has a level's name as value, DELETE resets the logger.
        validate_only: Whether to check the changes without applying them.

    Raises:
        KafkaError: A change is invalid.
    """
    for op in ops:
        _check(op)
    if validate_only:
        return
    for op in ops:
        level = logging.NOTSET if op.op is OpType.DELETE else LEVELS[(op.value or "").upper()]
        _logger(op.name).setLevel(level)


def _check(op: ConfigOp) -> None:
    if op.op not in (OpType.SET, OpType.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{op.op.name} operation is not allowed for the BROKER_LOGGER resource",
        )
    if op.name != ROOT_LOGGER and op.name not in _known_loggers():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {op.name} does not exist!")
    if op.op is OpType.DELETE and op.name == ROOT_LOGGER:
        text = "Removing the log level of the root logger is not allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if op.op is OpType.SET and (op.value or "").upper() not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {op.name} to {op.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}",
        )


def _known_loggers() -> list[str]:
    loggers = logging.root.manager.loggerDict
    return sorted(name for name, it in loggers.items() if isinstance(it, logging.Logger))


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT_LOGGER else logging.getLogger(name)


def _level_name(level: int) -> str:
    """Return the highest level of Log4j that is not above `level` of Python."""
    names = [name for name, bound in LEVELS.items() if bound <= level]
    return names[-1] if names else "TRACE"
