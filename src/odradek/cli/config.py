"""`odradek config`: configs of topics, brokers and groups, with the source of each value."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import (
    COMPLETION_TIMEOUT_S,
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_NAME,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    JsonOutput,
    admin_client,
    client_config,
    complete_group,
    complete_topic,
    wait,
)
from odradek.cli.failures import Subject
from odradek.cli.output import CommandError, parse_assignments, print_json, print_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConfigResource

app = typer.Typer(no_args_is_help=True)

# librdkafka supports neither groups nor the default for all brokers, so these requests use
# Kafka's numbers (`ConfigResource.Type`).
BROKER_TYPE = 4
GROUP_TYPE = 32
SOURCES = {
    1: "topic",
    2: "broker",
    3: "brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
# Sources of values that were set, for this resource or for all resources of its kind.
SET = frozenset({"topic", "broker", "brokers", "file", "logger", "group"})


class Kind(StrEnum):
    """A kind of resource that has configs."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Complete topics, brokers or groups, depending on the preceding argument."""
    match context.params.get("kind"):
        case Kind.TOPIC | "topic":
            return complete_topic(context, incomplete)
        case Kind.GROUP | "group":
            return complete_group(context, incomplete)
    return _complete_broker(context, incomplete)


def _complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    server = context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER
    try:
        brokers = (
            AdminClient(client_config(server)).list_topics(timeout=COMPLETION_TIMEOUT_S).brokers
        )
    except KafkaException:
        return []
    names = [*(str(each) for each in sorted(brokers)), DEFAULT_NAME]
    return [each for each in names if each.startswith(incomplete)]


KindArgument = Annotated[Kind, typer.Argument(metavar="topic|broker|group")]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        autocompletion=complete_name,
        help=f"Topic, group or broker id; {DEFAULT_NAME} as broker means all brokers.",
    ),
]


@app.command("describe")
def describe(
    kind: KindArgument,
    name: NameArgument,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Show defaults too.")] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show the configs that are set, with their sources."""
    unnamed = _unnamed(kind, name)
    if unnamed is not None:
        rows = _wire_rows(bootstrap_server, *unnamed)
    else:
        rows = _rows(admin_client(bootstrap_server), kind, name)
    shown = [row for row in rows if all_ or row["source"] in SET]
    print_rows(shown, ["config", "value", "source", "read_only"], as_json)


@app.command("alter")
def alter(
    kind: KindArgument,
    name: NameArgument,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Set key=value; repeatable.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", help="Reset a config to its default; repeatable."),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Set configs, or reset them to their defaults."""
    sets = parse_assignments(set_ or [], "--set")
    if not sets and not delete:
        raise CommandError("Nothing to alter: use --set or --delete.")
    unnamed = _unnamed(kind, name)
    if unnamed is not None:
        _wire_alter(bootstrap_server, *unnamed, sets, delete or [])
    else:
        _alter(admin_client(bootstrap_server), kind, name, sets, delete or [])
    if as_json:
        print_json({"kind": kind.value, "name": name, "set": sets, "deleted": delete or []})
    else:
        print(f"altered the configs of {kind.value} {name}")


def _unnamed(kind: Kind, name: str) -> tuple[int, str] | None:
    """Return type and name in requests of a resource that librdkafka lacks, or None."""
    if kind is Kind.GROUP:
        return GROUP_TYPE, name
    if kind is Kind.BROKER and name == DEFAULT_NAME:
        return BROKER_TYPE, ""
    return None


def _subject(resource_type: int, name: str) -> Subject:
    kind = Kind.GROUP if resource_type == GROUP_TYPE else Kind.BROKER
    return Subject(kind.value, name or DEFAULT_NAME)


def _resource(admin: AdminClient, kind: Kind, name: str, **options: object) -> ConfigResource:
    from confluent_kafka.admin import ConfigResource, ResourceType

    if kind is Kind.BROKER:
        brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        if not name.isdigit() or int(name) not in brokers:
            known = ", ".join(str(each) for each in sorted(brokers))
            raise CommandError(f"Broker {name} does not exist. The brokers are {known}.")
        return ConfigResource(ResourceType.BROKER, name, **options)
    if not name:
        raise CommandError("A topic name must not be empty. `odradek topic list` shows all topics.")
    return ConfigResource(ResourceType.TOPIC, name, **options)


def _rows(admin: AdminClient, kind: Kind, name: str) -> list[dict[str, object]]:
    resource = _resource(admin, kind, name)
    entries = wait(admin.describe_configs([resource])[resource], Subject(kind.value, name))
    return [
        {
            "config": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": SOURCES.get(int(getattr(entry.source, "value", entry.source)), "unknown"),
            "read_only": bool(entry.is_read_only),
        }
        for _, entry in sorted(entries.items())
    ]


def _alter(
    admin: AdminClient, kind: Kind, name: str, sets: dict[str, str], deletes: list[str]
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in sets.items()
    ]
    # librdkafka requires a value with a deletion. The broker ignores it.
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in deletes
    ]
    resource = _resource(admin, kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        wait(future, Subject(kind.value, name))


def _wire_rows(bootstrap_server: str, resource_type: int, name: str) -> list[dict[str, object]]:
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.describe_configs_request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse

    resource = DescribeConfigsResource(resource_type, name, None)
    request = DescribeConfigsRequest(resources=[resource])
    with WireClient(bootstrap_server) as client:
        result = client.call(request, DescribeConfigsResponse, 4).results[0]
    check(result.error_code, _subject(resource_type, name), result.error_message)
    return [
        {
            "config": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": SOURCES.get(each.config_source, "unknown"),
            "read_only": each.read_only,
        }
        for each in sorted(result.configs, key=lambda each: each.name)
    ]


def _wire_alter(
    bootstrap_server: str,
    resource_type: int,
    name: str,
    sets: dict[str, str],
    deletes: list[str],
) -> None:
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.incremental_alter_configs_request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from odradek.protocol.messages.incremental_alter_configs_response import (
        IncrementalAlterConfigsResponse,
    )

    changes = [AlterableConfig(key, 0, value) for key, value in sets.items()]
    changes += [AlterableConfig(key, 1, None) for key in deletes]
    resource = AlterConfigsResource(resource_type, name, changes)
    with WireClient(bootstrap_server) as client:
        result = client.call(
            IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse, 1
        ).responses[0]
    check(result.error_code, _subject(resource_type, name), result.error_message)
