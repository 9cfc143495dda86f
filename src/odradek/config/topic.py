"""The configs of a topic, and how they follow from a topic's overrides over the broker's own
configs.

Names, types, defaults and valid values are those of Kafka 4.1 (``LogConfig``); the configs of
tiered storage are those of a broker that has none, where they change nothing (`WITHOUT_EFFECT`).
`SYNONYMS` says which broker configs stand behind a topic config, first the one that wins, with
the factor that turns its value into the topic's unit (``ServerTopicConfigSynonyms``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from odradek.config.definition import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    at_least,
    between,
    invalid_value,
    one_of,
)
from odradek.config.log_config import LONG_MAX

_MEDIUM = Importance.MEDIUM
_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class GzipLevels:
    """-1, or 1 to 9."""

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, int)
        if value != -1 and not 1 <= value <= 9:
            raise invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


GZIP_LEVELS = GzipLevels()


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """``*``, or partition:broker for each replica."""

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, list)
        pairs = all(re.fullmatch(r"([0-9]+:[0-9]+)?", item, re.ASCII) for item in value)
        if not pairs and value != ["*"]:
            reason = f"{name} must be the literal '*' or a list of replicas in the form {self}"
            raise invalid_value(name, value, reason)

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


_THROTTLED = ThrottledReplicas()

TOPIC_CONFIGS = ConfigDef(
    [
        ConfigKey(
            "cleanup.policy",
            ConfigType.LIST,
            ["delete"],
            _MEDIUM,
            "How old data leaves a partition: 'delete' drops whole segments by age and size, "
            "'compact' keeps the newest record of every key; both may be given.",
            one_of("compact", "delete"),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            _MEDIUM,
            "The compression that batches are stored with. 'producer' stores them as they came; "
            "a codec's name has other batches compressed again by the broker, "
            "'uncompressed' has them stored plain.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        ConfigKey(
            "compression.gzip.level",
            _INT,
            -1,
            _MEDIUM,
            "How hard gzip works when the broker compresses: 1 to 9, -1 for its own default.",
            GZIP_LEVELS,
        ),
        ConfigKey(
            "compression.lz4.level",
            _INT,
            9,
            _MEDIUM,
            "How hard lz4 works when the broker compresses.",
            between(1, 17),
        ),
        ConfigKey(
            "compression.zstd.level",
            _INT,
            3,
            _MEDIUM,
            "How hard zstd works when the broker compresses; negative levels are the fast ones.",
            between(-131072, 22),
        ),
        ConfigKey(
            "delete.retention.ms",
            _LONG,
            86_400_000,
            _MEDIUM,
            "How long a tombstone stays readable in a compacted partition, so that a reader that "
            "starts from the beginning within this time sees the deletion.",
            at_least(0),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _LONG,
            60_000,
            _MEDIUM,
            "How long the files of a dropped segment stay on disk before they are removed.",
            at_least(0),
        ),
        ConfigKey(
            "flush.messages",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "After how many records the log is forced to disk. 1 means that no record is "
            "acknowledged before it is there.",
            at_least(1),
        ),
        ConfigKey(
            "flush.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "After how long unflushed records are forced to disk.",
            at_least(0),
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            [],
            _MEDIUM,
            "The replicas whose fetching is throttled while partitions move; there are none here.",
            _THROTTLED,
        ),
        ConfigKey(
            "index.interval.bytes",
            _INT,
            4096,
            _MEDIUM,
            "About how many bytes of records lie between two entries of the offset index: fewer "
            "make seeks shorter and the index larger.",
            at_least(0),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            [],
            _MEDIUM,
            "The replicas from which fetching is throttled while partitions move; there are none "
            "here.",
            _THROTTLED,
        ),
        ConfigKey(
            "local.retention.bytes",
            _LONG,
            -2,
            _MEDIUM,
            "How large the part of a partition on the broker's own disk may grow; there is no "
            "tiered storage.",
            at_least(-2),
        ),
        ConfigKey(
            "local.retention.ms",
            _LONG,
            -2,
            _MEDIUM,
            "How long records stay on the broker's own disk; there is no tiered storage.",
            at_least(-2),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "How long a record of a compacted topic may wait at most before it becomes eligible "
            "for compaction.",
            at_least(1),
        ),
        ConfigKey(
            "max.message.bytes",
            _INT,
            1_048_588,
            _MEDIUM,
            "The largest batch of records, as sent, that the topic accepts.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _LONG,
            3_600_000,
            _MEDIUM,
            "How far a record's own timestamp may be ahead of the broker's clock; ignored when "
            "the broker stamps the records.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "How far a record's own timestamp may be behind the broker's clock; ignored when the "
            "broker stamps the records.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            _MEDIUM,
            "Whose time a record carries: its producer's (CreateTime) or the broker's at the "
            "moment of the append (LogAppendTime).",
            one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            0.5,
            _MEDIUM,
            "The share of a compacted log that must be uncompacted before it is compacted again.",
            between(0, 1),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _LONG,
            0,
            _MEDIUM,
            "How long a record of a compacted topic stays uncompacted at least.",
            at_least(0),
        ),
        ConfigKey(
            "min.insync.replicas",
            _INT,
            1,
            _MEDIUM,
            "How many replicas must be in sync for a write with acks=all to be accepted. A number "
            "above the replicas that there are counts as that number.",
            at_least(1),
        ),
        ConfigKey(
            "preallocate",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether the file of a new segment gets its full size at once.",
        ),
        ConfigKey(
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether tiered storage takes no more segments; there is none.",
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether what tiered storage has goes when it is switched off; there is none.",
        ),
        ConfigKey(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether segments go to tiered storage; there is none, and true is refused.",
        ),
        ConfigKey(
            "retention.bytes",
            _LONG,
            -1,
            _MEDIUM,
            "How large a partition may grow before its oldest segments are dropped; -1 for no "
            "limit. Counts for the policy 'delete'.",
        ),
        ConfigKey(
            "retention.ms",
            _LONG,
            604_800_000,
            _MEDIUM,
            "How old the newest record of a segment may become before the segment is dropped; -1 "
            "for no limit. Counts for the policy 'delete'.",
            at_least(-1),
        ),
        ConfigKey(
            "segment.bytes",
            _INT,
            1_073_741_824,
            _MEDIUM,
            "How large one file of a log may grow before the next one is begun.",
            at_least(1_048_576),
        ),
        ConfigKey(
            "segment.index.bytes",
            _INT,
            10_485_760,
            _MEDIUM,
            "How large an offset index may grow; a full index begins a new segment.",
            at_least(4),
        ),
        ConfigKey(
            "segment.jitter.ms",
            _LONG,
            0,
            _MEDIUM,
            "How much is taken at random from segment.ms, so that many logs do not roll at the "
            "same moment.",
            at_least(0),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            604_800_000,
            _MEDIUM,
            "After how long a new segment is begun even if the last one is not full.",
            at_least(1),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether a replica that is not in sync may become leader when no other is left, which "
            "loses records.",
        ),
    ]
)


# Accepted and shown as by a Kafka broker without tiered storage and without followers.
WITHOUT_EFFECT = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


class Synonym(NamedTuple):
    """A broker config behind a topic config; its value times `factor` is the topic's."""

    name: str
    factor: int = 1


SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (
        Synonym("log.flush.interval.ms"),
        Synonym("log.flush.scheduler.interval.ms"),
    ),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
