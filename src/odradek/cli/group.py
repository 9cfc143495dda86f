"""`odradek group`: the consumer groups of a broker, and how far each is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    JsonOutput,
    admin_client,
    wait,
)
from odradek.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)


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
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show members, committed offsets and lag of each partition."""
    admin = admin_client(bootstrap_server)
    described = [_describe_one(admin, group) for group in groups]
    if as_json:
        print_json(described)
        return
    for group in described:
        print(
            f"group {group['group']}  {group['state']}  coordinator {group['coordinator']}"
            f"  members {group['members']}  lag {group['lag']}"
        )
        columns = ["topic", "partition", "committed", "end_offset", "lag", "client_id", "host"]
        print_rows(group["partitions"], columns, as_json=False)


def _describe_one(admin: AdminClient, group: str) -> dict[str, Any]:
    description = wait(admin.describe_consumer_groups([group])[group], group)
    owners = {
        (tp.topic, tp.partition): member
        for member in description.members
        for tp in (member.assignment.topic_partitions if member.assignment else [])
    }
    committed = _committed(admin, group)
    ends = _end_offsets(admin, sorted(committed.keys() | owners.keys()))
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
        "partitions": rows,
    }


def _committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    offsets = wait(future, group).topic_partitions or []
    return {(tp.topic, tp.partition): tp.offset for tp in offsets if tp.offset >= 0}


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
