"""The tools' client is librdkafka through confluent-kafka: one more user of the wire protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from odradek.cli.output import CommandError

if TYPE_CHECKING:
    from concurrent.futures import Future

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
REQUEST_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 2.0

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        help="HOST:PORT of a broker.",
        metavar="HOST:PORT",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Result = TypeVar("Result")


def client_config(bootstrap_server: str, **extra: Any) -> dict[str, Any]:
    """librdkafka's settings for a short-lived tool: quiet, quick to give up."""
    log_level = 7 if os.environ.get("ODRADEK_DEBUG") else 2
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "odradek-cli",
        "log_level": log_level,
        **{name.replace("_", "."): value for name, value in extra.items()},
    }


def admin_client(bootstrap_server: str) -> Any:
    """An AdminClient that has reached the broker; refuses with one line when none answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(client_config(bootstrap_server))
    try:
        admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise unreachable(bootstrap_server, error) from None
    return admin


def unreachable(bootstrap_server: str, error: Exception) -> CommandError:
    """The line for a broker that does not answer."""
    return CommandError(
        f"no broker answers at {bootstrap_server} ({reason(error)});"
        " start one with `odradek serve`, or name it with --bootstrap-server"
    )


def reason(error: BaseException) -> str:
    """What a KafkaException says, without its wrapping."""
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def wait(future: Future[Result], what: str) -> Result:
    """The result of an admin call; a refusal becomes `what: reason`."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise CommandError(f"{what}: {reason(error) or 'timed out'}") from None


def wait_each(futures: dict[str, Any], describe: Callable[[str], str]) -> None:
    """Waits for each future of an admin call, a line each; refuses at the end if any failed."""
    failures = []
    for name, future in futures.items():
        try:
            wait(future, name)
        except CommandError as error:
            failures.append(str(error))
        else:
            print(describe(name))
    if failures:
        raise CommandError("; ".join(failures))


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Completion: the topics of the broker that the command line (or the environment) names."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    server = context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER
    try:
        metadata = AdminClient(client_config(server)).list_topics(timeout=COMPLETION_TIMEOUT_S)
    except KafkaException:
        return []
    return sorted(name for name in metadata.topics if name.startswith(incomplete))


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Completion: the groups of the broker that the command line (or the environment) names."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    server = context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER
    admin = AdminClient(client_config(server))  # without a name it would end before its answer came
    try:
        future = admin.list_consumer_groups(request_timeout=COMPLETION_TIMEOUT_S)
        groups = future.result(timeout=COMPLETION_TIMEOUT_S).valid
    except (KafkaException, TimeoutError):
        return []
    return sorted(each.group_id for each in groups if each.group_id.startswith(incomplete))


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group)]
GroupArguments = Annotated[
    list[str], typer.Argument(metavar="GROUP...", autocompletion=complete_group)
]
