"""Transaction markers of this broker's coordinator, written by the leaders of their partitions.

The markers of partitions that this broker leads are appended directly. The others are sent to their
leaders as WriteTxnMarkers requests, in version 2 if the leader knows it (KIP-1228). Markers that
wait for the same broker share a request (`PeerQueue`), as in Kafka
(``TransactionMarkerChannelManager``).

The newest image names the leaders. A partition without a leader, a lost connection and a late
response are errors like those in a response: the coordinator sends the marker again after a pause
(`odradek.coordinator.transaction.completion`). A marker that was written although its response was
lost is written twice. The second one has no effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from functools import partial

from odradek.broker.peer_channels import PeerChannels
from odradek.broker.transactions.markers import Results
from odradek.broker.transactions.peer_queue import LIMITS, Entry, Part, PeerQueue, QueueLimits
from odradek.coordinator.transaction.transaction_marker import MarkerCodes, TransactionMarker
from odradek.errors import ErrorCode, received_code
from odradek.ids import BrokerId, TopicPartition
from odradek.metadata.image import NO_LEADER, MetadataImage
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.result_tasks import wait
from odradek.results import PendingResult, Result, gather
from odradek.slicing import ELEMENTS_PER_SLICE, in_slices

logger = logging.getLogger(__name__)

MARKER_BYTES = 32
"""Bytes of a marker without its partitions."""

WriteHere = Callable[[Sequence[TransactionMarker]], Result[Results]]
"""Appends markers to partitions of this broker."""


class _PendingMarker(Entry):
    """The part of a marker that one broker has to write."""

    __slots__ = ("marker", "result")

    def __init__(self, marker: TransactionMarker) -> None:
        super().__init__(marker.producer_id, marker.partitions, MARKER_BYTES)
        self.marker = marker
        self.result: PendingResult[_PendingMarker] = PendingResult(on_cancel=self._cancel)

    def _cancel(self) -> None:
        self.is_cancelled = True


class MarkerSender:
    """Writes markers to partitions of any broker. Owned by the event loop.

    Args:
        node_id: The id of this broker.
        image: Returns the newest image.
        channels: Channels to the other brokers.
        limits: Limits of the requests to one broker.
    """

    def __init__(
        self,
        node_id: BrokerId,
        image: Callable[[], MetadataImage],
        channels: PeerChannels,
        limits: QueueLimits = LIMITS,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._channels = channels
        self._limits = limits
        self._queues: dict[BrokerId, PeerQueue[_PendingMarker]] = {}

    async def write(
        self, write_here: WriteHere, markers: Sequence[TransactionMarker]
    ) -> MarkerCodes:
        """Write the markers. Return when each partition has a code.

        If the caller is cancelled, markers that wait are not sent.

        Args:
            write_here: Appends the markers of partitions that this broker leads.
            markers: The markers, at most one for each producer.

        Returns:
            The codes, by producer id and partition.
        """
        codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
        here: list[TransactionMarker] = []
        results: list[Result[_PendingMarker]] = []
        for marker in markers:
            of_marker = codes.setdefault(marker.producer_id, {})
            by_leader = await in_slices(self._grouping(marker.partitions))
            for leader, partitions in by_leader.items():
                part = marker._replace(partitions=partitions)
                if leader == self._node_id:
                    here.append(part)
                elif leader == NO_LEADER:
                    of_marker.update(dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE))
                else:
                    results.append(self._enqueue(leader, _PendingMarker(part)))
        sent = gather(results)
        try:
            for producer_id, written in (await wait(write_here(here))).items() if here else ():
                codes[producer_id].update(written)
        except BaseException:
            sent.cancel()
            raise
        for entry in await wait(sent):
            codes[entry.marker.producer_id].update(entry.codes)
        return codes

    def _grouping(
        self, partitions: Iterable[TopicPartition]
    ) -> Generator[None, None, dict[BrokerId, list[TopicPartition]]]:
        """Return the partitions by their leader. Yield after each time slice."""
        found: dict[BrokerId, list[TopicPartition]] = {}
        for count, each in enumerate(partitions, 1):
            known = self._image().partition(*each)
            leader = NO_LEADER if known is None else known.leader
            found.setdefault(leader, []).append(each)
            if not count % ELEMENTS_PER_SLICE:
                yield
        return found

    def _enqueue(self, broker: BrokerId, entry: _PendingMarker) -> Result[_PendingMarker]:
        queue = self._queues.get(broker)
        if queue is None:
            queue = self._queues[broker] = PeerQueue(self._limits)
        if queue.add(entry):
            self._send(broker)
        else:
            entry.codes.update(dict.fromkeys(entry.partitions, ErrorCode.REQUEST_TIMED_OUT))
            entry.result.complete(entry)
        return entry.result

    def _send(self, broker: BrokerId) -> None:
        """Send the next request to a broker, unless one is in flight."""
        queue = self._queues.get(broker)
        if queue is None:
            return
        if parts := queue.take():
            request = WriteTxnMarkersRequest([_to_message(part) for part in parts])
            sent = self._channels.send(broker, request, WriteTxnMarkersResponse)
            sent.on_done(partial(self._responded, broker, queue, parts))
        elif queue.is_idle:
            del self._queues[broker]

    def _responded(
        self,
        broker: BrokerId,
        queue: PeerQueue[_PendingMarker],
        parts: Sequence[Part[_PendingMarker]],
        done: Result[WriteTxnMarkersResponse],
    ) -> None:
        if done.error is None:
            found, otherwise = _codes_of(done.value), ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            logger.debug("broker %d did not write markers: %s", broker, done.error)
            found, otherwise = {}, ErrorCode.NETWORK_EXCEPTION
        # In the next iteration: requests that fail immediately must not share a time slice.
        asyncio.get_running_loop().call_soon(self._send, broker)
        for entry in queue.responded(parts, found, otherwise):
            entry.result.complete(entry)


def _to_message(part: Part[_PendingMarker]) -> WritableTxnMarker:
    marker = part.entry.marker
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in part.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WritableTxnMarkerTopic(name)
        topic.partition_indexes.append(index)
    return WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.committed,
        list(topics.values()),
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _codes_of(
    response: WriteTxnMarkersResponse,
) -> Mapping[Hashable, Mapping[TopicPartition, ErrorCode]]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): received_code(each.error_code)
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in response.markers
    }
