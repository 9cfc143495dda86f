"""The checks before a single broker uses its log directories. They change nothing.

The metadata of the directories may be in a ZooKeeper. Directories of a cluster of Odradek have its
mark. Directories of Apache Kafka on ZooKeeper have version 0 of ``meta.properties``, and no
metadata. A single broker would give their topics the default configs, would delete records by them,
and would lead replicas that are not complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from odradek.config.broker import BrokerConfig
from odradek.config.consents import IMPORT_WITHOUT_METADATA
from odradek.environment.files import Files
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.directory_names import METADATA_DIRECTORY, parse_directory_name
from odradek.log.state.checkpoints import MARK_FILE, META_PROPERTIES_FILE, read_properties

KAFKA_ON_ZOOKEEPER = "0"
"""The version of ``meta.properties`` that Kafka writes on ZooKeeper."""


def check_single_start(config: BrokerConfig, files: Files, store_file: str) -> None:
    """Check that the metadata of the log directories is not in a ZooKeeper.

    Args:
        config: The configs of the broker.
        files: The file system.
        store_file: The name of the metadata store in the first log directory.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. It is, so a single broker must not use them.
    """
    names: dict[str, Sequence[str]] = {}
    for path in config.log_dirs():
        with contextlib.suppress(OSError):  # a new directory, or a failing one
            names[path] = files.listdir(path)
    marked = [path for path, found in names.items() if MARK_FILE in found]
    if marked:
        from odradek.broker.cluster_identity import read_mark, single_broker_refusal

        mark = read_mark(files, marked)
        assert mark is not None, "the file exists"
        raise single_broker_refusal(mark)
    has_store = store_file in names.get(config.log_dirs()[0], ())
    if not has_store and not config.permits(IMPORT_WITHOUT_METADATA):
        _refuse_directories_of_kafka(config, files, names)


def _refuse_directories_of_kafka(
    config: BrokerConfig, files: Files, names: Mapping[str, Sequence[str]]
) -> None:
    """Raise KafkaError for the partitions of a Kafka whose metadata is in ZooKeeper."""
    metadata_log_dir = config.initial_text("metadata.log.dir")
    if metadata_log_dir and files.is_dir(f"{metadata_log_dir}/{METADATA_DIRECTORY}"):
        return
    if any(METADATA_DIRECTORY in found for found in names.values()):
        return
    if all(parse_directory_name(name) is None for found in names.values() for name in found):
        return
    for path, found in names.items():
        if META_PROPERTIES_FILE not in found:
            continue
        with contextlib.suppress(OSError):  # the load of the log directories reports it
            properties = read_properties(files, f"{path}/{META_PROPERTIES_FILE}") or {}
            if properties.get("version") == KAFKA_ON_ZOOKEEPER:
                raise _kafka_refusal(path, properties.get("broker.id", "unknown"))


def _kafka_refusal(path: str, broker_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"{path} belongs to broker {broker_id} of an Apache Kafka cluster on ZooKeeper, which has "
        "the topics and their configs. Start with --zookeeper HOST:PORT/PATH and --config FILE to "
        "take the cluster over (docs/from-kafka.md). To import only the partitions of this "
        f"broker, with default configs, set {IMPORT_WITHOUT_METADATA}=true",
    )
