"""Reads for followers: the region ends at the high watermark, and the rest is a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import KafkaError
from odradek.log.follower_read import read_for_follower
from odradek.log.residency import NotResident
from odradek.log.truncation import truncate_to
from odradek.records.record import iter_batches, iter_records
from tests.helpers.slow_files import SlowFiles
from tests.log.builders import append, open_log, open_manager

CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=200)
BATCHES = 30


@settings(max_examples=60, deadline=None)
@given(
    offset=st.integers(0, BATCHES),
    high_watermark=st.integers(0, BATCHES),
    max_bytes=st.sampled_from([1, 300, 10**6]),
    wait=st.booleans(),
)
def test_region_and_copy_are_the_read_and_only_committed_records_are_in_the_region(
    tmp_path_factory: pytest.TempPathFactory,
    offset: int,
    high_watermark: int,
    max_bytes: int,
    wait: bool,
) -> None:
    manager = open_manager(tmp_path_factory.mktemp("read"), CONFIG)
    log = open_log(manager)
    for at in range(BATCHES):
        append(log, [b"%03d" % at * 30])
    whole = log.read(offset, max_bytes, log.log_end_offset, min_one_message=True).region
    found = read_for_follower(log, offset, max_bytes, high_watermark, wait=wait)
    region = b"" if found.region is None else found.region.read()
    assert region + found.copied == (b"" if whole is None else whole.read())
    committed = [record.offset for each in iter_batches(region) for record in iter_records(each)]
    assert all(each < high_watermark for each in committed)
    if max_bytes > 1_000 and found.copied:
        first = next(iter_records(next(iter_batches(found.copied))))
        assert first.offset >= high_watermark
    manager.close(clean=False)


def test_truncation_above_the_high_watermark_does_not_change_a_response(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    for at in range(6):
        append(log, [b"%03d" % at * 30])
    log.high_watermark = 3
    found = read_for_follower(log, 0, 10**6, log.high_watermark, wait=False)
    assert found.region is not None
    before = (found.region.read(), bytes(found.copied))
    truncate_to(log, 4)
    append(log, [b"of another leader"], 9)
    assert (found.region.read(), bytes(found.copied)) == before
    assert not log.confirm(0, found)
    manager.close()


def test_read_that_would_wait_for_the_disk_is_not_made_on_the_loop(tmp_path: Path) -> None:
    files = SlowFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    for at in range(6):
        append(log, [b"%03d" % at * 30])
    files.evict()
    with pytest.raises(NotResident):
        read_for_follower(log, 0, 10**6, 3, wait=False)
    found = read_for_follower(log, 0, 10**6, 3, wait=True)
    assert found.region is not None and found.copied
    with pytest.raises(KafkaError):
        read_for_follower(log, 99, 10**6, 3, wait=True)
    manager.close()
