"""The process of a broker: forced fallbacks, and the interval in which its threads switch.

The second run of `make test` relies on the fallbacks: no uvloop, sendfile and RWF_NOWAIT.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from typing import Any

import pytest
import uvloop

from odradek.broker import main
from odradek.broker.main import FORCE_FALLBACKS, SWITCH_INTERVAL_S
from odradek.config.broker import BrokerConfig
from odradek.environment.files import RealFiles
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient

BYTES = 200_000


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of the calls that the fallbacks must not make."""
    counted: Counter[str] = Counter()
    sendfile, preadv = os.sendfile, os.preadv

    def counting_sendfile(*arguments: Any) -> int:
        counted["sendfile"] += 1
        return sendfile(*arguments)

    def counting_preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        counted["RWF_NOWAIT"] += bool(flags & os.RWF_NOWAIT)
        return preadv(fd, buffers, offset, flags)

    monkeypatch.setattr(RealFiles, "sendfile", staticmethod(counting_sendfile))
    monkeypatch.setattr(RealFiles, "preadv", staticmethod(counting_preadv))
    return counted


@pytest.mark.parametrize("forced", [False, True])
def test_forced_fallbacks_use_neither_uvloop_nor_sendfile_nor_rwf_nowait(
    monkeypatch: pytest.MonkeyPatch, calls: Counter[str], forced: bool
) -> None:
    monkeypatch.setenv(FORCE_FALLBACKS, "1" if forced else "")
    records = batch(bytes(BYTES))
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        loop: asyncio.AbstractEventLoop | None = broker._loop
        assert isinstance(loop, uvloop.Loop) is not forced
        broker.create_topic("t")
        client.call(produce(records=records), 9)
        got = client.call(fetch(), 11).responses[0].partitions[0].records
    assert bytes(got)[-BYTES:] == bytes(records)[-BYTES:]
    assert (calls["sendfile"] == 0) is forced
    assert (calls["RWF_NOWAIT"] == 0) is forced


def test_a_thread_passes_the_interpreter_on_soon_in_the_process_of_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intervals: list[float] = []

    async def serve(*_: object) -> None:
        assert intervals == [SWITCH_INTERVAL_S]
        raise OSError("ended")

    monkeypatch.setattr(sys, "setswitchinterval", intervals.append)
    monkeypatch.setattr(main, "_serve", serve)
    with pytest.raises(SystemExit):
        main.run(BrokerConfig.from_properties({}))
    assert intervals == [SWITCH_INTERVAL_S]
