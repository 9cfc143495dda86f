"""The commands' Kafka client: librdkafka through confluent-kafka."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from odradek.cli.failures import Subject
from odradek.cli.output import CommandError, print_json
from odradek.config.listeners import PORT_MAX

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
# Name of the entry that applies to every broker, user or client without a value of its own.
DEFAULT_NAME = "default"
REQUEST_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 2.0
# A script may start a broker and run a command directly after it. Refused connections are retried
# for this time.
START_PATIENCE_S = 3.0
CONNECT_TIMEOUT_S = 1.0
CONNECT_AGAIN_S = 0.1
DEFAULT_PORT = 9092
_SERVER = re.compile(
    r"(?:\w+://)?(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\s]+))(?::(?P<port>\d{1,5}))?"
)


def server_address(server: str) -> tuple[str, int] | None:
    """Return host and port of `[PROTOCOL://]HOST[:PORT]`, or None if the form is wrong.

    An IPv6 address is written in brackets.
    """
    match = _SERVER.fullmatch(server.strip())
    if match is None or int(match["port"] or DEFAULT_PORT) > PORT_MAX:
        return None
    return match["ipv6"] or match["host"], int(match["port"] or DEFAULT_PORT)


def readable_servers(text: str | None) -> str | None:
    """Return `text` if at least one server in it has the form HOST:PORT.

    librdkafka would retry a malformed address until its time limit.

    Raises:
        typer.BadParameter: No server has the form HOST:PORT.
    """
    if text is not None and not any(map(server_address, text.split(","))):
        raise typer.BadParameter(
            f"{text!r} is not of the form HOST:PORT, such as {DEFAULT_BOOTSTRAP_SERVER}."
        )
    return text


BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        help="Address of a broker.",
        metavar="HOST:PORT",
        callback=readable_servers,
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Result = TypeVar("Result")


def debugging() -> bool:
    """Return whether ODRADEK_DEBUG asks for the log of librdkafka."""
    return bool(os.environ.get("ODRADEK_DEBUG"))


def client_config(bootstrap_server: str, **extra: object) -> dict[str, object]:
    """Return librdkafka's settings for a short command, with few log lines.

    ODRADEK_DEBUG in the environment turns on librdkafka's debug lines. In the names of `extra` an
    underscore stands for a dot.
    """
    log_level = 7 if debugging() else 2
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "odradek-cli",
        "log_level": log_level,
        **{name.replace("_", "."): value for name, value in extra.items()},
    }


def admin_client(bootstrap_server: str) -> AdminClient:
    """Return an AdminClient that has reached a broker. Raise CommandError if no broker responds."""
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
    """Wait up to `START_PATIENCE_S` until a server accepts connections.

    librdkafka would retry until its request times out.

    Raises:
        CommandError: Each server refused the connection or has an unknown host name.
    """
    deadline = time.monotonic() + START_PATIENCE_S
    while (error := _refusal(bootstrap_server)) is not None:
        if time.monotonic() >= deadline:
            raise unreachable(bootstrap_server, error)
        time.sleep(CONNECT_AGAIN_S)


def _refusal(bootstrap_server: str) -> OSError | None:
    """Return why no server can be reached, or None if one may be reachable."""
    refusal: OSError | None = None
    for server in bootstrap_server.split(","):
        address = server_address(server)
        if address is None:
            return None  # librdkafka reports the malformed address
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except (ConnectionRefusedError, socket.gaierror) as error:
            refusal = error
        except OSError:
            return None  # the route or the host may need more time
        else:
            return None
    return refusal


def unreachable(bootstrap_server: str, error: Exception) -> CommandError:
    """Return the error for a broker that does not respond."""
    return CommandError(
        f"No broker responds at {bootstrap_server} ({reason(error)}). Start one with"
        " `odradek serve`, or set the address with --bootstrap-server."
    )


def reason(error: BaseException) -> str:
    """Return the text of a KafkaException without its wrapping, or the system's error text."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def wait(future: Future[Result], subject: Subject) -> Result:
    """Return the result of an admin call about `subject`.

    Raises:
        CommandError: The broker returned an error or did not respond in time.
    """
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise failed(subject, error) from None
    except TimeoutError:
        raise CommandError(
            f"{subject}: the broker did not respond within {REQUEST_TIMEOUT_S:g} s. Check its log."
        ) from None


def failed(subject: Subject, error: KafkaException) -> CommandError:
    """Return the error for a request about `subject` that failed with `error`."""
    inner = error.args[0]
    return subject.failed(inner.code(), inner.str())


def check_group_id(group: str) -> None:
    """Raise CommandError for an empty id, because brokers and librdkafka report it badly."""
    if not group:
        raise CommandError("A group id must not be empty. `odradek group list` shows all groups.")


def wait_each(
    futures: Mapping[str, Future[object]],
    kind: str,
    describe: Callable[[str], str],
    as_json: bool = False,
) -> None:
    """Wait for each future of an admin call, and print one line for each success.

    `kind` ("group") is the kind of the objects that the keys of `futures` name. With `as_json` the
    output is a JSON array. Each element has the name under `kind`, and under "error" the error or
    null.

    Raises:
        CommandError: At least one call failed.
    """
    errors: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            wait(future, Subject(kind, name))
        except CommandError as error:
            errors[name] = str(error)
        else:
            errors[name] = None
            if not as_json:
                print(describe(name))
    if as_json:
        print_json([{kind: name, "error": error} for name, error in errors.items()])
    failures = [error for error in errors.values() if error is not None]
    if failures:
        raise CommandError("; ".join(failures))


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Complete topics of the broker that the command line or the environment names."""
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
    """Complete groups of the broker that the command line or the environment names."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    server = context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER
    # The variable keeps the client alive until the response has arrived.
    admin = AdminClient(client_config(server))
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
