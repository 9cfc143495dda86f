"""Sends by programs of other authors: partitions, values and acknowledgements."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.histories.library_log import FAILED_BATCH, partition_in
from conformance.histories.managed_cluster import digest, replication
from conformance.histories.settings import number_of, partition_for
from conformance.histories.tool_senders import acknowledged


def test_a_key_has_the_partition_that_kafkas_producer_chooses() -> None:
    """The expected partitions are those of Kafka 4.3's verifiable producer."""
    keys = [str(number).encode() for number in range(8)]
    assert [partition_for(key, 4) for key in keys] == [0, 3, 0, 3, 1, 2, 2, 3]


@pytest.mark.parametrize(("text", "value"), [("17", 17), ("3.4", 3_004), ("3000.149", 3_000_149)])
def test_a_value_is_a_number_or_a_number_in_a_block(text: str, value: int) -> None:
    assert number_of(text) == value


def test_acknowledgements_are_read_from_the_output_of_the_verifiable_producer() -> None:
    output = (
        '{"timestamp":1,"name":"startup_complete"}\n'
        '{"timestamp":2,"name":"producer_send_success","key":"1","value":"7.1","offset":5,'
        '"topic":"t","partition":3}\n'
        '{"timestamp":3,"name":"producer_send_error","key":"2","value":"7.2","exception":"x"}\n'
        "a line of a log\n"
    )
    assert acknowledged(output) == [(7_001, 5)]


def test_a_failed_request_is_found_in_the_log_of_the_library() -> None:
    line = (
        "%7|1.2|MSGSET|rdkafka#producer-1| [thrd:h:1/1]: h:1/1: t [1]: MessageSet with 2 message(s)"
        " (MsgId 0, BaseSeq -1) encountered error: Broker: Not leader (actions Refresh,Retry)"
    )
    assert partition_in(line, FAILED_BATCH) == ("t", 1)
    assert partition_in(line.replace("encountered error: ", "delivered"), FAILED_BATCH) is None


def test_the_digest_of_a_log_does_not_depend_on_segments_and_allocated_zeros(
    tmp_path: Path,
) -> None:
    batches = [number.to_bytes(8, "big") + (5).to_bytes(4, "big") + b"batch" for number in range(3)]
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "00.log").write_bytes(b"".join(batches) + bytes(100))
    (two / "00.log").write_bytes(b"".join(batches[:2]) + bytes(10))
    (two / "02.log").write_bytes(batches[2])
    assert digest(one) == digest(two)
    assert digest(one)[:2] == [3, 3 * 17]
    (two / "02.log").write_bytes(batches[2][:-1] + b"X")
    assert digest(one) != digest(two)


def test_replication_leaves_one_broker_to_spare() -> None:
    assert [replication(brokers) for brokers in (1, 2, 3, 5)] == [(1, 1), (2, 1), (3, 2), (3, 2)]
