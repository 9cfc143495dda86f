"""The ledger of the kill tests finds each kind of error in a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pipeline.ledger import Entry, RecordLocation, Rows, differences

TOPIC = {
    RecordLocation("t", 0, offset): Entry(1000 + offset, b"k", (), offset) for offset in range(4)
}
BAD = RecordLocation("t", 1, 0)
TOPIC[BAD] = Entry(2000, None, (("h", b"1"),), b'{"n":')


def right() -> tuple[Rows, Rows]:
    table = [(location, entry) for location, entry in TOPIC.items() if location != BAD]
    return table, [(BAD, TOPIC[BAD])]


def test_right_tables_have_no_differences() -> None:
    assert differences(TOPIC, *right()) == []


@pytest.mark.parametrize("side", [0, 1], ids=["table", "quarantine"])
def test_missing_doubled_and_altered_rows_are_found(side: int) -> None:
    sides = right()
    location, entry = sides[side].pop()
    assert differences(TOPIC, *sides) == [f"{location} is missing"]
    sides[side].extend([(location, entry), (location, entry)])
    assert differences(TOPIC, *sides) == [f"{location} occurs 2 times"]
    sides[side][-2:] = [(location, replace(entry, timestamp_ms=7))]
    assert differences(TOPIC, *sides) == [f"{location} is altered"]


def test_row_in_both_tables_is_found() -> None:
    table, quarantine = right()
    quarantine.append(table[0])
    assert differences(TOPIC, table, quarantine) == [f"{table[0][0]} occurs 2 times"]


def test_row_in_the_wrong_table_is_found() -> None:
    table, quarantine = right()
    location, entry = table.pop()
    quarantine.append((location, replace(entry, value=b"raw")))
    assert differences(TOPIC, table, quarantine) == [f"{location} is altered"]


def test_row_that_is_not_in_the_topic_is_found() -> None:
    table, quarantine = right()
    nowhere = RecordLocation("t", 9, 9)
    table.append((nowhere, Entry(0, None, (), 0)))
    assert differences(TOPIC, table, quarantine) == [f"{nowhere} is not in the topic"]
