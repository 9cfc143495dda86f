"""The small text files of logs and log directories, in Kafka's formats.

A write replaces the whole file (`write_file`).

Offset checkpoints (``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
``replication-offset-checkpoint``, ``cleaner-offset-checkpoint``, one of each in a log directory)::

    0                       version
    2                       number of entries
    topic 0 1234            topic, partition, offset
    topic 1 5678

``leader-epoch-checkpoint`` (one in each partition) has ``epoch start_offset`` as entries.
``partition.metadata`` and ``meta.properties`` are lines of ``key: value`` and ``key=value``.

An incomplete file (a power cut between write and sync) raises `CorruptCheckpoint`. A missing file
counts as a file without entries. Kafka creates ``cleaner-offset-checkpoint`` with 0 bytes and first
writes it after a compaction. A file of 0 bytes with that name has no entries either. The same holds
for ``leader-epoch-checkpoint``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from odradek.environment.files import Files, read_file, write_file, write_new_file
from odradek.ids import TopicPartition, Uuid, uuid_from_string, uuid_to_string

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLOSED_UNSYNCED_FILE = "odradek-closed-unsynced"
LOCK_FILE = ".lock"
MARK_FILE = "odradek-cluster.properties"
"""The mark of a log directory whose metadata is in ZooKeeper (`broker.cluster_identity`)."""

_VERSION = "0"
_logger = logging.getLogger(__name__)


class LogDirectoryError(OSError):
    """The log directory cannot be used. The message is one line for the operator."""


class CorruptCheckpoint(ValueError):
    """The file is incomplete, or not of this format."""


def _read_entries(
    files: Files, path: str, fields: int, *, may_be_empty: bool = False
) -> list[list[str]]:
    try:
        text = read_file(files, path).decode("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path} is not text") from error
    if may_be_empty and not text:
        return []
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptCheckpoint(f"{path} does not begin with version {_VERSION} and a count")
    entries = [line.split(" ") for line in lines[2:]]
    # If the last line has no line end, its number may be cut off as well: 12 becomes 1.
    if (
        len(entries) != int(lines[1])
        or any(len(entry) != fields for entry in entries)
        or not text.endswith("\n")
    ):
        raise CorruptCheckpoint(f"{path} does not have the {lines[1]} entries that it should have")
    return entries


def _format_entries(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode("utf-8")


def read_offsets(
    files: Files, path: str, *, may_be_empty: bool = False
) -> dict[TopicPartition, int]:
    """Return the entries of an offset checkpoint.

    Args:
        files: The file system.
        path: The path of the checkpoint.
        may_be_empty: Whether a file of 0 bytes has no entries. Otherwise such a file is torn.

    Raises:
        CorruptCheckpoint: The file is incomplete, or not of this format.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in _read_entries(files, path, 3, may_be_empty=may_be_empty)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def entry_name(topic_partition: TopicPartition) -> str:
    """Return the first two fields of a partition's line in an offset checkpoint."""
    return f"{topic_partition.topic} {topic_partition.partition}"


def write_new_offsets(
    files: Files, path: str, offsets: Iterable[tuple[str, int]], *, sync: bool
) -> None:
    """Write an offset checkpoint under an unused name. `offsets` have the names of the entries."""
    entries = (f"{name} {offset}" for name, offset in offsets)
    write_new_file(files, path, _format_entries(entries), sync=sync)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of a leader epoch checkpoint, in the order of the file.

    Kafka on ZooKeeper creates the file with 0 bytes. Such a file has no entries.
    """
    try:
        entries = _read_entries(files, path, 2, may_be_empty=True)
        return [(int(epoch), int(start)) for epoch, start in entries]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_epochs(
    files: Files, path: str, epochs: Iterable[tuple[int, int]], *, sync: bool, new: bool = False
) -> None:
    """Replace a leader epoch checkpoint. A `new` one is written without a temporary file."""
    data = _format_entries(f"{epoch} {start}" for epoch, start in epochs)
    if new:
        write_new_file(files, path, data)
    else:
        write_file(files, path, data, sync=sync)


def read_topic_id(files: Files, path: str) -> Uuid | None:
    """Return the topic id in a ``partition.metadata``, or None if the file does not exist.

    The result is also None, with a warning, if a power cut left the file torn. In that case nothing
    of the log was ever flushed.
    """
    try:
        text = read_file(files, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        if fields.get("version") == _VERSION:
            return uuid_from_string(fields.get("topic_id", ""))
    except ValueError:
        pass
    _logger.warning(
        "%s is damaged: it has no version %s and topic id. The log is opened without a topic id",
        path,
        _VERSION,
    )
    return None


def write_topic_id(files: Files, path: str, topic_id: Uuid) -> None:
    """Write a ``partition.metadata``. The first flush of the log syncs it."""
    text = f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}"
    write_new_file(files, path, text.encode("utf-8"))


def read_properties(files: Files, path: str) -> dict[str, str] | None:
    """Return the entries of a ``meta.properties``, or None if the file does not exist."""
    try:
        text = read_file(files, path).decode("utf-8")
    except FileNotFoundError:
        return None
    entries = (line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    return {key.strip(): value.strip() for key, value in entries}


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    """Replace a ``meta.properties``."""
    lines = [f"{key}={value}" for key, value in sorted(properties.items())]
    write_file(files, path, "\n".join(["#", *lines, ""]).encode("utf-8"), sync=True)


def write_clean_shutdown(files: Files, path: str, broker_epoch: int = -1) -> None:
    """Mark that every log of the directory was closed completely (Kafka's JSON since 3.7)."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file(files, path, text.encode("utf-8"), sync=True)


def read_clean_shutdown_epoch(files: Files, directories: Iterable[str]) -> int:
    """Return the broker epoch that the marks of all directories have.

    Return -1 if a directory has no mark, or another one (``CleanShutdownFileHandler``).
    """
    epochs: set[int] = set()
    for directory in directories:
        try:
            content = json.loads(read_file(files, f"{directory}/{CLEAN_SHUTDOWN_FILE}"))
            epochs.add(int(content["brokerEpoch"]))
        except (OSError, ValueError, KeyError, TypeError):
            return -1
    return epochs.pop() if len(epochs) == 1 else -1


def write_closed_unsynced(files: Files, directory: str, boot_id: str) -> None:
    """Mark that every log of the directory was closed completely, but not all of them synced.

    ``{"version":0,"bootId":"...","recoveryPointsMs":1}``: until the machine boots again, its page
    cache has all data. The second value is the time when the recovery points were written. It
    reveals a broker that used the directory since then. The file is not synced, because it is only
    valid together with the page cache.
    """
    written_ms = _recovery_points_ms(files, directory)
    content = {"version": 0, "bootId": boot_id, "recoveryPointsMs": written_ms}
    text = json.dumps(content, separators=(",", ":"))
    write_file(files, f"{directory}/{CLOSED_UNSYNCED_FILE}", text.encode("utf-8"), sync=False)


def is_closed_unsynced(files: Files, directory: str, boot_id: str) -> bool:
    """Return whether `write_closed_unsynced` marked the directory since the machine booted."""
    try:
        content = json.loads(read_file(files, f"{directory}/{CLOSED_UNSYNCED_FILE}"))
        written_ms = _recovery_points_ms(files, directory)
    except (FileNotFoundError, ValueError):
        return False
    return bool(boot_id) and content == {
        "version": 0,
        "bootId": boot_id,
        "recoveryPointsMs": written_ms,
    }


def _recovery_points_ms(files: Files, directory: str) -> int:
    """Return the time when the recovery points were written, or -1 if they never were."""
    try:
        return files.modified_ms(f"{directory}/{RECOVERY_POINT_FILE}")
    except FileNotFoundError:
        return -1


def read_meta_properties(
    files: Files, paths: Iterable[str], cluster_id: str | None, node_id: int
) -> tuple[str | None, dict[str, dict[str, str] | None]]:
    """Return the cluster id, and the contents of ``meta.properties`` by path.

    Args:
        files: The file system.
        paths: The log directories.
        cluster_id: The id that the directories must have, or None for any one id.
        node_id: The node id that the directories must have.

    Raises:
        LogDirectoryError: A directory belongs to another cluster or node.
        OSError: A file cannot be read.
    """
    found = {path: read_properties(files, f"{path}/{META_PROPERTIES_FILE}") for path in paths}
    for path, properties in found.items():
        if properties is None:
            continue
        cluster_id = cluster_id or properties.get("cluster.id")
        if properties.get("cluster.id", cluster_id) != cluster_id:
            raise LogDirectoryError(
                f"{path} belongs to cluster {properties['cluster.id']}, not to {cluster_id}. "
                "Name only log directories of one cluster in log.dirs"
            )
        owner = properties.get("node.id", properties.get("broker.id", str(node_id)))
        if owner != str(node_id):
            raise LogDirectoryError(
                f"{path} belongs to node {owner}, not to {node_id}. Set node.id={owner}, or "
                "use another log directory"
            )
    return cluster_id, found


def write_meta_properties(
    files: Files, path: str, cluster_id: str, node_id: int, directory_id: Uuid
) -> None:
    """Write the file of a new log directory."""
    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": uuid_to_string(directory_id),
    }
    write_properties(files, f"{path}/{META_PROPERTIES_FILE}", properties)


def write_directory_id(
    files: Files, path: str, properties: Mapping[str, str], directory_id: Uuid
) -> None:
    """Add the id of a directory of Kafka on ZooKeeper, whose ``meta.properties`` has none."""
    extended = {**properties, "directory.id": uuid_to_string(directory_id)}
    write_properties(files, f"{path}/{META_PROPERTIES_FILE}", extended)


def parse_directory_id(path: str, properties: Mapping[str, str]) -> Uuid | None:
    """Return the id of the directory. A directory of a Kafka version before 3.7 may have none.

    Raises:
        LogDirectoryError: The text is not an id.
    """
    text = properties.get("directory.id")
    if text is None:
        return None
    try:
        return uuid_from_string(text)
    except ValueError as error:
        raise LogDirectoryError(
            f"{path}/{META_PROPERTIES_FILE} has an invalid directory.id: {error}. "
            "Remove the line, or restore the file"
        ) from error
