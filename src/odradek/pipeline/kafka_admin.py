"""Requests to the cluster of an ingest through the Java client in Spark's JVM.

That client takes the same settings as Spark's source (`--kafka-option`), such as those of SASL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from odradek.pipeline.errors import NoBroker, PipelineError
from odradek.pipeline.ledger.state import Source

API_TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 30_000
"""The defaults of Kafka's clients."""
NO_BROKER = (
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "org.apache.kafka.common.errors.NetworkException",
)
LAG_TIMEOUT_MS = 5_000
"""Longest time of a commit of offsets. It delays the next batch."""
UNKNOWN_TOPIC = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"


class KafkaAdmin:
    """An admin client of one cluster, which connects at the first request.

    Args:
        spark: The session whose JVM has the client.
        bootstrap_servers: Addresses of brokers.
        settings: Settings of Kafka's Java clients.
    """

    def __init__(
        self, spark: SparkSession, bootstrap_servers: str, settings: Mapping[str, str]
    ) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._bootstrap_servers = bootstrap_servers
        self._settings = {
            "client.id": "odradek-ingest",
            **settings,
            "bootstrap.servers": bootstrap_servers,
            "default.api.timeout.ms": str(API_TIMEOUT_MS),
            "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
        }
        self._client: Any = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def sources(self, topics: Iterable[str]) -> dict[str, Source]:
        """Return the identities of the topics that exist.

        A broker before Apache Kafka 2.8 gives no topic ids.

        Raises:
            PipelineError: The cluster did not respond.
        """
        try:
            cluster_id = self._open().describeCluster().clusterId().get()
            names = self._jvm.java.util.ArrayList()
            for topic in topics:
                names.add(topic)
            futures = self._open().describeTopics(names).topicNameValues()
            found = {}
            for topic in names:
                topic_id = self._topic_id(futures.get(topic))
                if topic_id is not None:
                    found[topic] = Source(cluster_id, topic_id or None)
        except Py4JJavaError as error:
            raise self._failure(error) from error
        return found

    def _topic_id(self, future: Any) -> str | None:
        """Return the id of a topic, "" if the broker gives none, and None without the topic."""
        try:
            topic_id = future.get().topicId()
        except Py4JJavaError as error:
            if _cause(error).getClass().getName() == UNKNOWN_TOPIC:
                return None
            raise
        zero = self._jvm.org.apache.kafka.common.Uuid.ZERO_UUID
        return "" if topic_id.equals(zero) else str(topic_id.toString())

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the earliest offset of each partition.

        Raises:
            PipelineError: The cluster did not respond, or a partition does not exist.
        """
        return self._offsets(partitions, "earliest")

    def ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the end offset of each partition. Raise PipelineError as `earliest`."""
        return self._offsets(partitions, "latest")

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of an existing topic. Raise PipelineError as `earliest`."""
        names = self._jvm.java.util.ArrayList()
        names.add(topic)
        try:
            found = self._open().describeTopics(names).topicNameValues().get(topic).get()
        except Py4JJavaError as error:
            raise self._failure(error) from error
        return sorted(one.partition() for one in found.partitions())

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the offsets of a group without members, which has no consumer.

        Raises:
            PipelineError: The coordinator did not respond in `LAG_TIMEOUT_MS`, or refused.
        """
        kafka = self._jvm.org.apache.kafka
        committed = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            key = kafka.common.TopicPartition(topic, partition)
            committed.put(key, kafka.clients.consumer.OffsetAndMetadata(offset))
        options = kafka.clients.admin.AlterConsumerGroupOffsetsOptions()
        options.timeoutMs(self._jvm.java.lang.Integer(LAG_TIMEOUT_MS))
        try:
            self._open().alterConsumerGroupOffsets(group, committed, options).all().get()
        except Py4JJavaError as error:
            raise self._failure(error, f"did not commit offsets of the group {group}") from error

    def _offsets(
        self, partitions: Iterable[tuple[str, int]], which: str
    ) -> dict[tuple[str, int], int]:
        kafka = self._jvm.org.apache.kafka
        requested = {key: kafka.common.TopicPartition(*key) for key in sorted(set(partitions))}
        specs = self._jvm.java.util.HashMap()
        for partition in requested.values():
            specs.put(partition, getattr(kafka.clients.admin.OffsetSpec, which)())
        try:
            result = self._open().listOffsets(specs)
            return {
                key: int(result.partitionResult(partition).get().offset())
                for key, partition in requested.items()
            }
        except Py4JJavaError as error:
            raise self._failure(error) from error

    def _open(self) -> Any:
        if self._client is None:
            properties = self._jvm.java.util.Properties()
            for name, value in self._settings.items():
                properties.put(name, value)
            self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        return self._client

    def _failure(
        self, error: Py4JJavaError, what: str = "did not give the ids of its topics"
    ) -> PipelineError:
        cause = _cause(error)
        reason = cause.getMessage() or cause.getClass().getSimpleName()
        failure = NoBroker if cause.getClass().getName() in NO_BROKER else PipelineError
        return failure(
            f"The cluster at {self._bootstrap_servers} {what}: {str(reason).splitlines()[0]}. Check"
            " that it runs and that --kafka-option is right."
        )


def _cause(error: Py4JJavaError) -> Any:
    """Return the reason of an ExecutionException, or the exception itself."""
    return error.java_exception.getCause() or error.java_exception
