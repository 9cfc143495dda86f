"""`odradek produce`: send lines of standard input or files as records.

Records are assigned to partitions as by Kafka's Java producer.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    JsonOutput,
    TopicArgument,
    admin_client,
    client_config,
    debugging,
    reason,
)
from odradek.cli.failures import Subject
from odradek.cli.output import PARTITION_MAX, CommandError, parse_assignments, print_json
from odradek.cli.record_schemas import (
    KeySchema,
    PasswordFile,
    RegistryOptions,
    RegistryUser,
    Splitter,
    ValueSchema,
    encoding,
)
from odradek.cli.registry_access import DEFAULT_REGISTRY, RegistryUrl
from odradek.cli.retry_notices import RetryNotices
from odradek.cli.schema_files import STANDARD_INPUT
from odradek.environment.clock import SystemClock
from odradek.ids import NO_OFFSET

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from rich.progress import Progress

ACKS = ("0", "1", "all", "-1")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FLUSH_TIMEOUT_S = 60.0
TRANSACTION_TIMEOUT_S = 60.0
QUEUE_POLL_S = 0.1
PROGRESS_EVERY = 1000
RECORD_BYTES_MAX = 1_000_000_000
"""Largest record that librdkafka sends. The lower limit of the topic is left to the broker."""

Headers = list[tuple[str, bytes]] | None
KeyOption = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="The text before it in a line is the key."),
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="A header, key=value; repeatable.")
]
PartitionOption = Annotated[
    int,
    typer.Option(
        "--partition", "-p", min=-1, max=PARTITION_MAX, help="-1: chosen by the key's hash."
    ),
]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", help="Send in transactions of this id.")
]
CommitEvery = Annotated[
    int,
    typer.Option("--commit-every", min=0, help="Records in each transaction; 0: all in one."),
]


def produce(
    topic: TopicArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files to read; none or - is standard input."),
    ] = None,
    key: KeyOption = None,
    key_separator: KeySeparator = None,
    header: HeaderOption = None,
    partition: PartitionOption = -1,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help=" | ".join(COMPRESSIONS))
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="0, 1 or all.")] = "all",
    rate: Annotated[
        float, typer.Option("--rate", help="Largest number of records per second; 0: no limit.")
    ] = 0.0,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Send an empty value as null (a deletion).")
    ] = False,
    transactional_id: TransactionalId = None,
    commit_every: CommitEvery = 0,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort the transactions instead of committing them.")
    ] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    registry_user: RegistryUser = None,
    registry_password_file: PasswordFile = None,
) -> None:
    """Send each line as a record."""
    if transactional_id is None and (commit_every or abort):
        raise CommandError("--commit-every and --abort need a --transactional-id.")
    _refuse_values(compression, acks, rate)
    headers = [
        (name, value.encode())
        for each in header or []  # a name may occur more than once
        for name, value in parse_assignments([each], "--header").items()
    ]
    _refuse_unreadable(files or [])
    admin_client(bootstrap_server)
    options = RegistryOptions(registry_url, registry_user, registry_password_file)
    split = _splitter(key, key_separator, tombstones)
    split = encoding(split, topic, key_schema, value_schema, options)
    notices = RetryNotices(topic, bootstrap_server, SystemClock())
    producer = _producer(bootstrap_server, acks, compression, transactional_id, notices)
    kind = _CountingSender if as_json else _RecordSender
    plain = kind(producer, topic, partition, headers or None)
    in_transactions = transactional_id is not None
    sender = _TransactionalSender(plain, commit_every, abort) if in_transactions else plain
    sent = _send_all(sender, files or [], rate, split)
    if isinstance(plain, _CountingSender):
        print_json(plain.summary() | sender.transactions)
    else:
        print(f"{_records(sent)} to {topic}{sender.outcome}", file=sys.stderr)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _refuse_values(compression: str, acks: str, rate: float) -> None:
    if compression not in COMPRESSIONS:
        raise CommandError(f"--compression is one of {', '.join(COMPRESSIONS)}.")
    if acks not in ACKS:
        raise CommandError("--acks is one of 0, 1, all.")
    if not 0 <= rate < math.inf:
        raise typer.BadParameter(
            f"{rate} is not a number of records per second.", param_hint="--rate"
        )


def _refuse_unreadable(files: list[Path]) -> None:
    for path in files:
        if path == STANDARD_INPUT:
            continue
        if path.is_dir():
            raise CommandError(f"{path} is a directory. Name the files in it.")
        if not path.exists():
            raise CommandError(
                f"{path} does not exist. Check the path, or use - for standard input."
            )


def _producer(
    bootstrap_server: str,
    acks: str,
    compression: str,
    transactional_id: str | None,
    notices: RetryNotices,
) -> Producer:
    from confluent_kafka import KafkaException, Producer

    config = client_config(
        bootstrap_server,
        acks=acks,
        compression_type=compression,
        linger_ms=5,
        message_max_bytes=RECORD_BYTES_MAX,
    )
    if not debugging():  # librdkafka's own lines show the retries
        config |= notices.settings()
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
    # Java's default partitioner assigns a key to the same partition.
    try:
        return Producer({**config, "partitioner": "murmur2_random"})
    except KafkaException as error:  # such as a transactional id with acks=1
        raise CommandError(f"The producer has an invalid option: {reason(error)}.") from None


def _send_all(
    sender: _RecordSender | _TransactionalSender, files: list[Path], rate: float, split: Splitter
) -> int:
    """Send each line as a record, and return the number of lines."""
    sent = 0
    with _progress(files) as advance:
        for line in _paced(_lines(files), rate):
            try:
                key, value = split(line.rstrip(b"\r\n"))
            except CommandError as error:
                raise sender.stopped(CommandError(f"Line {sent + 1}: {error}")) from None
            sender.send(key, value)
            sent += 1
            advance(len(line))
    sender.finish()
    return sent


class _RecordSender:
    """A sender through librdkafka. The first record that the broker refuses ends the command."""

    outcome = ""
    transactions: ClassVar[dict[str, object]] = {}

    def __init__(self, producer: Producer, topic: str, partition: int, headers: Headers) -> None:
        self.producer = producer
        self.topic = topic
        self._partition = partition
        self._headers = headers
        self._error: KafkaError | None = None
        self._acknowledged = 0

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._error is None:
            self._error = error

    def send(self, key: bytes | None, value: bytes | None) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self.producer.produce(
                    self.topic,
                    value,
                    key,
                    self._partition,
                    self._delivered,
                    headers=self._headers,
                )
                break
            except BufferError:
                self.producer.poll(QUEUE_POLL_S)
            except KafkaException as error:
                self._error = self._error or error.args[0]
                break
        self.producer.poll(0)
        self._raise_first()

    def finish(self) -> None:
        left = self.producer.flush(FLUSH_TIMEOUT_S)
        self._raise_first()
        if left:
            raise CommandError(
                f"{left} records of topic '{self.topic}' were not acknowledged within"
                f" {FLUSH_TIMEOUT_S:g} s. Check the broker before sending them again."
            )

    def stopped(self, error: CommandError) -> CommandError:
        """Wait for the earlier records. Return `error` with the number of acknowledged records."""
        self.producer.flush(FLUSH_TIMEOUT_S)
        self._raise_first()
        return CommandError(f"{error} ({_records(self._acknowledged)} acknowledged)")

    def _raise_first(self) -> None:
        if self._error is None:
            return
        self.producer.flush(FLUSH_TIMEOUT_S)  # wait for the responses to earlier records
        acknowledged = f"{_records(self._acknowledged)} acknowledged"
        refused = Subject("topic", self.topic).failed(self._error.code(), self._error.str())
        raise CommandError(f"{refused} ({acknowledged})")


class _CountingSender(_RecordSender):
    """A sender that also collects the offset of each record, for a little more CPU."""

    def __init__(self, producer: Producer, topic: str, partition: int, headers: Headers) -> None:
        super().__init__(producer, topic, partition, headers)
        self._bytes = 0
        self._offsets: dict[int, tuple[int, int]] = {}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        if error is not None:
            return
        self._bytes += len(message.key() or b"") + len(message)
        partition, offset = message.partition(), message.offset()
        if offset is None:  # with acks=0 the broker reports no offset
            offset = NO_OFFSET
        # Several batches are in flight, so their responses may arrive in another order.
        first, last = self._offsets.get(partition, (offset, offset))
        self._offsets[partition] = min(first, offset), max(last, offset)

    def summary(self) -> dict[str, object]:
        """Return the number of records, the bytes of keys and values, and the offset ranges.

        The offsets are None with acks=0, because the broker does not report them.
        """
        return {
            "topic": self.topic,
            "records": self._acknowledged,
            "bytes": self._bytes,
            "partitions": [
                {
                    "partition": partition,
                    "first_offset": first if first >= 0 else None,
                    "last_offset": last if last >= 0 else None,
                }
                for partition, (first, last) in sorted(self._offsets.items())
            ],
        }


class _TransactionalSender:
    """A sender that commits or aborts a transaction after every `records_max` records (0: all)."""

    def __init__(self, sender: _RecordSender, records_max: int, abort: bool) -> None:
        self._sender = sender
        self.topic = sender.topic
        self._records_max = records_max
        self._abort = abort
        self._open_records = 0
        self._ended = 0
        self._run(sender.producer.init_transactions, TRANSACTION_TIMEOUT_S)

    @property
    def outcome(self) -> str:
        """The number of transactions and how they ended, as the end of a line."""
        ended = "aborted" if self._abort else "committed"
        noun = "transaction" if self._ended == 1 else "transactions"
        return f" in {self._ended} {noun}, {ended}"

    @property
    def transactions(self) -> dict[str, object]:
        """The number of transactions, and whether they were committed."""
        return {"transactions": self._ended, "committed": not self._abort}

    def send(self, key: bytes | None, value: bytes | None) -> None:
        if not self._open_records:
            self._run(self._sender.producer.begin_transaction)
        self._or_abort(self._sender.send, key, value)
        self._open_records += 1
        if self._open_records == self._records_max:
            self._end()

    def finish(self) -> None:
        if self._open_records:
            self._end()

    def stopped(self, error: CommandError) -> CommandError:
        """Abort the open transaction, and return `error` with that."""
        if not self._open_records:
            return error
        self._run(self._sender.producer.abort_transaction, TRANSACTION_TIMEOUT_S)
        return CommandError(f"The transaction was aborted: {error}")

    def _end(self) -> None:
        # Wait for all records first, because an abort drops the records still in the queue.
        self._or_abort(self._sender.finish)
        producer = self._sender.producer
        end = producer.abort_transaction if self._abort else producer.commit_transaction
        self._run(end, TRANSACTION_TIMEOUT_S)
        self._open_records = 0
        self._ended += 1

    def _or_abort(self, step: Callable[..., None], *arguments: bytes | None) -> None:
        """Run `step`. Abort if a record is refused, so that readers need not wait for a timeout."""
        try:
            step(*arguments)
        except CommandError as error:
            self._run(self._sender.producer.abort_transaction, TRANSACTION_TIMEOUT_S)
            raise CommandError(f"The transaction was aborted: {error}") from None

    def _run(self, step: Callable[..., None], *arguments: float) -> None:
        from confluent_kafka import KafkaException

        try:
            step(*arguments)
        except KafkaException as error:
            raise CommandError(
                f"The transaction failed: {reason(error)}. `odradek txn list` shows its state."
            ) from None


def _splitter(key: str | None, key_separator: str | None, tombstones: bool) -> Splitter:
    fixed = key.encode() if key is not None else None
    separator = _unescaped(key_separator).encode() if key_separator else None

    def split(line: bytes) -> tuple[bytes | None, bytes | None]:
        line_key, value = fixed, line
        if separator is not None:
            before, found, after = line.partition(separator)
            if found:
                line_key, value = before, after
        return line_key, (None if tombstones and not value else value)

    return split


def _unescaped(text: str) -> str:
    """Return `text` with escapes such as `\\t` and `\\x1f` replaced. Keep other characters."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError as error:
        raise CommandError(
            f"--key-separator: {error.reason}. Write \\\\ for a backslash."
        ) from None


def _lines(files: list[Path]) -> Iterator[bytes]:
    for path in files or [STANDARD_INPUT]:
        if path == STANDARD_INPUT:
            yield from sys.stdin.buffer
            continue
        with path.open("rb") as file:
            yield from file


def _paced(lines: Iterator[bytes], rate: float) -> Iterator[bytes]:
    """Yield `lines`, at most `rate` per second (0: without a limit)."""
    if rate <= 0:
        yield from lines
        return
    started = time.monotonic()
    for number, line in enumerate(lines):
        wait_s = started + number / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        yield line


class _progress:
    """A progress bar, shown on a terminal if the input is files, whose size is known."""

    def __init__(self, files: list[Path]) -> None:
        self._shown = bool(files) and all(map(Path.is_file, files)) and sys.stderr.isatty()
        self._total = sum(path.stat().st_size for path in files) if self._shown else 0
        self._progress: Progress | None = None
        self._pending_bytes = 0
        self._pending_lines = 0

    def __enter__(self) -> Callable[[int], None]:
        if not self._shown:
            return lambda _size: None
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        progress = self._progress = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=Console(stderr=True)
        )
        progress.start()
        progress.add_task("produce", total=self._total)

        def advance(size: int) -> None:
            self._pending_bytes += size
            self._pending_lines += 1
            if self._pending_lines >= PROGRESS_EVERY:
                self._show(progress)

        return advance

    def _show(self, progress: Progress) -> None:
        progress.advance(progress.task_ids[0], self._pending_bytes)
        self._pending_bytes = self._pending_lines = 0

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._show(self._progress)
            self._progress.stop()
