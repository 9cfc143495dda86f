"""The existing topics among the subscriptions of a consumer group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from odradek.ids import TopicName, Uuid
from odradek.metadata.image import MetadataImage


def partition_counts(image: MetadataImage, names: Iterable[str]) -> dict[Uuid, int]:
    """Return the number of partitions of each existing topic in `names`, in the order of names."""
    topics = (image.topics_by_name.get(TopicName(name)) for name in sorted(names))
    return {topic.topic_id: len(topic.partitions) for topic in topics if topic is not None}


def metadata_hash(counts: Mapping[Uuid, int]) -> int:
    """Return a hash of the topics of a group and of their partition counts; 0 without topics."""
    if not counts:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, count in sorted(counts.items()):
        digest.update(bytes(topic_id) + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
