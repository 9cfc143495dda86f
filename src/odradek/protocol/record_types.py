"""The records of internal topics: generated from definitions, do not edit."""

from __future__ import annotations

# Family, then the type number in front of a key: names of the key and value classes.
RECORD_TYPES: dict[str, dict[int, tuple[str, str]]] = {
    "group": {
        0: (
            "LegacyOffsetCommitKey",
            "LegacyOffsetCommitValue",
        ),
        1: (
            "OffsetCommitKey",
            "OffsetCommitValue",
        ),
        2: (
            "GroupMetadataKey",
            "GroupMetadataValue",
        ),
        3: (
            "ConsumerGroupMetadataKey",
            "ConsumerGroupMetadataValue",
        ),
        4: (
            "ConsumerGroupPartitionMetadataKey",
            "ConsumerGroupPartitionMetadataValue",
        ),
        5: (
            "ConsumerGroupMemberMetadataKey",
            "ConsumerGroupMemberMetadataValue",
        ),
        6: (
            "ConsumerGroupTargetAssignmentMetadataKey",
            "ConsumerGroupTargetAssignmentMetadataValue",
        ),
        7: (
            "ConsumerGroupTargetAssignmentMemberKey",
            "ConsumerGroupTargetAssignmentMemberValue",
        ),
        8: (
            "ConsumerGroupCurrentMemberAssignmentKey",
            "ConsumerGroupCurrentMemberAssignmentValue",
        ),
        10: (
            "ShareGroupMemberMetadataKey",
            "ShareGroupMemberMetadataValue",
        ),
        11: (
            "ShareGroupMetadataKey",
            "ShareGroupMetadataValue",
        ),
        12: (
            "ShareGroupTargetAssignmentMetadataKey",
            "ShareGroupTargetAssignmentMetadataValue",
        ),
        13: (
            "ShareGroupTargetAssignmentMemberKey",
            "ShareGroupTargetAssignmentMemberValue",
        ),
        14: (
            "ShareGroupCurrentMemberAssignmentKey",
            "ShareGroupCurrentMemberAssignmentValue",
        ),
        15: (
            "ShareGroupStatePartitionMetadataKey",
            "ShareGroupStatePartitionMetadataValue",
        ),
        16: (
            "ConsumerGroupRegularExpressionKey",
            "ConsumerGroupRegularExpressionValue",
        ),
        17: (
            "StreamsGroupMetadataKey",
            "StreamsGroupMetadataValue",
        ),
        19: (
            "StreamsGroupMemberMetadataKey",
            "StreamsGroupMemberMetadataValue",
        ),
        20: (
            "StreamsGroupTargetAssignmentMetadataKey",
            "StreamsGroupTargetAssignmentMetadataValue",
        ),
        21: (
            "StreamsGroupTargetAssignmentMemberKey",
            "StreamsGroupTargetAssignmentMemberValue",
        ),
        22: (
            "StreamsGroupCurrentMemberAssignmentKey",
            "StreamsGroupCurrentMemberAssignmentValue",
        ),
        23: (
            "StreamsGroupTopologyKey",
            "StreamsGroupTopologyValue",
        ),
    },
    "share": {
        0: (
            "ShareSnapshotKey",
            "ShareSnapshotValue",
        ),
        1: (
            "ShareUpdateKey",
            "ShareUpdateValue",
        ),
    },
    "transaction": {
        0: (
            "TransactionLogKey",
            "TransactionLogValue",
        ),
    },
}
