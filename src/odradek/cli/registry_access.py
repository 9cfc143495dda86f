"""The commands' client of a schema registry, with its options and error lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.extras import need_registry_server
from odradek.cli.output import CommandError
from odradek.cli.retry_notices import write_to_stderr
from odradek.registry.errors import RegistryErrorCode

if TYPE_CHECKING:
    from odradek.registry.client import Credentials, RegistryClient, RegistryRefusal

DEFAULT_REGISTRY = "http://127.0.0.1:8081"
URL_VARIABLE = "SCHEMA_REGISTRY_URL"
USER_VARIABLE = "SCHEMA_REGISTRY_USER"
PASSWORD_VARIABLE = "SCHEMA_REGISTRY_PASSWORD"  # noqa: S105  the name of a variable

RegistryUrl = Annotated[
    str,
    typer.Option(
        "--registry",
        envvar=URL_VARIABLE,
        metavar="URL",
        help="Address of a schema registry; several instances are separated by commas.",
    ),
]
RegistryUser = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar=USER_VARIABLE,
        metavar="NAME",
        help=f"User of the registry. ${PASSWORD_VARIABLE} has the password.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="File with the password of --user."),
]

_ADVICE: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: f"Set --user, and ${PASSWORD_VARIABLE} or --password-file.",
    HTTPStatus.FORBIDDEN: "Use a --user that may do this.",
    HTTPStatus.NOT_FOUND: "Is the address a schema registry?",
    RegistryErrorCode.SUBJECT_NOT_FOUND: "`odradek schema list` shows all subjects.",
    RegistryErrorCode.VERSION_NOT_FOUND: "`odradek schema list SUBJECT` shows all versions.",
    RegistryErrorCode.SUBJECT_SOFT_DELETED: "`odradek schema list --deleted` shows it.",
    RegistryErrorCode.INCOMPATIBLE_SCHEMA: "`odradek schema check` shows the reasons.",
    RegistryErrorCode.INVALID_VERSION: "A version is a number or latest.",
}
"""The next step after the registry's own text."""


@contextmanager
def registry(url: str, user: str | None, password_file: Path | None) -> Iterator[RegistryClient]:
    """Yield a client. Errors of the registry in the block become a CommandError.

    Raises:
        CommandError: The extra `registry` is missing, an option is invalid, or a request failed.
    """
    need_registry_server()
    from odradek.registry.client import (
        RegistryRefusal,
        RegistryUnavailable,
        UnexpectedResponse,
        open_client,
        parse_urls,
    )

    try:
        urls = parse_urls(url)
    except ValueError as error:
        raise CommandError(f"--registry: the address {error}.") from None
    client = open_client(urls, credentials(user, password_file), write_to_stderr)
    try:
        yield client
    except RegistryUnavailable as error:
        raise CommandError(
            f"{error}. Start one with `odradek registry serve`, or set the address with --registry."
        ) from None
    except RegistryRefusal as refusal:
        raise refused(refusal) from None
    except UnexpectedResponse as error:
        raise CommandError(f"{client.address}: {error}") from None
    finally:
        client.close()


def credentials(user: str | None, password_file: Path | None) -> Credentials | None:
    """Return the credentials of the options, or None without a user.

    Raises:
        CommandError: The user has no password, or the file cannot be read.
    """
    from odradek.registry.client import Credentials

    if user is None:
        if password_file is not None:
            raise CommandError("--password-file needs --user.")
        return None
    if password_file is not None:
        try:
            password = password_file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CommandError(f"--password-file {password_file}: {reason}.") from None
        return Credentials(user, password)
    password_variable = os.environ.get(PASSWORD_VARIABLE)
    if password_variable is None:
        raise CommandError(f"--user needs ${PASSWORD_VARIABLE} or --password-file.")
    return Credentials(user, password_variable)


def refused(refusal: RegistryRefusal) -> CommandError:
    """Return the error line for a refused request."""
    text = refusal.message.rstrip(".")
    advice = _ADVICE.get(refusal.code)
    if refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        advice = _ADVICE[refusal.status]
    return CommandError(f"{text} (error {refusal.code})." + (f" {advice}" if advice else ""))
