"""Differences between the two brokers that the comparison permits, each with its reason.

A key is a pattern of ``scenario@version/step/field`` paths, in which ``*`` stands for anything. A
whole run reports patterns that match nothing. docs/deviations.md has the same list as a table::

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
    "Kafka fails with UNKNOWN_SERVER_ERROR or does not answer. Odradek returns an error that says "
    "why."
)
_EMPTY = "A topic without partitions is returned as it was requested. Kafka leaves it out."
_FOLLOWER = "A fetch as a replica returns no addresses, because no node is a follower yet."
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
_LISTENERS = (
    "Each broker has its own addresses and directories. Kafka can alter `listeners` while it runs."
)
_LIST_TYPE = "The type of the config is STRING, as in Kafka 4.1. It is LIST since Kafka 4.2."
_SINGLE = "The default suits a single node. In Kafka the value had to be set."

ALLOWED: dict[str, str] = {
    "api_versions.*: list_offsets/max": _LATER,
    "api_versions.*: offset_commit/max": _LATER,
    "api_versions.*: offset_fetch/max": _LATER,
    "api_versions.*: describe_log_dirs/max": _LATER,
    "api_versions.*: write_txn_markers/max": _LATER,
    "api_versions.*: supported features": _FEATURES,
    "api_versions.*: finalized features": _FEATURES,
    "metadata.by_id@*/zero id/*": _FAILS,
    "describe_topic_partitions.bad_topics@*/name '' 0/*": _FAILS,
    # Produce
    "produce.*/error_message": _SAYS_WHY,
    "produce.*/log_start_offset": _START_OFFSET,
    "produce.*/record_errors": _RECORD_ERRORS,
    "produce.header_lies@*/delta and count 5/*": _BODY,
    "produce.shapes@*/null": _FAILS,
    "produce.attributes@*/compression *": _FAILS,
    "produce.attributes@*/gzip that is not/*": _BODY,
    "produce.body_lies@*/record length/*": _BODY,
    "produce.body_lies@*/header count/*": _BODY,
    "produce.body_lies@*, kept/*/max_timestamp": _MAX_TIMESTAMP,
    "produce.addresses@*/no partitions/*": _EMPTY,
    # Fetch, ListOffsets
    "fetch.by_offset@*/isolation 2/*": _FAILS,
    "fetch.as_a_replica@*/node_endpoints": _FOLLOWER,
    "list_offsets.special@*/isolation 2/*": _FAILS,
    "list_offsets.after_a_delete@*/all gone, max timestamp/*": _DELETED_MAX,
    "offset_for_leader_epoch.epochs@*/empty epoch -2 *": _NEGATIVE_EPOCH,
    # Groups
    "find_coordinator.*/error_message": _SAYS_WHY,
    "find_coordinator.share_keys@*/error_code": _SHARE,
    "offset_commit.wrong_addresses@*/no partitions/*": _EMPTY,
    # Topics and configs
    "create_topics.names@*/both collide/*": _COLLIDE,
    "create_partitions.more@*/error_message": _SAYS_WHY,
    "create_partitions.more@*/too many/*": _FAILS,
    "alter_configs.replaced@*/resource twice": _FAILS,
    "incremental_alter_configs.*/operation 4/*": _FAILS,
    "incremental_alter_configs.*/operation -1/*": _FAILS,
    "incremental_alter_configs.of_brokers@* unknown/*": _UNKNOWN_CONFIGS,
    # Groups of consumers, administration
    "*_acls.acls_*/unknown kinds": _FAILS,
    "alter_client_quotas.*/validated, not a number/*": _NAN,
    "alter_client_quotas.*/validated, request rate/*": _REQUEST_RATE,
    "*/configs/[min.insync.replicas]/config_source": _ELR,
    "*/configs/[min.insync.replicas]/synonyms": _ELR,
    "describe_configs.of_a_broker@*/default broker/*": _ELR,
    "*/configs/[local.retention.*]/synonyms": _TIERED,
    "*/configs/[node.id]/synonyms": _NODE_ID,
    "*/configs/[advertised.listeners]/config_type": _LIST_TYPE,
    "*/configs/[listeners]/config_type": _LIST_TYPE,
    "*/configs/[log.dir]/config_type": _LIST_TYPE,
    "*/configs/[log.dirs]/config_type": _LIST_TYPE,
    "*/configs/[advertised.listeners]/*": _LISTENERS,
    "*/configs/[listeners]/*": _LISTENERS,
    "*/configs/[log.dirs]/*": _LISTENERS,
    "*/configs/[group.initial.rebalance.delay.ms]/*": _SINGLE,
    "*/configs/[offsets.topic.replication.factor]/*": _SINGLE,
    "*/configs/[transaction.state.log.min.isr]/*": _SINGLE,
    "*/configs/[transaction.state.log.replication.factor]/*": _SINGLE,
}


def table() -> str:
    """The table of docs/deviations.md: one row for each reason, with its patterns."""
    patterns: dict[str, list[str]] = defaultdict(list)
    for pattern, reason in ALLOWED.items():
        patterns[reason].append(f"`{pattern}`")
    rows = [f"| {reason} | {', '.join(where)} |" for reason, where in patterns.items()]
    return "\n".join(["| difference | where it shows |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(table(), end="")
