"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from conformance.differential.registry import scenario
from conformance.differential.scenarios.cluster import BAD_NAMES
from conformance.differential.session import Session
from odradek.ids import ZERO_UUID
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import create_partitions_request as cp
from odradek.protocol.messages import create_topics_request as ct
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic


def topic_of(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignment: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> ct.CreatableTopic:
    manual = [ct.CreatableReplicaAssignment(p, b) for p, b in (assignment or {}).items()]
    config_entries = [ct.CreatableTopicConfig(k.replace("_", "."), v) for k, v in configs.items()]
    return ct.CreatableTopic(name, partitions, replicas, manual, config_entries)


def creation(*topics: ct.CreatableTopic, only_validate: bool = False) -> ct.CreateTopicsRequest:
    return ct.CreateTopicsRequest(list(topics), 10_000, only_validate)


@scenario(ApiKey.CREATE_TOPICS)
def made(s: Session) -> None:
    name = s.name
    s.ask("one", creation(topic_of(name("a"))))
    s.ask("again", creation(topic_of(name("a"))))
    s.ask("three partitions", creation(topic_of(name("b"), 3)))
    s.ask("validated", creation(topic_of(name("c"), 2), only_validate=True))
    s.ask("validated, then made", creation(topic_of(name("c"), 2)))
    s.ask("validated, exists", creation(topic_of(name("c"), 2), only_validate=True))
    configs = {"retention_ms": "1000", "cleanup_policy": "compact"}
    s.ask("configs", creation(topic_of(name("d"), **configs)))
    s.ask("two", creation(topic_of(name("e")), topic_of(name("f"), 2)))
    s.ask("one good, one bad", creation(topic_of(name("g")), topic_of("a b")))
    s.ask("none", creation())


@scenario(ApiKey.CREATE_TOPICS)
def numbers(s: Session) -> None:
    for partitions in (-2, -1, 0):
        s.ask(f"partitions {partitions}", creation(topic_of(s.name(f"p{partitions}"), partitions)))
    for replicas in (-2, -1, 0, 2, 32767):
        topic = topic_of(s.name(f"r{replicas}"), 1, replicas)
        s.ask(f"replicas {replicas}", creation(topic))
    s.ask("both -1", creation(topic_of(s.name("both"), -1, -1)))


@scenario(ApiKey.CREATE_TOPICS)
def names(s: Session) -> None:
    for bad in BAD_NAMES:
        if len(bad) != 249:
            s.ask(f"name {bad[:9]!r} {len(bad)}", creation(topic_of(bad)))
    s.ask("dot", creation(topic_of(s.name("x.y"))))
    s.ask("collides with underscore", creation(topic_of(s.name("x_y"))))
    same = topic_of(s.name("twice"))
    s.ask("twice", creation(same, same))
    s.ask("twice and another", creation(same, same, topic_of(s.name("other"))))
    s.ask("both collide", creation(topic_of(s.name("u.v")), topic_of(s.name("u_v"))))
    s.ask("internal", creation(topic_of("__cluster_metadata")))


@scenario(ApiKey.CREATE_TOPICS)
def assignments(s: Session) -> None:
    def ask(step: str, assignment: dict[int, list[int]], *, n: int = -1, r: int = -1) -> None:
        hint = step.replace(" ", "_").replace(",", "")
        s.ask(step, creation(topic_of(s.name(hint), n, r, assignment)))

    ask("two partitions", {0: [1], 1: [1]})
    ask("numbers too", {0: [1]}, n=1, r=1)
    ask("number of partitions", {0: [1]}, n=1)
    ask("number of replicas", {0: [1]}, r=1)
    ask("not from 0", {1: [1]})
    ask("a hole", {0: [1], 2: [1]})
    ask("unknown broker", {0: [7]})
    ask("unknown second", {0: [1, 7]})
    ask("same broker twice", {0: [1, 1]})
    ask("no broker", {0: []})
    ask("negative broker", {0: [-1]})
    ask("of two lengths", {0: [1], 1: []})
    twice = ct.CreatableTopic(s.name("pt"), -1, -1, [ct.CreatableReplicaAssignment(0, [1])] * 2, [])
    s.ask("partition twice", creation(twice))


@scenario(ApiKey.CREATE_TOPICS)
def bad_configs(s: Session) -> None:
    cases: dict[str, dict[str, str | None]] = {
        "unknown": {"no_such": "1"},
        "not a number": {"retention_ms": "soon"},
        "out of range": {"segment_bytes": "1"},
        "bad enum": {"cleanup_policy": "burn"},
        "bad second": {"cleanup_policy": "compact,burn"},
        "empty list": {"cleanup_policy": ""},
        "null": {"retention_ms": None},
        "empty": {"retention_ms": ""},
        "spaces": {"retention_ms": " 5 "},
        "not a boolean": {"preallocate": "yes"},
        "boolean in capitals": {"preallocate": "TRUE"},
        "double": {"min_cleanable_dirty_ratio": "0.25"},
        "double out of range": {"min_cleanable_dirty_ratio": "1.5"},
        "not a double": {"min_cleanable_dirty_ratio": "x"},
        "compression": {"compression_type": "brotli"},
        "producer": {"compression_type": "producer"},
        "level": {"compression_type": "gzip", "compression_gzip_level": "10"},
        "level 5": {"compression_type": "gzip", "compression_gzip_level": "5"},
        "timestamp type": {"message_timestamp_type": "Now"},
        "min isr 0": {"min_insync_replicas": "0"},
        "min isr 5": {"min_insync_replicas": "5"},
        "lag order": {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
        "remote storage": {"remote_storage_enable": "true"},
        "remote storage off": {"remote_storage_enable": "false"},
        "local retention": {"local_retention_ms": "5000", "retention_ms": "1000"},
        "throttled": {"leader_replication_throttled_replicas": "*"},
        "throttled badly": {"leader_replication_throttled_replicas": "x"},
        "message format": {"message_format_version": "2.0"},
        "too large": {"segment_bytes": "99999999999"},
        "none": {"cleanup_policy": "none"},
    }
    for step, configs in cases.items():
        topic = topic_of(s.name(step.replace(" ", "_")), **configs)
        s.ask(step, creation(topic))
    name = s.name("same_key")
    twice = ct.CreatableTopic(
        name, 1, 1, [],
        [ct.CreatableTopicConfig("retention.ms", v) for v in ("1", "2")],
    )  # fmt: skip
    s.ask("key twice", creation(twice))


@scenario(ApiKey.DELETE_TOPICS)
def by_name(s: Session) -> None:
    def ask(step: str, *names: str) -> None:
        states = [DeleteTopicState(name) for name in names]
        s.ask(step, DeleteTopicsRequest(states, list(names), 10_000))

    one, two = s.create("one"), s.create("two")
    s.plainer.alias("topic_id", s.topic_id(one))
    ask("one", one)
    s.gone(one)
    ask("again", one)
    ask("unknown", s.name("nobody"))
    ask("twice", two, two)
    ask("good and bad", s.create("three"), s.name("nobody"))
    ask("no name", "")
    ask("bad name", "a b")
    s.ask("none", DeleteTopicsRequest([], [], 1000))
    requested = [MetadataRequestTopic(name=one)]
    s.ask("metadata", MetadataRequest(requested, False), 12, on="other")


@scenario(ApiKey.DELETE_TOPICS, versions=(6,))
def by_id(s: Session) -> None:
    def ask(step: str, *states: DeleteTopicState) -> None:
        s.ask(step, DeleteTopicsRequest(list(states), [], 10_000))

    one, two = s.create("one"), s.create("two")
    id_1, id_2 = s.topic_id(one), s.topic_id(two)
    for each in (id_1, id_2):
        s.plainer.alias("topic_id", each)
    ask("id and name", DeleteTopicState(one, id_1))
    ask("id", DeleteTopicState(None, id_1))
    s.gone(one)
    ask("again", DeleteTopicState(None, id_1))
    ask("unknown", DeleteTopicState(None, b"\7" * 16))
    ask("neither", DeleteTopicState(None, ZERO_UUID))
    ask("twice", DeleteTopicState(None, id_2), DeleteTopicState(None, id_2))
    ask("by id and by name", DeleteTopicState(None, id_2), DeleteTopicState(two))
    ask("unknown twice", *[DeleteTopicState(None, b"\7" * 16)] * 2)


@scenario(ApiKey.CREATE_PARTITIONS)
def more(s: Session) -> None:
    topic = s.create("t", 2)

    def ask(
        step: str, count: int, brokers: list[list[int]] | None = None, *, only: bool = False,
        name: str = topic,
    ) -> None:  # fmt: skip
        manual = None if brokers is None else [cp.CreatePartitionsAssignment(b) for b in brokers]
        each = cp.CreatePartitionsTopic(name, count, manual)
        s.ask(step, cp.CreatePartitionsRequest([each], 10_000, only))

    ask("validated", 3, only=True)
    ask("the same number", 2)
    ask("fewer", 1)
    ask("none", 0)
    ask("-1", -1)
    ask("three", 3)
    ask("assigned", 5, [[1], [1]])
    ask("assigned too few", 8, [[1]])
    ask("assigned too many", 6, [[1], [1]])
    ask("unknown broker", 6, [[7]])
    ask("broker twice", 6, [[1, 1]])
    ask("no broker", 6, [[]])
    ask("no assignments", 6, [])
    ask("unknown topic", 3, name=s.name("nobody"))
    ask("no name", 3, name="")
    # With tens of millions of partitions Kafka 4.3 ends with OutOfMemoryError.
    ask("too many", 10_100, only=True)
    same = cp.CreatePartitionsTopic(topic, 9, None)
    s.ask("twice", cp.CreatePartitionsRequest([same, same], 10_000, False))
    s.ask("no topics", cp.CreatePartitionsRequest([], 10_000, False))
    bad = cp.CreatePartitionsTopic(s.name("nobody"), 9, None)
    good = cp.CreatePartitionsTopic(topic, 7, None)
    s.ask("good and bad", cp.CreatePartitionsRequest([good, bad], 10_000, False))
    request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
    described = s.until(lambda response: len(response.topics[0].partitions) == 7, request, 12)
    s.note("partitions", sorted(p.partition_index for p in described.topics[0].partitions))
