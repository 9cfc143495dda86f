"""`odradek cluster`: run a cluster on this host, and look after clusters anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    JsonOutput,
    complete_topic,
)
from odradek.cli.output import (
    PARTITION_MAX,
    CommandError,
    parse_assignments,
    print_json,
    print_rows,
)
from odradek.config.listeners import PORT_MAX

BROKERS_MAX = 100
DEFAULT_BASE_PORT = 9092

app = typer.Typer(no_args_is_help=True)


@app.command("up")
def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Directory of logs and data.")
    ],
    brokers: Annotated[
        int, typer.Option("--brokers", min=1, max=BROKERS_MAX, help="Number of brokers.")
    ] = 3,
    base_port: Annotated[
        int,
        typer.Option(
            "--base-port",
            min=1,
            max=PORT_MAX,
            help="Port of the first broker. The others and ZooKeeper have the following ports.",
        ),
    ] = DEFAULT_BASE_PORT,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[/PATH]",
            help="Use this ZooKeeper (default: start one from PySpark's jars).",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set one of Kafka's broker configs; repeatable."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each process as one line of JSON.")
    ] = False,
) -> None:
    """Run a cluster of broker processes on this host until Ctrl-C.

    Prints each process with its pid, port and command line.
    """
    from odradek.cli.cluster_up import Reports, run_cluster
    from odradek.launcher.plan import plan_cluster

    if base_port + brokers > PORT_MAX:
        raise CommandError(
            f"{brokers} brokers from port {base_port} on need ports above {PORT_MAX}. Choose a"
            " lower --base-port."
        )
    _check_zookeeper(zookeeper)
    configs = parse_assignments(sets or (), "--set")
    plan = plan_cluster(data.absolute(), brokers, base_port, zookeeper, configs)
    run_cluster(plan, Reports(as_json))


def _check_zookeeper(zookeeper: str | None) -> None:
    if zookeeper is None:
        return
    from odradek.broker.zookeeper_cluster import parse_connect
    from odradek.errors import KafkaError

    try:
        parse_connect(zookeeper)
    except KafkaError:
        raise CommandError(f"--zookeeper takes HOST:PORT[/PATH], not {zookeeper!r}.") from None


@app.command("status")
def status(
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[/PATH]",
            help="Ask this ZooKeeper (default: the one in the configs of the brokers).",
        ),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show what ZooKeeper, the controller, brokers and partitions lack, why, and what to do."""
    from odradek.cli.cluster_status import print_status

    print_status(bootstrap_server, zookeeper, as_json)


@app.command("elect")
def elect(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...",
            help="Topics (default: all partitions that need an election).",
            autocompletion=complete_topic,
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            help="Partition of the topic; repeatable (default: all).",
            min=0,
            max=PARTITION_MAX,
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="If no in-sync replica is live, elect another one. Acknowledged records are lost.",
        ),
    ] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Elect the first replicas as leaders again, or with --unclean any live replica."""
    from odradek.cli import cluster_elect

    if partitions and len(topics or ()) != 1:
        raise CommandError("--partition needs exactly one TOPIC.")
    if unclean and not topics:
        raise CommandError("--unclean loses records. Name each TOPIC for which you accept that.")
    rows = cluster_elect.elect(bootstrap_server, topics or (), partitions or (), unclean=unclean)
    if not rows and not as_json:
        print("No partition needs an election.")
        return
    print_rows(rows, ["topic", "partition", "result", "error"], as_json)
    if (error := cluster_elect.failed(rows)) is not None:
        raise error


@app.command("drain")
def drain(
    broker_id: Annotated[int, typer.Argument(metavar="BROKER_ID", min=0)],
    undo: Annotated[
        bool, typer.Option("--undo", help="Permit leaderships again, and give them back.")
    ] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Move the leaderships of a broker to other in-sync replicas, without stopping it.

    The address must be one of the listener between brokers.
    """
    from odradek.cli import cluster_drain

    remaining = cluster_drain.drain(bootstrap_server, broker_id, undo=undo)
    if as_json:
        print_json({"broker": broker_id, "drained": not undo, "still_leads": remaining})
    elif undo:
        print(f"broker {broker_id} may lead again")
    else:
        print(f"drained broker {broker_id}")
    if remaining:
        raise CommandError(
            f"Broker {broker_id} still leads {', '.join(remaining)}, because no other replica is in"
            " sync and live. They move when one is. `odradek cluster status` says what they lack."
        )
