"""The position of an offset in a segment: the index, compared with a linear search."""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from odradek.environment.files import RealFiles
from odradek.log.file_pool import FilePool
from odradek.log.segments.log_segment import LARGE_GAP_BYTES, IndexCache, LogSegment
from odradek.records.batch import HEADER_BYTES, LOG_OVERHEAD, OFFSETS

BASE_OFFSET = 1000
LARGE = 3 * LARGE_GAP_BYTES

# Of each batch: its size, the offsets missing before it (compaction), and its last offset delta.
batches = st.lists(
    st.tuples(
        st.one_of(st.integers(HEADER_BYTES, 300), st.integers(LARGE_GAP_BYTES - 50, LARGE)),
        st.sampled_from([0, 0, 0, 1, 5]),
        st.sampled_from([0, 0, 1, 7]),
    ),
    min_size=1,
    max_size=25,
)


class CountingFiles(RealFiles):
    """Files that record the sizes of reads."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def pread(self, fd: int, length: int, position: int) -> bytes:  # type: ignore[override]
        self.reads.append(length)
        return RealFiles.pread(fd, length, position)


def segment_of(
    directory: str, sizes: list[tuple[int, int, int]], index_interval_bytes: int = 4096
) -> tuple[LogSegment, list[tuple[int, int, int]]]:
    """Return a segment of such batches, and (last offset, position, size) of each."""
    pool = FilePool(CountingFiles(), 10)
    segment = LogSegment(directory, BASE_OFFSET, pool, IndexCache(), size=0, created_ms=0)
    segment.create_files()
    segment.make_active()
    segment.index_interval_bytes = index_interval_bytes
    segment.set_index_limit(1 << 20)
    written, offset = [], BASE_OFFSET
    for size, missing, delta in sizes:
        offset += missing
        batch = bytearray(size)
        OFFSETS.pack_into(batch, 0, offset, size - LOG_OVERHEAD, delta)
        written.append((offset + delta, segment.size, size))
        segment.append(batch, size, offset + delta, 0)
        offset += delta + 1
    return segment, written


@given(batches, st.sampled_from([100, 4096, 20_000]))
def test_every_offset_is_found_as_by_a_linear_search(
    sizes: list[tuple[int, int, int]], index_interval_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        segment, written = segment_of(directory, sizes, index_interval_bytes)
        for offset in range(BASE_OFFSET, written[-1][0] + 2):
            walked = (location for last, *location in written if last >= offset)
            expected = next(walked, None)
            found = segment.locate(offset)
            assert found == (None if expected is None else tuple(expected)), offset


def test_the_offset_of_a_large_batch_is_found_by_one_read(tmp_path) -> None:
    segment, written = segment_of(str(tmp_path), [(LARGE, 0, 9)] * 5)
    files = segment._pool.files
    segment.indexes()
    for number in range(1, 5):
        files.reads.clear()
        assert segment.locate(BASE_OFFSET + 10 * number) == written[number][1:]
        assert len(files.reads) == 1


def test_a_file_cut_short_under_its_index_has_no_batch_there(tmp_path) -> None:
    segment, written = segment_of(str(tmp_path), [(LARGE, 0, 9)] * 5)
    segment._pool.files.ftruncate(segment.file.open().fd, written[1][1] + 5)
    assert segment.locate(BASE_OFFSET + 10) is None
    assert segment.locate(BASE_OFFSET) == written[0][1:]
