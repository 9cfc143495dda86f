"""DescribeTransactions, version 0: return the state of transactional ids (KIP-664).

The response has the state, producer, timeout, start time and partitions of each transactional id.
The error of an unknown id is TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each
from odradek.errors import KafkaError
from odradek.protocol.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.describe_transactions_request import (
        DescribeTransactionsRequest,
    )


def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> Result[DescribeTransactionsResponse]:
    """Return one entry for each transactional id, in the order of the request."""
    states = each(
        lambda transactional_id: _described(services, transactional_id),
        dict.fromkeys(request.transactional_ids),
        lambda state: sum(len(topic.partitions) for topic in state.topics),
    )
    return states.then(lambda states: DescribeTransactionsResponse(transaction_states=states))


def _described(services: Services, transactional_id: str) -> TransactionState:
    try:
        found = services.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, TopicData] = {}
    for name, partition in sorted(found.partitions):
        topics.setdefault(name, TopicData(topic=name)).partitions.append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.kafka_name,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=list(topics.values()),
    )
