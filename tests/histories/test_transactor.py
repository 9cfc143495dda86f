"""A transactional client whose library does not return."""

from __future__ import annotations

import threading
from random import Random
from typing import Any, cast

import pytest
from conformance.histories import transactor
from conformance.histories.history import FAIL
from conformance.histories.sender import Outbox
from conformance.histories.settings import Recorder, Settings
from conformance.histories.transactor import Transactor

LIMIT_S = 60.0


class _Recorder(Recorder):
    """Notes that the client gives up, and does not end the process."""

    def __init__(self) -> None:
        super().__init__(process=1)
        self.gave_up = threading.Event()
        self.kind = ""

    def give_up(self, kind: str, error: object, **fields: Any) -> None:
        self.kind = kind
        self.gave_up.set()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Transactor:
    monkeypatch.setattr(Transactor, "_seen", lambda *_: {})
    return Transactor(cast("Settings", _NoSettings()), _Recorder(), Random(1))


class _NoSettings:
    def values(self) -> list[int]:
        return []


def test_a_client_gives_up_if_offsets_are_not_sent_in_time(
    client: Transactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactor, "DEADLINE_S", 0.0)
    monkeypatch.setattr(transactor, "LATE_S", 0.01)
    record = cast("_Recorder", client.record)
    with client._bounded(cast("Outbox", None)):
        assert record.gave_up.wait(LIMIT_S)
    assert record.kind == FAIL


def test_a_client_does_not_give_up_after_the_call(client: Transactor) -> None:
    with client._bounded(cast("Outbox", None)):
        (timer,) = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    timer.join(LIMIT_S)
    assert not cast("_Recorder", client.record).gave_up.is_set()
