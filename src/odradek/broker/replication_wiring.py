"""Creation of the parts by which a broker of a cluster replicates its partitions.

Imported only by a broker of a cluster.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from odradek.broker.requests.cluster_parts import SOFTWARE, channel_settings
from odradek.client.broker_channel import BrokerChannel
from odradek.config.listeners import inter_broker_listener
from odradek.ids import BrokerId
from odradek.replication.fetcher_manager import FetcherManager, fetcher_settings
from odradek.replication.isr_proposals import IsrProposals
from odradek.replication.replication_parts import ReplicationParts

if TYPE_CHECKING:
    from odradek.broker.cluster_member import ClusterMember
    from odradek.config.broker import BrokerConfig
    from odradek.environment.environment import Environment


class Replication:
    """The fetchers and the sender of proposed ISRs. Owned by `BrokerServer`.

    Args:
        config: The configs of the broker.
        environment: The environment.
        member: This broker's part in the cluster.
        executor: Runs truncations and flushes.

    Raises:
        KafkaError: INVALID_CONFIG.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        member: ClusterMember,
        executor: Executor,
    ) -> None:
        broker_id = BrokerId(config.node_id)
        settings = channel_settings(config)

        def connect(host: str, port: int, purpose: str) -> BrokerChannel:
            return BrokerChannel(
                host,
                port,
                environment,
                settings=settings,
                client_id=f"broker-{broker_id}-fetcher-{purpose}",
                software=SOFTWARE,
            )

        self._fetchers = FetcherManager(
            broker_id,
            broker_epoch=lambda: member.broker_epoch,
            brokers=lambda: member.image.brokers,
            listener=inter_broker_listener(config),
            connect=connect,
            clock=environment.clock,
            timers=environment.timers,
            executor=executor,
            loop=asyncio.get_running_loop(),
            settings=fetcher_settings(config),
        )
        self._proposals = IsrProposals(
            member.new_channel("isr"),
            broker_id=broker_id,
            broker_epoch=lambda: member.broker_epoch,
            clock=environment.clock,
            timers=environment.timers,
        )
        self.parts = ReplicationParts(
            self._fetchers,
            self._proposals,
            lambda: member.image.brokers,
            environment.clock,
            config.get_int("replica.lag.time.max.ms"),
        )

    async def stop(self) -> None:
        """End all fetches and proposals."""
        self._proposals.stop()
        await self._fetchers.stop()
