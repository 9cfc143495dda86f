"""Broker configs: the log cleaner, which compacts logs."""

from __future__ import annotations

import sys

from odradek.config.definition import ConfigKey, ConfigType, Importance, UpdateMode, at_least

_MEDIUM = Importance.MEDIUM
_CLUSTER = UpdateMode.CLUSTER_WIDE

CLEANER_CONFIGS = [
    ConfigKey(
        "log.cleaner.enable",
        ConfigType.BOOLEAN,
        True,
        _MEDIUM,
        "Whether logs are compacted; without it those with cleanup.policy=compact grow for ever.",
    ),
    ConfigKey(
        "log.cleaner.threads",
        ConfigType.INT,
        1,
        _MEDIUM,
        "How many worker processes may compact logs at once; they run only while there is work. "
        "It can be altered by half or to double at a time.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        _MEDIUM,
        "How long to wait, when no log is due, before looking again.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        134_217_728,
        _MEDIUM,
        "The memory for keys of all workers: 16 bytes a slot, so seven million keys a pass.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        ConfigType.DOUBLE,
        0.9,
        _MEDIUM,
        "How full the memory for keys may become; the fuller, the slower.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        ConfigType.INT,
        524_288,
        _MEDIUM,
        "The memory of all workers for what they read and write at once.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        sys.float_info.max,
        _MEDIUM,
        "How many bytes all workers together read and write in a second, on the average.",
        mode=_CLUSTER,
    ),
]
