"""The API table: what this broker serves, one line an API. ApiVersions is computed from it.

A line names the versions that are implemented and the handler,
``odradek.broker.handlers.<handler>``, imported on first use together with ``<handler>_request``
and ``<handler>_response`` of ``odradek.protocol.messages``. `advertised_min` differs from
`min_version` only for Produce: librdkafka before 2.8.1 turns compression off unless Produce v0 is
advertised, so Kafka advertises 0 and refuses 0-2 (KAFKA-18659), and so do we.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Api:
    """One API: versions `min_version`..`max_version` are served by `handler`."""

    key: ApiKey
    min_version: int
    max_version: int
    handler: str
    advertised_min: int | None = None

    @property
    def message_name(self) -> str:
        """``init_producer_id`` -> ``InitProducerId``: the stem of the request's and response's
        class.
        """
        return "".join(part.capitalize() for part in self.handler.split("_"))


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
    Api(ApiKey.CREATE_TOPICS, 2, 7, "create_topics"),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "delete_topics"),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch"),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "describe_configs"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "alter_configs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, "describe_log_dirs"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "create_partitions"),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "incremental_alter_configs"),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "describe_cluster"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions"),
)

API_BY_KEY: dict[int, Api] = {int(api.key): api for api in APIS}
