"""Images after changes, and deltas between images, for tests that build images themselves."""

from __future__ import annotations

from odradek.ids import TopicName
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import NO_LEADER, MetadataImage
from odradek.metadata.image_records import difference
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord


def delta_between(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return the delta of two images, as after a gap."""
    delta = MetadataDelta(old)
    for record in difference(old, new):
        delta.replay(record)
    return delta


def after_deletion(image: MetadataImage, *names: str) -> MetadataImage:
    """Return the image after topics were deleted, with their recorded deletions."""
    delta = MetadataDelta(image)
    for name in names:
        delta.replay(RemoveTopicRecord(image.topics_by_name[TopicName(name)].topic_id))
    return delta.apply(MetadataProvenance(NO_LEADER, 0, image.offset + 1))
