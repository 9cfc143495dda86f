"""`odradek registry serve`: one instance of the schema registry, until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.client import readable_servers
from odradek.cli.extras import need_registry_server
from odradek.cli.output import CommandError, parse_assignments
from odradek.cli.serve import LOG_LEVELS, configure_logging, read_properties

app = typer.Typer(no_args_is_help=True)


@app.callback()
def registry() -> None:
    """Run a schema registry."""


Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address to listen on, default 127.0.0.1:8081."),
]
Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="Address of a broker, default 127.0.0.1:9092.",
        callback=readable_servers,
    ),
]
Topic = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Topic of the schemas, default _schemas.")
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="URL to which other instances forward writes (default: host and port of --listen).",
    ),
]
KafkaOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-option",
        "-X",
        metavar="KEY=VALUE",
        help="A property of librdkafka, such as security.protocol=SSL; repeatable.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Configs in the format of schema-registry.properties."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one of the configs; repeatable."),
]
LogLevel = Annotated[
    str, typer.Option(metavar="LEVEL", help=f"Least level of log lines: {', '.join(LOG_LEVELS)}.")
]
Lifeline = Annotated[
    int | None,
    typer.Option(metavar="FD", help="Descriptor of a pipe. The registry ends when it is closed."),
]


@app.command("serve")
def serve(
    listen: Listen = None,
    bootstrap_server: Servers = None,
    topic: Topic = None,
    advertise: Advertise = None,
    kafka_option: KafkaOptions = None,
    config: ConfigFile = None,
    sets: Sets = None,
    log_level: LogLevel = "info",
    lifeline: Lifeline = None,
) -> None:
    """Run an instance of the schema registry, with Confluent's REST interface.

    The schemas are records of a topic of any Kafka cluster. Several instances may use the same
    topic. One of them writes, and the others forward writes to it.
    """
    need_registry_server()
    if log_level not in LOG_LEVELS:
        raise CommandError(f"--log-level is one of {', '.join(LOG_LEVELS)}, not {log_level!r}.")
    configure_logging(log_level)
    configs = {} if config is None else read_properties(config)
    configs |= parse_assignments(sets or [], "--set")
    replaced = {
        "listeners": listen,
        "kafkastore.bootstrap.servers": bootstrap_server,
        "kafkastore.topic": topic,
        "advertised.url": advertise,
    }
    configs |= {name: value for name, value in replaced.items() if value is not None}
    properties = _kafka_properties(kafka_option or [])
    configs |= {f"kafka.{name}": value for name, value in properties.items()}
    _run(configs, lifeline)


def _run(configs: dict[str, str], lifeline: int | None) -> None:
    import logging

    from odradek.registry.kafka_settings import InstanceFailure
    from odradek.registry.main import run
    from odradek.registry.server_config import server_options, unknown_configs

    unknown = unknown_configs(configs)
    if unknown:
        logging.getLogger("odradek.registry").warning(
            "unknown configs are ignored, check their spelling: %s", ", ".join(unknown)
        )
    try:
        run(server_options(configs), lifeline=lifeline)
    except InstanceFailure as error:
        raise CommandError(str(error)) from None


def _kafka_properties(pairs: list[str]) -> dict[str, str]:
    """Return the values of --kafka-option. The error does not show the value, as it may be secret.

    Raises:
        CommandError: A value is not of the form KEY=VALUE.
    """
    if not all(pair.partition("=")[0].strip() and "=" in pair for pair in pairs):
        raise CommandError("--kafka-option takes KEY=VALUE, such as security.protocol=SSL.")
    return parse_assignments(pairs, "--kafka-option")
