"""The requests that create topics and add partitions, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek.ids import Uuid
from odradek.metadata.image import TopicImage

USE_DEFAULT = -1


@dataclass(slots=True)
class NewTopic:
    """A topic to create. -1 is the broker's default, and is required with `assignments`.

    A topic that mirrors one of another cluster has a given id. Otherwise the id is random.
    """

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()
    topic_id: Uuid | None = None


@dataclass(slots=True)
class NewPartitions:
    """A topic to extend to `count` partitions. `assignments` has the replicas of each new one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or that would be created if the request only validates."""

    image: TopicImage
    configs: Mapping[str, str] = field(default_factory=dict)
