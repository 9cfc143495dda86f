"""`odradek produce` and `odradek consume` against a real broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Cli


def test_lines_come_back_in_order(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="one\ntwo\nthree\n")
    assert cli.ok("consume", "t").splitlines() == ["one", "two", "three"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_lines_come_back(cli: Cli, compression: str) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", "-z", compression, input="".join(f"line {n}\n" for n in range(500)))
    assert cli.ok("consume", "t").splitlines() == [f"line {n}" for n in range(500)]


def test_files_keys_and_headers_are_kept(cli: Cli, tmp_path: Path) -> None:
    cli.ok("topic", "create", "t")
    file = tmp_path / "input"
    file.write_bytes(b"k1:v1\nk2:v2\nno key\nk3:\n")
    cli.ok("produce", "t", str(file), "-K", ":", "-H", "source=test", "--tombstones")
    records = cli.json_lines("consume", "t")
    assert [(r["key"], r["value"]) for r in records] == [
        ("k1", "v1"),
        ("k2", "v2"),
        (None, "no key"),
        ("k3", None),
    ]
    assert records[0]["headers"] == [{"key": "source", "value": "test"}]


def produced(cli: Cli, *arguments: str, input: str) -> Any:
    return json.loads(cli.ok("produce", "t", "--json", *arguments, input=input))


def test_json_reports_the_records_sent_and_their_offsets(cli: Cli) -> None:
    cli.ok("topic", "create", "t", "-p", "2")
    produced(cli, "-p", "1", input="x\n")
    assert produced(cli, "-p", "1", "-K", ":", input="k:one\nk:two\nthree\n") == {
        "topic": "t",
        "records": 3,
        "bytes": 13,
        "partitions": [{"partition": 1, "first_offset": 1, "last_offset": 3}],
    }
    nothing = {"topic": "t", "records": 0, "bytes": 0, "partitions": []}
    assert produced(cli, input="") == nothing
    [deleted] = produced(cli, "-p", "0", "-k", "k", "--tombstones", input="\n")["partitions"]
    assert deleted == {"partition": 0, "first_offset": 0, "last_offset": 0}


def test_json_has_no_offsets_with_acks_0(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    sent = produced(cli, "--acks", "0", input="one\ntwo\n")
    unknown = {"partition": 0, "first_offset": None, "last_offset": None}
    assert (sent["records"], sent["partitions"]) == (2, [unknown])


def test_a_header_may_occur_more_than_once(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", "-H", "via=a", "-H", "via=b", input="x\n")
    [record] = cli.json_lines("consume", "t")
    assert [each["value"] for each in record["headers"]] == ["a", "b"]


@pytest.mark.parametrize(("argument", "separator"), [("→", "→"), ("é", "é"), ("\\t", "\t")])
def test_key_separator_may_be_any_text(cli: Cli, argument: str, separator: str) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", "-K", argument, input=f"k{separator}v\n")
    [record] = cli.json_lines("consume", "t")
    assert (record["key"], record["value"]) == ("k", "v")


def test_keys_are_assigned_to_partitions_as_by_the_java_client(cli: Cli) -> None:
    """The hashes (murmur2) are from Kafka's UtilsTest; the rule is positive(hash) % partitions."""
    cli.ok("topic", "create", "t", "-p", "10")
    cli.ok("produce", "t", "-K", ":", input="21:a\nfoobar:b\na-little-bit-long-string:c\n")
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    for record in cli.json_lines("consume", "t"):
        assert record["partition"] == (hashes[record["key"]] & 0x7FFFFFFF) % 10


def test_consume_starts_at_the_requested_offset_or_time(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="".join(f"{n}\n" for n in range(10)))
    assert cli.ok("consume", "t", "-o", "7").split() == ["7", "8", "9"]
    assert cli.ok("consume", "t", "-o", "-2").split() == ["8", "9"]
    assert cli.ok("consume", "t", "-o", "end").split() == []
    assert cli.ok("consume", "t", "-n", "3").split() == ["0", "1", "2"]
    assert cli.ok("consume", "t", "-t", "0").split()[0] == "0"
    assert cli.ok("consume", "t", "-t", "2100-01-01").split() == []


def test_bytes_that_are_not_utf8_are_base64_in_json(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input=b"\xff\xfe\n")
    [record] = cli.json_lines("consume", "t")
    assert record["value_base64"] == "//4="


def test_a_group_continues_at_its_committed_offset(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="".join(f"{n}\n" for n in range(10)))
    first = cli.ok("consume", "t", "-g", "readers").split()
    assert first == [str(n) for n in range(10)]
    cli.ok("produce", "t", input="10\n11\n")
    assert cli.ok("consume", "t", "-g", "readers").split() == ["10", "11"]


def test_group_is_listed_and_described_with_its_lag(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="".join(f"{n}\n" for n in range(10)))
    cli.ok("consume", "t", "-g", "readers")
    cli.ok("produce", "t", input="10\n11\n")
    assert [(g["group"], g["state"]) for g in cli.json("group", "list")] == [("readers", "Empty")]
    [group] = cli.json("group", "describe", "readers")
    [row] = group["partitions"]
    assert (row["committed"], row["end_offset"], row["lag"]) == (10, 12, 2)
    assert "lag 2" in cli.ok("group", "describe", "readers")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["produce", "t", "-z", "brotli"], "--compression is one of"),
        (["produce", "t", "missing-file"], "missing-file does not exist"),
        (["produce", "t", "."], "is a directory"),
        (["produce", "t", "--acks", "most"], "--acks is one of"),
        (["produce", "t", "--acks", ""], "--acks is one of"),
        (["produce", "t", "--acks", "1", "--transactional-id", "x"], "acks"),
        (["produce", "t", "-K", "\\"], "--key-separator: "),
        (["consume", "t", "-o", "middle"], "--offset is beginning, end or a number"),
        (["consume", "t", "-t", "yesterday"], "--from-time takes a time in ISO 8601"),
        (["consume", "t", "-p", "7"], "Topic 't' has no partition 7"),
        (["consume", "t", "-g", "g", "-p", "0"], "--group assigns partitions"),
        (["consume", "no-such-topic"], "no-such-topic"),
    ],
)
def test_invalid_arguments_are_one_line(cli: Cli, arguments: list[str], line: str) -> None:
    cli.ok("topic", "create", "t")
    result = cli(*arguments)
    assert result.exit_code == 1
    assert line in str(result.exception)


def test_a_refused_record_is_one_line_with_the_number_of_acknowledged_records(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    large = "x" * 5_000_000
    result = cli("produce", "t", input=f"one\ntwo\n{large}\n")
    assert result.exit_code == 1
    assert str(result.exception).startswith("Topic 't': ")
    assert "too large" in str(result.exception)
    assert "2 records acknowledged" in str(result.exception)
    assert cli.ok("consume", "t").splitlines() == ["one", "two"]


def test_a_large_record_is_sent_if_the_topic_allows_it(cli: Cli) -> None:
    cli.ok("topic", "create", "t", "--config", "max.message.bytes=10000000")
    large = "x" * 5_000_000
    cli.ok("produce", "t", input=f"{large}\n")
    assert cli.ok("consume", "t").splitlines() == [large]


def test_a_refused_record_aborts_its_transaction(cli: Cli) -> None:
    cli.ok("topic", "create", "t")
    large = "x" * 5_000_000
    refused = cli("produce", "t", "--transactional-id", "a", input=f"one\n{large}\n")
    assert "The transaction was aborted: Topic 't': " in str(refused.exception)
    cli.ok("produce", "t", input="after\n")
    assert cli.ok("consume", "t", "--isolation-level", "read_committed").splitlines() == ["after"]


def test_lines_are_read_from_files_pipes_and_standard_input(cli: Cli, tmp_path: Path) -> None:
    cli.ok("topic", "create", "t")
    file = tmp_path / "input"
    file.write_text("first\n", encoding="utf-8")
    assert "1 record to t" in cli("produce", "t", str(file)).stderr
    cli.ok("produce", "t", "-", input="second\n")
    reading, writing = os.pipe()
    os.write(writing, b"third\n")
    os.close(writing)
    cli.ok("produce", "t", f"/dev/fd/{reading}")
    os.close(reading)
    assert cli.ok("consume", "t").splitlines() == ["first", "second", "third"]
