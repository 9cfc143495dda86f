"""The tools' client is librdkafka through confluent-kafka: one more user of the wire protocol."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from odradek.cli.output import CommandError, print_json
from odradek.config.listeners import PORT_MAX

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
# As the name of a broker, user or client: what holds for all that have no value of their own.
DEFAULT_NAME = "default"
REQUEST_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 2.0
# A script that starts a broker and goes on at once is refused until the broker listens.
START_PATIENCE_S = 3.0
CONNECT_TIMEOUT_S = 1.0
CONNECT_AGAIN_S = 0.1
DEFAULT_PORT = 9092
_SERVER = re.compile(
    r"(?:\w+://)?(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\s]+))(?::(?P<port>\d{1,5}))?"
)


def server_address(server: str) -> tuple[str, int] | None:
    """Host and port of `[PROTOCOL://]HOST[:PORT]`, or None; an IPv6 host stands in brackets."""
    match = _SERVER.fullmatch(server.strip())
    if match is None or int(match["port"] or DEFAULT_PORT) > PORT_MAX:
        return None
    return match["ipv6"] or match["host"], int(match["port"] or DEFAULT_PORT)


def readable_servers(text: str | None) -> str | None:
    """`text`; refused if no server in it can be read, which librdkafka would try for long."""
    if text is not None and not any(map(server_address, text.split(","))):
        raise typer.BadParameter(f"{text!r} is not of the form HOST:PORT")
    return text


BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        help="HOST:PORT of a broker.",
        metavar="HOST:PORT",
        callback=readable_servers,
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Result = TypeVar("Result")


def client_config(bootstrap_server: str, **extra: object) -> dict[str, object]:
    """librdkafka's settings for a short-lived tool: quiet, quick to give up."""
    log_level = 7 if os.environ.get("ODRADEK_DEBUG") else 2
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "odradek-cli",
        "log_level": log_level,
        **{name.replace("_", "."): value for name, value in extra.items()},
    }


def admin_client(bootstrap_server: str) -> AdminClient:
    """An AdminClient that has reached the broker; refuses with one line when none answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    wait_until_listening(bootstrap_server)
    admin = AdminClient(client_config(bootstrap_server))
    try:
        admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise unreachable(bootstrap_server, error) from None
    return admin


def wait_until_listening(bootstrap_server: str) -> None:
    """Refuses when every server refuses the connection, or has an unknown name, for
    `START_PATIENCE_S`: librdkafka would try again until its request times out."""
    deadline = time.monotonic() + START_PATIENCE_S
    while (error := _refusal(bootstrap_server)) is not None:
        if time.monotonic() >= deadline:
            raise unreachable(bootstrap_server, error)
        time.sleep(CONNECT_AGAIN_S)


def _refusal(bootstrap_server: str) -> OSError | None:
    """Why no server can be reached; None when one can, or when it is not known at once."""
    refusal: OSError | None = None
    for server in bootstrap_server.split(","):
        address = server_address(server)
        if address is None:
            return None  # librdkafka says what is wrong with it
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except (ConnectionRefusedError, socket.gaierror) as error:
            refusal = error
        except OSError:
            return None  # a route or a host that needs its time
        else:
            return None
    return refusal


def unreachable(bootstrap_server: str, error: Exception) -> CommandError:
    """The line for a broker that does not answer."""
    return CommandError(
        f"no broker answers at {bootstrap_server} ({reason(error)});"
        " start one with `odradek serve`, or name it with --bootstrap-server"
    )


def reason(error: BaseException) -> str:
    """What a KafkaException says, without its wrapping, or the system of a connection."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def wait(future: Future[Result], what: str) -> Result:
    """The result of an admin call; a refusal becomes `what: reason`."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].name() == "GROUP_ID_NOT_FOUND":
            raise no_such_group(what) from None
        raise CommandError(f"{what}: {reason(error) or 'timed out'}") from None


def no_such_group(group: str) -> CommandError:
    """The line for a group that no broker knows."""
    return CommandError(f"group {group} does not exist (GROUP_ID_NOT_FOUND)")


def check_group_id(group: str) -> None:
    """Refuses the empty id, of which brokers and librdkafka say nothing that helps."""
    if not group:
        raise CommandError("a group id is not empty")


def wait_each(
    futures: Mapping[str, Future[object]],
    describe: Callable[[str], str],
    json_key: str | None = None,
) -> None:
    """Waits for each future of an admin call, a line each; refuses at the end if any failed.

    With a `json_key` ("group") the lines are JSON: that key's name, and its error or null.
    """
    errors: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            wait(future, name)
        except CommandError as error:
            errors[name] = str(error)
        else:
            errors[name] = None
            if json_key is None:
                print(describe(name))
    if json_key is not None:
        print_json([{json_key: name, "error": error} for name, error in errors.items()])
    failures = [error for error in errors.values() if error is not None]
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
