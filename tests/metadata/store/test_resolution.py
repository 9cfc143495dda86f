"""Writes whose response was lost: the outcome that is read is the outcome that happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.environment.timers import LoopTimers
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    BadVersionError,
    Create,
    NodeExistsError,
    NotConnectedError,
    Operation,
    Performed,
    SessionLostError,
    Set,
    StoreFailure,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.resolution import (
    SupersededError,
    applied_writes,
    create_ephemeral,
    settled_node,
    write_with_version_node,
)
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.virtual_loop import run_virtually

WRITERS = 3
WRITES = 12
BREAKING = EnsembleConditions(
    servers=3,
    session_timeout_ms=2_000,
    lag_ms=(0, 300),
    latency_ms=(0, 50),
    notice_ms=(0, 200),
    reconnect_ms=(0, 500),
    requests_lost_per_mille=100,
    responses_lost_per_mille=200,
)
LATENT = EnsembleConditions(latency_ms=(1, 20))


class RecordedEnsemble(MemoryEnsemble):
    """An ensemble that keeps the data of every Set that was executed."""

    def __init__(self, seed: int, conditions: EnsembleConditions = BREAKING) -> None:
        super().__init__(conditions, randomness=SeededRandomness(seed), timers=LoopTimers())
        self.executed: list[bytes] = []

    def write(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        performed = super().write(operations, session_id)
        self.executed += [each.data for each in operations if isinstance(each, Set)]
        return performed


class Outcomes:
    """The reported outcomes of all writes."""

    def __init__(self) -> None:
        self.happened: list[bytes] = []
        self.did_not_happen: list[bytes] = []
        self.unknown: list[bytes] = []


async def opened(ensemble: MemoryEnsemble) -> MemoryStore:
    store = MemoryStore(ensemble, timers=LoopTimers())
    await store.open()
    return store


async def write_many(store: MemoryStore, name: str, outcomes: Outcomes) -> None:
    """Write with the version that was read last, as a controller does."""
    for number in range(WRITES):
        data = f"{name} {number}".encode()
        try:
            node = await settled_node(store, "/version")
            assert node is not None
            await write_with_version_node(store, [], Set("/version", data, node.version))
        except SessionLostError:
            outcomes.unknown.append(data)
            await store.close()
            await store.open()
        except UnknownOutcomeError:
            outcomes.unknown.append(data)
        except (StoreFailure, BadVersionError):
            outcomes.did_not_happen.append(data)
        else:
            outcomes.happened.append(data)


@given(seed=st.integers(0, 2**32))
@example(seed=1)
@settings(max_examples=60, deadline=None)
def test_a_resolved_write_has_happened_exactly_once_or_never(seed: int) -> None:
    async def scenario() -> None:
        ensemble = RecordedEnsemble(seed)
        ensemble.write([Create("/version")], ensemble.begin_session(_NoClient()))
        outcomes = Outcomes()
        stores = [await opened(ensemble) for _ in range(WRITERS)]
        await asyncio.gather(
            *(write_many(store, f"w{n}", outcomes) for n, store in enumerate(stores))
        )
        executed = Counter(ensemble.executed)
        assert set(executed.values()) <= {1}
        assert set(outcomes.happened) <= set(executed)
        assert not set(outcomes.did_not_happen) & set(executed)
        assert len(outcomes.happened) > 0

    run_virtually(scenario())


class _NoClient:
    """The client of a session that only writes."""

    def notify(self, *_: object) -> None: ...

    def disconnect(self) -> None: ...

    def reconnect(self) -> None: ...


@given(seed=st.integers(0, 2**32), cut_ms=st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_of_writes_in_flight_the_executed_ones_are_counted(seed: int, cut_ms: int) -> None:
    async def scenario() -> None:
        ensemble = RecordedEnsemble(seed, LATENT)
        store = await opened(ensemble)
        await store.create("/version")
        contents = [f"{number}".encode() for number in range(6)]
        writes = [
            asyncio.create_task(store.multi([Set("/version", data, version)]))
            for version, data in enumerate(contents)
        ]
        asyncio.get_running_loop().call_later(cut_ms / 1000, store.disconnect)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        returned = [each for each in outcomes if not isinstance(each, BaseException)]
        lost = outcomes[len(returned) :]
        assert all(isinstance(each, UnknownOutcomeError) for each in lost)
        node = await settled_node(store, "/version")
        assert node is not None
        count = applied_writes(node, 0, contents)
        assert count == len(ensemble.executed) >= len(returned)
        await store.close()

    run_virtually(scenario())


def test_a_version_that_another_writer_has_set_decides_nothing() -> None:
    async def scenario() -> None:
        ensemble = RecordedEnsemble(0, EnsembleConditions())
        first, second = await opened(ensemble), await opened(ensemble)
        await first.create("/version")
        first.lose_next_response()
        write = asyncio.create_task(
            write_with_version_node(first, [], Set("/version", b"first", 0))
        )
        await asyncio.sleep(0)
        await second.set("/version", b"second", 1)
        with pytest.raises(SupersededError):
            await write

    run_virtually(scenario())


EPHEMERAL = "/brokers"


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_an_ephemeral_node_has_one_owner_which_knows_it(seed: int) -> None:
    async def register(ensemble: MemoryEnsemble, name: str) -> MemoryStore | None:
        store = await opened(ensemble)
        for _ in range(4):
            try:
                created = await create_ephemeral(store, EPHEMERAL, name.encode())
            except NodeExistsError:
                return None
            except NotConnectedError:
                assert ensemble.tree.ephemerals_of(store.session_id) == []
                try:
                    await store.connected()
                except SessionLostError:
                    return None
            except SessionLostError:
                await store.close()
                await store.open()
            else:
                assert created.stat.ephemeral_owner == store.session_id
                return store
        return None

    async def scenario() -> None:
        ensemble = RecordedEnsemble(seed)
        found = await asyncio.gather(*(register(ensemble, f"b{n}") for n in range(3)))
        owners = {store.session_id for store in found if store is not None}
        node = ensemble.tree.find(EPHEMERAL)
        assert node is None or node.stat.ephemeral_owner in owners

    run_virtually(scenario())
