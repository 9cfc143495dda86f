"""AlterPartition (56), versions 2-3: change ISRs on behalf of the leaders of partitions.

Served on the inter-broker listener only. The controller gets every request in the form of version
3. In version 2 the members of an ISR have no broker epochs, so they get the epoch -1. KIP-497,
KIP-903.

Errors: NOT_CONTROLLER if this broker is not the active controller, and the controller's errors for
the request (STALE_BROKER_EPOCH) and for single partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services

BROKER_EPOCHS_VERSION = 3


def handle(
    services: Services, context: RequestContext, request: AlterPartitionRequest
) -> Result[AlterPartitionResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve AlterPartition"
    if not cluster.membership.is_controller:
        return Result(AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER))
    requests = cluster.membership.controller_requests
    if context.api_version >= BROKER_EPOCHS_VERSION:
        return requests.alter_partition(request)
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, partition: _with_epochs(partition),
        lambda topic, partitions: TopicData(topic.topic_id, partitions),
    )
    return topics.chain(
        lambda topics: requests.alter_partition(
            AlterPartitionRequest(request.broker_id, request.broker_epoch, topics)
        )
    )


def _with_epochs(partition: PartitionData) -> PartitionData:
    return PartitionData(
        partition.partition_index,
        partition.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id) for broker_id in partition.new_isr],
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
