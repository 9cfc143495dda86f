"""`odradek group reset-offsets`: new committed offsets for a group without members."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    GroupArgument,
    JsonOutput,
    admin_client,
    check_group_id,
    complete_topic,
    failed,
    wait,
)
from odradek.cli.failures import Subject, missing_partition, partition_subject
from odradek.cli.group_offsets import committed_offsets, list_offsets
from odradek.cli.output import CommandError, parse_time_ms, print_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]
Committed = Mapping[Partition, int | None]
# Computes the new offset of each partition from its committed offset.
Targets = Callable[["AdminClient", Committed], dict[Partition, int]]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)

TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="A topic (TOPIC) or some of its partitions (TOPIC:0,1); repeatable.",
        autocompletion=complete_topic,
    ),
]


def reset_offsets(
    group: GroupArgument,
    topic: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Start of each partition.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="End of each partition.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="The committed offset, or the end if none.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", help="The same offset in each partition.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Committed offset plus N; N may be negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", help="First record since a time: ISO 8601 (local) or ms since 1970."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", help="First record of the last PnDTnHnMnS, such as PT1H30M."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets; without it they are only shown.")
    ] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Set the committed offsets of a group without members. Without --execute only show them."""
    targets = _targets(
        to_earliest, to_latest, to_current, to_offset, shift_by, to_datetime, by_duration
    )
    if bool(topic) == all_topics:
        raise CommandError("Name the partitions with either --topic (repeatable) or --all-topics.")
    check_group_id(group)
    admin = admin_client(bootstrap_server)
    _refuse_active(admin, group)
    committed = committed_offsets(admin, group)
    partitions = sorted(committed) if all_topics else _partitions(admin, topic or [])
    if not partitions:
        raise CommandError(
            f"Group '{group}' has no committed offsets. Name the partitions with --topic."
        )
    new_offsets = _within(admin, targets(admin, {each: committed.get(each) for each in partitions}))
    if execute:
        _commit(admin, group, new_offsets)
    rows = [
        {
            "topic": name,
            "partition": number,
            "committed": committed.get((name, number)),
            "new_offset": offset,
        }
        for (name, number), offset in sorted(new_offsets.items())
    ]
    print_rows(rows, ["topic", "partition", "committed", "new_offset"], as_json)
    if not execute and not as_json:
        print("Nothing was changed. Add --execute to set these offsets.")


def _targets(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
) -> Targets:
    """Return the function for the single target option that is set."""
    resets = [
        *([_at_spec("earliest")] if to_earliest else []),
        *([_at_spec("latest")] if to_latest else []),
        *([_current] if to_current else []),
        *([_at_offset(to_offset)] if to_offset is not None else []),
        *([_shifted(shift_by)] if shift_by is not None else []),
        *([_at_datetime(to_datetime)] if to_datetime is not None else []),
        *([_at_time(_before_now_ms(by_duration))] if by_duration is not None else []),
    ]
    if len(resets) != 1:
        raise CommandError(
            "Exactly one target is needed: --to-earliest, --to-latest, --to-current, --to-offset,"
            " --shift-by, --to-datetime or --by-duration."
        )
    return resets[0]


def _at_spec(name: str) -> Targets:
    def targets(admin: AdminClient, partitions: Committed) -> dict[Partition, int]:
        return list_offsets(admin, partitions, name)

    return targets


def _at_offset(offset: int) -> Targets:
    return lambda _admin, partitions: dict.fromkeys(partitions, offset)


def _current(admin: AdminClient, partitions: Committed) -> dict[Partition, int]:
    """Return the committed offsets, or the end where none is committed, as in Kafka's tool."""
    missing = [each for each, offset in partitions.items() if offset is None]
    ends = list_offsets(admin, missing, "latest")
    return {each: ends[each] if offset is None else offset for each, offset in partitions.items()}


def _shifted(by: int) -> Targets:
    def targets(_admin: AdminClient, partitions: Committed) -> dict[Partition, int]:
        missing = [f"{t}-{p}" for (t, p), offset in partitions.items() if offset is None]
        if missing:
            raise CommandError(
                f"--shift-by needs a committed offset, and {missing[0]} has none. Use another"
                " target."
            )
        return {each: (offset or 0) + by for each, offset in partitions.items()}

    return targets


def _at_datetime(text: str) -> Targets:
    return _at_time(parse_time_ms(text, "--to-datetime"))


def _at_time(timestamp_ms: int) -> Targets:
    def targets(admin: AdminClient, partitions: Committed) -> dict[Partition, int]:
        found = list_offsets(admin, partitions, timestamp_ms)
        ends = list_offsets(admin, [each for each, offset in found.items() if offset < 0], "latest")
        return found | ends

    return targets


def _before_now_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise CommandError(
            f"--by-duration takes PnDTnHnMnS, such as PT1H30M for 90 minutes, not {text!r}."
        )
    days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    before_s = time.time() - ((days * 24 + hours) * 60 + minutes) * 60 - seconds
    return int(max(0.0, before_s) * 1000)  # negative timestamps have other meanings in requests


def _partitions(admin: AdminClient, topics: list[str]) -> list[Partition]:
    """Return the partitions of texts of the form TOPIC (all partitions) or TOPIC:0,1."""
    metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    found = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        if name not in metadata:
            raise CommandError(
                f"Topic '{name}' does not exist. `odradek topic list` shows all topics."
            )
        existing = metadata[name].partitions
        try:
            requested = [int(each) for each in numbers.split(",")] if colon else sorted(existing)
        except ValueError:
            raise CommandError(f"--topic takes TOPIC or TOPIC:0,1, not {text!r}.") from None
        for number in requested:
            if number not in existing:
                raise missing_partition(name, number)
            found.append((name, number))
    return found


def _within(admin: AdminClient, offsets: dict[Partition, int]) -> dict[Partition, int]:
    """Limit each offset to the partition's start and end, as Kafka's tool does."""
    starts = list_offsets(admin, offsets, "earliest")
    ends = list_offsets(admin, offsets, "latest")
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in offsets.items()}


def _refuse_active(admin: AdminClient, group: str) -> None:
    from confluent_kafka import KafkaException

    try:
        described = admin.describe_consumer_groups([group])[group].result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].name() == "GROUP_ID_NOT_FOUND":
            return  # the commit creates the group
        raise failed(Subject("group", group), error) from None
    if described.members:
        raise CommandError(
            f"Group '{group}' has {len(described.members)} members. Stop them first: offsets can be"
            " set only while the group has none."
        )


def _commit(admin: AdminClient, group: str, new_offsets: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    offsets = [TopicPartition(t, p, offset) for (t, p), offset in new_offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, offsets)]
    result = wait(admin.alter_consumer_group_offsets(request)[group], Subject("group", group))
    for each in result.topic_partitions or []:
        if each.error is not None:
            raise partition_subject(each.topic, each.partition).failed(
                each.error.code(), each.error.str()
            )
