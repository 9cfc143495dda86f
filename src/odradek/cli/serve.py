"""`odradek serve`: one broker in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.output import CommandError, parse_assignments

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

DEFAULT_LISTEN = "127.0.0.1:9092"


def default_data_dir() -> Path:
    """Where `serve` keeps its data when nobody says: $XDG_DATA_HOME or ~/.local/share, /odradek."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "odradek"


def serve(
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help=f"Default {DEFAULT_LISTEN}."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Default ~/.local/share/odradek."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Kafka's server.properties.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any of Kafka's broker configs."),
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run a broker."""
    _configure_logging(log_level)
    broker_config = build_config(listen, data, config, set_ or [])
    from odradek.broker.main import run

    run(broker_config)


def build_config(
    listen: str | None, data: Path | None, file: Path | None, sets: list[str]
) -> BrokerConfig:
    """The broker's configs: the file, then --set over it, then --listen and --data over both."""
    from odradek.config.broker import BrokerConfig
    from odradek.config.properties import parse_properties
    from odradek.errors import KafkaError

    properties: dict[str, str] = {}
    if file is not None:
        try:
            properties = dict(parse_properties(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise CommandError(f"{file}: not UTF-8 ({error.reason})") from None
        except KafkaError as error:
            raise CommandError(f"{file}: {error.message}") from None
    properties |= parse_assignments(sets, "--set")
    if listen is not None:
        properties["listeners"] = f"PLAINTEXT://{_host_port(listen)}"
    properties.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTEN}")
    if data is not None:
        properties["log.dirs"] = str(data)
    elif "log.dirs" not in properties and "log.dir" not in properties:
        properties["log.dirs"] = str(default_data_dir())
    try:
        return BrokerConfig.from_properties(properties)
    except KafkaError as error:
        raise CommandError(error.message) from None


def _host_port(listen: str) -> str:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise CommandError(f"--listen takes HOST:PORT, not {listen!r}")
    return f"{host}:{port}"


def _configure_logging(level: str) -> None:
    import logging
    import sys

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise CommandError(f"--log-level is debug, info, warning or error, not {level!r}")
    logging.basicConfig(
        stream=sys.stderr,
        level=number,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
