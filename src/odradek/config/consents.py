"""Configs of Odradek that permit a start which may expose or delete records of a Kafka cluster.

Each takes ``true`` or ``false``, and is false if unset. The refusal of a start names it. They are
set at the start only, and are no part of `BROKER_CONFIGS`, which has Kafka's names.
"""

from __future__ import annotations

IMPORT_WITHOUT_METADATA = "odradek.import.without.metadata"
TAKE_OVER_WITHOUT_FILE = "odradek.take.over.without.file"

CONSENTS = {
    IMPORT_WITHOUT_METADATA: "Start a single broker on the directories of a Kafka cluster on "
    "ZooKeeper, without the topics and configs in that ZooKeeper. Topics get the default configs, "
    "also of retention.",
    TAKE_OVER_WITHOUT_FILE: "Take over a Kafka cluster on ZooKeeper without `--config "
    "server.properties`. Static configs of its brokers are lost, and all clients have access.",
}
"""Names with their meaning."""
