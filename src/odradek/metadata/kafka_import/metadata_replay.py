"""Replay of the records of ``__cluster_metadata`` to the last state of a Kafka cluster.

`MetadataDelta` has the rules of each record. Records between BeginTransaction and EndTransaction
take effect together or not at all. Records without relevant state, such as those of brokers, are
skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import NO_LEADER, MetadataImage
from odradek.metadata.kafka_import.metadata_log import UnreadableMetadata
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import Frame, InvalidRecord, decode_frame, record_class
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord

BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
# Metadata that Odradek does not use, but reports to the operator: type -> (name, change of count).
_UNUSED = {
    10: ("delegation tokens", 1),
    26: ("delegation tokens", -1),
    11: ("SCRAM credentials", 1),
    22: ("SCRAM credentials", -1),
    18: ("access control entries", 1),
    19: ("access control entries", -1),
}
_OF_BROKERS = (RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord)


@dataclass(slots=True)
class ImportedCluster:
    """The last state of a Kafka cluster, without its brokers."""

    image: MetadataImage = field(default_factory=MetadataImage)
    unused: Counter[str] = field(default_factory=Counter)


def replay(frames: Iterable[Frame]) -> ImportedCluster:
    """Return the cluster after all records. A transaction that has not ended has no effect.

    Raises:
        UnreadableMetadata: A record is invalid or too new.
    """
    delta = MetadataDelta(MetadataImage())
    unused: Counter[str] = Counter()
    pending: list[Frame] | None = None
    for frame in frames:
        if frame.api_key == BEGIN_TRANSACTION:
            pending = []
        elif frame.api_key in (END_TRANSACTION, ABORT_TRANSACTION):
            if frame.api_key == END_TRANSACTION:
                for each in pending or ():
                    _apply(delta, unused, each)
            pending = None
        elif pending is not None:
            pending.append(frame)
        else:
            _apply(delta, unused, frame)
    try:
        image = delta.apply(MetadataProvenance(NO_LEADER, 0, 0))
    except InvalidRecord as error:
        raise UnreadableMetadata(str(error)) from error
    # Kafka has deleted the logs of deleted topics itself.
    return ImportedCluster(replace(image, deletions=PersistentMap()), unused)


def _apply(delta: MetadataDelta, unused: Counter[str], frame: Frame) -> None:
    if frame.api_key in _UNUSED:
        what, more = _UNUSED[frame.api_key]
        unused[what] += more
        return
    cls = record_class(frame.api_key)
    if cls is None or cls in _OF_BROKERS:
        return
    try:
        record = decode_frame(frame)
        if isinstance(record, ConfigRecord) and not _has_configs(record.resource_type):
            unused[f"configs of resources of type {record.resource_type}"] += 1
            return
        delta.replay(record)
    except InvalidRecord as error:
        text = f"Kafka's metadata has an invalid {cls.__name__}: {error}"
        raise UnreadableMetadata(text) from error


def _has_configs(resource_type: int) -> bool:
    kinds = (
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.GROUP,
        ResourceType.CLIENT_METRICS,
    )
    return resource_type in kinds
