"""The command's root: mounts the nouns, and turns what a command refuses into one clear line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from odradek import __version__
from odradek.cli import consume, demo, group, pipeline, produce, serve, topic
from odradek.cli.output import CommandError

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
app.command("serve")(serve.serve)
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


def main() -> None:
    """Runs the command line; a `CommandError` is one line on stderr and exit code 1."""
    try:
        app()
    except CommandError as error:
        print(f"odradek: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): that is its right, and no error.
        sys.stderr.close()
        sys.exit(0)
