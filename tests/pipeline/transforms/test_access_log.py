"""The parser of web access logs: the combined format with the variants of real servers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.transforms.access_log import parse_access_log
from tests.pipeline.source_rows import parse

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

ACCESS_LOG = Path(__file__).parents[2] / "data" / "access.log"
NO_MATCH = "the line is not in the combined log format"
NO_TIME = "the line's time does not exist"
CODES = {
    NO_MATCH: "not_an_access_log",
    NO_TIME: "no_such_time",
    "the record has no value": "no_value",
    "the value is not UTF-8": "not_utf8",
}


def line(
    host: str = "192.0.2.1",
    user: str = "-",
    time: str = "17/May/2015:10:05:03 +0000",
    request: str = "GET /a HTTP/1.1",
    status: str = "200",
    size: str = "1234",
    referer: str = "-",
    agent: str = "agent",
) -> bytes:
    text = f'{host} - {user} [{time}] "{request}" {status} {size} "{referer}" "{agent}"'
    return text.encode()


MANY = 50_000
GOOD: dict[bytes, dict[str, object]] = {
    line(): {
        "host": "192.0.2.1",
        "ident": None,
        "user": None,
        "method": "GET",
        "path": "/a",
        "protocol": "HTTP/1.1",
        "request": "GET /a HTTP/1.1",
        "status": 200,
        "size_bytes": 1234,
        "referer": None,
        "user_agent": "agent",
    },
    line(host="2001:db8::8a2e:370:7334"): {"host": "2001:db8::8a2e:370:7334"},
    line(host="crawler.example.org"): {"host": "crawler.example.org"},
    line(size="-"): {"size_bytes": None},
    line(size="0"): {"size_bytes": 0},
    line(size="9" * 18): {"size_bytes": 10**18 - 1},
    line(user="jane"): {"user": "jane"},
    line(user="jane doe"): {"user": "jane doe"},
    line(user="jane [x]"): {"user": "jane [x]"},
    line(agent=r"says \"hi\" \\ twice"): {"user_agent": r'says "hi" \ twice'},
    line(agent=r"ends with a backslash \\"): {"user_agent": "ends with a backslash \\"},
    line(agent=r"tab \t stays"): {"user_agent": r"tab \t stays"},
    line(agent=""): {"user_agent": ""},
    line(agent="Žižkov 🎈"): {"user_agent": "Žižkov 🎈"},
    line(agent=r"\"" * MANY): {"user_agent": '"' * MANY},
    line(referer='http://a/?q=\\"x\\"'): {"referer": 'http://a/?q="x"'},
    line(request="-", status="408"): {"request": None, "method": None, "path": None},
    line(request=r"\x16\x03\x01"): {"request": r"\x16\x03\x01", "method": None, "path": None},
    line(request="GET /a b HTTP/1.1"): {"request": "GET /a b HTTP/1.1", "path": None},
    line(request="GET /old"): {"method": "GET", "path": "/old", "protocol": None},
    line(request="PRI * HTTP/2.0"): {"method": "PRI", "path": "*", "protocol": "HTTP/2.0"},
    line(request=r"GET /\"q\" HTTP/3"): {"path": '/"q"', "protocol": "HTTP/3"},
    line() + b"\r\n": {"user_agent": "agent"},
}
BAD: dict[bytes | None, str] = {
    None: "the record has no value",
    b"": NO_MATCH,
    b"\n": NO_MATCH,
    b"not a log line": NO_MATCH,
    line()[:-1]: NO_MATCH,
    line()[:60]: NO_MATCH,
    line() + b" and more": NO_MATCH,
    line() + b"\n" + line(): NO_MATCH,
    b" " + line(): NO_MATCH,
    line(status="20"): NO_MATCH,
    line(status="OK"): NO_MATCH,
    line(size="9" * 19): NO_MATCH,
    line(size="-1"): NO_MATCH,
    line(agent='unescaped " quote'): NO_MATCH,
    line(agent="the quote is escaped \\"): NO_MATCH,
    line(time="17/May/2015:10:05:03"): NO_MATCH,
    line(time="17/5/2015:10:05:03 +0000"): NO_MATCH,
    line(time="31/Feb/2015:10:05:03 +0000"): NO_TIME,
    line(time="17/Mai/2015:10:05:03 +0000"): NO_TIME,
    line(time="17/May/2015:25:05:03 +0000"): NO_TIME,
    line(agent="\xff").replace(b"\xc3\xbf", b"\xff"): "the value is not UTF-8",
    b"x" * 1_000_000: NO_MATCH,
    line(agent=r"\"" * MANY)[:-1]: NO_MATCH,
    line(user=" [" * MANY)[:-1]: NO_MATCH,
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[bytes | None, Row]:
    values = [*GOOD, *BAD]
    return dict(zip(values, parse(spark, parse_access_log, values), strict=True))


@pytest.mark.parametrize("value", GOOD, ids=range(len(GOOD)))
def test_line_is_parsed_exactly(rows: dict[bytes | None, Row], value: bytes) -> None:
    row = rows[value]
    assert row.reason is None
    assert {name: row.parsed[name] for name in GOOD[value]} == GOOD[value]


@pytest.mark.parametrize("value", BAD, ids=range(len(BAD)))
def test_any_other_line_is_rejected_with_its_reason(
    rows: dict[bytes | None, Row], value: bytes | None
) -> None:
    assert rows[value].reason.text == BAD[value]
    assert rows[value].reason.code == CODES[BAD[value]]


@pytest.mark.parametrize(
    ("text", "hour"), [("10:05:03 +0000", 10), ("10:05:03 -0730", 17), ("10:05:03 +0545", 4)]
)
def test_time_is_read_with_its_zone(spark: SparkSession, text: str, hour: int) -> None:
    (row,) = parse(spark, parse_access_log, [line(time=f"17/May/2015:{text}")])
    at = datetime.fromtimestamp(row.parsed.time.timestamp(), UTC)
    assert (at.day, at.hour) == (17, hour)


def test_real_log_is_parsed_except_its_one_truncated_line(spark: SparkSession) -> None:
    """The expected counts come from other tools, such as `grep -c '" 404 '` on the file."""
    values = ACCESS_LOG.read_bytes().splitlines()
    parsed = parse(spark, parse_access_log, values)
    torn = [row for row in parsed if row.reason is not None]
    assert [row.reason.text for row in torn] == [NO_MATCH]
    assert not bytes(torn[0].value).endswith(b'"')
    good = [row.parsed for row in parsed if row.reason is None]
    assert len(good) == 9_999
    statuses = Counter(row.status for row in good)
    assert statuses == {200: 9125, 304: 445, 404: 213, 301: 164, 206: 45, 500: 3, 416: 2, 403: 2}
    assert sum(row.size_bytes is None for row in good) == sum(b' - "' in v for v in values)
