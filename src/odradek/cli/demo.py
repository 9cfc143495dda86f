"""`odradek demo`: a broker, events, a Spark ingest, a table and a picture in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import admin_client, readable_servers, reason
from odradek.cli.output import CommandError
from odradek.cli.spark import need_spark

if TYPE_CHECKING:
    from odradek.demo.run import DemoOptions

DEFAULT_OUT = Path("demo-output")
DEFAULT_EVENTS = 100_000
BROKERS_MAX = 9


def demo(
    events: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help=f"Default {DEFAULT_EVENTS:,}, or all of FILE."),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Stream this web access log (combined)."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the broker, tables and picture.")
    ] = DEFAULT_OUT,
    seed: Annotated[int, typer.Option(help="Seed of the generated events.")] = 2026,
    rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 20_000,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Use this broker instead of starting one.",
            callback=readable_servers,
        ),
    ] = None,
    brokers: Annotated[
        int,
        typer.Option(
            min=1,
            max=BROKERS_MAX,
            help="Start so many brokers, and kill one when half of the events are acknowledged.",
        ),
    ] = 1,
) -> None:
    """Stream usage events through a broker into a lakehouse table, and draw a picture of them."""
    if brokers > 1 and bootstrap_server is not None:
        raise CommandError(
            "--brokers starts a cluster, and --bootstrap-server uses one. Leave one of them out."
        )
    if input_ is not None and not input_.is_file():
        raise CommandError(f"--input: {input_} is not a file. Name a web access log.")
    need_spark("matplotlib")
    from odradek.demo.run import DemoOptions

    if bootstrap_server is not None:
        admin_client(bootstrap_server)  # report an unreachable broker before Spark starts
    everything = 10_000_000 if input_ is not None else DEFAULT_EVENTS
    options = DemoOptions(
        out=out.absolute(),
        events=events or everything,
        input_file=input_,
        seed=seed,
        events_per_second=rate,
        bootstrap_servers=bootstrap_server,
        brokers=brokers,
    )
    if not _run(options):
        raise CommandError("The counts differ: the table above shows which rows are wrong.")


def _run(options: DemoOptions) -> bool:
    """Run the demo. Return whether the counts are equal. Each failure raises CommandError."""
    from confluent_kafka import KafkaException
    from pyspark.errors import StreamingQueryException
    from rich.console import Console

    from odradek.demo.broker_process import BrokerFailed
    from odradek.demo.run import DemoFailed, run_demo
    from odradek.launcher.child import LaunchFailed
    from odradek.launcher.programs import ZooKeeperUnavailable
    from odradek.pipeline.errors import PipelineError

    try:
        return run_demo(options, Console())
    except KafkaException as error:
        server = options.bootstrap_servers or "the demo's broker"
        raise CommandError(
            f"A request to {server} failed: {reason(error)}. Run the demo again."
        ) from None
    except StreamingQueryException as error:
        raise CommandError(
            f"The ingest into {options.out} failed: {error}. Run the demo again."
        ) from error
    except LaunchFailed as error:
        raise CommandError(f"The cluster did not start: {error}. Run the demo again.") from None
    except (BrokerFailed, DemoFailed, PipelineError, ZooKeeperUnavailable) as error:
        raise CommandError(str(error)) from None
