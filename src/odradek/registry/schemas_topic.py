"""Check of the topic of the schemas at the start, and its creation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from odradek.launcher.plan import REPLICAS_MAX
from odradek.registry.kafka_settings import RECORD_BYTES_MAX, InstanceFailure, KafkaSettings
from odradek.registry.log_identity import LogIdentity

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, TopicDescription

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 10.0
RESULT_TIMEOUT_S = REQUEST_TIMEOUT_S + 5.0
"""Time limit for the result of a request, which ends by itself after `REQUEST_TIMEOUT_S`."""
ERRORS_MAX = 8
"""Failures of connections that are kept for the reason in an error line."""
POLICY = "compact"
TOPIC_CONFIGS = {"cleanup.policy": POLICY, "max.message.bytes": str(RECORD_BYTES_MAX)}
"""Configs of a topic that the registry creates."""

Result = TypeVar("Result")


class RefusedTopic(InstanceFailure):
    """The topic cannot hold the schemas."""


class BrokersUnavailable(InstanceFailure):
    """No broker has executed a request. A later attempt may succeed."""


class UnknownTopic(BrokersUnavailable):
    """A broker has not received the metadata of the new topic. A later attempt may succeed."""


@dataclass(frozen=True, slots=True)
class SchemasTopic:
    """The topic after the check.

    Attributes:
        cluster_id: The id of the Kafka cluster.
        topic_id: The id of the topic, which another topic of this name does not have.
        is_created: Whether this check has created the topic.
    """

    cluster_id: str
    topic_id: str
    is_created: bool

    @property
    def identity(self) -> LogIdentity:
        """The ids of cluster and topic."""
        return LogIdentity(self.cluster_id, self.topic_id)


def prepare_topic(settings: KafkaSettings) -> SchemasTopic:
    """Check the topic, and create it if it does not exist. Blocks.

    Raises:
        RefusedTopic: The topic has more than one partition, or is not compacted, or the brokers
            refuse a request.
        RefusedSetting: A Kafka property is not valid.
        BrokersUnavailable: No broker has responded, or one does not know the new topic yet.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: deque[KafkaError] = deque(maxlen=ERRORS_MAX)
    try:
        admin = AdminClient({**settings.admin(), "error_cb": errors.append})
    except KafkaException as error:
        raise settings.invalid(error.args[0].str()) from None
    return _TopicCheck(settings, admin, errors).run()


class _TopicCheck:
    """The requests of one check, on the thread of the caller.

    Args:
        settings: The cluster and the topic.
        admin: A client.
        errors: Receives the errors of the client's connections.
    """

    def __init__(
        self, settings: KafkaSettings, admin: AdminClient, errors: deque[KafkaError]
    ) -> None:
        self._settings = settings
        self._topic = settings.topic
        self._admin = admin
        self._errors = errors

    def run(self) -> SchemasTopic:
        cluster = self._ask(
            lambda: self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), "the cluster"
        )
        topic = self._described()
        is_created = topic is None
        if topic is None:
            self._create(min(REPLICAS_MAX, len(cluster.nodes)))
            topic = self._described()
        partitions = 1 if topic is None else len(topic.partitions)
        if partitions != 1:
            raise RefusedTopic(
                f"Topic '{self._topic}' has {partitions} partitions, but the order of schemas needs"
                " a topic of one partition. Choose another topic with --topic."
            )
        self._check_policy()
        topic_id = "" if topic is None else str(topic.topic_id)
        return SchemasTopic(cluster.cluster_id or "", topic_id, is_created)

    def _described(self) -> TopicDescription | None:
        """Return the description of the topic, or None if it does not exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        # A metadata request by name would create the topic with the configs of the broker.
        futures = self._admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=REQUEST_TIMEOUT_S
        )
        try:
            return futures[self._topic].result(timeout=RESULT_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._failure(error.args[0], f"topic '{self._topic}'") from None
        except TimeoutError:
            raise self._no_response() from None

    def _create(self, replicas: int) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            self._topic, num_partitions=1, replication_factor=replicas, config=TOPIC_CONFIGS
        )
        futures = self._admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)
        try:
            futures[self._topic].result(timeout=RESULT_TIMEOUT_S)
        except KafkaException as error:
            # Another instance may have created it in the meantime.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failure(error.args[0], f"topic '{self._topic}'") from None
        except TimeoutError:
            raise self._no_response() from None
        else:
            logger.info(
                "created topic '%s' with %d replicas and cleanup.policy=%s",
                self._topic,
                replicas,
                POLICY,
            )

    def _check_policy(self) -> None:
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        configs = self._ask(
            lambda: self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[
                resource
            ],
            f"the configs of topic '{self._topic}'",
        )
        policy = configs["cleanup.policy"].value
        if policy != POLICY:
            raise RefusedTopic(
                f"Topic '{self._topic}' has cleanup.policy={policy}, which deletes schemas. Set"
                f" cleanup.policy={POLICY}, or choose another topic with --topic."
            )

    def _ask(self, request: Callable[[], Future[Result]], subject: str) -> Result:
        from confluent_kafka import KafkaException

        try:
            return request().result(timeout=RESULT_TIMEOUT_S)
        except KafkaException as error:
            raise self._failure(error.args[0], subject) from None
        except TimeoutError:
            raise self._no_response() from None

    def _failure(self, error: KafkaError, subject: str) -> Exception:
        """Return the error of a request about `subject`."""
        from confluent_kafka import KafkaError as Kafka

        if error.retriable() or error.code() in (
            Kafka._TIMED_OUT,
            Kafka._TRANSPORT,
            Kafka._ALL_BROKERS_DOWN,
            Kafka._RESOLVE,
            Kafka.REQUEST_TIMED_OUT,
            Kafka.COORDINATOR_NOT_AVAILABLE,
            Kafka.LEADER_NOT_AVAILABLE,
        ):
            return self._no_response()
        if error.code() == Kafka.UNKNOWN_TOPIC_OR_PART:
            return UnknownTopic(
                f"A broker at {self._settings.bootstrap_servers} does not know the new topic"
                f" '{self._topic}' yet. Start the registry again when the brokers list the topic."
            )
        text = self._settings.hide(error.str())
        return RefusedTopic(
            f"The brokers at {self._settings.bootstrap_servers} refuse a request about {subject}:"
            f" {text}. Check the permissions of the user and the -X properties."
        )

    def _no_response(self) -> BrokersUnavailable:
        """Return the error, with the newest failure of a connection as the reason."""
        self._admin.poll(0)  # delivers the errors of connections
        servers = self._settings.bootstrap_servers
        reason = self._settings.hide(self._errors[-1].str()) if self._errors else "no response"
        return BrokersUnavailable(
            f"No broker responds at {servers} ({reason}). Check --bootstrap-server, and the -X"
            " properties of a Kafka with passwords or TLS."
        )
