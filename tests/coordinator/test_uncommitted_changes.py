"""The committed view of a state: values kept for one record, and for all records of a write."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.coordinator import uncommitted_changes
from odradek.coordinator.uncommitted_changes import UncommittedChanges

KEYS = "abc"
writes = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9)), min_size=1)


@pytest.fixture(autouse=True, params=[1, 3], ids=["blocks", "long-blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep few keys as a block, too."""
    monkeypatch.setattr(uncommitted_changes, "BLOCK_KEYS_MIN", request.param)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.integers(0, 40) | st.tuples(st.booleans(), writes), max_size=12))
def test_a_write_that_is_kept_whole_equals_its_records(
    history: list[int | tuple[bool, list[tuple[str, int | None]]]],
) -> None:
    """A number in the history commits all records up to that offset of the end of a write."""
    single: UncommittedChanges[str, int] = UncommittedChanges()
    mixed: UncommittedChanges[str, int] = UncommittedChanges()
    latest: dict[str, int | None] = dict.fromkeys(KEYS)
    ends = [0]
    for event in history:
        if isinstance(event, int):
            offset = ends[event % len(ends)]
            single.commit(offset)
            mixed.commit(offset)
        else:
            whole, records = event
            last = ends[-1] + len(records)
            if whole:
                keys = [key for key, _ in records]
                mixed.keep_all(last, keys, list(map(latest.get, keys)))
            for offset, (key, value) in enumerate(records, ends[-1] + 1):
                single.keep(key, offset, latest[key])
                if not whole:
                    mixed.keep(key, offset, latest[key])
                latest[key] = value
            ends.append(last)
        assert bool(mixed) == bool(single)
        assert set(mixed) == set(single) == {key for key in KEYS if key in mixed}
        assert len(list(mixed)) == len(set(mixed))
        expected = {key: single.committed(key, latest[key]) for key in KEYS}
        assert {key: mixed.committed(key, latest[key]) for key in KEYS} == expected
        assert mixed.kept() == single.kept() == {key: expected[key] for key in single}
