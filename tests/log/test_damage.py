"""Damage of any kind to any file: a start after a crash never fails and shows no wrong record."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import KafkaError
from tests.log.builders import TP, append, offset_for_timestamp, open_log, open_manager, read_all

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)
BATCHES = 30
SUFFIXES = [
    ".log",
    ".index",
    ".timeindex",
    ".snapshot",
    ".odradek-window",
    "-checkpoint",
    ".metadata",
]


def written(root: Path) -> list[bytes]:
    manager = open_manager(root, CONFIG)
    log = open_log(manager)
    values = [b"%03d" % at * 20 for at in range(BATCHES)]
    for at, value in enumerate(values):
        append(log, [value], at // 10, producer_id=1, producer_epoch=0, base_sequence=at)
    manager.checkpoint()
    manager.close(clean=False)
    return values


def damage(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    kind = data.draw(
        st.sampled_from(["remove", "empty", "cut", "flip", "zeros", "noise", "longer"])
    )
    at = data.draw(st.integers(0, max(len(content) - 1, 0)), label="at")
    if kind == "remove":
        path.unlink()
        return
    if kind == "empty":
        content = bytearray()
    elif kind == "cut":
        del content[at:]
    elif kind == "flip" and content:
        content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    elif kind == "zeros":
        content[at:] = bytes(len(content) - at)
    elif kind == "noise":
        content[at:] = data.draw(st.binary(max_size=200), label="noise")
    else:
        content += data.draw(st.binary(max_size=200), label="more")
    path.write_bytes(content)


@given(data=st.data())
def test_log_is_a_prefix_and_accepts_appends_after_any_damage(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("damage")
    values = written(root)
    paths = sorted(
        path for path in (root / str(TP)).iterdir() if path.name.endswith(tuple(SUFFIXES))
    )
    paths += [root / "recovery-point-offset-checkpoint", root / "replication-offset-checkpoint"]
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True)):
        damage(path, data)
    manager = open_manager(root, CONFIG)
    log = open_log(manager)
    start = log.log_start_offset
    found = [record.value for record in read_all(log)]
    assert found == values[start : start + len(found)]
    try:
        append(log, [b"next"], 3)
        assert read_all(log)[-1].value == b"next"
    except KafkaError as error:
        raise AssertionError(f"appending after damage: {error}") from error
    offset_for_timestamp(log, 0)
    log.end_offset_for_epoch(1)
    manager.close()
    manager = open_manager(root, CONFIG)
    assert [record.value for record in read_all(open_log(manager))] == [*found, b"next"]
    manager.close()
