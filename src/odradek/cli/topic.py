"""`odradek topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    JsonOutput,
    TopicArgument,
    admin_client,
    complete_topic,
    wait,
    wait_each,
)
from odradek.cli.failures import Subject, partition_subject
from odradek.cli.output import CommandError, parse_assignments, print_json, print_rows
from odradek.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, ConfigEntry, ListOffsetsResultInfo

# Limits of librdkafka.
PARTITIONS_MAX = 100_000
REPLICATION_FACTOR_MAX = 10_000
Offsets = tuple[int, int]
"""Start and end offset of a partition."""


class DescribedTopic(TypedDict):
    """A topic as `--json` prints it."""

    topic: str
    topic_id: str
    configs: dict[str, str]
    partitions: list[dict[str, object]]


app = typer.Typer(no_args_is_help=True)
TopicArguments = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", autocompletion=complete_topic)
]


@app.command("create")
def create(
    topics: TopicArguments,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            min=-1,
            max=PARTITIONS_MAX,
            help="Number of partitions; -1 is the broker's num.partitions.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            min=-1,
            max=REPLICATION_FACTOR_MAX,
            help="Number of replicas; -1 is the broker's default.",
        ),
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="A topic config, key=value; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Skip topics that exist.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Create topics."""
    from confluent_kafka.admin import NewTopic

    configs = parse_assignments(config or [], "--config")
    admin = admin_client(bootstrap_server)
    if if_not_exists:
        existing = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        topics = [name for name in topics if name not in existing]
    requested = [
        NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=configs,
        )
        for name in topics
    ]
    if requested:
        wait_each(admin.create_topics(requested), "topic", lambda name: f"created topic {name}")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """List topics with their partitions and records."""
    admin = admin_client(bootstrap_server)
    metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    names = sorted(name for name in metadata if internal or not name.startswith("__"))
    offsets = _offsets(admin, {name: sorted(metadata[name].partitions) for name in names})
    rows = [
        {
            "topic": name,
            "partitions": len(metadata[name].partitions),
            "replication_factor": max(
                (len(p.replicas) for p in metadata[name].partitions.values()), default=0
            ),
            "records": _record_count(offsets.get(name, {}).values()),
        }
        for name in names
    ]
    print_rows(rows, ["topic", "partitions", "replication_factor", "records"], as_json)


@app.command("describe")
def describe(
    topics: TopicArguments,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show partitions, offsets and the configs that differ from their defaults."""
    _need_names(*topics)
    admin = admin_client(bootstrap_server)
    described = [_describe_one(admin, name) for name in topics]
    if as_json:
        print_json(described)
        return
    for topic in described:
        print(f"topic {topic['topic']}  id {topic['topic_id']}")
        for name, value in topic["configs"].items():
            print(f"  {name}={value}")
        columns = ["partition", "leader", "replicas", "isr", "start_offset", "end_offset"]
        print_rows(topic["partitions"], columns, as_json=False)


@app.command("alter")
def alter(
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=PARTITIONS_MAX, help="New number of partitions."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="Set a config, key=value; repeatable."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", help="Reset a config to its default; repeatable."),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Add partitions, and set or reset configs."""
    from confluent_kafka.admin import NewPartitions

    _need_names(topic)
    sets = parse_assignments(config or [], "--config")
    if partitions is None and not sets and not delete_config:
        raise CommandError("Nothing to alter: use --partitions, --config or --delete-config.")
    admin = admin_client(bootstrap_server)
    if sets or delete_config:
        _alter_configs(admin, topic, sets, delete_config or [])
    if partitions is not None:
        grown = admin.create_partitions([NewPartitions(topic, partitions)])
        wait_each(grown, "topic", lambda name: f"topic {name} has {partitions} partitions")


@app.command("delete")
def delete(
    topics: TopicArguments, bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
) -> None:
    """Delete topics and their records."""
    admin = admin_client(bootstrap_server)
    deleted = admin.delete_topics(list(topics))
    wait_each(deleted, "topic", lambda name: f"deleted topic {name}")


def _need_names(*topics: str) -> None:
    """Raise CommandError for an empty name, for which librdkafka raises ValueError."""
    if not all(topics):
        raise CommandError("A topic name must not be empty. `odradek topic list` shows all topics.")


def _alter_configs(
    admin: AdminClient, topic: str, sets: dict[str, str], deletes: list[str]
) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    _refuse_unknown(admin, topic, deletes)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in sets.items()
    ]
    # librdkafka requires a value with a deletion. The broker ignores it.
    entries += [
        ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE) for name in deletes
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        wait(future, Subject("topic", topic))
    print(f"altered the configs of topic {topic}")


def _refuse_unknown(admin: AdminClient, topic: str, deletes: list[str]) -> None:
    """Raise CommandError for unknown configs to delete, as kafka-configs does.

    A broker accepts any name.
    """
    if not deletes:
        return
    known = _configs(admin, topic)
    unknown = [name for name in deletes if name not in known]
    if unknown:
        raise CommandError(
            f"Topic '{topic}' has no config {', '.join(unknown)!r}."
            f" `odradek config describe topic {topic} --all` shows all configs."
        )


def _describe_one(admin: AdminClient, name: str) -> DescribedTopic:
    from confluent_kafka import TopicCollection

    futures = admin.describe_topics(TopicCollection([name]))
    described = wait(futures[name], Subject("topic", name))
    partitions = sorted(p.id for p in described.partitions)
    offsets = _offsets(admin, {name: partitions})[name]
    return {
        "topic": name,
        "topic_id": str(described.topic_id),
        "configs": _configs_set(admin, name),
        "partitions": [
            {
                "partition": p.id,
                "leader": p.leader.id if p.leader else None,
                "replicas": [node.id for node in p.replicas],
                "isr": [node.id for node in p.isr],
                "start_offset": None if (found := offsets[p.id]) is None else found[0],
                "end_offset": None if found is None else found[1],
            }
            for p in sorted(described.partitions, key=lambda p: p.id)
        ],
    }


def _configs_set(admin: AdminClient, topic: str) -> dict[str, str]:
    """Return the configs whose source is the topic itself."""
    from confluent_kafka.admin import ConfigSource

    entries = _configs(admin, topic)
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in sorted(entries.items()) if entry.source == dynamic}


def _configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    """Return all configs of a topic by name."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    return dict(wait(admin.describe_configs([resource])[resource], Subject("topic", topic)))


def _record_count(offsets: Iterable[Offsets | None]) -> int | None:
    """Return the number of records, or None while a partition has no leader."""
    counts = [None if each is None else each[1] - each[0] for each in offsets]
    return None if None in counts else sum(each for each in counts if each is not None)


def _offsets(
    admin: AdminClient, partitions: dict[str, list[int]]
) -> dict[str, dict[int, Offsets | None]]:
    """Return start and end offset of each partition, by topic. None: it has no leader."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    requested = [TopicPartition(t, p) for t, numbers in partitions.items() for p in numbers]
    result: dict[str, dict[int, Offsets | None]] = {name: {} for name in partitions}
    if not requested:
        return result
    starts = admin.list_offsets(dict.fromkeys(requested, OffsetSpec.earliest()))
    ends = admin.list_offsets(dict.fromkeys(requested, OffsetSpec.latest()))
    for tp in requested:
        subject = partition_subject(tp.topic, tp.partition)
        start, end = (_offset(futures[tp], subject) for futures in (starts, ends))
        result[tp.topic][tp.partition] = None if start is None or end is None else (start, end)
    return result


def _offset(future: Future[ListOffsetsResultInfo], subject: Subject) -> int | None:
    """Return an offset, or None if the partition has no leader."""
    try:
        return int(wait(future, subject).offset)
    except CommandError:
        error = future.exception() if future.done() else None
        if error is None or error.args[0].code() != ErrorCode.LEADER_NOT_AVAILABLE:
            raise
        return None
