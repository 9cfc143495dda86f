"""`odradek txn`: transactional ids and their transactions; abort of hanging transactions."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    JsonOutput,
    complete_topic,
)
from odradek.cli.failures import Subject, partition_subject
from odradek.cli.output import (
    NUMBER_MAX,
    PARTITION_MAX,
    CommandError,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from odradek.cli.wire import WireClient


class DescribedTransaction(TypedDict):
    """A transactional id as `--json` prints it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: str | None
    partitions: list[str]


app = typer.Typer(no_args_is_help=True)

# States of transactions under the names of Kafka's tools.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
# Transaction timeout in the InitProducerId request of an abort by id. No producer uses the epoch.
ABORT_TIMEOUT_MS = 60_000


def complete_transactional_id(context: typer.Context, incomplete: str) -> list[str]:
    """Complete transactional ids of the broker that the command line names."""
    server = context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP_SERVER
    try:
        found = _list(server, [], None)
    except CommandError:
        return []
    ids = [str(row["transactional_id"]) for row in found]
    return [each for each in ids if each.startswith(incomplete)]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only this state, such as Ongoing; repeatable."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that match this RE2 pattern entirely.")
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """List transactional ids with their producer id and state."""
    rows = _list(bootstrap_server, state or [], pattern)
    print_rows(rows, ["transactional_id", "producer_id", "state"], as_json)


@app.command("describe")
def describe(
    transactional_ids: Annotated[
        list[str],
        typer.Argument(metavar="TRANSACTIONAL_ID...", autocompletion=complete_transactional_id),
    ],
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Show state, producer, timeout and partitions of transactional ids."""
    from odradek.cli.wire import WireClient

    with WireClient(bootstrap_server) as client:
        rows = [_describe(client, each) for each in transactional_ids]
    if as_json:
        print_json(rows)
        return
    columns = ["transactional_id", "state", "producer_id", "producer_epoch", "timeout_ms"]
    print_rows(rows, [*columns, "started", "partitions"], as_json=False)


@app.command("abort")
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[TRANSACTIONAL_ID]", autocompletion=complete_transactional_id),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="Topic of a hanging transaction.", autocompletion=complete_topic
        ),
    ] = None,
    partition: Annotated[
        int,
        typer.Option(
            "--partition",
            "-p",
            help="Partition of a hanging transaction.",
            min=0,
            max=PARTITION_MAX,
        ),
    ] = 0,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            help="First offset of a hanging transaction.",
            min=0,
            max=NUMBER_MAX,
        ),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Abort a transaction by its id, or a hanging transaction by partition and start offset.

    An abort by id fences the producer. A hanging transaction, which no coordinator knows, is
    aborted by a marker in one partition.
    """
    from odradek.cli.wire import WireClient

    by_offset = topic is not None and start_offset is not None
    if (transactional_id is None) != by_offset:
        raise CommandError(
            "Name the transaction with either TRANSACTIONAL_ID, or --topic and --start-offset."
        )
    with WireClient(bootstrap_server) as client:
        if transactional_id is not None:
            result = _abort_by_id(client, transactional_id)
        else:
            assert topic is not None
            assert start_offset is not None
            result = _abort_by_offset(client, topic, partition, start_offset)
    if as_json:
        print_json(result)
    else:
        print("aborted " + ", ".join(f"{name} {value}" for name, value in result.items()))


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", autocompletion=complete_topic, help="Only this topic (default: all)."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            help="Only this partition of the topic (default: all).",
            min=0,
            max=PARTITION_MAX,
        ),
    ] = None,
    max_transaction_timeout_min: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            help="Only transactions whose last record is older than this.",
            metavar="MINUTES",
            min=0,
        ),
    ] = 15,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Find hanging transactions: they block readers, and no coordinator will end them."""
    from odradek.cli import hanging

    if partition is not None and topic is None:
        raise CommandError("--partition needs a --topic.")
    rows = hanging.find_hanging(
        bootstrap_server,
        topic,
        partition,
        max_transaction_timeout_min * hanging.MS_PER_MINUTE,
        time.time_ns() // 1_000_000,
    )
    shown = [{**row, "last_timestamp": _iso(row["last_timestamp"])} for row in rows]
    columns = ["topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch"]
    print_rows(shown, [*columns, "start_offset", "last_timestamp", "duration_min"], as_json)


def _list(bootstrap_server: str, states: list[str], pattern: str | None) -> list[dict[str, object]]:
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
    from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse

    request = ListTransactionsRequest(state_filters=states, transactional_id_pattern=pattern)
    with WireClient(bootstrap_server) as client:
        response = client.call(request, ListTransactionsResponse, 2 if pattern is not None else 1)
    check(response.error_code, Subject("broker", bootstrap_server))
    if response.unknown_state_filters:
        raise CommandError(
            f"--state: {response.unknown_state_filters[0]!r} is not a state of transactions."
            f" Use one of {', '.join(STATES)}."
        )
    return [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.transaction_state,
        }
        for each in sorted(response.transaction_states, key=lambda each: each.transactional_id)
    ]


def _describe(client: WireClient, transactional_id: str) -> DescribedTransaction:
    from odradek.cli.wire import check
    from odradek.protocol.messages.describe_transactions_request import (
        DescribeTransactionsRequest,
    )
    from odradek.protocol.messages.describe_transactions_response import (
        DescribeTransactionsResponse,
    )

    with client.coordinator_of(transactional_id) as coordinator:
        response = coordinator.call(
            DescribeTransactionsRequest([transactional_id]), DescribeTransactionsResponse, 0
        )
    found = response.transaction_states[0]
    check(found.error_code, Subject("transactional id", transactional_id))
    started_ms = found.transaction_start_time_ms
    return {
        "transactional_id": found.transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started": None if started_ms < 0 else _iso(started_ms),
        "partitions": [f"{each.topic}-{p}" for each in found.topics for p in each.partitions],
    }


def _abort_by_id(client: WireClient, transactional_id: str) -> dict[str, object]:
    """Fence the producer by a new epoch, so that the coordinator aborts its open transaction."""
    from odradek.cli.wire import check
    from odradek.errors import ErrorCode
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
    from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

    before = _describe(client, transactional_id)  # InitProducerId would create an unknown id
    if before["state"] != "Ongoing":
        raise CommandError(
            f"Transactional id '{transactional_id}' has no open transaction: its state is"
            f" {before['state']}. Nothing is aborted."
        )
    request = InitProducerIdRequest(transactional_id, before["timeout_ms"] or ABORT_TIMEOUT_MS)
    with client.coordinator_of(transactional_id) as coordinator:
        response = coordinator.call(request, InitProducerIdResponse, 4)
    # With CONCURRENT_TRANSACTIONS the abort has begun and continues after this response.
    if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
        check(response.error_code, Subject("transactional id", transactional_id))
    return {"transactional_id": transactional_id, "producer_id": before["producer_id"]}


def _abort_by_offset(
    client: WireClient, topic: str, partition: int, start_offset: int
) -> dict[str, object]:
    """Write an abort marker for the transaction that begins there, only to this partition."""
    from odradek.cli.wire import check
    from odradek.protocol.messages.describe_producers_request import (
        DescribeProducersRequest,
        TopicRequest,
    )
    from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
    from odradek.protocol.messages.write_txn_markers_request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse

    where = partition_subject(topic, partition)
    producers = client.call(
        DescribeProducersRequest([TopicRequest(topic, [partition])]), DescribeProducersResponse, 0
    )
    state = producers.topics[0].partitions[0]
    check(state.error_code, where, state.error_message)
    found = [
        each for each in state.active_producers if each.current_txn_start_offset == start_offset
    ]
    if not found:
        raise CommandError(
            f"No open transaction begins at offset {start_offset} of {topic}-{partition}."
            " `odradek txn find-hanging` shows hanging transactions."
        )
    producer = found[0]
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(topic, [partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    response = client.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, 1)
    check(response.markers[0].topics[0].partitions[0].error_code, where)
    return {"topic": topic, "partition": partition, "producer_id": producer.producer_id}


def _iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
