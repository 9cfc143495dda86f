"""Lookups in the indexes of a segment that another thread truncates at the same time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from odradek.config.log_config import LogConfig
from odradek.log.segments import log_segment, offset_index, time_index, transaction_index
from odradek.log.segments.log_segment import LogSegment
from tests.log.builders import (
    append_marker,
    append_transactional,
    open_log,
    open_manager,
)

CONFIG = LogConfig(index_interval_bytes=1)
MODULES = {each.__file__ for each in (log_segment, offset_index, time_index, transaction_index)}
ENTRIES = 10


def last_entries(segment: LogSegment) -> object:
    return segment.time_index and (
        segment.time_index.last_timestamp,
        segment.time_index.last_offset,
    )


LOOKUPS: dict[str, Callable[[LogSegment], object]] = {
    "offset": lambda segment: segment.locate(2 * ENTRIES - 1),
    "position": lambda segment: segment.offset_bound(segment.size - 1),
    "end": lambda segment: segment.next_offset(),
    "timestamp": lambda segment: segment.indexes()[1].lookup(2**60),
    "last timestamp": last_entries,
    "aborted transactions": lambda segment: list(segment.txn_index.entries()),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_lookup_at_each_moment_of_which_the_segment_is_truncated(
    tmp_path: Path, lookup: Callable[[LogSegment], object]
) -> None:
    moment = 0
    while truncated_at(tmp_path / str(moment), lookup, moment):
        moment += 1
    assert moment > 5


def truncated_at(root: Path, lookup: Callable[[LogSegment], object], moment: int) -> bool:
    """Look up, and truncate the segment before opcode number `moment`. Return whether it did."""
    log = open_log(manager := open_manager(root, CONFIG))
    for at in range(ENTRIES):
        append_transactional(log, [b"%d" % at], 1, at)
        append_marker(log, 1, committed=False)
    segment = log.segments.active
    segment.indexes()
    left = moment

    def truncate(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in MODULES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                segment.truncate_to(2)
                return None
        return truncate

    before = sys.gettrace()
    sys.settrace(truncate)
    try:
        lookup(segment)
    finally:
        sys.settrace(before)
        manager.close(clean=False)
    return left < 0
