"""Reader of the ``__cluster_metadata`` log of a stopped Apache Kafka. It never writes to the log.

The directory has snapshots, ``<end offset>-<epoch>.checkpoint``, and segments like any topic. A
snapshot has the state after all records before its end offset. The value of a record is a frame
version (1), the type and the version of the message, each an unsigned varint, and the message
(``MetadataRecordSerde``). Control batches belong to Raft and are ignored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from odradek.environment.files import Files, read_file
from odradek.log.segments.log_segment import LOG_SUFFIX
from odradek.metadata.records import Frame, read_frame
from odradek.records.batch import CONTROL_MASK, HEADER_BYTES, MAGIC_V2, crc_is_valid, parse_header
from odradek.records.record import CorruptRecord, iter_batches, iter_records

_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint\Z")
_SEGMENT = re.compile(r"(\d{20})" + re.escape(LOG_SUFFIX) + r"\Z")
_logger = logging.getLogger(__name__)


class UnreadableMetadata(OSError):
    """Kafka's metadata cannot be imported. The message is one clear line for the operator."""


def read_frames(files: Files, directory: str) -> Iterator[Frame]:
    """Yield the records of the newest whole snapshot, then the records of the log after it.

    The log ends before the first batch that a crash has torn, as in Kafka's recovery.

    Raises:
        UnreadableMetadata: Records are missing or cannot be read.
        OSError: A file cannot be read.
    """
    end_offset, frames = _newest_snapshot(files, directory)
    yield from frames
    yield from _log_frames(files, directory, end_offset)


def _newest_snapshot(files: Files, directory: str) -> tuple[int, list[Frame]]:
    """Return end offset and records of the newest snapshot that is whole. 0 if there is none."""
    for end_offset, path in reversed(_matching(files, directory, _SNAPSHOT)):
        data = read_file(files, path)
        batches = list(_whole_batches(data))
        if data and sum(map(len, batches)) == len(data):
            return end_offset, [frame for batch in batches for frame in _frames(path, batch, 0)]
        _logger.warning("the snapshot %s is incomplete. The one before it is used", path)
    return 0, []


def _log_frames(files: Files, directory: str, start_offset: int) -> Iterator[Frame]:
    """Yield the records of the segments from an offset on."""
    segments = _matching(files, directory, _SEGMENT)
    next_offset = segments[0][0] if segments else start_offset
    if next_offset > start_offset:
        raise UnreadableMetadata(
            f"{directory} lacks the records from {start_offset} to {next_offset - 1}. "
            "Restore its missing files"
        )
    for base_offset, path in segments:
        if base_offset != next_offset:
            raise UnreadableMetadata(
                f"{directory} lacks the records from {next_offset} to {base_offset - 1}. "
                "Restore its missing files"
            )
        data = read_file(files, path)
        position = 0
        for batch in _whole_batches(data):
            header = parse_header(batch)
            if header.base_offset != next_offset:
                break
            next_offset = header.last_offset + 1
            position += len(batch)
            if next_offset > start_offset:
                yield from _frames(path, batch, start_offset)
        if position < len(data):
            _logger.warning(
                "%s ends in an incomplete batch. Its %d bytes are not imported",
                path,
                len(data) - position,
            )


def _matching(files: Files, directory: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return (number in the name, path) of the files whose names match, in order."""
    found = ((pattern.match(name), name) for name in files.listdir(directory))
    return sorted((int(match[1]), f"{directory}/{name}") for match, name in found if match)


def _whole_batches(data: bytes) -> Iterator[memoryview]:
    """Yield the batches in front of the first batch that is torn or has a wrong CRC."""
    for batch in iter_batches(data):
        if len(batch) < HEADER_BYTES or parse_header(batch).magic != MAGIC_V2:
            return
        if not crc_is_valid(batch):
            return
        yield batch


def _frames(path: str, batch: memoryview, start_offset: int) -> Iterator[Frame]:
    """Yield the records of one batch from an offset on."""
    if parse_header(batch).attributes & CONTROL_MASK:
        return
    try:
        for record in iter_records(batch):
            if record.offset >= start_offset and record.value is not None:
                yield read_frame(record.value)
    except (CorruptRecord, ValueError) as error:
        raise UnreadableMetadata(
            f"{path} cannot be read: {error}. Restore the file, or see docs/from-kafka.md"
        ) from error
