"""Making a log durable, from any thread: what one fsync promises, and what it must cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.environment.files import READ, OpenFile
from odradek.log.state import checkpoints
from odradek.log.state.producer_files import sync_producer_files

if TYPE_CHECKING:
    from odradek.log.unified_log import UnifiedLog


def flush_to(log: UnifiedLog, offset: int) -> None:
    """Returns when all below `offset` is on the disk. Calls that wait for one another share an
    fsync; KAFKA_STORAGE_ERROR, and the directory is offline, when it fails.
    """
    with log.flush_lock:
        if offset <= log.recovery_point:
            return
        if log.log_dir.offline or log.closed:
            raise log.log_dir.error()
        end = offset if offset <= log.active.base_offset else log.log_end_offset
        try:
            sync_segments(log, end)
        except OSError as error:
            if log.closed:
                raise log.log_dir.error("the log was closed") from error
            raise log.log_dir.fail(error, f"flushing {log.topic_partition}") from error
        log.recovery_point = max(log.recovery_point, end)


def sync_segments(log: UnifiedLog, end: int) -> None:
    """Syncs every segment between the recovery point and `end`, with the producers as of its end.

    The indexes of the active segment need no sync: recovery reads it again from its beginning.
    """
    segments = list(log.segments)
    files = log.log_dir.files
    for at, segment in enumerate(segments):
        next_base = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if segment.base_offset >= end or (next_base or end + 1) <= log.recovery_point:
            continue
        segment.flush(indexes=next_base is not None)
        if next_base is not None:
            sync_producer_files(files, log.directory, next_base)
    if not log.directory_synced:
        for name in (checkpoints.LEADER_EPOCH_FILE, checkpoints.PARTITION_METADATA_FILE):
            _sync_file(log, f"{log.directory}/{name}")
        files.fsync_dir(log.directory)
        log.directory_synced = True


def _sync_file(log: UnifiedLog, path: str) -> None:
    files = log.log_dir.files
    try:
        handle = OpenFile(files, files.open(path, READ))
    except FileNotFoundError:
        return
    files.fsync(handle.fd)
