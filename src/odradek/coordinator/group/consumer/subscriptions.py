"""What the members of a consumer group subscribe to, resolved to topics that exist.

Regular expressions are RE2's, as in Kafka (KIP-848): matching one takes time linear in the name,
whatever the expression. The library is imported when the first expression comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, Uuid
from odradek.metadata.image import MetadataImage

REGEXES_MAX = 1_000


@lru_cache(REGEXES_MAX)
def compiled(regex: str) -> Any:
    """The expression, ready to match; INVALID_REGULAR_EXPRESSION when RE2 cannot read it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from error


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches as a whole."""
    if not regex:
        return frozenset()
    fullmatch = compiled(regex).fullmatch
    return frozenset(name for name in names if fullmatch(name))


def partition_counts(image: MetadataImage, names: Iterable[str]) -> dict[Uuid, int]:
    """The topics among `names` that exist, in the order of their names, with their partitions."""
    topics = (image.topics_by_name.get(TopicName(name)) for name in sorted(names))
    return {topic.topic_id: len(topic.partitions) for topic in topics if topic is not None}


def metadata_hash(counts: Mapping[Uuid, int]) -> int:
    """A number that changes with the topics of a group and their partitions; 0 without topics."""
    if not counts:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, count in sorted(counts.items()):
        digest.update(bytes(topic_id) + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
