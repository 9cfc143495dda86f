"""The names of directories in a log directory, and the topics that they belong to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from odradek.environment.files import Files
from odradek.ids import TopicPartition, Uuid
from odradek.log.state import checkpoints

FILE_NAME_BYTES_MAX = 255

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)\Z")
_FUTURE_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)\.[^.]+-future\Z")
METADATA_DIRECTORY = "__cluster_metadata-0"
"""The directory of Kafka's own metadata. It is not a log of this broker."""


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name, or None."""
    match = _PARTITION_DIRECTORY.match(name)
    if match is None or name == METADATA_DIRECTORY:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """Return the partition whose unfinished copy has this directory name, or None."""
    match = _FUTURE_DIRECTORY.match(name)
    return None if match is None else TopicPartition(match["topic"], int(match["partition"]))


def renamed_directory(topic_partition: TopicPartition, uuid: Uuid, suffix: str) -> str:
    """Return ``topic-0.<uuid>-delete`` or ``-stray``. The topic is cut so that the name fits."""
    suffix = f"-{topic_partition.partition}.{uuid.hex()}{suffix}"
    return topic_partition.topic[: FILE_NAME_BYTES_MAX - len(suffix)] + suffix


def topic_ids_of_logs(
    files: Files, paths: Sequence[str]
) -> dict[TopicPartition, list[Uuid | None]]:
    """Return the topic ids of the logs of each partition in log directories. None: it has none.

    Raises:
        OSError: A directory cannot be read.
    """
    found: dict[TopicPartition, list[Uuid | None]] = {}
    for path in paths:
        for name in files.listdir(path):
            tp = parse_directory_name(name)
            if tp is not None and files.is_dir(f"{path}/{name}"):
                metadata = f"{path}/{name}/{checkpoints.PARTITION_METADATA_FILE}"
                found.setdefault(tp, []).append(checkpoints.read_topic_id(files, metadata))
    return found


def are_of_different_topics(files: Files, paths: Sequence[str]) -> bool:
    """Return whether each of these partition directories has another topic id."""
    topic_ids: set[Uuid] = set()
    for path in paths:
        try:
            metadata = f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
            topic_id = checkpoints.read_topic_id(files, metadata)
        except OSError:  # opening the log takes its log directory offline
            continue
        if topic_id is None or topic_id in topic_ids:
            return False
        topic_ids.add(topic_id)
    return True
