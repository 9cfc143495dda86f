"""Generated images and their parts."""

from __future__ import annotations

import string
from dataclasses import replace

from hypothesis import strategies as st

from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    SecurityProtocol,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap

broker_ids = st.integers(0, 5).map(BrokerId)
replica_lists = st.lists(broker_ids, unique=True, max_size=4).map(tuple)
uuids = st.integers(1, 40).map(lambda number: Uuid(number.to_bytes(16, "big")))
names = st.text(string.ascii_lowercase, min_size=1, max_size=3)
overrides = st.dictionaries(names, st.text(max_size=3), min_size=1, max_size=3)
entities = st.one_of(
    names.map(lambda name: (("user", name),)),
    st.just((("user", None),)),
    names.map(lambda name: (("client-id", name), ("user", None))),
)
rates = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
    st.integers(1, 9).map(float),
    min_size=1,
)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(replica_lists)
    directories = st.lists(uuids, min_size=len(replicas), max_size=len(replicas)).map(tuple)
    return PartitionImage(
        0,
        draw(st.one_of(st.just(NO_LEADER), broker_ids)),
        draw(st.integers(0, 9)),
        draw(st.integers(0, 9)),
        replicas,
        draw(replica_lists),
        draw(replica_lists),
        draw(replica_lists),
        draw(replica_lists),
        draw(replica_lists),
        draw(st.sampled_from(LeaderRecoveryState)),
        draw(st.one_of(st.just(()), directories)),
    )


@st.composite
def brokers(draw: st.DrawFn) -> BrokerRegistration:
    endpoint = st.builds(
        Endpoint, names, st.just("host"), st.integers(0, 65535), st.sampled_from(SecurityProtocol)
    )
    listeners = tuple(
        draw(st.lists(endpoint, min_size=1, max_size=3, unique_by=lambda each: each.listener))
    )
    return BrokerRegistration(
        draw(broker_ids),
        listeners[0].host,
        listeners[0].port,
        draw(st.one_of(st.none(), names)),
        listeners,
        draw(st.integers(0, 99)),
        draw(uuids),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.dictionaries(names, st.tuples(st.integers(0, 3), st.integers(3, 9)), max_size=2)),
        tuple(draw(st.lists(uuids, max_size=2, unique=True))),
        draw(st.sampled_from(["", "boot-1", "boot-2"])),
        draw(st.booleans()),
    )


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    """An image, consistent in itself: unique topic ids, numbered partitions."""
    by_name = draw(
        st.dictionaries(
            names.map(TopicName), st.tuples(uuids, st.lists(partitions(), max_size=4)), max_size=5
        )
    )
    topics = {}
    for name, (topic_id, found) in by_name.items():
        numbered = [replace(each, partition=number) for number, each in enumerate(found)]
        topics[topic_id] = TopicImage(name, topic_id, numbered)
    deletions = draw(
        st.dictionaries(
            uuids,
            st.builds(
                TopicDeletion, names.map(TopicName), st.lists(broker_ids, min_size=1).map(tuple)
            ),
            max_size=3,
        )
    )
    registered = draw(st.lists(brokers(), max_size=3, unique_by=lambda each: each.id))
    resources = st.dictionaries(names, overrides, max_size=3).map(PersistentMap)
    return MetadataImage(
        cluster_id="cluster",
        controller_id=draw(broker_ids),
        brokers=PersistentMap({each.id: each for each in registered}),
        topics_by_name=PersistentMap({each.name: each for each in topics.values()}),
        topics_by_id=PersistentMap(topics),
        topic_configs=draw(resources),  # type: ignore[arg-type]
        broker_configs=draw(resources),
        offset=draw(st.integers(0, 99)),
        features=PersistentMap(draw(st.dictionaries(names, st.integers(1, 9), max_size=2))),
        group_configs=draw(resources),
        client_metrics=draw(resources),
        client_quotas=PersistentMap(draw(st.dictionaries(entities, rates, max_size=3))),
        deletions=PersistentMap(
            {each: value for each, value in deletions.items() if each not in topics}
        ),
        controller_epoch=draw(st.integers(0, 9)),
        next_producer_id=draw(st.integers(0, 3)) * 1000,
    )
