"""`odradek consume`: records of a topic as text or JSON, by assignment or in a group."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    TopicArgument,
    admin_client,
    client_config,
    failed,
)
from odradek.cli.failures import Subject, missing_partition
from odradek.cli.group_offsets import list_offsets
from odradek.cli.output import (
    NUMBER_MAX,
    PARTITION_MAX,
    CommandError,
    parse_time_ms,
    text_or_base64,
)
from odradek.cli.record_schemas import (
    ConsumeRegistry,
    Decode,
    PasswordFile,
    PlainRecords,
    RegistryUser,
    decoding,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition
    from confluent_kafka.admin import AdminClient

POLL_S = 0.5
BATCH_RECORDS = 500
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
# A member of a group ends after this time without records, once it has read its partitions to their
# ends.
GROUP_IDLE_S = 3.0

OFFSET_HELP = (
    "beginning, end, an offset, or -N for the last N. A partition without the offset is read from"
    " its nearest offset, with a warning. With --group: beginning or end, used for partitions"
    " without a committed offset."
)

Start = int | Literal["beginning", "end"]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time", "-t", help="First time to read: ISO 8601 (local) or ms since 1970."
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, max=PARTITION_MAX, help="Only this partition; repeatable."
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Join this group, and commit the offsets shown."),
]


def consume(
    topic: TopicArgument,
    offset: Annotated[str, typer.Option("--offset", "-o", help=OFFSET_HELP)] = "beginning",
    from_time: FromTime = None,
    partition: PartitionOption = None,
    group: GroupOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records at the end.")
    ] = False,
    max_records: Annotated[
        int, typer.Option("--max", "-n", min=0, help="Stop after N records; 0: no limit.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on each line.")
    ] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print key, tab and value.")] = False,
    isolation_level: Annotated[
        str, typer.Option("--isolation-level", "-i", help=" | ".join(ISOLATION_LEVELS))
    ] = ISOLATION_LEVELS[0],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    decode: Decode = False,
    registry_url: ConsumeRegistry = None,
    registry_user: RegistryUser = None,
    registry_password_file: PasswordFile = None,
) -> None:
    """Print the records of a topic, by default from its beginning to its end."""
    from confluent_kafka import Consumer, KafkaException

    start = _parse_offset(offset)
    from_time_ms = None if from_time is None else parse_time_ms(from_time, "--from-time")
    if group is not None:
        _check_group(group, start, partition, from_time)
    if isolation_level not in ISOLATION_LEVELS:
        raise CommandError(f"--isolation-level is one of {', '.join(ISOLATION_LEVELS)}.")
    admin = admin_client(bootstrap_server)
    config = _consumer_config(bootstrap_server, group, start)
    with decoding(registry_url, decode, registry_user, registry_password_file) as records:
        consumer = Consumer({**config, "isolation.level": isolation_level})
        try:
            if group is not None:
                consumer.subscribe([topic])
                ends = None
            else:
                ends = _partitions(consumer, topic, partition or [])
                consumer.assign(_starts(consumer, admin, topic, sorted(ends), start, from_time_ms))
            line = _json_line if as_json else (_key_value if keys else _value)
            _PartitionReader(consumer, partial(line, records), follow, max_records, ends).run()
        except KafkaException as error:
            raise failed(Subject("topic", topic), error) from None
        except KeyboardInterrupt:
            pass
        finally:
            consumer.close()


class _PartitionReader:
    """Printer of consumed records: up to the end, up to `max_records`, or endless (`follow`)."""

    def __init__(
        self,
        consumer: Consumer,
        printer: Callable[[Message], bytes],
        follow: bool,
        max_records: int,
        ends: set[int] | None,
    ) -> None:
        self._consumer = consumer
        self._printer = printer
        self._follow = follow
        self._left = max_records or sys.maxsize
        self._open_partitions = ends
        self._ended: set[tuple[str, int]] = set()
        self._idle_s = 0.0

    def run(self) -> None:
        out = sys.stdout.buffer
        while self._left > 0 and not self._at_end():
            messages = self._consumer.consume(min(BATCH_RECORDS, self._left), POLL_S)
            self._idle_s = 0.0 if messages else self._idle_s + POLL_S
            for message in messages:
                self._take(message, out)
            out.flush()

    def _at_end(self) -> bool:
        if self._follow:
            return False
        if self._open_partitions is None:
            return self._idle_s >= GROUP_IDLE_S and self._group_at_end()
        return not self._open_partitions

    def _group_at_end(self) -> bool:
        """Return whether the ends of all assigned partitions were reached.

        Without assigned partitions the join may still be in progress.
        """
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._ended

    def _take(self, message: Message, out: BinaryIO) -> None:
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        topic_partition = message.topic(), message.partition()
        if error is None:
            self._ended.discard(topic_partition)
            out.write(self._printer(message))
            self._left -= 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(topic_partition)
            if self._open_partitions is not None:
                self._open_partitions.discard(message.partition())
        elif not error.retriable():
            raise KafkaException(error)


def _check_group(
    group: str, start: Start, partitions: list[int] | None, from_time: str | None
) -> None:
    if not group:
        raise CommandError("--group: a group id must not be empty. Name the group.")
    if partitions or from_time is not None:
        raise CommandError(
            "--group assigns partitions and offsets itself: remove --partition and --from-time."
        )
    if isinstance(start, int):
        raise CommandError(
            "With --group, --offset is beginning or end. `odradek group reset-offsets` sets the"
            " offsets of a group."
        )


def _consumer_config(server: str, group: str | None, start: Start) -> dict[str, object]:
    reset = "latest" if start == "end" else "earliest"
    return {
        **client_config(server),
        "group.id": group or "odradek-consume",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": reset,
        "enable.partition.eof": True,
    }


def _partitions(consumer: Consumer, topic: str, requested: list[int]) -> set[int]:
    """Return the requested partitions of the topic, or all if none are requested."""
    metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise Subject("topic", topic).failed(metadata.error.code(), metadata.error.str())
    missing = [number for number in requested if number not in metadata.partitions]
    if missing:
        raise missing_partition(topic, missing[0])
    return set(requested or metadata.partitions)


def _starts(
    consumer: Consumer,
    admin: AdminClient,
    topic: str,
    numbers: list[int],
    start: Start,
    from_time_ms: int | None,
) -> list[TopicPartition]:
    """Return the TopicPartitions with their start offsets."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    if from_time_ms is not None:
        times = [TopicPartition(topic, number, from_time_ms) for number in numbers]
        return list(consumer.offsets_for_times(times, timeout=REQUEST_TIMEOUT_S))
    if isinstance(start, str):
        offset = OFFSET_BEGINNING if start == "beginning" else OFFSET_END
        return [TopicPartition(topic, number, offset) for number in numbers]
    if start < 0:
        from_ends = [TopicPartition(topic, number) for number in numbers]
        for tp in from_ends:
            low, high = consumer.get_watermark_offsets(tp, timeout=REQUEST_TIMEOUT_S)
            tp.offset = max(low, high + start)
        return from_ends
    partitions = [(topic, number) for number in numbers]
    lows, highs = (list_offsets(admin, partitions, where) for where in ("earliest", "latest"))
    return [
        TopicPartition(*each, _in_range(start, each[1], lows[each], highs[each]))
        for each in partitions
    ]


def _in_range(offset: int, partition: int, low: int, high: int) -> int:
    """Return `offset`, or the nearest offset of the partition with a warning.

    The broker would refuse an offset out of range, and the consumer would silently apply
    auto.offset.reset.
    """
    if low <= offset <= high:
        return offset
    nearest = low if offset < low else high
    where = "beginning" if offset < low else "end"
    print(
        f"odradek: offset {offset} is out of range of partition {partition} ({low} to {high}):"
        f" starting at its {where}, {nearest}",
        file=sys.stderr,
    )
    return nearest


def _parse_offset(text: str) -> Start:
    if text == "beginning":
        return "beginning"
    if text == "end":
        return "end"
    try:
        number = int(text)
    except ValueError:
        raise CommandError(f"--offset is beginning, end or a number, not {text!r}.") from None
    if abs(number) > NUMBER_MAX:
        raise CommandError(f"--offset is at most {NUMBER_MAX}, not {text}.")
    return number


def _value(records: PlainRecords, message: Message) -> bytes:
    return records.text(message, "value") + b"\n"


def _key_value(records: PlainRecords, message: Message) -> bytes:
    return records.text(message, "key") + b"\t" + records.text(message, "value") + b"\n"


def _json_line(records: PlainRecords, message: Message) -> bytes:
    timestamp_type, timestamp_ms = message.timestamp()
    fields = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms if timestamp_type else None,
        "timestamp": _iso(timestamp_ms) if timestamp_type else None,
        **records.fields(message, "key"),
        **records.fields(message, "value"),
        "headers": [
            {"key": name, **text_or_base64("value", value)}
            for name, value in message.headers() or []
        ],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
