"""Transactions with Apache Kafka's own producer and tools, from its released jars.

The cases commit a stream of transactions, list and describe transactions, fence a producer by a
second producer, and find and abort a hanging transaction.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from conformance import stacks
from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import TOOLS, produce_load, tool
from conformance.differential.batches import batch, produce
from conformance.differential.wire import ConnectionClosed, NoResponse, Wire
from conformance.harness import Case, Context, Skip, main, patient_s
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from testkit.peer import PeerUnavailable, java_command
from testkit.topics import create_topic, leader

RECORDS = 5_000
NOT_SERVING = (14, 15, 16, 51)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, and
CONCURRENT_TRANSACTIONS while the previous transaction is completed.
"""
COMMAND = "TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"
AWAY_S = 120.0
ALL_COME_MS = 120_000
NOT_READY = (6, 19)
"""Errors after which a producer sends again: NOT_LEADER_OR_FOLLOWER, because Apache Kafka shows a
new topic before its leader serves it, and NOT_ENOUGH_REPLICAS, because the leader could not yet
verify the partition with the coordinator.
"""


def _rows(output: str) -> list[dict[str, str]]:
    """Parse the table that the tool prints: a header line and rows."""
    heads, *lines = [re.split(r"\s*\t\s*", line.strip()) for line in output.splitlines() if line]
    return [dict(zip(heads, line, strict=False)) for line in lines]


Code = Callable[[Any], int]
"""The error code of a response."""


def _top_level(response: Any) -> int:
    """Return the error code of a response that has one at its top level."""
    code: int = response.error_code
    return code


def _added(response: Any) -> int:
    [topic] = response.results_by_topic_v3_and_below
    code: int = topic.results_by_partition[0].partition_error_code
    return code


def _ask(address: str, request: Any, version: int) -> Any:
    """Send a request on a connection of its own: a broker may be killed before the next one."""
    wire = Wire(address)
    try:
        wire.send(request, version)
        return wire.receive()
    finally:
        wire.close()


class _Producer:
    """A transactional producer on the wire protocol that leaves its transaction open."""

    def __init__(self, context: Context, transactional_id: str) -> None:
        self.id = transactional_id
        self._context = context
        response = self._coordinated(InitProducerIdRequest(transactional_id, 600_000), 4)
        assert response.error_code == 0, response
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def _coordinated(self, request: Any, version: int, code: Code = _top_level) -> Any:
        """Send a request to the coordinator. Repeat it while the coordinator cannot serve."""
        deadline = time.monotonic() + patient_s(AWAY_S)
        while True:
            with contextlib.suppress(OSError, ConnectionClosed, NoResponse):
                response = _ask(self._coordinator(), request, version)
                if code(response) not in NOT_SERVING:
                    return response
            assert time.monotonic() < deadline, request
            time.sleep(0.1)

    def _coordinator(self) -> str:
        """Return the address of the coordinator. Kafka creates its topic on the first request."""
        request = FindCoordinatorRequest(coordinator_keys=[self.id], key_type=1)
        deadline = time.monotonic() + patient_s(AWAY_S)
        while True:
            for address in self._context.bootstrap.split(","):
                with contextlib.suppress(OSError, ConnectionClosed, NoResponse):
                    [found] = _ask(address, request, 4).coordinators
                    if not found.error_code:
                        return f"{found.host}:{found.port}"
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def add(self, topic: str) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0])],
        )
        response = self._coordinated(request, 3, _added)
        assert _added(response) == 0, response

    def send(self, topic: str, sequence: int = 0) -> None:
        """Send one record with an old timestamp, so that its transaction counts as old.

        The topic needs unlimited retention: both brokers delete expired records every five minutes.
        """
        data = batch(
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        request = produce(topic, data, acks=-1, transactional_id=self.id)
        deadline = time.monotonic() + patient_s(AWAY_S)
        while code := self._sent(topic, request):
            assert code in NOT_READY and time.monotonic() < deadline, code
            time.sleep(0.1)

    def _sent(self, topic: str, request: ProduceRequest) -> int:
        with contextlib.suppress(OSError, ConnectionClosed, NoResponse):
            response = _ask(leader(self._context.bootstrap, topic), request, 9)
            code: int = response.responses[0].partition_responses[0].error_code
            return code
        return NOT_READY[0]

    def end(self, committed: bool) -> int:
        request = EndTxnRequest(self.id, self.producer_id, self.epoch, committed)
        return _top_level(self._coordinated(request, 3))


def _stream(context: Context) -> None:
    """The Java producer uses the newest transaction protocol that the broker supports."""
    topic, transactional_id = context.topic("stream"), context.topic("tx")
    create_topic(context.bootstrap, topic, partitions=3)
    in_transactions = ["--transactional-id", transactional_id, "--transaction-duration-ms", "50"]
    produce_load(context, topic, RECORDS, 100, *in_transactions, per_second=2500)
    read = _read(context, topic, RECORDS, ALL_COME_MS)
    assert len(read) == RECORDS, len(read)
    [row] = _rows(tool(context, COMMAND, "describe", "--transactional-id", transactional_id))
    assert row["TransactionState"] == "CompleteCommit", row
    # transaction.version 2: every transaction has its own epoch (KIP-890).
    assert int(row["ProducerEpoch"]) > 1, row


def _read(context: Context, topic: str, most: int, timeout_ms: int = 8_000) -> list[str]:
    """Return the records that a read_committed consumer receives before an idle time-out.

    The time-out may be long where all of the `most` records are expected. While brokers are killed
    it is longer: a partition has no leader for as long as the session of a killed broker.
    """
    command = [
        "--topic",
        topic,
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        str(most),
        "--timeout-ms",
        str(round(patient_s(timeout_ms))),
    ]
    return tool(context, "consumer.ConsoleConsumer", *command).splitlines()


def _listed(context: Context) -> None:
    topic, name = context.topic("listed"), context.topic("tx")
    create_topic(context.bootstrap, topic, retention_ms="-1")
    producer = _Producer(context, name)
    producer.add(topic)
    producer.send(topic)
    row = _found(_rows(tool(context, COMMAND, "list")), name)
    assert row["ProducerId"] == str(producer.producer_id), row
    assert row["TransactionState"] == "Ongoing", row
    described = tool(context, COMMAND, "describe", "--transactional-id", name)
    [row] = _rows(described)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{topic}-0"), row
    assert row["TransactionTimeoutMs"] == "600000", row
    output = tool(context, COMMAND, "describe-producers", "--topic", topic, "--partition", "0")
    [row] = _rows(output)
    assert row["ProducerId"] == str(producer.producer_id), row
    assert row["CurrentTransactionStartOffset"] == "0", row
    assert producer.end(True) == 0
    deadline = time.monotonic() + patient_s(AWAY_S)
    while _rows(tool(context, COMMAND, "list")) and (
        _found(_rows(tool(context, COMMAND, "list")), name)["TransactionState"] != "CompleteCommit"
    ):
        assert time.monotonic() < deadline
    assert len(_read(context, topic, 1, ALL_COME_MS)) == 1


def _found(rows: list[dict[str, str]], name: str) -> dict[str, str]:
    [row] = [row for row in rows if row["TransactionalId"] == name]
    return row


def _copied(context: Context) -> None:
    """Consume, send and commit offsets in transactions, some of which are aborted at random.

    The copy must be exact.
    """
    source, target, group = (context.topic(hint) for hint in ("source", "target", "group"))
    create_topic(context.bootstrap, source)
    create_topic(context.bootstrap, target)
    sent = [f"{n}" for n in range(500)]
    ConfluentClient().produce(context.bootstrap, source, [Rec(each.encode()) for each in sent])
    assert _copy(context, source, target, group) == len(sent)
    read = _read(context, target, len(sent) + 1)
    assert sorted(read) == sorted(sent), f"{len(read)} read, {len(set(read))} different ones"


def _copy(context: Context, source: str, target: str, group: str) -> int:
    """Run a copier to the end of a topic. Return its count of copied messages.

    The tool prints that it is done, but does not end by itself.
    """
    command = _java(
        f"{TOOLS}.TransactionalMessageCopier",
        "--broker-list",
        context.bootstrap,
        "--input-topic",
        source,
        "--input-partition",
        "0",
        "--output-topic",
        target,
        "--transactional-id",
        f"{group}-copier",
        "--consumer-group",
        group,
        "--transaction-size",
        "50",
        "--max-messages",
        "500",
        "--enable-random-aborts",
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copier:
        assert copier.stdout is not None
        watchdog = threading.Timer(patient_s(AWAY_S), _end_hung, [copier])
        watchdog.start()
        try:
            for line in copier.stdout:
                output = json.loads(line)
                if output["stage"] == "ShutdownComplete":
                    assert output["remaining"] == 0, output
                    return int(output["totalProcessed"])
        finally:
            watchdog.cancel()
            copier.kill()
    raise AssertionError("the copier ended before it was done")


def _end_hung(copier: subprocess.Popen[str]) -> None:
    stacks.dump_processes(sys.stderr, [copier.pid])
    copier.kill()


def _java(main_class: str, *arguments: str) -> list[str]:
    try:
        return java_command(main_class, *arguments)
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None


def _fenced(context: Context) -> None:
    """The Java producer replaces a producer with an open transaction."""
    topic, name = context.topic("fenced"), context.topic("tx")
    create_topic(context.bootstrap, topic, retention_ms="-1")
    zombie = _Producer(context, name)
    zombie.add(topic)
    zombie.send(topic)
    in_transactions = ["--transactional-id", name, "--transaction-duration-ms", "1000"]
    produce_load(context, topic, 10, 10, *in_transactions)
    assert zombie.end(True) == 90, "PRODUCER_FENCED"
    assert len(_read(context, topic, 11)) == 10


def _hanging(context: Context) -> None:
    """Abort a transactional write unknown to the coordinator; KIP-890 prevents such writes."""
    topic = context.topic("hanging")
    create_topic(context.bootstrap, topic, retention_ms="-1")
    _verification(context, "false")
    try:
        producer = _Producer(context, context.topic("tx"))
        producer.send(topic)
    finally:
        _verification(context, "true")
    hanging = tool(context, COMMAND, "find-hanging", "--topic", topic)
    [row] = _rows(hanging)
    assert (row["Topic"], row["Partition"], row["StartOffset"]) == (topic, "0", "0"), row
    assert row["ProducerId"] == str(producer.producer_id), row
    tool(context, COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert _rows(tool(context, COMMAND, "find-hanging", "--topic", topic)) == []
    output = tool(context, COMMAND, "describe-producers", "--topic", topic, "--partition", "0")
    assert _rows(output)[0]["CurrentTransactionStartOffset"] == "None", output
    assert _read(context, topic, 1) == []


def _terminated(context: Context) -> None:
    """Abort an open transaction by its transactional id. Its producer is fenced."""
    topic, name = context.topic("terminated"), context.topic("tx")
    create_topic(context.bootstrap, topic, retention_ms="-1")
    producer = _Producer(context, name)
    producer.add(topic)
    producer.send(topic)
    tool(context, COMMAND, "forceTerminateTransaction", "--transactionalId", name)
    assert producer.end(True) == 90, "PRODUCER_FENCED"
    [row] = _rows(tool(context, COMMAND, "describe", "--transactional-id", name))
    assert row["TransactionState"] == "Empty" and not row.get("TopicPartitions"), row
    assert int(row["ProducerEpoch"]) > producer.epoch, row
    output = tool(context, COMMAND, "describe-producers", "--topic", topic, "--partition", "0")
    assert _rows(output)[0]["CurrentTransactionStartOffset"] == "None", output
    assert _read(context, topic, 1) == []


def _verification(context: Context, enabled: str) -> None:
    tool(
        context,
        "kafka.admin.ConfigCommand",
        "--entity-type",
        "brokers",
        "--entity-default",
        "--alter",
        "--add-config",
        f"{VERIFICATION}={enabled}",
    )


CASES = (
    Case("ProducerPerformance in transactions, read committed", _stream, ci=True),
    Case("TransactionsCommand: list, describe, describe-producers", _listed, ci=True),
    Case("TransactionalMessageCopier with random aborts: an exact copy", _copied),
    Case("a second producer fences the first", _fenced),
    Case("TransactionsCommand: find-hanging, abort", _hanging),
    Case("TransactionsCommand: forceTerminateTransaction", _terminated),
)

if __name__ == "__main__":
    main("transactions", CASES)
