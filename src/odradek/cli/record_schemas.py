"""Encoding of produced records and decoding of consumed records by a schema registry."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from odradek.cli.output import CommandError, text_or_base64
from odradek.cli.registry_access import (
    DEFAULT_REGISTRY,
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
    registry,
)
from odradek.cli.retry_notices import write_to_stderr
from odradek.environment.clock import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Message

    from odradek.registry.client import RegistryClient, StoredSchema
    from odradek.registry.codec import Decoded, RecordDecoder, RecordEncoder

NOTICES_MAX = 10
"""Number of lines about values that could not be decoded. `--json` shows the error of each."""

FILE_MARK = "@"

Part = Literal["key", "value"]
Splitter = Callable[[bytes], tuple[bytes | None, bytes | None]]
"""Splits a line into key and value."""

ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="SCHEMA",
        help=(
            "Encode values, which are JSON, by this schema: ID, SUBJECT[:VERSION] or @FILE, which"
            " is registered under TOPIC-value. #MESSAGE after it names a Protobuf message."
        ),
    ),
]
KeySchema = Annotated[
    str | None,
    typer.Option(
        "--key-schema", metavar="SCHEMA", help="The same for keys. @FILE is under TOPIC-key."
    ),
]
ConsumeRegistry = Annotated[
    str | None,
    typer.Option(
        "--registry", metavar="URL", help=f"As --decode, by this registry (not ${URL_VARIABLE})."
    ),
]
Decode = Annotated[
    bool,
    typer.Option(
        "--decode",
        help=f"Print keys and values with a schema id as JSON, by the registry ${URL_VARIABLE}.",
    ),
]
RegistryUser = Annotated[
    str | None,
    typer.Option(
        "--registry-user",
        envvar=USER_VARIABLE,
        metavar="NAME",
        help=f"User of the registry. ${PASSWORD_VARIABLE} has the password.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--registry-password-file", metavar="FILE", help="File with the password of the user."
    ),
]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Address and credentials of a registry."""

    url: str
    user: str | None
    password_file: Path | None


def encoding(
    split: Splitter,
    topic: str,
    key_schema: str | None,
    value_schema: str | None,
    options: RegistryOptions,
) -> Splitter:
    """Return a splitter that encodes the keys and values of `split` by schemas.

    Without schemas it is `split`. The splitter raises CommandError for a value that does not fit.

    Raises:
        CommandError: A schema does not exist, or cannot be used.
    """
    if key_schema is None and value_schema is None:
        return split
    with registry(options.url, options.user, options.password_file) as client:
        key_encoder = _encoder(client, key_schema, f"{topic}-key", "--key-schema")
        value_encoder = _encoder(client, value_schema, f"{topic}-value", "--value-schema")

    def split_and_encode(line: bytes) -> tuple[bytes | None, bytes | None]:
        key, value = split(line)
        return _encoded(key_encoder, key, "key"), _encoded(value_encoder, value, "value")

    return split_and_encode


def _encoder(
    client: RegistryClient, text: str | None, subject: str, option: str
) -> RecordEncoder | None:
    if text is None:
        return None
    from odradek.registry.codec import RecordEncoder
    from odradek.registry.codec_errors import UnusableSchema

    schema, message = _schema(client, text, subject, option)
    try:
        return RecordEncoder(client, schema, message)
    except UnusableSchema as error:
        raise CommandError(f"{option} {text}: {error}.") from None


def _schema(
    client: RegistryClient, text: str, subject: str, option: str
) -> tuple[StoredSchema, str]:
    """Return the schema that an option names, and the name of a Protobuf message or ""."""
    from odradek.cli.schema_files import read_schema
    from odradek.registry.codec import (
        UndefinedSchema,
        fetch_choice,
        parse_choice,
        register_schema,
        split_message,
    )

    if text.startswith(FILE_MARK):
        name, message = split_message(text.removeprefix(FILE_MARK))
        schema = read_schema(Path(name), None, [])
        return register_schema(client, subject, schema), message
    try:
        choice = parse_choice(text)
    except UndefinedSchema as error:
        raise CommandError(f"{option}: {error}.") from None
    return fetch_choice(client, choice), choice.message


def _encoded(encoder: RecordEncoder | None, text: bytes | None, part: Part) -> bytes | None:
    if encoder is None or text is None:
        return text
    from odradek.registry.codec_errors import InvalidValue, UnusableSchema

    try:
        return encoder.encode(text)
    except (InvalidValue, UnusableSchema) as error:
        raise CommandError(f"The {part} does not fit its schema: {error}") from None


class PlainRecords:
    """Keys and values as text, or as base64 if they are not UTF-8."""

    def text(self, message: Message, part: Part) -> bytes:
        """Return the bytes of a key or value for an output of lines."""
        return _data(message, part) or b""

    def fields(self, message: Message, part: Part) -> dict[str, object]:
        """Return the fields of a key or value for an output of JSON."""
        return dict(text_or_base64(part, _data(message, part)))


class DecodedRecords(PlainRecords):
    """Keys and values as JSON, if they name a schema of a registry.

    Other keys and values are as in `PlainRecords`. A line on standard error says so for a value.
    """

    def __init__(self, decoder: RecordDecoder, notify: Callable[[str], None]) -> None:
        self._decoder = decoder
        self._notify = notify
        self._notices = 0

    def text(self, message: Message, part: Part) -> bytes:
        decoded = self._decode(message, part)
        if decoded is None or isinstance(decoded, str):
            return super().text(message, part)
        return compact_json(decoded.value)

    def fields(self, message: Message, part: Part) -> dict[str, object]:
        decoded = self._decode(message, part)
        if decoded is None:
            return super().fields(message, part)
        if isinstance(decoded, str):
            return {**super().fields(message, part), f"{part}_error": decoded}
        return {part: decoded.value, f"{part}_schema": decoded.schema}

    def _decode(self, message: Message, part: Part) -> Decoded | str | None:
        """Return the decoded value, the reason why there is none, or None for plain data."""
        from odradek.registry.codec_errors import UndecodableValue
        from odradek.registry.wire_format import has_prefix

        data, header = _data(message, part), _schema_header(message, part)
        if data is None:
            return None
        if part == "key" and header is None and not has_prefix(data):
            return None  # keys are often plain text beside encoded values
        try:
            return self._decoder.decode(data, header)
        except UndecodableValue as error:
            if part == "value":
                self._notice(message, str(error))
            return str(error)

    def _notice(self, message: Message, reason: str) -> None:
        self._notices += 1
        if self._notices <= NOTICES_MAX:
            self._notify(
                f"{message.topic()}, partition {message.partition()}, offset {message.offset()}:"
                f" the value is printed as it is: {reason}"
            )
        if self._notices == NOTICES_MAX:
            self._notify("more such values are not reported. --json shows the error of each")


@contextmanager
def decoding(
    url: str | None, decode: bool, user: str | None, password_file: Path | None
) -> Iterator[PlainRecords]:
    """Yield the form of consumed records. They are decoded if `decode` is set or `url` given."""
    if url is None and not decode:
        yield PlainRecords()
        return
    address = url or os.environ.get(URL_VARIABLE) or DEFAULT_REGISTRY
    with registry(address, user, password_file) as client:
        from odradek.registry.codec import RecordDecoder

        yield DecodedRecords(RecordDecoder(client, SystemClock()), write_to_stderr)


def compact_json(value: object) -> bytes:
    """Return JSON on one line. Half a surrogate pair, which is not UTF-8, is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _data(message: Message, part: Part) -> bytes | None:
    data: bytes | None = message.key() if part == "key" else message.value()
    return data


def _schema_header(message: Message, part: Part) -> bytes | None:
    """Return the first header that names the schema, or None."""
    from odradek.registry.wire_format import KEY_HEADER, VALUE_HEADER

    name = KEY_HEADER if part == "key" else VALUE_HEADER
    for key, value in message.headers() or []:
        if key == name:
            header: bytes | None = value
            return header
    return None
