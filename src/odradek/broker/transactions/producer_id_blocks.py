"""Blocks of producer ids that another broker, the active controller, assigns to this one.

If the response to a request is lost, the ids of its block are lost. They are never given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.result_tasks import wait

if TYPE_CHECKING:
    from odradek.broker.requests.cluster import ClusterRequests

PRODUCER_ID_MAX = 2**63 - 1


async def block_of_controller(cluster: ClusterRequests, broker_id: int) -> range:
    """Return a block of producer ids from the active controller, which is another broker.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS if the controller did not respond in time, or if it
            refuses, as in Kafka (``RPCProducerIdManager``). The client tries again. Another error
            if its response has no ids.
    """
    request = AllocateProducerIdsRequest(broker_id, cluster.membership.broker_epoch)
    try:
        response = await wait(cluster.block_channel.send(request, AllocateProducerIdsResponse))
    except (OSError, TooManyRequests, UnsupportedRequest) as error:
        reason = f"No producer ids from the controller: {error}"
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason) from error
    first, count = response.producer_id_start, response.producer_id_len
    if response.error_code:
        reason = f"The controller refused to allocate producer ids: error {response.error_code}"
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
    if first < 0 or count <= 0 or first + count - 1 > PRODUCER_ID_MAX:
        reason = f"The controller allocated {count} producer ids from {first}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
    return range(first, first + count)
