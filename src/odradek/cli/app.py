"""Root of the command line, with one group of commands for each noun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from odradek import __version__
from odradek.cli import (
    cluster,
    config,
    consume,
    demo,
    group,
    log,
    pipeline,
    produce,
    quota,
    registry,
    schema,
    serve,
    topic,
    txn,
)
from odradek.cli.pipe import reader_is_gone


def _serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "",
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    log_level: str = "",
) -> None:
    """Run a broker."""
    # Only completion and the list of commands use this function. `cli.main` sends `odradek serve`
    # directly to `cli.serve`.
    assignments = (
        ("--listen", listen),
        ("--data", data),
        ("--config", config),
        ("--log-level", log_level),
    )
    arguments = [f"{name}={value}" for name, value in assignments if value]
    serve.serve([*arguments, *(f"--set={each}" for each in sets or ())])


class _Root(TyperGroup):
    """The root group. It exits with 0 if the reader of the output is gone (typer alone: 1)."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if not reader_is_gone():
                raise
            raise typer.Exit from None


app = typer.Typer(
    name="odradek",
    cls=_Root,
    help="Apache Kafka's system in Python: a broker for every Kafka client, and its tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
app.add_typer(group.app, name="group", help="Show consumer groups and set their offsets.")
app.add_typer(
    cluster.app, name="cluster", help="Run a cluster on this host; show and change clusters."
)
app.add_typer(config.app, name="config", help="Show and set configs of topics, brokers and groups.")
app.add_typer(log.app, name="log", help="Show and check the files of topics.")
app.add_typer(
    schema.app, name="schema", help="Register, compare, export and import schemas of a registry."
)
app.add_typer(quota.app, name="quota", help="Show and set quotas of users and clients.")
app.add_typer(registry.app, name="registry", help="Run a schema registry.")
app.add_typer(txn.app, name="txn", help="List, describe and abort transactions.")
app.add_typer(pipeline.app, name="pipeline", help="Ingest topics into tables with Spark.")
app.command("serve")(_serve)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("demo")(demo.demo)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"odradek {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Apache Kafka's system in Python: a broker for every Kafka client, and its tools."""
