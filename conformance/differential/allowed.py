"""Differences that stay, with the reason. The key is a pattern of ``scenario@version/step/field``
paths, in which ``*`` stands for anything; one that matches nothing in a whole run is reported.
The same is told to users in docs/deviations.md.
"""

from __future__ import annotations

_LATER = "a version that Kafka got after 4.1, whose range Odradek serves"
_FEATURES = "Odradek has fewer features than Kafka"
_SAYS_WHY = "says why; Kafka leaves the message out"
_LISTENERS = "each broker has its own addresses and directories; Kafka alters listeners"
_LIST_TYPE = "a LIST since Kafka 4.2, in 4.1 a STRING as here"
_SINGLE = "the default of a single node; Kafka's had to be set"
_FAILS = "Kafka itself fails: UNKNOWN_SERVER_ERROR or no answer at all"
_ELR = "Kafka's eligible leader replicas make it a dynamic default of the cluster"
_BODY = "bodies are not opened: docs/deviations.md, lies inside a correctly summed batch"
_EMPTY = "a topic without partitions is answered as it was asked; Kafka leaves it out"

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
    "produce.*/log_start_offset": "not told with an error; Kafka tells it with some",
    "produce.*/record_errors": "names no single record of a refused batch",
    "produce.header_lies@*/delta and count 5/*": _BODY,
    "produce.header_lies@*/what is kept/*": _BODY,
    "produce.shapes@*/null": _FAILS,
    "produce.attributes@*/compression *": _FAILS,
    "produce.attributes@*/gzip that is not/*": _BODY,
    "produce.attributes@*/base_offset": _BODY,
    "produce.attributes@*/what is kept/*": _BODY,
    "produce.body_lies@*": _BODY,
    "produce.addresses@*/no partitions/*": _EMPTY,
    # Fetch, ListOffsets
    "fetch.by_offset@*/isolation 2/*": _FAILS,
    "fetch.as_a_replica@*/node_endpoints": "no node is a follower yet",
    "list_offsets.special@*/isolation 2/*": _FAILS,
    "list_offsets.after_a_delete@*/all gone, max timestamp/*": (
        "Kafka names a record that is deleted, Odradek none"
    ),
    "offset_for_leader_epoch.epochs@*/empty epoch -2 *": "no client asks for a negative epoch",
    # Groups
    "find_coordinator.*/error_message": _SAYS_WHY,
    "find_coordinator.share_keys@*": "share groups are not served",
    "offset_commit.wrong_addresses@*/no partitions/*": _EMPTY,
    # Topics and configs
    "create_topics.names@*/both collide/*": "Kafka lets two names of one request collide",
    "create_partitions.more@*/error_message": _SAYS_WHY,
    "create_partitions.more@*/too many/*": _FAILS,
    "alter_configs.replaced@*/resource twice": _FAILS,
    "incremental_alter_configs.*/operation 4/*": _FAILS,
    "incremental_alter_configs.*/operation -1/*": _FAILS,
    "incremental_alter_configs.of_brokers@* unknown/*": "Kafka keeps unknown keys for plugins",
    # Groups of consumers, administration
    "consumer_group_heartbeat.refused_beats@0/no member/member_id": (
        "both make an id up, Kafka in base64, Odradek in hexadecimal digits"
    ),
    "consumer_group_heartbeat.refused_beats@*/blank group/*": (
        "a group id of blanks is one like any other; Kafka refuses it here, and in no older API"
    ),
    "*_acls.acls_*/unknown kinds": _FAILS,
    "alter_client_quotas.*/validated, not a number/*": "Kafka takes NaN for a rate",
    "alter_client_quotas.*/validated, request rate/*": "rates of requests are not enforced",
    "*/configs/[min.insync.replicas]/config_source": _ELR,
    "*/configs/[min.insync.replicas]/synonyms": _ELR,
    "describe_configs.of_a_broker@*/default broker/*": _ELR,
    "*/configs/[local.retention.*]/synonyms": "broker configs of tiered storage do not apply",
    "*/configs/[node.id]/synonyms": "has a default here, and none in Kafka",
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
