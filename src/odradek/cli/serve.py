"""`odradek serve`: one broker in the foreground, until SIGTERM or SIGINT.

Without --zookeeper the broker is a cluster of its own.

The options are parsed by argparse, which is imported in a few milliseconds. `odradek.cli.main`
calls this module without importing Typer. `odradek.cli.app` lists the command in its help and
forwards to this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.output import CommandError, parse_assignments

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from odradek.config.broker import BrokerConfig
    from odradek.launcher.companion import Companion

HELP_COLUMNS = 80
"""Width of the help. argparse would import `shutil`, `bz2` and `lzma` to ask the terminal."""

DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_REGISTRY_LISTEN = "127.0.0.1:8081"
REGISTRY_STOP_S = 12.0
"""Time after which a registry that does not stop is killed. Its own limit is 10 s."""
LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_DATA = "$XDG_DATA_HOME/odradek, or ~/.local/share/odradek"
"""`default_data_dir` in the help: the same text on every machine and for every user."""


def default_data_dir() -> Path:
    """Return the default of --data: `odradek` in $XDG_DATA_HOME or ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "odradek"


def serve(arguments: Sequence[str]) -> None:
    """Run a broker with the options in `arguments`."""
    options = _parser().parse_args(arguments)
    companion = None
    if options.registry is not None:
        companion = _registry(options.registry, options.log_level)
    config = _configured(options)
    from odradek.broker.main import run

    run(config, companion=companion)


def configure(arguments: Sequence[str]) -> BrokerConfig:
    """Set up logging from the options, and return the broker's configs."""
    return _configured(_parser().parse_args(arguments))


def _configured(options: Namespace) -> BrokerConfig:
    configure_logging(options.log_level)
    return build_config(
        options.listen,
        options.data,
        options.config,
        options.set,
        broker_id=options.broker_id,
        zookeeper=options.zookeeper,
    )


def _registry(listen: str, log_level: str) -> Companion:
    """Return the process of the schema registry.

    Raises:
        CommandError: The address is malformed, or the extra `registry` is not installed.
    """
    from odradek.cli.extras import need_registry_server
    from odradek.launcher.companion import Companion

    need_registry_server()
    address = _host_port(listen, "--registry")

    def command(bootstrap_servers: str, lifeline: int) -> list[str]:
        options = {
            "--listen": address,
            "--bootstrap-server": bootstrap_servers,
            "--log-level": log_level,
            "--lifeline": str(lifeline),
        }
        words = [word for option in options.items() for word in option]
        # -P: without the modules of the current directory, as the installed command
        return [sys.executable, "-P", "-m", "odradek", "registry", "serve", *words]

    return Companion("schema registry", command, REGISTRY_STOP_S)


def _parser() -> ArgumentParser:
    from argparse import ArgumentParser, HelpFormatter

    parser = ArgumentParser(
        "odradek serve",
        description="Run a broker.",
        allow_abbrev=False,
        formatter_class=partial(HelpFormatter, width=HELP_COLUMNS),
    )
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", help=f"address to listen on, default {DEFAULT_LISTEN}")
    add("--data", type=Path, metavar="DIR", help=f"log directory, default {DEFAULT_DATA}")
    add("--broker-id", type=int, metavar="N", help="id of the broker in its cluster, default 1")
    add(
        "--zookeeper",
        metavar="HOST:PORT[/PATH]",
        help="join the cluster on this ZooKeeper, default: a cluster of one broker without it",
    )
    add("--config", type=Path, metavar="FILE", help="configs in the format of server.properties")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one of Kafka's broker configs; repeatable",
    )
    add(
        "--registry",
        nargs="?",
        const=DEFAULT_REGISTRY_LISTEN,
        metavar="HOST:PORT",
        help="also run a schema registry for the broker, in a process of its own, which listens on"
        f" this address ({DEFAULT_REGISTRY_LISTEN} without one)",
    )
    add(
        "--log-level",
        default="info",
        choices=LOG_LEVELS,
        help="least level of log lines, default info",
    )
    return parser


def build_config(
    listen: str | None,
    data: Path | None,
    file: Path | None,
    sets: list[str],
    *,
    broker_id: int | None = None,
    zookeeper: str | None = None,
) -> BrokerConfig:
    """Return the broker's configs.

    --set overrides the file. All other options override both.

    Raises:
        CommandError: The file cannot be read, or a config is invalid.
    """
    from odradek.config.broker import BrokerConfig
    from odradek.errors import KafkaError

    contents = None if file is None else read_properties(file)
    properties = dict(contents or {})
    properties |= parse_assignments(sets, "--set")
    if listen is not None:
        address = _host_port(listen, "--listen")
        properties["listeners"] = f"PLAINTEXT://{address}"
    properties.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTEN}")
    if broker_id is not None:
        properties.pop("broker.id", None)
        properties["node.id"] = str(broker_id)
    if zookeeper is not None:
        if not zookeeper.strip():
            raise CommandError(
                "--zookeeper is empty. It takes HOST:PORT[/PATH]. Leave it out for one broker "
                "without a cluster."
            )
        properties["zookeeper.connect"] = zookeeper
    if data is not None:
        properties["log.dirs"] = str(data)
    elif "log.dirs" not in properties and "log.dir" not in properties:
        properties["log.dirs"] = str(default_data_dir())
    try:
        return _with_kept_node_id(BrokerConfig.from_properties(properties, contents), properties)
    except KafkaError as error:
        raise CommandError(f"{error.message}. See docs/configuration.md.") from None


def read_properties(file: Path) -> dict[str, str]:
    """Return the configs in a file.

    Raises:
        CommandError: The file cannot be read.
    """
    from odradek.config.properties import parse_properties
    from odradek.errors import KafkaError

    try:
        return dict(parse_properties(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise CommandError(
            f"The config file {file} cannot be read: {error.strerror}. Check --config."
        ) from None
    except UnicodeDecodeError as error:
        raise CommandError(
            f"The config file {file} is not UTF-8 ({error.reason}). Save it as UTF-8."
        ) from None
    except KafkaError as error:
        raise CommandError(f"The config file {file} is invalid: {error.message}") from None


def _with_kept_node_id(config: BrokerConfig, properties: dict[str, str]) -> BrokerConfig:
    """Take the node id from the log directories if no config sets it and they contain one.

    An unreadable meta.properties is skipped here. The start of the broker reports it.
    """
    if config.explicit("node.id"):
        return config
    for directory in config.log_dirs():
        path = Path(directory) / "meta.properties"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        found = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
        kept = found.get("node.id", found.get("broker.id", "")).strip()
        if kept.isdecimal() and int(kept) != config.node_id:
            return type(config).from_properties({**properties, "node.id": kept}, config.file)
    return config


def _host_port(listen: str, option: str) -> str:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise CommandError(f"{option} takes HOST:PORT, not {listen!r}.")
    return f"{host}:{port}"


def configure_logging(level: str) -> None:
    """Write log lines of at least this level to standard error."""
    import logging

    from odradek.cli.log_lines import FORMAT, OneLine

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
