"""Differences between the two brokers that the comparison permits, each with its reason.

A key is a pattern of ``scenario@version/step/field`` paths. It names the fields that differ. ``*``
stands for any part of one component, never for several. A whole run reports patterns that match
nothing. docs/deviations.md has the same list as a table::

    python -m conformance.differential.allowed
"""

from __future__ import annotations

from collections import defaultdict

_LATER = "Kafka 4.3 serves a later version of this API. Odradek serves the ranges of Kafka 4.1."
_FEATURES = "Odradek has fewer features than Kafka."
_SAYS_WHY = "The error message says why a request is refused. Kafka leaves it empty."
_START_OFFSET = (
    "A refused batch is returned without the log start offset, unless its body was opened. Kafka "
    "returns it with some errors."
)
_RECORD_ERRORS = (
    "A refused batch is returned without the records at fault, unless its body was opened."
)
_BODY = "The body of a batch is not opened, so that records are stored that Kafka refuses."
_MAX_TIMESTAMP = (
    "The maximum timestamp in a batch's header is kept. Kafka stores the maximum of the records."
)
_FAILS = (
    "Kafka fails with UNKNOWN_SERVER_ERROR or sends no response. Odradek returns an error with the "
    "reason."
)
_EMPTY = "A topic without partitions is returned as it was requested. Kafka leaves it out."
_FOLLOWER = (
    "A fetch as a replica that is refused gets the address of the leader. Kafka returns it to "
    "consumers only."
)
_DELETED_MAX = (
    "When DeleteRecords has removed all records, ListOffsets finds no maximum timestamp. Kafka "
    "returns the timestamp of a deleted record."
)
_NEGATIVE_EPOCH = (
    "OffsetForLeaderEpoch with a negative epoch, which no client requests, has another response "
    "for an empty partition."
)
_SHARE = "Share groups are not served. FindCoordinator refuses their keys with INVALID_REQUEST."
_COLLIDE = (
    "Two new topics of one request whose names differ only in `.` and `_` collide. Kafka creates "
    "both."
)
_UNKNOWN_CONFIGS = "Unknown broker configs are refused. Kafka keeps them for plugins."
_NAN = "A quota that is not a number is refused. Kafka keeps it."
_REQUEST_RATE = "Quotas of request rates are refused, because they are not enforced."
_ELR = (
    "Kafka's eligible leader replicas make `min.insync.replicas` a dynamic default of the cluster."
)
_TIERED = (
    "Broker configs of tiered storage do not apply, so that the topic configs have no such synonym."
)
_NODE_ID = "`node.id` has a default. In Kafka it has none."
_ZOOKEEPER = "Configs of ZooKeeper exist, as in Kafka 3.9. Kafka 4 has none."
_LISTENERS = (
    "Each broker has its own addresses and directories. Kafka can alter `listeners` while it runs."
)
_LIST_TYPE = "The type of the config is STRING, as in Kafka 4.1. It is LIST since Kafka 4.2."
_SINGLE = "The default suits a single node. In Kafka the value had to be set."

_PRODUCED = "responses/*/partition_responses/*"
_LISTED = "topics/*/partitions/*"
_FETCHED = "responses/*/partitions/*"
_OF_TOPIC = "describe_configs.of_a_topic@*/*/results/*/configs"
_OF_BROKER = "describe_configs.of_a_broker@*/*/results/*/configs"

_PERMITTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Reason, response, fields of the response.
    *(
        (_LATER, f"api_versions.*@*/*: {name}", ("max",))
        for name in (
            "list_offsets",
            "offset_commit",
            "offset_fetch",
            "describe_log_dirs",
            "write_txn_markers",
        )
    ),
    (_FEATURES, "api_versions.*@*", ("*: supported features", "*: finalized features")),
    (_FAILS, "metadata.by_id@*/zero id", ("error_code", "topics/*/error_code")),
    (
        _FAILS,
        "describe_topic_partitions.bad_topics@*/name '' 0/topics/*",
        ("error_code", "topic_authorized_operations"),
    ),
    # Produce
    *(
        (_SAYS_WHY, f"produce.{scenario}@*/*/{_PRODUCED}", ("error_message",))
        for scenario in (
            "attributes",
            "duplicates",
            "epochs",
            "header_lies",
            "in_transactions",
            "internal",
            "recompressed",
            "shapes",
            "sizes",
            "unknown_producers",
            "wrap",
        )
    ),
    *(
        (_START_OFFSET, f"produce.{scenario}@*/*/{_PRODUCED}", ("log_start_offset",))
        for scenario in (
            "attributes",
            "duplicates",
            "epochs",
            "header_lies",
            "in_transactions",
            "recompressed",
            "timestamps",
            "unknown_producers",
            "wrap",
        )
    ),
    (_RECORD_ERRORS, f"produce.timestamps@*/*/{_PRODUCED}", ("record_errors",)),
    *(
        (_BODY, f"produce.{step}/{_PRODUCED}", ("error_code", "base_offset"))
        for step in (
            "header_lies@*/delta and count 5",
            "attributes@*/gzip that is not",
            "body_lies@*/record length",
            "body_lies@*/header count",
        )
    ),
    (_FAILS, "produce.shapes@*", ("null",)),
    (_FAILS, f"produce.attributes@*/compression */{_PRODUCED}", ("error_code",)),
    (_MAX_TIMESTAMP, f"produce.body_lies@*/*, kept/{_FETCHED}", ("records/*/max_timestamp",)),
    # Fetch, ListOffsets
    (_FAILS, "fetch.by_offset@*/isolation 2", ("error_code", "responses")),
    (
        _FAILS,
        f"fetch.by_offset@*/isolation 2/{_FETCHED}",
        (
            "error_code",
            "high_watermark",
            "last_stable_offset",
            "log_start_offset",
            "aborted_transactions",
            "records",
        ),
    ),
    (_FOLLOWER, "fetch.as_a_replica@*/replica 7", ("node_endpoints",)),
    (
        _FAILS,
        f"list_offsets.special@*/isolation 2/{_LISTED}",
        ("error_code", "offset", "leader_epoch"),
    ),
    (
        _DELETED_MAX,
        f"list_offsets.after_a_delete@*/all gone, max timestamp/{_LISTED}",
        ("timestamp", "offset", "leader_epoch"),
    ),
    (
        _NEGATIVE_EPOCH,
        f"offset_for_leader_epoch.epochs@*/empty epoch -2 */{_LISTED}",
        ("leader_epoch", "end_offset"),
    ),
    # Groups
    (_SAYS_WHY, "find_coordinator.coordinators@*/kind 2, */coordinators/*", ("error_message",)),
    (_SAYS_WHY, "find_coordinator.share_keys@*/*/coordinators/*", ("error_message",)),
    (_SHARE, "find_coordinator.share_keys@*/'g:*:0'/coordinators/*", ("error_code",)),
    (_EMPTY, "produce.addresses@*/no partitions", ("responses",)),
    (_EMPTY, "offset_commit.wrong_addresses@*/no partitions", ("topics",)),
    # Topics and configs
    (
        _COLLIDE,
        "create_topics.names@*/both collide/topics/[~-u_v]",
        (
            "error_code",
            "error_message",
            "topic_id",
            "num_partitions",
            "replication_factor",
            "configs",
        ),
    ),
    (_FAILS, "create_partitions.more@*/too many/results/*", ("error_code", "error_message")),
    (_FAILS, "alter_configs.replaced@*", ("resource twice",)),
    *(
        (
            _FAILS,
            f"incremental_alter_configs.changed@*/operation {operation}/responses/*",
            ("error_code", "error_message"),
        )
        for operation in (4, -1)
    ),
    (
        _UNKNOWN_CONFIGS,
        "incremental_alter_configs.of_brokers@*/* unknown/responses/*",
        ("error_code", "error_message"),
    ),
    # Administration
    *(
        (_FAILS, f"{scenario}@*", ("unknown kinds",))
        for scenario in (
            "describe_acls.acls_described",
            "create_acls.acls_created",
            "delete_acls.acls_deleted",
        )
    ),
    (
        _NAN,
        "alter_client_quotas.quotas_altered@*/validated, not a number/entries/*",
        ("error_code", "error_message"),
    ),
    (
        _REQUEST_RATE,
        "alter_client_quotas.quotas_altered@*/validated, request rate/entries/*",
        ("error_code", "error_message"),
    ),
    (
        _ELR,
        "create_topics.*@*/*/topics/*/configs/[min.insync.replicas]",
        ("config_source",),
    ),
    (_ELR, f"{_OF_TOPIC}/[min.insync.replicas]", ("config_source", "synonyms")),
    (_ELR, f"{_OF_BROKER}/[min.insync.replicas]", ("config_source", "synonyms")),
    (_ELR, "describe_configs.of_a_broker@*/default broker/results/[]", ("configs",)),
    (_TIERED, f"{_OF_TOPIC}/[local.retention.bytes]", ("synonyms",)),
    (_TIERED, f"{_OF_TOPIC}/[local.retention.ms]", ("synonyms",)),
    (_NODE_ID, f"{_OF_BROKER}/[node.id]", ("synonyms",)),
    *(
        (_ZOOKEEPER, _OF_BROKER, (f"[zookeeper.{name}]",))
        for name in ("connect", "connection.timeout.ms", "session.timeout.ms")
    ),
    *(
        (_LIST_TYPE, f"{_OF_BROKER}/[{name}]", ("config_type",))
        for name in ("advertised.listeners", "listeners", "log.dir", "log.dirs")
    ),
    (_LISTENERS, f"{_OF_BROKER}/[advertised.listeners]", ("value", "config_source", "synonyms")),
    (_LISTENERS, f"{_OF_BROKER}/[listeners]", ("value", "read_only", "synonyms/0/value")),
    (_LISTENERS, f"{_OF_BROKER}/[log.dirs]", ("value", "synonyms/0/value")),
    *(
        (_SINGLE, f"{_OF_BROKER}/[{name}]", ("config_source", "synonyms"))
        for name in (
            "group.initial.rebalance.delay.ms",
            "offsets.topic.replication.factor",
            "transaction.state.log.min.isr",
            "transaction.state.log.replication.factor",
        )
    ),
)

ALLOWED: dict[str, str] = {
    f"{where}/{field}": reason for reason, where, fields in _PERMITTED for field in fields
}


def table() -> str:
    """Return the table of docs/deviations.md: one row for each reason, with its patterns."""
    patterns: dict[str, list[str]] = defaultdict(list)
    for pattern, reason in ALLOWED.items():
        patterns[reason].append(f"`{pattern}`")
    rows = [f"| {reason} | {', '.join(where)} |" for reason, where in patterns.items()]
    return "\n".join(["| difference | where it shows |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(table(), end="")
