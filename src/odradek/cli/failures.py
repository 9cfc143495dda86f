"""Error lines of the commands. Each line names the failure, the object and the next step."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.cli.output import CommandError
from odradek.errors import ErrorCode

_LINES = {
    ("topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): (
        "Topic '{0}' does not exist. Create it with `odradek topic create {0}`."
    ),
    ("topic", ErrorCode.TOPIC_ALREADY_EXISTS): (
        "Topic '{0}' already exists. `odradek topic alter {0}` changes it, and --if-not-exists"
        " skips it."
    ),
    ("partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): (
        "Partition '{0}' does not exist. `odradek topic list` shows the topics and the numbers of"
        " their partitions."
    ),
    ("group", ErrorCode.GROUP_ID_NOT_FOUND): (
        "Group '{0}' does not exist. `odradek group list` shows all groups."
    ),
    ("group", ErrorCode.NON_EMPTY_GROUP): (
        "Group '{0}' has members. Stop them first. `odradek group members {0}` shows them."
    ),
    ("transactional id", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): (
        "Transactional id '{0}' does not exist. `odradek txn list` shows all transactional ids."
    ),
}
"""Complete lines for an error code on a kind of object."""

_ADVICE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Run the command again in a moment.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Run the command again in a moment.",
    ErrorCode.INVALID_RECORD: "If the topic is compacted, give each record a key.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Read the log of the broker: the disk is full or has failed.",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "Start a broker that has a replica. `odradek topic describe` shows the replicas."
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "Send smaller records, or raise max.message.bytes of the topic with `odradek topic alter`."
    ),
    ErrorCode.PRODUCER_FENCED: "Another producer uses the transactional id. Stop one of the two.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this command.",
}
"""The next step after the broker's own text, for each kind of object."""


@dataclass(frozen=True)
class Subject:
    """The object of a request, such as `Subject("topic", "pages")`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} '{self.name}'"

    def failed(self, code: int, text: str) -> CommandError:
        """Return the error for a request about this object.

        Args:
            code: Kafka's error code, or a negative code of librdkafka.
            text: The broker's or librdkafka's text. It is not shown if the project has a complete
                line for this code and kind.
        """
        line = _LINES.get((self.kind, ErrorCode(code))) if code in _CODES else None
        if line is not None:
            return CommandError(line.format(self.name))
        advice = _ADVICE.get(ErrorCode(code)) if code in _CODES else None
        return CommandError(f"{self}: {text}" if advice is None else f"{self}: {text}. {advice}")


_CODES = frozenset(map(int, ErrorCode))


def partition_subject(topic: str, number: int) -> Subject:
    """Return the subject of a request about one partition."""
    return Subject("partition", f"{topic}-{number}")


def missing_partition(topic: str, number: int) -> CommandError:
    """Return the error for a partition that an existing topic does not have."""
    return CommandError(
        f"Topic '{topic}' has no partition {number}. `odradek topic describe {topic}` shows its"
        " partitions."
    )
