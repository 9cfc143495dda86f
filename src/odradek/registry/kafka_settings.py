"""Settings of the registry's Kafka clients.

An instance has a consumer that reads the log, a consumer that is a member of the group, and a
transactional producer while it is the writer. All of them get the user's properties, such as
``sasl.password``. The values of these properties never appear in log lines and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_TOPIC = "_schemas"

RECORD_BYTES_MAX = 4 * 1_048_576
"""Maximum size of a record of the topic: a schema's text of 1 MiB, escaped as JSON."""

MEMBER_TIMEOUT_MS = 6_000
"""Time after which the group gives the partition of a killed writer to another instance.

It is the smallest one that Kafka's brokers accept by default.
"""

TRANSACTION_TIMEOUT_MS = 10_000
"""Time after which the brokers abort the transaction of a writer that stands still."""

END_DELAY_MS = 50
"""Time after which a reader without new records learns that it is at the end of the log.

A start and a take-over wait for the end. An instance sends 20 requests a second when idle.
"""

READ_AHEAD_KIB = 8 * 1024
"""Maximum size of records that a consumer has received and not yet returned."""

HIDDEN = "[hidden]"

RESERVED = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "transactional.id",
    }
)
"""Properties on which the correctness of the registry depends."""

_PUBLIC = frozenset(
    {
        "broker.address.family",
        "client.id",
        "client.rack",
        "debug",
        "log_level",
        "sasl.mechanism",
        "sasl.mechanisms",
        "security.protocol",
    }
)
_PUBLIC_ENDINGS = (".bytes", ".location", ".ms")
_SWITCHES = ("true", "false")


class InstanceFailure(Exception):
    """An instance cannot start or cannot continue. The message is one line that says what to do."""


class RefusedSetting(InstanceFailure):
    """A property cannot be used. The message is one line without the property's value."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The cluster, the topic and the user's properties.

    Attributes:
        bootstrap_servers: ``HOST:PORT[,HOST:PORT]``.
        topic: The topic of the schemas.
        properties: Properties of librdkafka, for all clients.
    """

    bootstrap_servers: str
    topic: str = DEFAULT_TOPIC
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check the properties.

        Raises:
            RefusedSetting: A property is reserved.
        """
        for name in sorted(RESERVED.intersection(self.properties)):
            raise RefusedSetting(
                f"The Kafka property {name} is set by the registry itself. Leave it out."
            )

    @property
    def group(self) -> str:
        """The id of the group that elects the writer."""
        return f"registry-{self.topic}"

    def transactional_id(self, cluster_id: str) -> str:
        """Return the transactional id that all instances on a cluster and topic have in common."""
        return f"registry/{cluster_id}/{self.topic}"

    def admin(self) -> dict[str, object]:
        """Return the settings of the client that checks and creates the topic."""
        return self._common()

    def reader(self) -> dict[str, object]:
        """Return the settings of the consumer that reads the log. It never joins the group."""
        own = {
            "fetch.error.backoff.ms": 50,
            "fetch.wait.max.ms": END_DELAY_MS,
            "queued.max.messages.kbytes": READ_AHEAD_KIB,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }
        reserved = {"auto.offset.reset": "error", "enable.partition.eof": True}
        return own | self._common() | self._consumer() | reserved

    def member(self) -> dict[str, object]:
        """Return the settings of the consumer that is a member of the group.

        The cooperative assignor leaves the partition with its owner when another member joins.
        """
        own = {
            "heartbeat.interval.ms": MEMBER_TIMEOUT_MS // 6,
            "queued.max.messages.kbytes": READ_AHEAD_KIB,
            "session.timeout.ms": MEMBER_TIMEOUT_MS,
        }
        reserved = {
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        return own | self._common() | self._consumer() | reserved

    def producer(self, cluster_id: str) -> dict[str, object]:
        """Return the settings of the writer's producer."""
        own = {
            "linger.ms": 0,
            "message.max.bytes": RECORD_BYTES_MAX,
            # With librdkafka's default it may never find the coordinator again after an outage.
            "metadata.recovery.strategy": "none",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        reserved = {"transactional.id": self.transactional_id(cluster_id)}
        return own | self._common() | reserved

    def hide(self, text: str) -> str:
        """Return a text of a client without the values of properties that may be secret."""
        for name, value in self.properties.items():
            is_public = name in _PUBLIC or name.endswith(_PUBLIC_ENDINGS) or value in _SWITCHES
            if value and not is_public:
                text = text.replace(value, HIDDEN)
        return text

    def invalid(self, text: str) -> RefusedSetting:
        """Return the error of a client that could not be created, with the reason of librdkafka."""
        return RefusedSetting(
            f"A Kafka property is not valid: {self.hide(text)}. Check the -X options."
        )

    def _common(self) -> dict[str, object]:
        own: dict[str, object] = {
            "client.id": "odradek-registry",
            # librdkafka's own lines are shown only if a property asks for them.
            "log_level": 7 if "debug" in self.properties else 2,
            "reconnect.backoff.max.ms": 1_000,
        }
        return own | dict(self.properties) | {"bootstrap.servers": self.bootstrap_servers}

    def _consumer(self) -> dict[str, object]:
        return {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "group.id": self.group,
            "isolation.level": "read_committed",
        }
