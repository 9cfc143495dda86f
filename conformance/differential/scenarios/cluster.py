"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster."""

from __future__ import annotations

import struct

from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.broker.requests.apis import API_BY_KEY
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

BAD_NAMES = ("", ".", "..", "a b", "ü", "x" * 249, "x" * 250, "a/b", "a\0b")


def _advertised(s: Session, step: str, request: ApiVersionsRequest) -> None:
    """Compare only the APIs that Odradek serves, at the versions that both brokers advertise."""
    s.send(request)
    response = s.wire().receive()
    s.note(f"{step}: error", response.error_code)
    for found in sorted(response.api_keys, key=lambda each: each.api_key):
        if found.api_key in API_BY_KEY:
            handler = API_BY_KEY[found.api_key].handler
            s.note(f"{step}: {handler}", {"min": found.min_version, "max": found.max_version})
    features = [feature.name for feature in response.supported_features]
    s.note(f"{step}: supported features", sorted(features))
    finalized = [(each.name, each.max_version_level) for each in response.finalized_features]
    s.note(f"{step}: finalized features", sorted(finalized))


@scenario(ApiKey.API_VERSIONS)
def supported(s: Session) -> None:
    _advertised(s, "valid", ApiVersionsRequest("diff", "1.0"))


@scenario(ApiKey.API_VERSIONS, versions=(3, 4))
def software_names(s: Session) -> None:
    for name, version in (("", ""), ("a b", "1"), ("a", "-1-"), ("-a", "1")):
        s.ask(f"{name!r} {version!r}", ApiVersionsRequest(name, version))
    _advertised(s, "dots and dashes", ApiVersionsRequest("a.b-c", "1.0-x"))


@scenario(ApiKey.API_VERSIONS, versions=(0,))
def unserved_versions(s: Session) -> None:
    for key, version in ((18, 5), (18, 99), (18, -1), (3, 99), (3, -1), (0, 2), (1, 3), (20, 0)):
        s.raw(f"key {key}, version {version}", struct.pack(">hhih", key, version, 7, -1))
    for key in (4, 7, 999, -1):
        s.raw(f"key {key}", struct.pack(">hhih", key, 0, 7, -1))
    s.raw("client id of 2 bytes, cut", struct.pack(">hhih", 18, 0, 7, 2))
    s.raw("no client id", struct.pack(">hhi", 18, 0, 7))
    s.raw("nothing", b"")
    s.raw("rest behind the request", struct.pack(">hhih", 19, 2, 7, -1) + bytes(30))


def _topics(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@scenario(ApiKey.METADATA)
def known(s: Session) -> None:
    topic = s.create(partitions=3)
    s.ask("one", MetadataRequest(_topics(topic), False))
    s.ask("twice", MetadataRequest(_topics(topic, topic), False))
    if s.version >= 1:
        s.ask("none", MetadataRequest([], False))


@scenario(ApiKey.METADATA, versions=(0, 1, 9, 12))
def everything(s: Session) -> None:
    topic = s.create(partitions=2)
    s.send(MetadataRequest([] if s.version == 0 else None, False))
    response = s.wire().receive()
    s.note("brokers", [broker.node_id for broker in response.brokers])
    mine = [found for found in response.topics if found.name == topic]
    s.note("mine", [s.plainer.plain(found) for found in mine])
    s.note("controller", response.controller_id)


@scenario(ApiKey.METADATA, least=4)
def unknown(s: Session) -> None:
    s.ask("unknown", MetadataRequest(_topics(s.name("nobody")), False))
    for name in BAD_NAMES:
        s.ask(f"name {name[:9]!r} {len(name)}", MetadataRequest(_topics(name), False))


@scenario(ApiKey.METADATA, least=4)
def created(s: Session) -> None:
    topic = s.name("auto")
    s.send(MetadataRequest(_topics(topic), True))
    s.wire().receive()
    s.led(topic)
    s.ask("made", MetadataRequest(_topics(topic), True))
    for name in BAD_NAMES[:5]:
        s.ask(f"bad {name!r}", MetadataRequest(_topics(name), True))


@scenario(ApiKey.METADATA, versions=(1, 3, 5, 9))
def creating(s: Session) -> None:
    s.ask("first response", MetadataRequest(_topics(s.name("auto")), True))


@scenario(ApiKey.METADATA, versions=(10, 12, 13))
def by_id(s: Session) -> None:
    topic = s.create(partitions=2)
    topic_id = s.topic_id(topic)
    s.plainer.alias("topic_id", topic_id)
    s.ask("id", MetadataRequest([MetadataRequestTopic(topic_id, None)], False))
    s.ask("id and name", MetadataRequest([MetadataRequestTopic(topic_id, topic)], False))
    s.ask("id, another name", MetadataRequest([MetadataRequestTopic(topic_id, "q")], False))
    s.ask("unknown id", MetadataRequest([MetadataRequestTopic(b"\7" * 16, None)], False))
    s.ask("zero id", MetadataRequest([MetadataRequestTopic(bytes(16), None)], False))
    both = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(b"\7" * 16, None)]
    s.ask("known and unknown", MetadataRequest(both, False))
    mixed = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(name=topic)]
    s.ask("mixed", MetadataRequest(mixed, False))
    create = [MetadataRequestTopic(b"\7" * 16, None)]
    s.ask("creating by id", MetadataRequest(create, True))


@scenario(ApiKey.METADATA, versions=(8, 10, 11, 13))
def authorized_operations(s: Session) -> None:
    topic = s.create()
    requested = _topics(topic, s.name("nobody"))
    s.ask("both", MetadataRequest(requested, False, True, True))
    s.ask("topic", MetadataRequest(requested, False, False, True))
    s.ask("cluster", MetadataRequest(requested, False, True, False))


@scenario(ApiKey.METADATA, versions=(12,))
def internal_topics(s: Session) -> None:
    s.group()
    s.ask("offsets", MetadataRequest(_topics("__consumer_offsets"), False, True, True))


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def pages(s: Session) -> None:
    one, two = s.create("a", 3), s.create("b", 3)
    requested = [TopicRequest(two), TopicRequest(one), TopicRequest(s.name("nobody"))]
    s.ask("all", DescribeTopicPartitionsRequest(requested))
    for limit in (1, 2, 3, 4, 6):
        s.ask(f"limit {limit}", DescribeTopicPartitionsRequest(requested, limit))
    for limit in (0, -1):
        s.ask(f"limit {limit}", DescribeTopicPartitionsRequest(requested, limit))
    for topic, partition in ((one, 0), (one, 1), (one, 2), (one, 3), (two, 0), (two, 2)):
        cursor = Cursor(topic, partition)
        request = DescribeTopicPartitionsRequest(requested, 2, cursor)
        s.ask(f"cursor {topic[-1]} {partition}", request)
    s.ask("cursor -1", DescribeTopicPartitionsRequest(requested, 2, Cursor(one, -1)))
    s.ask("cursor elsewhere", DescribeTopicPartitionsRequest(requested, 2, Cursor("zzz", 0)))
    s.ask("cursor before", DescribeTopicPartitionsRequest(requested, 2, Cursor("", 0)))
    s.ask("twice", DescribeTopicPartitionsRequest([TopicRequest(one), TopicRequest(one)]))


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def bad_topics(s: Session) -> None:
    s.ask("unknown", DescribeTopicPartitionsRequest([TopicRequest(s.name("nobody"))]))
    for name in BAD_NAMES:
        request = DescribeTopicPartitionsRequest([TopicRequest(name)])
        s.ask(f"name {name[:9]!r} {len(name)}", request)


@scenario(ApiKey.DESCRIBE_CLUSTER)
def described(s: Session) -> None:
    s.ask("plain", DescribeClusterRequest())
    s.ask("operations", DescribeClusterRequest(True))
    s.ask("fenced too", DescribeClusterRequest(False, 1, True))
    if s.version >= 1:
        s.ask("controllers", DescribeClusterRequest(False, 2))
        s.ask("endpoint 3", DescribeClusterRequest(False, 3))
        s.ask("endpoint 0", DescribeClusterRequest(False, 0))


def _quorum(*partitions: tuple[str, list[int]]) -> DescribeQuorumRequest:
    topics = [TopicData(name, [PartitionData(p) for p in numbers]) for name, numbers in partitions]
    return DescribeQuorumRequest(topics)


METADATA_LOG = "__cluster_metadata"


@scenario(ApiKey.DESCRIBE_QUORUM)
def who_leads(s: Session) -> None:
    """Compare only the common fields, because each broker has its own offsets and epochs."""
    s.send(_quorum((METADATA_LOG, [0])))
    response = s.wire().receive()
    s.note("errors", (response.error_code, response.error_message))
    [[found]] = [topic.partitions for topic in response.topics]
    s.note("partition", (found.partition_index, found.error_code, found.error_message))
    s.note("leader", found.leader_id)
    s.note("committed", found.high_watermark > 0 and found.leader_epoch > 0)
    s.note("voters", [each.replica_id for each in found.current_voters])
    s.note("timed", [each.last_caught_up_timestamp > 0 for each in found.current_voters])
    s.note("nodes", [each.node_id for each in response.nodes])
    s.note("observers", len(found.observers))


@scenario(ApiKey.DESCRIBE_QUORUM)
def other_quorums(s: Session) -> None:
    topic = s.create()
    s.ask("a topic", _quorum((topic, [0])))
    s.ask("nothing", _quorum())
    s.ask("no partitions", _quorum((METADATA_LOG, [])))
    s.ask("another partition", _quorum((METADATA_LOG, [1])))
    s.ask("twice", _quorum((METADATA_LOG, [0, 0])))
    s.ask("two topics", _quorum((METADATA_LOG, [0]), (topic, [0, 7])))
