"""The small text files beside the logs, in Kafka's formats; each is replaced whole (`write_file`).

Offset checkpoints (``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
``replication-offset-checkpoint``, ``cleaner-offset-checkpoint``, one of each in a log directory)::

    0                       version
    2                       number of entries
    topic 0 1234            topic, partition, offset
    topic 1 5678

``leader-epoch-checkpoint`` (one in each partition) has ``epoch start_offset`` as entries.
``partition.metadata`` and ``meta.properties`` are lines of ``key: value`` and ``key=value``.

A file that is not whole (a power cut between writing and syncing) is `CorruptCheckpoint`; a file
that does not exist has no entries.
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

_VERSION = "0"
_logger = logging.getLogger(__name__)


class CorruptCheckpoint(ValueError):
    """The file is not whole, or not of this format."""


def _read_entries(files: Files, path: str, fields: int) -> list[list[str]]:
    try:
        text = read_file(files, path).decode("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path} is not text") from error
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptCheckpoint(f"{path} has no version {_VERSION} and count in front")
    entries = [line.split(" ") for line in lines[2:]]
    # Without the last line's end the last number may be cut, too: 12 is then 1.
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


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in _read_entries(files, path, 3)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_new_offsets(
    files: Files, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool
) -> None:
    """Write an offset checkpoint under a name that no file has yet."""
    entries = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    write_new_file(files, path, _format_entries(entries), sync=sync)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset) of a leader epoch checkpoint, as they are in the file."""
    try:
        return [(int(epoch), int(start)) for epoch, start in _read_entries(files, path, 2)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_epochs(
    files: Files, path: str, epochs: Iterable[tuple[int, int]], *, sync: bool, new: bool = False
) -> None:
    """Replaces a leader epoch checkpoint; a `new` one needs no detour over another name."""
    data = _format_entries(f"{epoch} {start}" for epoch, start in epochs)
    if new:
        write_new_file(files, path, data)
    else:
        write_file(files, path, data, sync=sync)


def read_topic_id(files: Files, path: str) -> Uuid | None:
    """The topic id in a ``partition.metadata``; None without the file.

    Also None, with a warning, when a power cut left it torn: nothing of that log was flushed then.
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
    _logger.warning("%s has no version %s and topic id", path, _VERSION)
    return None


def write_topic_id(files: Files, path: str, topic_id: Uuid) -> None:
    """Writes a ``partition.metadata``; it is synced with the first flush of the log."""
    text = f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}"
    write_new_file(files, path, text.encode("utf-8"))


def read_properties(files: Files, path: str) -> dict[str, str] | None:
    """The entries of a ``meta.properties``; None without the file."""
    try:
        text = read_file(files, path).decode("utf-8")
    except FileNotFoundError:
        return None
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    return {key.strip(): value.strip() for key, value in pairs}


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    """Replaces a ``meta.properties``."""
    lines = [f"{key}={value}" for key, value in sorted(properties.items())]
    write_file(files, path, "\n".join(["#", *lines, ""]).encode("utf-8"), sync=True)


def write_clean_shutdown(files: Files, path: str, broker_epoch: int = -1) -> None:
    """Marks that every log of the directory was closed whole (Kafka's JSON since 3.7)."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file(files, path, text.encode("utf-8"), sync=True)


def write_closed_unsynced(files: Files, directory: str, boot_id: str) -> None:
    """Marks that every log of the directory was closed whole, but not all of them synced.

    ``{"version":0,"bootId":"...","recoveryPointsMs":1}``: until the machine boots again, its page
    cache has everything. The second value is when the recovery points were written, so that a
    broker is noticed that worked on the directory since then. The file is not synced: it holds for
    the page cache that it is in.
    """
    written_ms = files.modified_ms(f"{directory}/{RECOVERY_POINT_FILE}")
    content = {"version": 0, "bootId": boot_id, "recoveryPointsMs": written_ms}
    text = json.dumps(content, separators=(",", ":"))
    write_file(files, f"{directory}/{CLOSED_UNSYNCED_FILE}", text.encode("utf-8"), sync=False)


def is_closed_unsynced(files: Files, directory: str, boot_id: str) -> bool:
    """Whether `write_closed_unsynced` marked the directory since the machine booted."""
    try:
        content = json.loads(read_file(files, f"{directory}/{CLOSED_UNSYNCED_FILE}"))
        written_ms = files.modified_ms(f"{directory}/{RECOVERY_POINT_FILE}")
    except (FileNotFoundError, ValueError):
        return False
    return bool(boot_id) and content == {
        "version": 0,
        "bootId": boot_id,
        "recoveryPointsMs": written_ms,
    }
