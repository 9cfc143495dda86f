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
    PlannedTopic("pair", 1, 2, configs={"compression.type": "gzip"}),
    PlannedTopic("single", 1, configs=FLUSHES),
    PlannedTopic("risky", 1, 2, durable=False, configs={UNCLEAN: "true"}),
)
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": "3000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
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
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
