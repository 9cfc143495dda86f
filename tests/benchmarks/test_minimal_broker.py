"""The C program for the comparison of CPU per request, and the deciding ratio."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.minimal_broker import (
    METRIC,
    PROGRAMS,
    RESPONSES,
    SIZES,
    VERSION,
    Request,
    Size,
    batch_of,
    least_ratio,
    order_of,
    request_of,
)

from odradek.protocol.codec import decode
from odradek.protocol.headers import parse_request_header
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.records.batch import HEADER_BYTES
from testkit.programs import ProgramUnavailable, build_c, has_crc_instruction

RESPONSE = struct.pack(">ii", 12, -1) + b"response"
DEADLINE_S = 30.0
IN_FLIGHT = 5


@pytest.fixture(scope="module", params=["table", "instruction"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both programs; the broker's CRC-32C by table or by instruction."""
    if request.param == "instruction" and not has_crc_instruction():
        pytest.skip("the processor has no CRC-32C instruction")
    built = tmp_path_factory.mktemp("programs")
    try:
        build_c(
            PROGRAMS / "minimal_broker.c",
            built / "minimal_broker",
            crc_instruction=request.param == "instruction",
        )
        build_c(PROGRAMS / "request_driver.c", built / "request_driver")
    except ProgramUnavailable as error:
        pytest.skip(str(error))
    return built


@contextmanager
def minimal_broker(
    programs: Path, request: Request, work: Path, responses: str = "each"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running C program and its port."""
    (work / "response").write_bytes(RESPONSE)
    options = [str(work / "log"), str(len(request.frame)), str(request.batch_position)]
    with subprocess.Popen(
        [str(programs / "minimal_broker"), *options, str(work / "response"), responses],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            yield program, program.stdout.readline().strip()
            program.wait(DEADLINE_S)
        finally:
            program.kill()


def drive(
    programs: Path, port: str, frame: bytes, work: Path, count: int
) -> subprocess.CompletedProcess[str]:
    (work / "request").write_bytes(frame)
    command = [str(programs / "request_driver"), port, str(work / "request"), str(count)]
    return subprocess.run(
        [*command, str(IN_FLIGHT)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize("responses", RESPONSES.values())
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.key)
def test_c_program_appends_each_batch_and_returns_the_fixed_response(
    programs: Path, tmp_path: Path, size: Size, responses: str
) -> None:
    batch = batch_of(size)
    request = request_of(batch, "topic")
    with minimal_broker(programs, request, tmp_path, responses) as (program, port):
        done = drive(programs, port, request.frame, tmp_path, count := 23)
    assert done.returncode == 0, done.stderr
    assert program.returncode == 0
    assert (tmp_path / "log").read_bytes() == batch * count
    last = bytes.fromhex(done.stdout.splitlines()[1])
    assert last == RESPONSE[:4] + struct.pack(">i", count - 1) + RESPONSE[8:]


@pytest.mark.parametrize(
    "position", [21, HEADER_BYTES, -1], ids=["attributes", "record", "last byte"]
)
def test_c_program_refuses_a_batch_whose_crc_does_not_match(
    programs: Path, tmp_path: Path, position: int
) -> None:
    batch = bytearray(batch_of(SIZES[0]))
    batch[position] ^= 1
    request = request_of(bytes(batch), "topic")
    with minimal_broker(programs, request, tmp_path) as (program, port):
        done = drive(programs, port, request.frame, tmp_path, IN_FLIGHT)
        assert program.wait(DEADLINE_S) == 1
        assert program.stderr is not None
        assert "CRC-32C" in program.stderr.read()
    assert done.returncode == 1
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.key)
def test_request_is_a_produce_request_with_the_batch_where_it_says(size: Size) -> None:
    batch = batch_of(size)
    request = request_of(batch, "topic")
    assert request.frame[request.batch_position :].startswith(batch)
    assert int.from_bytes(request.frame[:4], "big") == len(request.frame) - 4
    body = memoryview(request.frame)[4:]
    _, version, _, _, position = parse_request_header(body)
    assert version == VERSION
    message = decode(ProduceRequest, VERSION, body, position)
    assert bytes(message.topic_data[0].partition_data[0].records or b"") == batch


def test_the_same_seed_makes_the_same_batch() -> None:
    assert batch_of(SIZES[0], 7) == batch_of(SIZES[0], 7) != batch_of(SIZES[0], 8)


def test_the_least_value_of_each_side_decides() -> None:
    runs = [
        {
            side: {METRIC: value}
            for side, value in zip(("odradek", "c_each", "c_together"), values, strict=True)
        }
        for values in ((9.0, 12.0, 3.0), (6.0, 5.0, 4.0), (30.0, 4.0, 5.0))
    ]
    assert least_ratio(runs, "c_each") == 1.5
    assert least_ratio(runs, "c_together") == 2.0


def test_the_sides_alternate() -> None:
    orders = [order_of(run) for run in range(4)]
    assert orders[0] == orders[2] == ("odradek", "c_each", "c_together")
    assert orders[1] == orders[3] == orders[0][::-1]
