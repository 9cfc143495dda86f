"""`odradek group`: the consumer groups of a broker, and how far each is behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    GroupArguments,
    JsonOutput,
    admin_client,
    wait,
    wait_each,
)
from odradek.cli.group_lag import lag_seconds
from odradek.cli.group_offsets import committed_offsets
from odradek.cli.group_reset import reset_offsets
from odradek.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)
app.command("reset-offsets")(reset_offsets)


@app.command("list")
def list_(
    as_json: JsonOutput = False, bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
) -> None:
    """List groups with their state and type."""
    admin = admin_client(bootstrap_server)
    listing = wait(admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "list groups")
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
    """Show committed offsets and lag of each partition, in records and in seconds: how old the
    first record is that has not been committed."""
    admin = admin_client(bootstrap_server)
    described = [_describe_one(admin, bootstrap_server, group) for group in groups]
    if as_json:
        print_json(described)
        return
    for group in described:
        print(
            f"group {group['group']}  {group['state']}  coordinator {group['coordinator']}"
            f"  members {group['members']}  lag {group['lag']} records, {group['lag_s']} s"
        )
        columns = ["topic", "partition", "committed", "end_offset", "lag", "lag_s"]
        columns += ["client_id", "host"]
        print_rows(group["partitions"], columns, as_json=False)


@app.command("members")
def members(
    groups: GroupArguments,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show who is in the groups, and what each member has been given."""
    admin = admin_client(bootstrap_server)
    futures = admin.describe_consumer_groups(list(groups))
    rows = [
        {
            "group": group,
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": sorted(
                f"{tp.topic}-{tp.partition}"
                for tp in (member.assignment.topic_partitions if member.assignment else [])
            ),
        }
        for group in groups
        for member in wait(futures[group], group).members
    ]
    columns = ["group", "member_id", "instance_id", "client_id", "host", "partitions"]
    print_rows(rows, columns, as_json)


@app.command("delete")
def delete(
    groups: GroupArguments, bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
) -> None:
    """Delete groups without members, and their committed offsets."""
    admin = admin_client(bootstrap_server)
    futures = admin.delete_consumer_groups(list(groups), request_timeout=REQUEST_TIMEOUT_S)
    wait_each(futures, lambda name: f"deleted group {name}")


def _describe_one(admin: AdminClient, bootstrap_server: str, group: str) -> dict[str, Any]:
    description = wait(admin.describe_consumer_groups([group])[group], group)
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
    rows = []
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
    return {
        "group": group,
        "state": _enum_name(description.state),
        "coordinator": str(description.coordinator.id) if description.coordinator else None,
        "members": len(description.members),
        "lag": sum(row["lag"] or 0 for row in rows),
        "lag_s": max((row["lag_s"] or 0.0 for row in rows), default=0.0),
        "partitions": rows,
    }


def _end_offsets(
    admin: AdminClient, partitions: list[tuple[str, int]]
) -> dict[tuple[str, int], int | None]:
    """The end offset of each partition; None for one that is no longer there."""
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


def _enum_name(value: Any) -> str:
    """PREPARING_REBALANCING as people and Kafka's tools write it: PreparingRebalancing."""
    name = value.name if value is not None else "UNKNOWN"
    return "".join(part.capitalize() for part in name.split("_"))
