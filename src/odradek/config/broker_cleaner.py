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
        "Whether logs are compacted. If not, logs with cleanup.policy=compact grow without limit.",
    ),
    ConfigKey(
        "log.cleaner.threads",
        ConfigType.INT,
        1,
        _MEDIUM,
        "Number of worker processes that compact logs at the same time. They run only while there "
        "is work. The number can be halved or doubled at a time.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        _MEDIUM,
        "Time until the next check for logs to compact, if the last check found none.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        134_217_728,
        _MEDIUM,
        "Memory for the keys of all workers: 16 bytes per slot, seven million keys per pass.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        ConfigType.DOUBLE,
        0.9,
        _MEDIUM,
        "Maximum fill ratio of the memory for keys. A higher ratio makes lookups slower.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        ConfigType.INT,
        524_288,
        _MEDIUM,
        "Memory of all workers for their read and write buffers.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        sys.float_info.max,
        _MEDIUM,
        "Limit of the bytes that all workers together read and write per second, on average.",
        mode=_CLUSTER,
    ),
]
