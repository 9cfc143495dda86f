"""Table of the APIs that this broker serves, one line each. ApiVersions is computed from it.

A line has the implemented versions and the handler, ``odradek.broker.handlers.<handler>``. The
handler is imported on first use, together with ``<handler>_request`` and ``<handler>_response`` of
``odradek.protocol.messages``.

`advertised_min` differs from `min_version` only for Produce. librdkafka before 2.8.1 turns
compression off unless Produce v0 is advertised. Kafka therefore advertises version 0 and refuses
versions 0 to 2 (KAFKA-18659), and so does this broker.

`APIS` are served on every listener. `INTER_BROKER_APIS` are served on the inter-broker listener of
a cluster only. On another listener the broker closes the connection, as Kafka does for an API that
the listener does not have. A single broker has no peers and does not serve them at all.

Any broker of a cluster accepts every request, but only the active controller changes metadata.
`forwarding` says how another broker executes a request of the API. Kafka forwards the same APIs
(``ApiKeys.forwardable``).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from odradek.protocol.api_keys import ApiKey

PRODUCE_ZSTD_FROM = 7
"""The first version of Produce whose batches may use zstd (KIP-110)."""
PRODUCE_TOPIC_ID_FROM = 13
"""The first version of Produce that names topics by id (KIP-516)."""


class Forwarding(Enum):
    """How a broker that is not the active controller executes a request.

    LOCAL: it executes the request itself. DISPATCHER: it sends the whole request to the controller.
    HANDLER: it executes a part of the request, and sends the rest to the controller.
    """

    LOCAL = "local"
    DISPATCHER = "dispatcher"
    HANDLER = "handler"


class Api(NamedTuple):
    """One API. `handler` serves the versions `min_version` to `max_version`, both included.

    The inter-broker listener of a cluster also serves the versions up to `inter_broker_max`. These
    are versions of a later Kafka, which clients of Kafka 4.1 do not know.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handler: str
    forwarding: Forwarding = Forwarding.LOCAL
    advertised_min: int | None = None
    inter_broker_max: int | None = None

    @property
    def highest(self) -> int:
        """The highest version on any listener."""
        return self.max_version if self.inter_broker_max is None else self.inter_broker_max

    @property
    def advertised(self) -> tuple[int, int]:
        """The lowest and the highest version that ApiVersions lists."""
        lowest = self.min_version if self.advertised_min is None else self.advertised_min
        return lowest, self.max_version

    @property
    def message_name(self) -> str:
        """Return the common start of the names of the request and response classes.

        For example ``InitProducerId`` for the handler ``init_producer_id``.
        """
        return "".join(part.capitalize() for part in self.handler.split("_"))


DISPATCHER, HANDLER = Forwarding.DISPATCHER, Forwarding.HANDLER

APIS: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, 3, 13, "produce", advertised_min=0),
    Api(ApiKey.FETCH, 4, 18, "fetch"),
    Api(ApiKey.LIST_OFFSETS, 1, 10, "list_offsets"),
    Api(ApiKey.METADATA, 0, 13, "metadata"),
    Api(ApiKey.OFFSET_COMMIT, 2, 9, "offset_commit"),
    Api(ApiKey.OFFSET_FETCH, 1, 9, "offset_fetch"),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator"),
    Api(ApiKey.JOIN_GROUP, 0, 9, "join_group"),
    Api(ApiKey.HEARTBEAT, 0, 4, "heartbeat"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "leave_group"),
    Api(ApiKey.SYNC_GROUP, 0, 5, "sync_group"),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "describe_groups"),
    Api(ApiKey.LIST_GROUPS, 0, 5, "list_groups"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "create_topics", DISPATCHER),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "delete_topics", DISPATCHER),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch"),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "add_partitions_to_txn"),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "add_offsets_to_txn"),
    Api(ApiKey.END_TXN, 0, 5, "end_txn"),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 1, "write_txn_markers", inter_broker_max=2),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers"),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "describe_transactions"),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "list_transactions"),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offset_commit"),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, "describe_acls"),
    Api(ApiKey.CREATE_ACLS, 1, 3, "create_acls", DISPATCHER),
    Api(ApiKey.DELETE_ACLS, 1, 3, "delete_acls", DISPATCHER),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "describe_configs"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "alter_configs", HANDLER),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "alter_replica_log_dirs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, "describe_log_dirs"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "create_partitions", DISPATCHER),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "delete_groups"),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "elect_leaders", DISPATCHER),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "incremental_alter_configs", HANDLER),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "alter_partition_reassignments", DISPATCHER),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "list_partition_reassignments", DISPATCHER),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "offset_delete"),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "describe_client_quotas"),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "alter_client_quotas", DISPATCHER),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "describe_user_scram_credentials"),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "describe_quorum", DISPATCHER),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "update_features", DISPATCHER),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "describe_cluster"),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "unregister_broker", DISPATCHER),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_group_heartbeat"),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_group_describe"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "list_config_resources"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions"),
)

INTER_BROKER_APIS: tuple[Api, ...] = (
    Api(ApiKey.ALTER_PARTITION, 2, 3, "alter_partition"),
    Api(ApiKey.ENVELOPE, 0, 0, "envelope"),
    Api(ApiKey.BROKER_HEARTBEAT, 0, 1, "broker_heartbeat"),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, "allocate_producer_ids"),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, "assign_replicas_to_dirs"),
    Api(ApiKey.METADATA_FEED, 0, 0, "metadata_feed"),
    Api(ApiKey.METADATA_IMAGE, 0, 0, "metadata_image"),
    Api(ApiKey.FINISH_DELETIONS, 0, 0, "finish_deletions"),
    Api(ApiKey.DRAIN_BROKER, 0, 0, "drain_broker"),
)

API_BY_KEY: dict[int, Api] = {int(api.key): api for api in APIS}
INTER_BROKER_API_BY_KEY: dict[int, Api] = {int(api.key): api for api in INTER_BROKER_APIS} | {
    int(api.key): api._replace(max_version=api.inter_broker_max)
    for api in APIS
    if api.inter_broker_max is not None
}
"""The APIs of which the inter-broker listener has more versions than the others."""
