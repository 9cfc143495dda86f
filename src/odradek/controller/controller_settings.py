"""The times of the controller of a cluster, and the configs that they come from."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times of a controller.

    Attributes:
        session_timeout_ms: ``broker.session.timeout.ms``: time without a poll of the feed after
            which a broker is fenced.
        apply_timeout_ms: Limit of the wait until this broker and the leaders have applied a change.
        retry_ms: Delay before an election that has failed is tried again.
        resigned_wait_ms: Time that a broker whose last take-over failed leaves to the other
            brokers, before it contends. Each further failure doubles it. A random part of up to the
            same length is added, so that such brokers do not contend at the same time.
        resigned_wait_max_ms: Upper bound without the random part.
        balances_leaders: ``auto.leader.rebalance.enable``.
        imbalance_percentage: ``leader.imbalance.per.broker.percentage`` of Kafka before 4.0.
        balance_interval_ms: ``leader.imbalance.check.interval.seconds``.
        unclean_interval_ms: ``unclean.leader.election.interval.ms``: time between the attempts to
            elect leaders of partitions that have none.
    """

    session_timeout_ms: float = 9_000
    apply_timeout_ms: float = 5_000
    retry_ms: float = 1_000
    resigned_wait_ms: int = 1_000
    resigned_wait_max_ms: int = 16_000
    balances_leaders: bool = True
    imbalance_percentage: int = 10
    balance_interval_ms: float = 300_000
    unclean_interval_ms: float = 300_000


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    """Return the times from Kafka's configs."""
    return ControllerSettings(
        session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        balances_leaders=config.get_bool("auto.leader.rebalance.enable"),
        balance_interval_ms=config.get_int("leader.imbalance.check.interval.seconds") * 1000,
        unclean_interval_ms=config.get_int("unclean.leader.election.interval.ms"),
    )
