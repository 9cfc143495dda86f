"""Invalid batches: Kafka's error for wrong headers, and no harm from wrong bodies."""

from __future__ import annotations

import struct

import pytest

from odradek.errors import ErrorCode
from odradek.records.batch import HEADER_BYTES, Compression, write_crc
from odradek.records.compression import compress
from testkit.requests import batch, fetch, list_offsets, produce
from testkit.wire import ConnectionClosed, WireClient
from tests.hostile.attacks import Attacker, reason, responses_until_closed
from tests.hostile.batches import RECORD, forged
from tests.hostile.conftest import create_topic
from tests.hostile.process import BrokerProcess

pytestmark = pytest.mark.usefixtures("canary")

CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
PACKED = [each for each in Compression if each is not Compression.NONE]
CODECS = ["gzip", "snappy", "lz4", "zstd", "uncompressed"]
MEMORY_BYTES_MAX = 640 * 1_048_576
"""50 MB, and twice the largest batch for a short time in each of the two threads that unpack it."""
BOMB_BYTES = 100 * 1_048_576
LOOKUPS = 6


def with_length(length: int) -> bytearray:
    lying = forged()
    struct.pack_into(">i", lying, 8, length)
    return lying


def with_magic(magic: int) -> bytearray:
    lying = forged()
    lying[16] = magic & 0xFF
    return lying


LIES = {
    "no records": (bytearray(), INVALID),
    "half a header": (forged()[:30], INVALID),
    "a length of -1": (with_length(-1), CORRUPT),
    "a length of 0": (with_length(0), CORRUPT),
    "a length of 2^31 - 1": (with_length(2**31 - 1), INVALID),
    "a length too long by one": (with_length(57), INVALID),
    "a wrong sum": (forged(crc=12345), CORRUPT),
    "magic 0": (with_magic(0), INVALID),
    "magic 1": (with_magic(1), INVALID),
    "magic 3": (with_magic(3), CORRUPT),
    "magic -1": (with_magic(-1), CORRUPT),
    "a base offset": (forged(base_offset=5), INVALID),
    "no record": (forged(b"", count=0), INVALID),
    "a count of -1": (forged(record_count=-1), INVALID),
    "a count too high": (forged(record_count=2), INVALID),
    "a last offset too high": (forged(last_offset_delta=7), INVALID),
    "a last offset below 0": (forged(last_offset_delta=-1), INVALID),
    "a control batch": (forged(attributes=0x20), INVALID),
    "a transaction that is not": (
        forged(attributes=0x10),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "an unknown compression": (forged(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a producer without sequence": (forged(producer_id=5, producer_epoch=0), INVALID),
    "a time far ahead": (forged(max_timestamp=2**62), ErrorCode.INVALID_TIMESTAMP),
    "two batches": (forged() + forged(), INVALID),
    "too large": (forged(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
}


def error_of(client: WireClient, topic: str, records: bytearray) -> int:
    response = client.call(produce(topic, records), 9).responses[0].partition_responses[0]
    return int(response.error_code)


@pytest.mark.parametrize("what", LIES)
def test_a_wrong_header_gets_kafkas_error(attacker: Attacker, what: str) -> None:
    records, code = LIES[what]
    assert error_of(attacker, "t", records) == code
    assert error_of(attacker, "t", batch(b"good")) == 0


@pytest.mark.parametrize("what", ["a wrong sum", "a control batch", "two batches"])
def test_connection_is_closed_if_there_is_no_response(
    process: BrokerProcess, attacker: Attacker, what: str
) -> None:
    records, code = LIES[what]
    attacker.send(produce("t", records, acks=0), 9)
    assert responses_until_closed(attacker) == []
    assert code.name in reason(attacker)


def test_every_bit_of_a_batch_is_covered(attacker: Attacker) -> None:
    """Except the leader epoch, which the leader writes: bytes 12 to 15."""
    good = bytes(batch(b"value"))
    for at in range(8 * len(good)):
        turned = bytearray(good)
        turned[at // 8] ^= 1 << at % 8
        assert bool(error_of(attacker, "t", turned)) == (not 12 <= at // 8 < 16), at


@pytest.mark.parametrize("compression", PACKED, ids=lambda each: each.name)
def test_decompression_bombs_and_broken_frames_in_timestamp_look_ups(
    attacker: Attacker, process: BrokerProcess, compression: Compression
) -> None:
    name = f"times-{compression.name.lower()}"
    create_topic(attacker, name, max_message_bytes=20_000_000)
    bomb = compress(compression, RECORD * (BOMB_BYTES // len(RECORD)))
    hidden = forged(bomb, compression=compression, count=BOMB_BYTES // len(RECORD))
    struct.pack_into(">q", hidden, 35, struct.unpack_from(">q", hidden, 35)[0] + 5000)
    write_crc(hidden)
    for records in (forged(b"\xff" * 50, compression=compression), hidden):
        assert error_of(attacker, name, records) == 0
    (target,) = struct.unpack_from(">q", hidden, 35)
    clients = [WireClient(process.bootstrap_servers) for _ in range(LOOKUPS)]
    for client in clients:
        client.send(list_offsets(target, name), 6)
    for client in clients:
        found = client.receive().topics[0].partitions[0]
        assert (found.error_code, found.timestamp, found.offset) == (0, target, 1)
        client.socket.close()


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bombs_and_broken_frames_in_recompressed_topics(
    attacker: Attacker, codec: str
) -> None:
    name = f"recompressed-{codec}"
    create_topic(attacker, name, compression_type=codec)
    for compression in PACKED:
        if compression.name.lower() == codec:
            continue
        values = [b"%d" % number for number in range(10)]
        whole = batch(*values, compression=compression)
        good = bytes(whole[HEADER_BYTES:])
        assert error_of(attacker, name, whole) == 0
        for broken in (good[:-3], b"\x00" * 20, good[:5] + b"\xff\xff" + good[7:], b""):
            records = forged(broken, compression=compression, count=10)
            assert error_of(attacker, name, records) in (0, CORRUPT, INVALID)
        packed = compress(compression, bytes(200 * 1_048_576))
        if len(packed) < 1_000_000:
            records = forged(packed, compression=compression, count=10)
            assert error_of(attacker, name, records) == CORRUPT
    assert error_of(attacker, name, batch(b"good")) == 0


def test_offsets_that_jump_are_served(attacker: Attacker) -> None:
    """Each claims 19 million records. They are packed, so the header alone cannot be disproved."""
    create_topic(attacker, "jumps")
    count = 19_000_000
    for number in range(150):
        records = forged(b"\1\2\3", compression=Compression.GZIP, count=count)
        response = attacker.call(produce("jumps", records), 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, number * count)
    got = attacker.call(fetch("jumps", 140 * count + 5), 12).responses[0].partitions[0]
    assert len(got.records) == 10 * len(records)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_an_impossible_record_count_is_refused(
    attacker: Attacker, compression: Compression
) -> None:
    """With 61 bytes the log's end would jump by 2^31 and every batch begin a new segment."""
    body = compress(compression, RECORD)
    assert (
        error_of(attacker, "t", forged(body, compression=compression, count=2**31 - 1)) == INVALID
    )
    assert error_of(attacker, "t", forged(RECORD * 3, count=4)) == INVALID


def test_a_client_that_leaves_while_its_batch_is_unpacked(
    process: BrokerProcess, attacker: Attacker
) -> None:
    create_topic(attacker, "left", compression_type="gzip")
    bomb = forged(compress(Compression.ZSTD, RECORD * 2_000_000), compression=Compression.ZSTD)
    struct.pack_into(">i", bomb, 57, 2_000_000)
    struct.pack_into(">i", bomb, 23, 1_999_999)
    write_crc(bomb)
    for _ in range(4):
        with WireClient(process.bootstrap_servers) as leaver:
            leaver.send(produce("left", bomb), 9)
    assert error_of(attacker, "left", batch(b"good")) == 0
    with pytest.raises(ConnectionClosed):
        leaver.receive_frame()
