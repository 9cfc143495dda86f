"""Truncation of many logs at once, off the event loop, with one sync.

A follower truncates its logs before it fetches from a new leader (KIP-101, KIP-279). After a
restart these are all logs of a broker. `LogTruncations` prepares the logs on the thread that owns
them. `execute` runs on another thread. Until it returns, each log belongs to it: `is_truncating` is
True, and nothing may append to the log. When it returns, the truncation is on the disk. A follower
must not fetch before that. Otherwise a power cut could restore removed batches behind new ones.

The steps for each log directory, with the state that a crash leaves:

1. Write the offset checkpoints, with recovery points at or below the new ends. After a crash from
   here on, recovery reads each log from its new end or an earlier offset. The cleaner's
   file is the last one, with compacted offsets at or below the new ends. A crash between two files
   leaves the log as it was. Each old or new entry is valid for that log: a lower compacted offset
   only has the cleaner compact the records again. A crash before step 2 may lose the batches after
   a gap that compaction has left above the lowered offsets, as step 2 would.
2. Rename the later segments, the last one first, then cut the segment with the new end. A crash
   leaves the log as it was, or without some of its last segments, or truncated.
3. Sync the files and names of all logs. Before this step a power cut may undo any part of step 2.
   Nothing was appended, so all batches in the log are old batches.

After such a crash the follower finds the divergence again, and truncates again.

A log that begins inside a batch has a segment whose base offset is below the log start. Until that
batch is appended the segment is empty, and its log start is in the checkpoint of step 1. A start
finds that the segment ends below the log start, and makes an empty segment at the log start. The
follower then truncates again. After the append, recovery reads the batch from that segment.

Batches above the high watermark are cut off in place, because a leader copies them into its
responses. Batches below it are sent by sendfile, which hands over pages of the file. If an unclean
election removes them, the remaining batches are copied to a new file, and readers keep the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.errors import KafkaError
from odradek.log.file_pool import NO_SPACE_ERRNOS
from odradek.log.log_dir import LogDir
from odradek.log.unified_log import UnifiedLog

LOGS_SYNCED_ALONE_MAX = 8
"""Up to this number of logs in a directory, their files are synced one by one. More logs share one
sync of the whole file system, which also writes the data of other files.
"""


class LogTruncations:
    """Logs that are truncated together. A log can be truncated only once.

    The owner of the logs calls `truncate_to` and `truncate_fully_and_start_at`. Any thread may call
    `execute`.
    """

    def __init__(self) -> None:
        self._logs: dict[LogDir, list[UnifiedLog]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._logs.values()))

    def truncate_to(self, log: UnifiedLog, offset: int) -> bool:
        """Remove the batch that contains `offset` and all later batches.

        An offset inside a batch removes the whole batch, so that the log ends at a batch boundary.
        An offset below the log leaves an empty log that starts there.

        Returns:
            Whether the log has such batches. Otherwise only epochs without a record are removed,
            and the log can be used at once.
        """
        return self._add(log, log.prepare_truncation(offset))

    def truncate_fully_and_start_at(
        self, log: UnifiedLog, offset: int, base_offset: int | None = None
    ) -> None:
        """Remove all batches. The log starts and ends at `offset`, and has no epochs.

        Args:
            log: The log.
            offset: Its new start and end.
            base_offset: The base offset of its segment, if the first batch will begin below
                `offset` (`UnexpectedAppendOffset`).
        """
        base_offset = offset if base_offset is None else base_offset
        self._add(log, log.prepare_truncation(offset, base=base_offset))

    def _add(self, log: UnifiedLog, is_needed: bool) -> bool:
        if is_needed:
            self._logs.setdefault(log.log_dir, []).append(log)
        return is_needed

    def execute(self) -> Mapping[UnifiedLog, KafkaError]:
        """Truncate the logs. Return when the truncations are on the disk.

        An I/O error takes the log directory offline. After a full disk, `execute` may be called
        again: the failed logs are still truncating.

        Returns:
            The logs that are not truncated, with KAFKA_STORAGE_ERROR.
        """
        failed: dict[UnifiedLog, KafkaError] = {}
        for log_dir, logs in self._logs.items():
            waiting = [log for log in logs if log.is_truncating]
            if log_dir.offline:
                failed.update(dict.fromkeys(waiting, log_dir.error()))
                continue
            try:
                log_dir.write_checkpoints()
                for log in waiting:
                    with log_dir.truncating(log.topic_partition):
                        _unless_closed(log, log.cut)
                    if log.closed:
                        # The cut may have added segments after `close` has retired the others.
                        for segment in log.segments:
                            segment.retire()
                _sync(log_dir, waiting)
            except OSError as error:
                what = f"truncating {len(waiting)} logs"
                if error.errno in NO_SPACE_ERRNOS:
                    problem = log_dir.append_refused(error, f"{what}: {error}")
                else:
                    problem = log_dir.io_failed(error, what)
                failed.update(dict.fromkeys(waiting, problem))
                continue
            for log in waiting:
                log.end_truncation()
        return failed


def _sync(log_dir: LogDir, logs: Sequence[UnifiedLog]) -> None:
    if len(logs) > LOGS_SYNCED_ALONE_MAX:
        log_dir.files.sync(log_dir.path)
        return
    for log in logs:
        _unless_closed(log, log.flusher.sync_truncated)


def _unless_closed(log: UnifiedLog, step: Callable[[], None]) -> None:
    """Carry out a step, and ignore its error if the log was closed.

    The owner may delete a log at any time. The directory of a deleted log has another name.
    """
    try:
        step()
    except (OSError, KafkaError):
        if not log.closed:
            raise


def truncate_to(log: UnifiedLog, offset: int) -> None:
    """Truncate one log on this thread; see `LogTruncations.truncate_to`.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    truncations = LogTruncations()
    truncations.truncate_to(log, offset)
    for error in truncations.execute().values():
        raise error
