"""`odradek group`: consumer groups, their members and their lag."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, TypedDict

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    GroupArguments,
    JsonOutput,
    admin_client,
    check_group_id,
    wait,
    wait_each,
)
from odradek.cli.failures import Subject
from odradek.cli.group_lag import lag_seconds
from odradek.cli.group_offsets import committed_offsets
from odradek.cli.group_reset import reset_offsets
from odradek.cli.output import CommandError, print_json, print_rows
from odradek.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription


class PartitionRow(TypedDict):
    """One partition of a described group. `lag_s` is None where it is unknown."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: int | None
    lag_s: float | None
    member_id: str | None
    client_id: str | None
    host: str | None


class DescribedGroup(TypedDict):
    """A group as `--json` prints it. `lag_s_unknown` counts partitions."""

    group: str
    state: str
    coordinator: str | None
    members: int
    lag: int
    lag_s: float | None
    lag_s_unknown: int
    partitions: list[PartitionRow]


app = typer.Typer(no_args_is_help=True)
app.command("reset-offsets")(reset_offsets)


@app.command("list")
def list_(
    as_json: JsonOutput = False, bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
) -> None:
    """List groups with their state and type."""
    admin = admin_client(bootstrap_server)
    listed = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    listing = wait(listed, Subject("broker", bootstrap_server))
    rows = [
        {
            "group": group.group_id,
            "state": _enum_name(group.state),
            "type": _enum_name(group.type),
            "simple": group.is_simple_consumer_group,
        }
        for group in sorted(listing.valid, key=lambda g: g.group_id)
    ]
    print_rows(rows, ["group", "state", "type", "simple"], as_json)


@app.command("describe")
def describe(
    groups: GroupArguments,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show committed offsets and lag of each partition, in records and in seconds.

    The lag in seconds is the age of the first record that has not been committed.
    """
    admin = admin_client(bootstrap_server)
    found, errors = _found(admin, groups)
    described = [_describe_one(admin, bootstrap_server, each) for each in found]
    if as_json and found:
        print_json(described)
    elif not as_json:
        for group in described:
            _print_described(group)
    _raise_any(errors)


@app.command("members")
def members(
    groups: GroupArguments,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show the members of groups and the partitions assigned to them."""
    admin = admin_client(bootstrap_server)
    found, errors = _found(admin, groups)
    rows = [
        {
            "group": group.group_id,
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": sorted(
                f"{tp.topic}-{tp.partition}"
                for tp in (member.assignment.topic_partitions if member.assignment else [])
            ),
        }
        for group in found
        for member in group.members
    ]
    columns = ["group", "member_id", "instance_id", "client_id", "host", "partitions"]
    if found:
        print_rows(rows, columns, as_json)
    _raise_any(errors)


@app.command("delete")
def delete(
    groups: GroupArguments,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Delete groups without members, and their committed offsets."""
    for group in groups:
        check_group_id(group)
    admin = admin_client(bootstrap_server)
    futures = admin.delete_consumer_groups(list(groups), request_timeout=REQUEST_TIMEOUT_S)
    wait_each(futures, "group", lambda name: f"deleted group {name}", as_json)


def _found(
    admin: AdminClient, groups: list[str]
) -> tuple[list[ConsumerGroupDescription], list[str]]:
    """Return the descriptions of the groups that exist, and an error text for each other group.

    A broker describes an unknown group as Dead, and since KIP-1043 with GROUP_ID_NOT_FOUND.
    """
    from confluent_kafka import ConsumerGroupState

    names = list(dict.fromkeys(groups))
    for name in names:
        check_group_id(name)
    futures = admin.describe_consumer_groups(names)
    found, errors = [], []
    for name in names:
        try:
            subject = Subject("group", name)
            description = wait(futures[name], subject)
            if description.state is ConsumerGroupState.DEAD:
                raise subject.failed(ErrorCode.GROUP_ID_NOT_FOUND, "")
        except CommandError as error:
            errors.append(str(error))
        else:
            found.append(description)
    return found, errors


def _raise_any(errors: list[str]) -> None:
    if errors:
        raise CommandError("; ".join(errors))


def _print_described(group: DescribedGroup) -> None:
    seconds = "-"
    if group["lag_s"] is not None:
        seconds = f"{'at least ' if group['lag_s_unknown'] else ''}{group['lag_s']} s"
    print(
        f"group {group['group']}  {group['state']}  coordinator {group['coordinator']}"
        f"  members {group['members']}  lag {group['lag']} records, {seconds}"
    )
    columns = ["topic", "partition", "committed", "end_offset", "lag", "lag_s"]
    print_rows(group["partitions"], [*columns, "client_id", "host"], as_json=False)


def _describe_one(
    admin: AdminClient, bootstrap_server: str, description: ConsumerGroupDescription
) -> DescribedGroup:
    group = description.group_id
    owners = {
        (tp.topic, tp.partition): member
        for member in description.members
        for tp in (member.assignment.topic_partitions if member.assignment else [])
    }
    committed = committed_offsets(admin, group)
    ends = _end_offsets(admin, sorted(committed.keys() | owners.keys()))
    behind = {
        each: committed[each]
        for each, end in ends.items()
        if each in committed and end is not None and committed[each] < end
    }
    ages = lag_seconds(bootstrap_server, behind, time.time())
    rows: list[PartitionRow] = []
    for (topic, partition), end in ends.items():
        offset = committed.get((topic, partition))
        owner = owners.get((topic, partition))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "committed": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
                "lag_s": (
                    None
                    if offset is None or end is None
                    else ages.get((topic, partition), None if offset < end else 0.0)
                ),
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    lag_s, lag_s_unknown = _longest(rows)
    return {
        "group": group,
        "state": _enum_name(description.state),
        "coordinator": str(description.coordinator.id) if description.coordinator else None,
        "members": len(description.members),
        "lag": sum(row["lag"] or 0 for row in rows),
        "lag_s": lag_s,
        "lag_s_unknown": lag_s_unknown,
        "partitions": rows,
    }


def _longest(rows: list[PartitionRow]) -> tuple[float | None, int]:
    """Return the longest known lag (s), and the number of partitions whose lag (s) is unknown."""
    unknown = sum(bool(row["lag"]) and row["lag_s"] is None for row in rows)
    longest = max((row["lag_s"] or 0.0 for row in rows), default=0.0)
    return None if unknown and not longest else longest, unknown


def _end_offsets(
    admin: AdminClient, partitions: list[tuple[str, int]]
) -> dict[tuple[str, int], int | None]:
    """Return the end offset of each partition, or None for a partition that no longer exists."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    if not partitions:
        return {}
    request = {TopicPartition(t, p): OffsetSpec.latest() for t, p in partitions}
    ends: dict[tuple[str, int], int | None] = {}
    for tp, future in admin.list_offsets(request).items():
        try:
            ends[tp.topic, tp.partition] = future.result(timeout=REQUEST_TIMEOUT_S).offset
        except KafkaException:
            ends[tp.topic, tp.partition] = None
    return dict(sorted(ends.items()))


def _enum_name(value: Enum | None) -> str:
    """Return an enum's name as Kafka's tools write it, such as PreparingRebalancing."""
    name = value.name if value is not None else "UNKNOWN"
    return "".join(part.capitalize() for part in name.split("_"))
