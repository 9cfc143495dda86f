"""DescribeTransactions, version 0: transactional ids in full (KIP-664).

State, producer, time-out, start and partitions, for each id or an error: TRANSACTIONAL_ID_NOT_FOUND
for one that is not known.
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
    """One entry an id, in the order asked."""
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
