"""Verification of transactions by a coordinator that is another broker (KIP-890).

The request is AddPartitionsToTxn in version 4 or later. With `verify_only` it asks whether the
partitions are in the transaction. Without it they are added (transaction.version 2). While a
request to a coordinator is in flight, further transactions wait, and share the next one
(`PendingVerifications`), as in Kafka (``AddPartitionsToTxnManager``).

The codes are those of the coordinator, and these of Kafka:

- COORDINATOR_NOT_AVAILABLE: the transactional id has no coordinator at the moment.
- NETWORK_EXCEPTION: the connection was lost, or the response was late.
- NONE, if the coordinator is too old to verify anything. It cannot add partitions either, which is
  COORDINATOR_NOT_AVAILABLE: a batch outside of its transaction would never be ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

from odradek.broker.peer_channels import PeerChannels
from odradek.broker.transactions.peer_queue import LIMITS, Part, QueueLimits
from odradek.broker.transactions.pending_verifications import PendingVerifications, Verification
from odradek.client.connection import UnsupportedRequest
from odradek.coordinator.runtime import partition_for
from odradek.errors import ErrorCode, received_code
from odradek.ids import BrokerId, TopicPartition
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)
from odradek.results import PendingResult, Result

logger = logging.getLogger(__name__)

Codes = Mapping[TopicPartition, ErrorCode]


class _PendingVerification(Verification):
    """A verification with the result that the handler holds."""

    __slots__ = ("result",)

    result: PendingResult[Codes]

    def complete(self) -> None:
        if not self.result.done:
            self.result.complete(self.codes)


class AddPartitionsToTxnManager:
    """The verifications by other brokers. Owned by the event loop.

    Args:
        image: Returns the newest image.
        channels: Channels to the other brokers.
        limits: Limits of the requests to one broker.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        channels: PeerChannels,
        limits: QueueLimits = LIMITS,
    ) -> None:
        self._image = image
        self._channels = channels
        self._limits = limits
        self._pending: dict[BrokerId, PendingVerifications[_PendingVerification]] = {}

    def coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """Return the coordinator of a transactional id, or None if there is none at the moment."""
        image = self._image()
        count = image.partition_count(TRANSACTION_STATE)
        if not count:
            return None
        state = image.partition(TRANSACTION_STATE, partition_for(transactional_id, count))
        return state.leader if state is not None and image.is_alive(state.leader) else None

    def verify(
        self,
        coordinator: BrokerId,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Result[Codes]:
        """Ask a coordinator, as `TransactionCoordinator.verify` does.

        The result has a code for each partition. It never fails.
        """
        pending = self._pending.get(coordinator)
        if pending is None:
            pending = self._pending[coordinator] = PendingVerifications(self._limits)
        verification = _PendingVerification(
            transactional_id, producer_id, producer_epoch, partitions, add=add
        )
        verification.result = PendingResult(on_cancel=partial(pending.cancel, verification))
        failed = pending.add(verification)
        if failed is not None:
            failed.complete()
        self._send(coordinator)
        return verification.result

    def _send(self, coordinator: BrokerId) -> None:
        """Send the next request to a coordinator, unless one is in flight."""
        pending = self._pending.get(coordinator)
        if pending is None:
            return
        if parts := pending.take():
            request = AddPartitionsToTxnRequest(transactions=[_to_message(part) for part in parts])
            sent = self._channels.send(coordinator, request, AddPartitionsToTxnResponse)
            sent.on_done(partial(self._responded, coordinator, pending, parts))
        elif pending.is_idle:
            del self._pending[coordinator]

    def _responded(
        self,
        coordinator: BrokerId,
        pending: PendingVerifications[_PendingVerification],
        parts: Sequence[Part[_PendingVerification]],
        done: Result[AddPartitionsToTxnResponse],
    ) -> None:
        found, otherwise = _outcome(coordinator, parts, done)
        # In the next iteration: requests that fail immediately must not share a time slice.
        asyncio.get_running_loop().call_soon(self._send, coordinator)
        for verification in pending.responded(parts, found, otherwise):
            verification.complete()


def _to_message(part: Part[_PendingVerification]) -> AddPartitionsToTxnTransaction:
    verification = part.entry
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in part.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopic(name)
        topic.partitions.append(index)
    return AddPartitionsToTxnTransaction(
        verification.transactional_id,
        verification.producer_id,
        verification.producer_epoch,
        not verification.add,
        list(topics.values()),
    )


def _outcome(
    coordinator: BrokerId,
    parts: Sequence[Part[_PendingVerification]],
    done: Result[AddPartitionsToTxnResponse],
) -> tuple[Mapping[Hashable, Codes], ErrorCode]:
    """Return the codes of a request by transactional id, and the code of all other partitions."""
    error = done.error
    if isinstance(error, UnsupportedRequest | UnencodableMessage):
        logger.warning(
            "broker %d cannot verify transactions: %s. Update it. Batches of older producers are "
            "appended without verification",
            coordinator,
            error,
        )
        not_added = ErrorCode.COORDINATOR_NOT_AVAILABLE
        added = [part for part in parts if part.entry.add]
        codes = {part.entry.key: dict.fromkeys(part.partitions, not_added) for part in added}
        return codes, ErrorCode.NONE
    if error is not None:
        logger.warning(
            "broker %d did not verify %d transactions: %s. Their producers try again",
            coordinator,
            len(parts),
            error,
        )
        return {}, ErrorCode.NETWORK_EXCEPTION
    code = received_code(done.value.error_code)
    if code is not ErrorCode.NONE:
        logger.error("broker %d refuses to verify transactions: %s", coordinator, code.name)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE  # of no use to a producer, as in Kafka
        return {}, code
    results = done.value.results_by_transaction
    return {each.transactional_id: _codes(each) for each in results}, ErrorCode.NETWORK_EXCEPTION


def _codes(result: AddPartitionsToTxnResult) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): received_code(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
