"""The classes of the metadata's records. Each is imported with its first use.

A start of a single broker writes one or two types of records. The import of all classes would cost
some 4 % of the start.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.protocol.messages.broker_registration_change_record import (
        BrokerRegistrationChangeRecord as BrokerRegistrationChangeRecord,
    )
    from odradek.protocol.messages.client_quota_record import (
        ClientQuotaRecord as ClientQuotaRecord,
    )
    from odradek.protocol.messages.client_quota_record import EntityData as EntityData
    from odradek.protocol.messages.config_record import (
        ConfigRecord as ConfigRecord,
    )
    from odradek.protocol.messages.feature_level_record import (
        FeatureLevelRecord as FeatureLevelRecord,
    )
    from odradek.protocol.messages.partition_change_record import (
        PartitionChangeRecord as PartitionChangeRecord,
    )
    from odradek.protocol.messages.partition_record import (
        PartitionRecord as PartitionRecord,
    )
    from odradek.protocol.messages.producer_ids_record import (
        ProducerIdsRecord as ProducerIdsRecord,
    )
    from odradek.protocol.messages.register_broker_record import (
        BrokerEndpoint as BrokerEndpoint,
    )
    from odradek.protocol.messages.register_broker_record import (
        BrokerFeature as BrokerFeature,
    )
    from odradek.protocol.messages.register_broker_record import (
        RegisterBrokerRecord as RegisterBrokerRecord,
    )
    from odradek.protocol.messages.remove_topic_record import (
        RemoveTopicRecord as RemoveTopicRecord,
    )
    from odradek.protocol.messages.topic_deletion_record import (
        TopicDeletionRecord as TopicDeletionRecord,
    )
    from odradek.protocol.messages.topic_record import (
        TopicRecord as TopicRecord,
    )
    from odradek.protocol.messages.unregister_broker_record import (
        UnregisterBrokerRecord as UnregisterBrokerRecord,
    )

RECORD_TYPES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    9: "RemoveTopicRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    20100: "TopicDeletionRecord",
}
"""The class of each type of record that changes an image, by its API key."""

_STRUCTS = {
    "BrokerEndpoint": "RegisterBrokerRecord",
    "BrokerFeature": "RegisterBrokerRecord",
    "EntityData": "ClientQuotaRecord",
}
"""Structs of records that have their own class, and the record that has them."""
_WORD = re.compile("(?<!^)(?=[A-Z])")


def module_of(record: str) -> str:
    """Return the name of the module that has the class of a record."""
    return f"odradek.protocol.messages.{_WORD.sub('_', record).lower()}"


def __getattr__(name: str) -> object:
    """Import a class. The next access finds it in the module."""
    record = _STRUCTS.get(name, name)
    if record not in RECORD_TYPES.values():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(module_of(record))
    found: object = getattr(module, name)
    globals()[name] = found
    return found
