"""ListTransactions, versions 0-2: return the transactional ids of this coordinator (KIP-664).

The filters are the state and the producer id, and from version 1 on the time since the start of the
transaction. From version 2 on a regular expression is a further filter, which must match the whole
id (KIP-1152). It has RE2's syntax and is executed by RE2, whose time is linear in the length of the
id. An expression that is too costly (`odradek.coordinator.regular_expressions`) is
INVALID_REGULAR_EXPRESSION. Unknown names of states match nothing and are returned as unknown
filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each
from odradek.coordinator.regular_expressions import compile_expression
from odradek.coordinator.transaction.transaction_metadata import STATES_BY_NAME, TransactionMetadata
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_transactions_response import (
    ListTransactionsResponse,
    TransactionState,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest


MATCH_ELEMENTS = 20
"""Elements of a time slice that the match of one id counts as. The slowest matches take 4 ms."""


def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> Result[ListTransactionsResponse]:
    """Return the transactional ids that pass every filter."""
    try:
        found = services.transactions.all_transactions()
        matches = _matcher(request.transactional_id_pattern)
    except KafkaError as error:
        return Result(ListTransactionsResponse(error_code=error.code))
    states = {STATES_BY_NAME[each] for each in request.state_filters if each in STATES_BY_NAME}
    producer_ids = set(request.producer_id_filters)
    latest_ms = services.clock.time_ms() - request.duration_filter

    def included(each: TransactionMetadata) -> bool:
        return (
            (not producer_ids or each.producer_id in producer_ids)
            and (not request.state_filters or each.state in states)
            and (request.duration_filter < 0 or each.start_ms < latest_ms)
            and matches(each.transactional_id)
        )

    def listed(each: TransactionMetadata) -> TransactionState | None:
        if not included(each):
            return None
        return TransactionState(each.transactional_id, each.producer_id, each.state.kafka_name)

    def size(_: TransactionState | None) -> int:
        return MATCH_ELEMENTS if request.transactional_id_pattern else 0

    return each(listed, found, size).then(
        lambda states: ListTransactionsResponse(
            unknown_state_filters=[e for e in request.state_filters if e not in STATES_BY_NAME],
            transaction_states=[state for state in states if state is not None],
        )
    )


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a function that reports whether a whole transactional id matches the pattern.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    if not pattern:
        return lambda _: True
    try:
        compiled = compile_expression(pattern)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None
