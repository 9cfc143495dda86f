"""The configs of a topic, and their values from a topic's overrides and the broker's configs.

Names, types, defaults and valid values are those of Kafka 4.1 (``LogConfig``). The configs of
tiered storage have no effect, as on a broker without tiered storage (`WITHOUT_EFFECT`). `SYNONYMS`
has the broker configs that are the defaults of a topic config, in order of precedence. A factor
converts their values to the topic's unit (``ServerTopicConfigSynonyms``).
"""

from __future__ import annotations

import re
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


class GzipLevels:
    """-1, or 1 to 9."""

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, int)
        if value != -1 and not 1 <= value <= 9:
            raise invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


GZIP_LEVELS = GzipLevels()


class ThrottledReplicas:
    """``*``, or partition:broker for each replica."""

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, list)
        are_pairs = all(re.fullmatch(r"([0-9]+:[0-9]+)?", item, re.ASCII) for item in value)
        if not are_pairs and value != ["*"]:
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
            "How old data is removed from a partition: 'delete' removes whole segments by age and "
            "size, 'compact' keeps the newest record of every key. Both may be set.",
            one_of("compact", "delete"),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            _MEDIUM,
            "Compression of stored batches. 'producer' keeps the compression of the producer. For "
            "a codec's name the broker compresses other batches again. 'uncompressed' stores them "
            "without compression.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        ConfigKey(
            "compression.gzip.level",
            _INT,
            -1,
            _MEDIUM,
            "Level of gzip when the broker compresses: 1 to 9, or -1 for gzip's default.",
            GZIP_LEVELS,
        ),
        ConfigKey(
            "compression.lz4.level",
            _INT,
            9,
            _MEDIUM,
            "Level of lz4 when the broker compresses.",
            between(1, 17),
        ),
        ConfigKey(
            "compression.zstd.level",
            _INT,
            3,
            _MEDIUM,
            "Level of zstd when the broker compresses. Negative levels are the fast ones.",
            between(-131072, 22),
        ),
        ConfigKey(
            "delete.retention.ms",
            _LONG,
            86_400_000,
            _MEDIUM,
            "Time for which a tombstone stays readable in a compacted partition. A reader that "
            "starts from the beginning within this time sees the deletion.",
            at_least(0),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _LONG,
            60_000,
            _MEDIUM,
            "Time for which the files of a deleted segment stay on disk.",
            at_least(0),
        ),
        ConfigKey(
            "flush.messages",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "Number of records after which the log is flushed to disk. With 1, each record is on "
            "disk before it is acknowledged.",
            at_least(1),
        ),
        ConfigKey(
            "flush.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "Time after which unflushed records are flushed to disk.",
            at_least(0),
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            [],
            _MEDIUM,
            "Replicas whose fetching is throttled while partitions move. Has no effect.",
            _THROTTLED,
        ),
        ConfigKey(
            "index.interval.bytes",
            _INT,
            4096,
            _MEDIUM,
            "Approximate bytes of records between two entries of the offset index. Fewer bytes "
            "make seeks shorter and the index larger.",
            at_least(0),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            [],
            _MEDIUM,
            "Replicas from which fetching is throttled while partitions move. Has no effect.",
            _THROTTLED,
        ),
        ConfigKey(
            "local.retention.bytes",
            _LONG,
            -2,
            _MEDIUM,
            "Maximum size of the part of a partition on the broker's own disk. Has no effect, "
            "because there is no tiered storage.",
            at_least(-2),
        ),
        ConfigKey(
            "local.retention.ms",
            _LONG,
            -2,
            _MEDIUM,
            "Time for which records stay on the broker's own disk. Has no effect, because there "
            "is no tiered storage.",
            at_least(-2),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "Maximum time that a record of a compacted topic waits before it becomes eligible for "
            "compaction.",
            at_least(1),
        ),
        ConfigKey(
            "max.message.bytes",
            _INT,
            1_048_588,
            _MEDIUM,
            "Maximum size of a record batch, as sent, that the topic accepts.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _LONG,
            3_600_000,
            _MEDIUM,
            "Maximum time that a record's timestamp may be ahead of the broker's clock. Ignored "
            "with LogAppendTime.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _LONG,
            LONG_MAX,
            _MEDIUM,
            "Maximum time that a record's timestamp may be behind the broker's clock. Ignored "
            "with LogAppendTime.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            _MEDIUM,
            "The timestamp of a record: its producer's (CreateTime), or the broker's at the "
            "append (LogAppendTime).",
            one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            0.5,
            _MEDIUM,
            "Uncompacted share of a compacted log above which it is compacted again.",
            between(0, 1),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _LONG,
            0,
            _MEDIUM,
            "Minimum time for which a record of a compacted topic stays uncompacted.",
            at_least(0),
        ),
        ConfigKey(
            "min.insync.replicas",
            _INT,
            1,
            _MEDIUM,
            "Number of in-sync replicas required for a write with acks=all. A number above the "
            "number of replicas counts as the number of replicas.",
            at_least(1),
        ),
        ConfigKey(
            "preallocate",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether the file of a new segment is allocated at its full size.",
        ),
        ConfigKey(
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether segments are no longer copied to tiered storage. Has no effect.",
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether disabling tiered storage deletes its data. Has no effect.",
        ),
        ConfigKey(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether segments are copied to tiered storage. There is none, so true is refused.",
        ),
        ConfigKey(
            "retention.bytes",
            _LONG,
            -1,
            _MEDIUM,
            "Size of a partition above which its oldest segments are deleted, -1 for no limit. "
            "Applies to the policy 'delete'.",
        ),
        ConfigKey(
            "retention.ms",
            _LONG,
            604_800_000,
            _MEDIUM,
            "Age of the newest record of a segment after which the segment is deleted, -1 for no "
            "limit. Applies to the policy 'delete'.",
            at_least(-1),
        ),
        ConfigKey(
            "segment.bytes",
            _INT,
            1_073_741_824,
            _MEDIUM,
            "Maximum size of a segment file. Then the next segment starts.",
            at_least(1_048_576),
        ),
        ConfigKey(
            "segment.index.bytes",
            _INT,
            10_485_760,
            _MEDIUM,
            "Maximum size of an offset index. A full index starts a new segment.",
            at_least(4),
        ),
        ConfigKey(
            "segment.jitter.ms",
            _LONG,
            0,
            _MEDIUM,
            "Maximum random reduction of segment.ms, so that many logs do not roll at the same "
            "time.",
            at_least(0),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            604_800_000,
            _MEDIUM,
            "Time after which a new segment starts, even if the last one is not full.",
            at_least(1),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            ConfigType.BOOLEAN,
            False,
            _MEDIUM,
            "Whether a replica that is not in sync may become leader when no in-sync replica is "
            "left, which loses records.",
        ),
    ]
)


# Accepted and described as by a Kafka broker without tiered storage and without followers.
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
    """A broker config that is the default of a topic config: its value times `factor`."""

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
