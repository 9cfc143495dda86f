"""The command's root: mounts the nouns."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek import __version__
from odradek.cli import consume, demo, group, pipeline, produce, serve, topic


def _serve(context: typer.Context) -> None:
    """Run a broker."""
    serve.serve(context.args)


app = typer.Typer(
    name="odradek",
    help="Apache Kafka's system in Python: a broker for every Kafka client, and its tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
app.add_typer(group.app, name="group", help="List and describe consumer groups, with their lag.")
app.add_typer(pipeline.app, name="pipeline", help="Carry topics into tables with Spark.")
app.command(
    "serve",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)(_serve)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
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
