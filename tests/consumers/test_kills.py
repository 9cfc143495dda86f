"""Consumers of a group in ZooKeeper while they and a broker are killed, and the check of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.zookeeper_consumer.harness import PROGRAM, SESSION_LOST, Output, Verdict, check, run

KILLED = True


def _line(time: int, offset: int, claim: int) -> str:
    """Return the line for a record of partition 0, whose value is the offset."""
    return f"{time} 0 {offset} {claim} {offset}"


def _verdict(*outputs: tuple[list[str], bool], records: int = 4) -> Verdict:
    return check([Output(*each) for each in outputs], records)


ORDERLY = ([_line(1, 0, 7), _line(2, 1, 7)], not KILLED)


def test_a_claim_that_continues_a_released_one_has_no_findings() -> None:
    later = ([_line(3, 2, 9), _line(4, 3, 9), "committed"], not KILLED)
    assert _verdict(later, ORDERLY) == Verdict(2, 0, 0, 0, 0, 0, 0)


def test_a_record_without_a_delivery_is_lost() -> None:
    found = _verdict(ORDERLY)
    assert found.lost == 2
    assert found.unexplained == 0


def test_a_record_that_the_next_claim_leaves_out_is_skipped() -> None:
    assert _verdict(ORDERLY, ([_line(3, 3, 9)], not KILLED)).skipped == 1


def test_an_earlier_claim_that_delivers_after_a_later_one_overlaps() -> None:
    earlier = ([_line(1, 0, 7), _line(4, 1, 7)], KILLED)
    assert _verdict(earlier, ([_line(3, 1, 9)], not KILLED)).overlaps == 1


def test_a_repeated_record_after_a_release_is_unexplained() -> None:
    found = _verdict(ORDERLY, ([_line(3, 1, 9)], not KILLED))
    assert (found.doubled, found.unexplained) == (1, 1)


def test_a_repeated_record_after_a_kill_is_explained() -> None:
    killed = ([_line(1, 0, 7), "committed", _line(2, 1, 7)], KILLED)
    found = _verdict(killed, ([_line(3, 1, 9)], not KILLED))
    assert (found.doubled, found.unexplained) == (1, 0)


def test_a_repeated_record_before_the_last_commit_is_unexplained() -> None:
    killed = ([_line(1, 0, 7), "committed", _line(2, 1, 7)], KILLED)
    found = _verdict(killed, ([_line(3, 0, 9), _line(4, 1, 9)], not KILLED))
    assert (found.doubled, found.unexplained) == (2, 1)


def test_a_repeated_record_after_a_lost_session_is_explained() -> None:
    output = [_line(1, 0, 7), f"a {SESSION_LOST}", "committed", _line(3, 0, 9), "committed"]
    found = _verdict((output, not KILLED))
    assert (found.lost_sessions, found.doubled, found.unexplained) == (1, 1, 0)


def test_the_program_describes_its_usage() -> None:
    assert "python examples/zookeeper_consumer/consume.py HOST:PORT/PATH GROUP TOPIC" in (
        PROGRAM.read_text("utf-8")
    )


@pytest.mark.timeout(900)
def test_no_record_is_lost_and_no_partition_has_two_owners(tmp_path: Path, seed: int) -> None:
    found, records = run(tmp_path, consumers=2, brokers=1, kills=1, seed=seed)
    assert records >= 480
    assert found.claims >= 6
    assert (found.lost, found.skipped, found.overlaps, found.unexplained) == (0, 0, 0, 0)
