"""The logs of a broker: loaded, created, deleted, checkpointed, and closed together.

A log directory holds `.lock`, `meta.properties`, the offset checkpoints, and a directory for each
partition (``topic-0``). After a clean stop it also has `.kafka_cleanshutdown`, or
`odradek-closed-unsynced` if there was no time to sync all logs (`checkpoints`). The directory of a
deleted partition is renamed to ``topic-0.<uuid>-delete`` and removed later. A log that belongs to
no topic and has the name of a new one is renamed to ``topic-0.<uuid>-stray`` and kept. When Kafka
moves a replica to another log directory, it copies it to ``topic-0.<uuid>-future``. Such a copy is
neither read nor removed.

The owner of the logs (the event loop) calls `get`, `create`, `delete`, `retain` and `close`.
`maintain` waits for the disk and runs on another thread.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial

from odradek.config.log_config import LogConfig
from odradek.environment.clock import Clock
from odradek.environment.executors import Executors
from odradek.environment.files import (
    FileLock,
    Files,
    RealFiles,
    make_directories,
    unlink_if_exists,
)
from odradek.environment.randomness import Randomness, SystemRandomness
from odradek.environment.thread_pool import ThreadExecutors
from odradek.errors import KafkaError
from odradek.ids import TopicPartition, Uuid, uuid_to_string
from odradek.log.directories.closing import close_logs
from odradek.log.directories.directory_names import (
    are_of_different_topics,
    parse_directory_name,
    parse_future_directory_name,
    renamed_directory,
)
from odradek.log.directories.offset_checkpoint_file import OffsetCheckpointFile, Offsets
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, NO_SPACE_ERRNOS, FilePool
from odradek.log.log_dir import DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, LogDir
from odradek.log.log_loader import LoadOptions, LogLoader
from odradek.log.old_segments import retain_logs
from odradek.log.segments.log_segment import IndexCache
from odradek.log.state import checkpoints
from odradek.log.state.checkpoints import LogDirectoryError, entry_name
from odradek.log.unified_log import UnifiedLog

CHECKPOINT_INTERVAL_MS = 60_000
"""``log.flush.offset.checkpoint.interval.ms``: interval between writes of the recovery points."""
HIGH_WATERMARK_INTERVAL_MS = 5_000
"""``replica.high.watermark.checkpoint.interval.ms``."""
NEW_ENTRIES_INTERVAL_MS = 1_000
"""Interval between writes of the recovery points of new logs while `maintain` flushes others."""
PRODUCER_EXPIRATION_MS = 86_400_000
_logger = logging.getLogger(__name__)


_CHECKPOINTS = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.CLEANER_OFFSET_FILE,
)


class LogManager:
    """Owner of all logs; see the module. `load` sets `cluster_id` to that in the directories."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        clock: Clock,
        *,
        files: Files | None = None,
        executors: Executors | None = None,
        randomness: Randomness | None = None,
        open_files_max: int | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        high_watermark_interval_ms: int = HIGH_WATERMARK_INTERVAL_MS,
        boot_id: str | None = None,
    ) -> None:
        assert log_dirs
        self.default_config = default_config
        self.clock = clock
        self.files: Files = files or RealFiles()
        self._executors: Executors = executors or ThreadExecutors()
        self._randomness: Randomness = randomness or SystemRandomness()
        self._boot_id = self.files.boot_id if boot_id is None else boot_id
        self.pool = FilePool(self.files, open_files_max or self.files.open_files_max)
        self.cache = IndexCache()
        self.log_dirs = [
            LogDir(
                path,
                self.pool,
                self.cache,
                clock,
                self._dir_failed,
                self._checkpoint_directory,
                self._write_removals,
                self._dir_full,
                self._add_to_checkpoint,
            )
            for path in map(os.path.abspath, log_dirs)
        ]
        self.cluster_id = ""
        self.directory_ids: dict[str, Uuid] = {}
        """By path. A directory of a Kafka version before 3.7 may have no id."""
        self._producer_expiration_ms = producer_expiration_ms
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self._high_watermark_interval_ms = high_watermark_interval_ms
        # Of the monotonic clock: an administrator may set the other one back.
        self._next_high_watermarks_ms = clock.monotonic_ms() + high_watermark_interval_ms
        self._next_checkpoint_ms = clock.monotonic_ms() + checkpoint_interval_ms
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._log_counts: Counter[LogDir] = Counter()
        self._assigned: set[TopicPartition] = set()
        self._conflicting: dict[TopicPartition, list[UnifiedLog]] = {}
        self._failure_callbacks: list[Callable[[LogDir], None]] = []
        self._full_callbacks: list[Callable[[LogDir], object]] = []
        self._locks: list[FileLock] = []
        self._checkpoints = {
            log_dir: {
                name: OffsetCheckpointFile(self.files, log_dir.path, name) for name in _CHECKPOINTS
            }
            for log_dir in self.log_dirs
        }
        self.cleaning: set[TopicPartition] = set()
        """Logs that are being compacted. Retention skips them until the compaction has ended."""

    def begin_cleaning(self, topic_partition: TopicPartition) -> None:
        """Exclude a log from retention until `end_cleaning`, because it is being compacted."""
        self.cleaning.add(topic_partition)

    def end_cleaning(self, topic_partition: TopicPartition) -> None:
        self.cleaning.discard(topic_partition)

    # -- opening -----------------------------------------------------------------------------------

    def load(
        self,
        cluster_id: str | None = None,
        node_id: int = 0,
        *,
        log_config: Callable[[str], LogConfig] | None = None,
        adds_directory_ids: bool = False,
    ) -> None:
        """Lock the directories and open every log in them.

        Args:
            cluster_id: None takes the id of the directories, or creates one.
            adds_directory_ids: Whether a directory without an id gets one.
            log_config: Returns the effective config of a topic.

        Raises:
            LogDirectoryError: A directory is in use, belongs to another cluster or node, or cannot
                be read, or a partition has two directories.
        """
        try:
            self._lock_directories()
            self._load_meta_properties(cluster_id, node_id, adds_ids=adds_directory_ids)
            self._check_partition_directories()
            for log_dir in self.log_dirs:
                self._load_or_fail(log_dir, log_config)
        except (OSError, checkpoints.CorruptCheckpoint) as error:
            self.unlock()
            raise LogDirectoryError(f"cannot open the log directory: {error}") from error
        except LogDirectoryError:
            self.unlock()
            raise

    def lock(self, node_id: int) -> str | None:
        """Lock the directories before `load`. Change nothing else in them.

        Returns:
            The cluster id in the directories, or None if they are new.

        Raises:
            LogDirectoryError: As for `load`.
        """
        try:
            self._lock_directories()
            paths = [log_dir.path for log_dir in self.log_dirs]
            cluster_id, _ = checkpoints.read_meta_properties(self.files, paths, None, node_id)
        except OSError as error:
            self.unlock()
            if isinstance(error, LogDirectoryError):
                raise
            raise LogDirectoryError(f"cannot open the log directory: {error}") from error
        return cluster_id

    def _lock_directories(self) -> None:
        if self._locks:
            return
        for log_dir in self.log_dirs:
            make_directories(self.files, log_dir.path)
            self._lock(log_dir.path)

    def _lock(self, path: str) -> None:
        try:
            self._locks.append(self.files.lock(f"{path}/{checkpoints.LOCK_FILE}"))
        except BlockingIOError as error:
            raise LogDirectoryError(
                f"log directory {path} is in use by another process or broker. Stop it, or use "
                "another directory"
            ) from error

    def unlock(self) -> None:
        """Release the locks, so that another broker can use the directories."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _load_meta_properties(
        self, cluster_id: str | None, node_id: int, *, adds_ids: bool
    ) -> None:
        paths = [log_dir.path for log_dir in self.log_dirs]
        cluster_id, found = checkpoints.read_meta_properties(self.files, paths, cluster_id, node_id)
        self.cluster_id = cluster_id or uuid_to_string(self._randomness.uuid())
        for path, properties in found.items():
            known = None if properties is None else checkpoints.parse_directory_id(path, properties)
            if known is not None:
                self.directory_ids[path] = known
            elif properties is None or adds_ids:
                new_id = self.directory_ids[path] = self._randomness.uuid()
                if properties is None:
                    cluster_id = self.cluster_id
                    checkpoints.write_meta_properties(self.files, path, cluster_id, node_id, new_id)
                else:
                    checkpoints.write_directory_id(self.files, path, properties, new_id)

    def _check_partition_directories(self) -> None:
        """Refuse two directories of one partition, as Kafka does (``LogManager.loadLog``).

        Directories with different topic ids are not copies of each other: a topic was deleted and
        created again while a log directory was offline. They are opened, and `use` selects one. The
        check runs before any log is opened, so a refused start changes nothing.
        """
        for tp, paths in self._directories_by_partition(parse_directory_name).items():
            if len(paths) > 1:
                if not are_of_different_topics(self.files, paths):
                    raise _duplicate_directories(tp, paths)
                self._conflicting[tp] = []
        for tp, paths in self._directories_by_partition(parse_future_directory_name).items():
            if len(paths) > 1:
                raise _duplicate_directories(tp, paths)
            _logger.warning(
                "%s is an unfinished copy of %s, which Kafka was moving to this log directory. It "
                "is not used, because replicas are not moved here. Remove that directory.",
                paths[0],
                tp,
            )

    def _directories_by_partition(
        self, parse: Callable[[str], TopicPartition | None]
    ) -> dict[TopicPartition, list[str]]:
        """Return the directories, in all log directories, whose name `parse` accepts."""
        found: dict[TopicPartition, list[str]] = {}
        for log_dir in self.log_dirs:
            try:
                names = sorted(self.files.listdir(log_dir.path))
            except OSError:  # `_load_or_fail` takes it offline
                continue
            for name in names:
                path = f"{log_dir.path}/{name}"
                tp = parse(name)
                if tp is not None and self.files.is_dir(path):
                    found.setdefault(tp, []).append(path)
        return found

    def _load_or_fail(self, log_dir: LogDir, log_config: Callable[[str], LogConfig] | None) -> None:
        """Load a directory. If it cannot be read it goes offline, unless it is the last one."""
        try:
            self._load_directory(log_dir, log_config)
        except OSError as error:
            log_dir.fail(error, "loading its logs")
            if all(other.offline for other in self.log_dirs):
                raise

    def _load_directory(
        self, log_dir: LogDir, log_config: Callable[[str], LogConfig] | None
    ) -> None:
        names = sorted(self.files.listdir(log_dir.path))
        clean, synced, offsets = self._take_clean_shutdown(log_dir, names)
        recovery_points, log_starts, high_watermarks, cleaned = offsets
        is_own = self._checkpoints[log_dir][checkpoints.RECOVERY_POINT_FILE].is_own
        found: set[TopicPartition] = set()
        now_ms = self.clock.time_ms()
        if not clean and any(map(parse_directory_name, names)):
            _logger.info("%s was not closed: checking what was not flushed", log_dir.path)
        for name in names:
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                log_dir.remove_later([f"{log_dir.path}/{name}"], now_ms)
                continue
            tp = parse_directory_name(name)
            if tp is None or not self.files.is_dir(f"{log_dir.path}/{name}"):
                continue
            found.add(tp)
            config = log_config(tp.topic) if log_config else self.default_config
            options = LoadOptions(
                clean=clean,
                synced=synced,
                recovery_point=recovery_points.get(tp, 0),
                has_recovery_point=is_own and tp in recovery_points,
                log_start_offset=log_starts.get(tp, 0),
                high_watermark=high_watermarks.get(tp, 0),
                cleaned_offset=cleaned.get(tp, 0),
                never_flushed=not clean and bool(recovery_points) and not recovery_points.get(tp),
                now_ms=now_ms,
                jitter_ms=self._draw_jitter(config),
            )
            log = LogLoader(tp, f"{log_dir.path}/{name}", log_dir, config, options).load()
            log.producers.expire(now_ms, self._producer_expiration_ms)
            if tp in self._conflicting:
                self._conflicting[tp].append(log)
            else:
                self._add(log)
        self._forget_lost_partitions(log_dir, found)

    def _take_clean_shutdown(
        self, log_dir: LogDir, names: Collection[str]
    ) -> tuple[bool, bool, list[dict[TopicPartition, int]]]:
        """Return whether the last stop was clean, whether it was synced, and the checkpoints.

        A clean stop closed every log. Its mark is removed, so that a later crash is not taken for
        a clean stop. The checkpoints of an unsynced stop are synced before that.
        """
        synced = checkpoints.CLEAN_SHUTDOWN_FILE in names
        unsynced = not synced and checkpoints.is_closed_unsynced(
            self.files, log_dir.path, self._boot_id
        )
        offsets = [
            self._read_offsets(file, names, use_closed=unsynced)
            for file in self._checkpoints[log_dir].values()
        ]
        for name in (checkpoints.CLEAN_SHUTDOWN_FILE, checkpoints.CLOSED_UNSYNCED_FILE):
            unlink_if_exists(self.files, f"{log_dir.path}/{name}")
        if synced or checkpoints.CLOSED_UNSYNCED_FILE in names:
            self.files.fsync_dir(log_dir.path)
        return synced or unsynced, synced, offsets

    def _read_offsets(
        self, file: OffsetCheckpointFile, names: Collection[str], *, use_closed: bool
    ) -> dict[TopicPartition, int]:
        try:
            return file.load(names, use_closed=use_closed)
        except checkpoints.CorruptCheckpoint as error:
            _logger.warning(
                "%s. The start continues without this checkpoint and reads more of the logs", error
            )
            return {}

    def _forget_lost_partitions(self, log_dir: LogDir, found: Iterable[TopicPartition]) -> None:
        """Remove the checkpoint entries of partitions whose directories a power cut lost.

        They would hide the records of a new log of the same name: a log start offset of 5 hides
        five records. The entry in the high watermarks stays with offset 0, because it names the
        log directory of an empty partition.
        """
        present = set(map(entry_name, found))
        for name, file in self._checkpoints[log_dir].items():
            lost = {
                entry for entry, offset in file.offsets.items() if offset and entry not in present
            }
            if not lost:
                continue
            _logger.warning("%s has entries of lost logs, which are removed: %s", file.path, lost)
            kept = {
                entry: 0 if entry in lost else offset
                for entry, offset in file.offsets.items()
                if entry not in lost or name == checkpoints.HIGH_WATERMARK_FILE
            }
            try:
                file.write(partial(dict, kept))
            except OSError as error:
                if error.errno not in NO_SPACE_ERRNOS:
                    raise
                _logger.warning(
                    "removing the entries of lost logs from %s failed: %s. The next start tries "
                    "again",
                    file.path,
                    error,
                )

    def _draw_jitter(self, config: LogConfig) -> int:
        """Return a random part of `segment.jitter.ms`.

        It makes partitions roll at different times.
        """
        if config.segment_jitter_ms <= 0:
            return 0
        return self._randomness.between(0, config.segment_jitter_ms - 1)

    # -- logs --------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self._logs.get(topic_partition)

    def all_logs(self) -> list[UnifiedLog]:
        """Return a snapshot of all logs."""
        logs = list(self._logs.values())
        for conflicting in self._conflicting.values():
            logs += conflicting
        return logs

    def assign(self, topic_partition: TopicPartition) -> None:
        """Note that the metadata assigns this partition to the broker.

        Retention and compaction leave all other logs unchanged. Their configs are unknown, and the
        default retention would delete the records of a topic that the metadata has lost.
        """
        self._assigned.add(topic_partition)

    def unassign(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Undo `assign`, because the metadata has lost these partitions."""
        self._assigned.difference_update(topic_partitions)

    def assigned_logs(self) -> Iterator[UnifiedLog | None]:
        """Yield the logs of assigned partitions, looked up one by one. Runs on any thread.

        Yield None for a log that is not assigned, because the caller counts it in its time slices.
        A log that is deleted in the meantime is freed when the iteration has passed it.
        """
        logs = deque(self._logs.values())  # in one step for other threads, as a list would be
        while logs:
            log = logs.popleft()
            yield log if log.topic_partition in self._assigned else None

    def conflicting_logs(self) -> dict[TopicPartition, list[UnifiedLog]]:
        """Return the logs in several directories, of topics with one name.

        `get` does not return them.
        """
        return {tp: list(logs) for tp, logs in self._conflicting.items()}

    def use(self, log: UnifiedLog) -> None:
        """Make one of the conflicting logs the log of its partition, which has none."""
        tp = log.topic_partition
        assert tp not in self._logs
        self._conflicting[tp].remove(log)
        if not self._conflicting[tp]:
            del self._conflicting[tp]
        self._add(log)

    def _add(self, log: UnifiedLog) -> None:
        self._logs[log.topic_partition] = log
        self._log_counts[log.log_dir] += 1

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        """Return the log of an assigned partition. Create an empty one if it does not exist.

        This makes no system call: the first append creates the directory. The log of a partition
        that is not new may be in an offline directory. The empty log is then assigned to that
        directory. If all directories are offline, so is the empty log.
        """
        self.assign(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None:
            return log
        log_dir = self._emptiest_directory() if is_new else self._directory_of(topic_partition)
        directory = f"{log_dir.path}/{topic_partition}"
        config = config or self.default_config
        options = LoadOptions(
            clean=True, now_ms=self.clock.time_ms(), jitter_ms=self._draw_jitter(config)
        )
        loader = LogLoader(topic_partition, directory, log_dir, config, options)
        log = loader.empty(topic_id)
        self._add(log)
        return log

    def _directory_of(self, topic_partition: TopicPartition) -> LogDir:
        """Return the directory of an existing partition without files.

        The checkpoint names empty logs too.
        """
        for log_dir, files in self._checkpoints.items():
            known = files[checkpoints.HIGH_WATERMARK_FILE].offset_of(topic_partition)
            if not log_dir.offline and known is not None:
                return log_dir
        offline = next((log_dir for log_dir in self.log_dirs if log_dir.offline), None)
        return offline or self._emptiest_directory()

    def _emptiest_directory(self) -> LogDir:
        online = [log_dir for log_dir in self.log_dirs if not log_dir.offline]
        return min(online or self.log_dirs, key=lambda log_dir: self._log_counts[log_dir])

    def delete(self, *topic_partitions: TopicPartition) -> bool:
        """Remove logs now, and their files after `file.delete.delay.ms`.

        Readers with regions are not affected. Unknown partitions are ignored. The checkpoints are
        written once for all logs. The failure of one log directory does not keep the logs of
        others.

        Returns:
            Whether `sync_directories` has to finish the deletion: a directory was renamed, or a log
            directory is offline and may have logs of the topic.

        Raises:
            KafkaError: A log directory failed.
        """
        renamed = self._close_and_rename(topic_partitions, DELETE_DIRECTORY_SUFFIX)
        return bool(renamed) or any(log_dir.offline for log_dir in self.log_dirs)

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Rename the log's directory to ``topic-0.<uuid>-stray`` and close the log.

        Returns:
            The new path, or None if the log has no files. The files are never removed.
        """
        renamed = self._close_and_rename((topic_partition,), STRAY_DIRECTORY_SUFFIX)
        return renamed[0] if renamed else None

    def sync_directories(self) -> None:
        """Make renamed partition directories durable, and remove their checkpoint entries.

        Blocks, so the owner must not call it.

        Raises:
            KafkaError: A log directory is offline, or fails now.
        """
        for log_dir in self.log_dirs:
            if log_dir.offline:
                raise log_dir.error()
            try:
                self.files.fsync_dir(log_dir.path)
                self._write_all_removals(log_dir)
            except OSError as error:
                raise log_dir.io_failed(error, "syncing renamed directories") from error

    def _close_and_rename(
        self, topic_partitions: Iterable[TopicPartition], suffix: str
    ) -> list[str]:
        """Close logs and rename their directories. Return the new paths. Every log is processed."""
        logs = [log for each in topic_partitions if (log := self._logs.pop(each, None))]
        self.unassign(log.topic_partition for log in logs)
        self._log_counts.subtract(log.log_dir for log in logs)
        renamed: list[str] = []
        failure: KafkaError | None = None
        for log in logs:
            log.close(clean=False)
            if not log.on_disk:
                continue
            new_name = renamed_directory(log.topic_partition, self._randomness.uuid(), suffix)
            path = f"{log.log_dir.path}/{new_name}"
            try:
                self.files.replace(log.directory, path)
            except OSError as error:
                failure = log.log_dir.fail(error, f"renaming {log.directory}")
                continue
            renamed.append(path)
            if suffix == DELETE_DIRECTORY_SUFFIX:
                due_ms = self.clock.time_ms() + log.config.file_delete_delay_ms
                log.log_dir.remove_later([path], due_ms)
        for log_dir in dict.fromkeys(log.log_dir for log in logs):
            deleted = {log.topic_partition for log in logs if log.log_dir is log_dir}
            for file in self._checkpoints[log_dir].values():
                file.remove(deleted)
            log_dir.request_checkpoint()
        if failure is not None:
            raise failure
        return renamed

    def _write_removals(self, log_dir: LogDir, topic_partition: TopicPartition) -> None:
        """Write the checkpoints if they still have entries of a deleted log of this partition."""
        if any(file.removes(topic_partition) for file in self._checkpoints[log_dir].values()):
            self._write_all_removals(log_dir)

    def _add_to_checkpoint(self, log_dir: LogDir, topic_partition: TopicPartition) -> None:
        self._checkpoints[log_dir][checkpoints.RECOVERY_POINT_FILE].add(topic_partition)

    def _write_all_removals(self, log_dir: LogDir) -> None:
        for file in self._checkpoints[log_dir].values():
            file.write_removals()

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Set the time after which inactive producers expire, from the next expiration on."""
        self._producer_expiration_ms = expiration_ms

    # -- upkeep ------------------------------------------------------------------------------------

    def on_dir_failure(self, callback: Callable[[LogDir], None]) -> None:
        """Call `callback` once for each directory that fails.

        It runs on the thread on which the failure occurred.
        """
        self._failure_callbacks.append(callback)

    def on_dir_full(self, callback: Callable[[LogDir], object]) -> None:
        """Call `callback` when an append fails for lack of space (`LogDir.append_refused`)."""
        self._full_callbacks.append(callback)

    def _dir_full(self, log_dir: LogDir) -> None:
        for callback in self._full_callbacks:
            callback(log_dir)

    def _dir_failed(self, log_dir: LogDir) -> None:
        for callback in self._failure_callbacks:
            callback(log_dir)

    def load_for_retention(self, now_ms: int) -> None:
        """Read the data that `retain` needs from the disk. May run on any thread."""
        for log in self.assigned_logs():
            if log is not None and not log.log_dir.offline:
                try:
                    log.load_for_retention(now_ms)
                except KafkaError as error:
                    _logger.warning(
                        "retention of %s failed: %s. The next check tries again",
                        log.topic_partition,
                        error,
                    )

    def retain(self, now_ms: int, *, wait: bool = True) -> Generator[None, None, int]:
        """Apply retention and expire producers in assigned logs, in time slices.

        Runs on the owner's thread. Logs may be deleted, truncated or compacted between slices.

        Args:
            now_ms: The time of the pass.
            wait: False skips each log for which the disk would have to be read.

        Returns:
            The number of deleted segments.
        """
        return retain_logs(
            self.assigned_logs(),
            now_ms,
            self._producer_expiration_ms,
            is_assigned=lambda log: not log.closed and log.topic_partition in self._assigned,
            may_delete=self._may_retain,
            clock=self.clock,
            wait=wait,
        )

    def _may_retain(self, log: UnifiedLog) -> bool:
        if log.closed or log.log_dir.offline or log.is_truncating:
            return False
        return log.topic_partition in self._assigned and log.topic_partition not in self.cleaning

    def maintain(self, now_ms: int) -> None:
        """Do the work that waits for the disk. Called about every second.

        Sync new logs. Flush rolled segments, and logs for which `flush.ms` is due. Write due
        checkpoints, and remove files whose delay is over. A directory that fails goes offline.
        """
        self.pool.grow()
        moved = any(d.checkpoint_due for d in self.log_dirs if not d.offline)
        self.sync_new_logs()
        written_ms = self.clock.monotonic_ms()
        for log in self.all_logs():
            if self.clock.monotonic_ms() - written_ms >= NEW_ENTRIES_INTERVAL_MS:
                self.sync_new_logs()
                written_ms = self.clock.monotonic_ms()
            try:
                moved |= log.flusher.flush_if_due(now_ms, log.config.flush_ms)
            except KafkaError as error:
                _logger.warning(
                    "flush of %s failed: %s. The line about its log directory says what to do",
                    log.topic_partition,
                    error,
                )
        monotonic_ms = self.clock.monotonic_ms()
        if moved or monotonic_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = monotonic_ms + self._checkpoint_interval_ms
            self._next_high_watermarks_ms = monotonic_ms + self._high_watermark_interval_ms
            self.checkpoint()
        elif monotonic_ms >= self._next_high_watermarks_ms:
            self._next_high_watermarks_ms = monotonic_ms + self._high_watermark_interval_ms
            self._write_checkpoints(self._write_high_watermarks)
        for log_dir in self.log_dirs:
            # The log start offset must be on the disk before the segments below it are removed.
            if not log_dir.offline and not log_dir.checkpoint_due:
                try:
                    log_dir.remove_due(now_ms)
                except OSError as error:
                    problem = log_dir.io_failed(error, "removing deleted files")
                    if not log_dir.offline:
                        _logger.warning("%s. The removal is tried again", problem)

    def sync_new_logs(self) -> None:
        """Write the entries of new logs and sync their names, before the first roll has to."""
        self._write_checkpoints(self._sync_new_logs)

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks of every online directory.

        The compacted offsets of logs that are being truncated are lowered.
        """
        self._write_checkpoints(self._checkpoint_directory)

    def _write_checkpoints(self, write: Callable[[LogDir], None]) -> None:
        for log_dir in self.log_dirs:
            if log_dir.offline:
                continue
            try:
                write(log_dir)
            except OSError as error:
                if error.errno not in NO_SPACE_ERRNOS | NO_DESCRIPTOR_ERRNOS:
                    log_dir.fail(error, "writing checkpoints")
                    continue
                # The old files are still valid. A start from them reads more of the logs.
                log_dir.request_checkpoint()
                if error.errno in NO_DESCRIPTOR_ERRNOS:
                    self.pool.make_room()
                _logger.warning(
                    "cannot write the checkpoints of %s: %s. The old ones stay valid, and the "
                    "broker tries again. Free disk space or file descriptors",
                    log_dir.path,
                    error,
                )

    def _write_high_watermarks(self, log_dir: LogDir) -> None:
        name = checkpoints.HIGH_WATERMARK_FILE
        self._checkpoints[log_dir][name].write(self._collectors(log_dir)[name])

    def _sync_new_logs(self, log_dir: LogDir) -> None:
        if log_dir.has_new_logs:
            log_dir.clear_new_logs()
            name = checkpoints.RECOVERY_POINT_FILE
            self._checkpoints[log_dir][name].write(self._collectors(log_dir)[name])
        log_dir.sync_new_names()

    def _checkpoint_directory(self, log_dir: LogDir) -> None:
        request = log_dir.request_checkpoint()
        log_dir.clear_new_logs()
        for name, collect in self._collectors(log_dir).items():
            self._checkpoints[log_dir][name].write(collect)
        # Before a truncation cuts: new records below the compacted offset would count as clean.
        self._checkpoints[log_dir][checkpoints.CLEANER_OFFSET_FILE].lower(
            lambda: {
                entry_name(log.topic_partition): offset
                for log in self.all_logs()
                if log.log_dir is log_dir and (offset := log.flusher.truncating_from) is not None
            }
        )
        log_dir.checkpoint_written(request)
        self._write_all_removals(log_dir)

    def _collectors(self, log_dir: LogDir) -> dict[str, Callable[[], Offsets]]:
        """Return the functions that collect the entries of each checkpoint."""

        def logs() -> Iterator[UnifiedLog]:
            return (log for log in self.all_logs() if log.log_dir is log_dir)

        return {
            # Not a log without files: a copy of a directory may take its place (`LogLoader`).
            checkpoints.RECOVERY_POINT_FILE: lambda: {
                entry_name(log.topic_partition): offset
                for log in logs()
                if log.on_disk and (offset := log.flusher.checkpoint_entry) is not None
            },
            # Also logs whose first segment begins at this offset: the segment's file name may not
            # survive a power cut.
            checkpoints.LOG_START_FILE: lambda: {
                entry_name(log.topic_partition): log.log_start_offset
                for log in logs()
                if log.log_start_offset
            },
            checkpoints.HIGH_WATERMARK_FILE: lambda: {
                entry_name(log.topic_partition): log.high_watermark for log in logs()
            },
        }

    # -- compaction --------------------------------------------------------------------------------

    def flushed_offset(self, log: UnifiedLog) -> int:
        """Return the recovery point on the disk. A crash does not change the log below it."""
        return self._written_offset(log, checkpoints.RECOVERY_POINT_FILE) or 0

    def cleaned_offset(self, log: UnifiedLog) -> int | None:
        """Return the offset up to which the log was compacted, or None if it never was."""
        return self._written_offset(log, checkpoints.CLEANER_OFFSET_FILE)

    def _written_offset(self, log: UnifiedLog, name: str) -> int | None:
        return self._checkpoints[log.log_dir][name].offset_of(log.topic_partition)

    def write_cleaned_offset(self, log: UnifiedLog, offset: int, truncations: int) -> None:
        """Write how far a log is compacted. Blocks, so the owner must not call it.

        This does nothing if the log was closed, or was truncated since it had `truncations`.

        Raises:
            OSError: The checkpoint could not be written.
        """
        # The file evaluates the condition under its lock. A later truncation lowers the entry.
        file = self._checkpoints[log.log_dir][checkpoints.CLEANER_OFFSET_FILE]
        file.update(
            log.topic_partition, offset, lambda: log.closed or log.truncations != truncations
        )

    # -- closing -----------------------------------------------------------------------------------

    def close(
        self,
        *,
        clean: bool = True,
        within_ms: float = math.inf,
        unlock: bool = True,
        broker_epoch: int = -1,
    ) -> None:
        """Close every log and unlock the directories. Blocks: not for the event loop.

        The checkpoints are written to the page cache first. Then each directory is marked as
        closed, which is valid until the machine boots again. If all logs could be synced, the
        checkpoints are synced as well, and the mark is replaced by Kafka's. The process may end at
        any time during that. A log that there is no time to close, or that is still truncated,
        stays as after a SIGKILL, and its directory is not marked.

        Args:
            clean: False writes nothing, because the files are about to be removed.
            within_ms: After this time nothing further is synced, apart from the marks.
            unlock: False keeps the directories locked until `unlock` is called, because other
                threads of this process may still be working in them.
            broker_epoch: The epoch of the broker's last registration in a cluster, for the marks.
        """
        if clean:
            closed = close_logs(
                self.all_logs(), self.clock, self._executors.start_thread, within_ms=within_ms
            )
            unsynced, left = _by_directory(closed.unsynced), _by_directory(closed.left)
            self._mark_closed(unsynced, left, broker_epoch)
        else:
            for log in self.all_logs():
                log.close(clean=False)
        self._logs.clear()
        self._log_counts.clear()
        self._conflicting.clear()
        if unlock:
            self.unlock()

    def _mark_closed(
        self, unsynced: Counter[LogDir], left: Counter[LogDir], broker_epoch: int
    ) -> None:
        written = [each for each in self.log_dirs if self._write_last(each, left[each])]
        for log_dir in written:
            if unsynced[log_dir]:
                _logger.info(
                    "%s: no time to sync %d logs. They are complete in the page cache",
                    log_dir.path,
                    unsynced[log_dir],
                )
            else:
                self._sync_last(log_dir, broker_epoch)

    def _write_last(self, log_dir: LogDir, left: int) -> bool:
        """Write the checkpoints and the mark to the page cache. Return whether that succeeded."""
        if log_dir.offline:
            return False
        if left:
            text = "%s: no time to close %d logs, or to truncate them. The next start recovers them"
            _logger.warning(text, log_dir.path, left)
            return False
        try:
            collectors = self._collectors(log_dir)
            for name, file in self._checkpoints[log_dir].items():
                file.close(collectors.get(name))
            checkpoints.write_closed_unsynced(self.files, log_dir.path, self._boot_id)
        except OSError as error:
            log_dir.fail(error, "marking a clean stop")
            return False
        return True

    def _sync_last(self, log_dir: LogDir, broker_epoch: int) -> None:
        """Sync the checkpoints, and mark the directory as closed for any start."""
        try:
            for file in self._checkpoints[log_dir].values():
                file.sync_closed()
            self.files.fsync_dir(log_dir.path)
            marker = f"{log_dir.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
            checkpoints.write_clean_shutdown(self.files, marker, broker_epoch)
            unlink_if_exists(self.files, f"{log_dir.path}/{checkpoints.CLOSED_UNSYNCED_FILE}")
        except OSError as error:
            log_dir.fail(error, "marking a clean stop")


def _by_directory(logs: Iterable[UnifiedLog]) -> Counter[LogDir]:
    return Counter(log.log_dir for log in logs)


def _duplicate_directories(tp: TopicPartition, paths: Sequence[str]) -> LogDirectoryError:
    return LogDirectoryError(
        f"partition {tp} has {len(paths)} directories: {', '.join(paths)}. A log directory may "
        "have failed while a replica was being moved to another one. Remove all but one of them, "
        "as a rule the one in the log directory that failed last, and start again"
    )
