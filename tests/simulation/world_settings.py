"""The topics and configs of a simulation, for a single broker and for a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

REPLICAS_MAX = 3
NEVER = str(2**63 - 1)
FLUSHES = {"flush.messages": "1"}
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic of the history. It lives for the whole run.

    Attributes:
        durable: It loses nothing that acks=all has acknowledged, except by an unclean election.
    """

    name: str
    partitions: int
    replicas: int = 1
    durable: bool = True
    configs: dict[str, str] = field(default_factory=dict)


SINGLE_TOPICS = (
    PlannedTopic("durable", 2, configs=FLUSHES),
    PlannedTopic("buffered", 2, durable=False),
)
"""A power cut takes acknowledged records from the second one."""
CLUSTER_TOPICS = (
    PlannedTopic("triple", 2, 3, configs={MIN_ISR: "2"}),
    PlannedTopic("flushed", 1, 3, configs={MIN_ISR: "2", **FLUSHES}),
    PlannedTopic("pair", 1, 2, configs={"compression.type": "gzip", MIN_ISR: "1"}),
    PlannedTopic("single", 1, configs={MIN_ISR: "1", **FLUSHES}),
    PlannedTopic("risky", 1, 2, durable=False, configs={UNCLEAN: "true", MIN_ISR: "1"}),
)
INTERNAL_PARTITIONS = 2
"""Partitions of each internal topic."""
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": "3000",
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.retention.check.interval.ms": "5000",
    "auto.create.topics.enable": "false",
    # Coordinators lose nothing acknowledged in a power cut.
    "log.flush.interval.messages": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
CLUSTER_CONFIG = {
    **BROKER_CONFIG,
    "broker.session.timeout.ms": "2000",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "request.timeout.ms": "3000",
    "leader.imbalance.check.interval.seconds": "15",
    "unclean.leader.election.interval.ms": "5000",
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.min.session.timeout.ms": "12000",
    "group.consumer.session.timeout.ms": "12000",
}


def cluster_config(replicas: int) -> dict[str, str]:
    """Return the configs of the brokers of a cluster, as `odradek cluster up` sets them.

    Args:
        replicas: The number of replicas of the internal topics. Their minimal ISR is one less.
    """
    min_isr = str(max(replicas - 1, 1))
    return {
        **CLUSTER_CONFIG,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": min_isr,
        MIN_ISR: min_isr,
    }
