"""The parser from lines of a history to operations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conformance.histories.history import FAIL, INFO, NEVER, OK, parse


def _line(kind: str, time: int, **fields: Any) -> str:
    return json.dumps({"type": kind, "process": 1, "op": 0, "time": time, **fields})


def test_an_operation_is_its_invocation_and_its_end_in_any_order_of_lines() -> None:
    begin = _line("invoke", 1, f="send", sends=[[0, 7]])
    end = _line("ok", 2, f="send", sends=[[0, 7, 3, "ok"]])
    (op,) = parse([end, begin]).ops
    assert (op.status, op.invoked, op.ended) == (OK, 1, 2)
    assert op.sends[0] == (0, 7, 3, OK)


@pytest.mark.parametrize(
    ("events", "status"),
    [([], FAIL), (["committing"], INFO), (["committing", "fail"], FAIL), (["ok"], OK)],
)
def test_a_transaction_cut_off_before_it_asked_to_commit_has_failed(
    events: list[str], status: str
) -> None:
    lines = [_line("invoke", 1, f="txn", sends=[[0, 7]])]
    lines += [_line(kind, 2 + index, f="txn") for index, kind in enumerate(events)]
    (op,) = parse(lines).ops
    assert op.status == status
    assert (op.ended == NEVER) == (not {"ok", "fail"} & set(events))


def test_a_plain_send_without_an_end_is_unknown() -> None:
    (op,) = parse([_line("invoke", 1, f="send", sends=[[0, 7]])]).ops
    assert op.status == INFO
    assert op.status_of(op.sends[0]) == INFO


def test_faults_stuck_partitions_and_the_end_are_kept() -> None:
    lines = [
        json.dumps({"type": "test", "seed": 5}),
        json.dumps({"type": "fault", "f": "broker-kill", "time": 3}),
        json.dumps({"type": "stuck", "key": 1, "time": 4}),
        json.dumps({"type": "unaware", "began": 2, "time": 4}),
        json.dumps({"type": "final", "time": 5}),
    ]
    history = parse(lines)
    assert history.test["seed"] == 5
    assert [fault["f"] for fault in history.faults] == ["broker-kill"]
    assert len(history.stuck) == 1
    assert history.unaware == [(2, 4)]
    assert history.complete
