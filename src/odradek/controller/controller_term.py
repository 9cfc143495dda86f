"""The state of the active controller between its election and its end, and its writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from itertools import chain, pairwise
from typing import Any, TypeVar

from odradek.controller.applied_waits import elected_leaders
from odradek.controller.broker_registry import BrokerRegistry
from odradek.controller.metadata_writer import MetadataWriter
from odradek.controller.plan import Plan, end_stage
from odradek.controller.store_operations import UnfinishedTopic, store_operations
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName
from odradek.metadata import znodes
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.metadata.quota_nodes import with_foreign_configs
from odradek.metadata.records import MetadataRecord
from odradek.metadata.resources import CONFIG_PATHS, ResourceType
from odradek.metadata.store.interface import (
    Delete,
    MetadataStore,
    Operation,
    StoreError,
    operations_bytes,
)
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.slicing import ELEMENTS_PER_SLICE, begin, in_slices

logger = logging.getLogger(__name__)

R = TypeVar("R")


class Deposed(KafkaError):
    """This broker is no longer the active controller. The outcome of a change may be unknown.

    Attributes:
        must_load: The store and the images may differ although their positions are equal. The next
            term of this broker has to read the whole store.
    """

    def __init__(self, reason: str, *, must_load: bool = False) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, reason)
        self.must_load = must_load


class Committed:
    """The changes of one request that were committed.

    Attributes:
        offset: The metadata offset of the last one.
        leaders: The leaders that they elect.
    """

    __slots__ = ("leaders", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.leaders: set[BrokerId] = set()


class ControllerTerm:
    """One term of the active controller. Owned by the consumer of the controller's queue.

    `commit` is the only path by which an active controller changes the metadata: replay the
    records, write the nodes that follow, publish. A change that exceeds one write is divided. Each
    part is a change of its own, with its own metadata offset.

    * The records of a topic are in an order in which each prefix is a consistent image. The topic's
      node names all partitions from the first part on, and a partition without a state was never
      led. The node of the position names such topics until they are complete.
    * A deletion that exceeds one write takes effect with the first part, which marks it in
      ``/admin/delete_topics``. The further parts remove the nodes of the topic.

    The next controller completes both.

    Args:
        store: The session.
        writer: The fenced writes of this term.
        node_id: This broker.
        image: The image at the take-over.
        registry: The liveness of the brokers.
        unfinished: The topics that the previous controller has not completed.
        publish: Publishes a delta and the image after it, in time slices.
    """

    def __init__(
        self,
        store: MetadataStore,
        writer: MetadataWriter,
        node_id: BrokerId,
        image: MetadataImage,
        registry: BrokerRegistry,
        unfinished: Sequence[TopicImage],
        publish: Callable[[MetadataDelta, MetadataImage], Generator[None, None, None]],
    ) -> None:
        self.image = image
        self.registry = registry
        self.is_serving = False
        self.has_ended = False
        self.shutdown_offsets: dict[BrokerId, int] = {}
        """The metadata offset of the change that moved the leaderships of a stopping broker."""
        self._store = store
        self._writer = writer
        self._node_id = node_id
        self._unfinished = {
            topic.topic_id: UnfinishedTopic(topic, is_written=True) for topic in unfinished
        }
        self._publish = publish
        self._requests: dict[asyncio.Future[Any], None] = {}

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    def add_request(self, result: asyncio.Future[Any]) -> None:
        """Refuse a request when the term ends, unless it has a result before."""
        self._requests[result] = None
        result.add_done_callback(self._requests.pop)

    def end(self) -> None:
        """Publish nothing from now on, and refuse all requests.

        A write in flight may wait for the session for hours. Its request must not: another broker
        may be the controller by then.
        """
        self.has_ended = True
        for result in self._requests:
            if not result.done():
                result.set_exception(Deposed("This is no longer the controller."))

    async def commit(self, records: Sequence[MetadataRecord], *, always: bool = False) -> Committed:
        """Write the records and publish them.

        Args:
            records: The changes, in an order in which each prefix is consistent.
            always: Write the position even without records.

        Raises:
            KafkaError: POLICY_VIOLATION. A single record exceeds one write. Nothing has changed.
            Deposed: This broker is no longer the controller.
        """
        committed = Committed(self.image.offset)
        if records or always:
            await self._commit(records, committed)
        return committed

    async def commit_planned(
        self, planning: Generator[None, None, list[MetadataRecord]]
    ) -> Committed:
        """Commit the records that `planning` returns.

        The records are freed in time slices after this call has returned. A new broker may poll
        between two slices, and the caller must have noted its registration before.

        Raises:
            KafkaError: As for `commit`.
            Deposed: This broker is no longer the controller.
        """
        records = await in_slices(planning)
        committed = await self.commit(records)
        begin(_freeing(records), "the release of a change")
        return committed

    async def commit_plan(self, plan: Plan[R]) -> R:
        """Commit the records of a plan, and return its result. As `commit_planned`.

        Raises:
            KafkaError: As for `commit`.
            Deposed: This broker is no longer the controller.
        """
        await self.commit(plan.records)
        begin(_freeing(plan.records), "the release of a change")
        return plan.result

    async def _commit(self, records: Sequence[MetadataRecord], committed: Committed) -> None:
        await end_stage(len(records))
        delta, image = await self._replayed(records)
        await end_stage(len(records))
        operations = await in_slices(store_operations(delta, image, self.epoch, self._unfinished))
        await end_stage(len(operations))
        if delta.client_quotas.changed:
            operations = list(await with_foreign_configs(self._store, operations))
        count = self._writer.parts(operations, self._unfinished_after(delta, image))
        if count == 1:
            await self._write(delta, image, operations, committed)
            return
        parts = _divided(records, count)
        if len(parts) > 1:
            room = self._writer.room_bytes(self._unfinished_after(delta, image))
            await in_slices(_checking_groups(records, operations, room))
            self._divide(delta, image)
            del image
            await in_slices(_freeing(operations))
            await in_slices(delta.releasing())
            del delta  # It has the image before all parts, which each part replaces a piece of.
            for part in parts:
                await self._commit(part, committed)
            return
        record = records[0]
        if not isinstance(record, RemoveTopicRecord):
            raise _too_large()
        removed = self.image.topics_by_id[record.topic_id]
        operations = await in_slices(
            store_operations(delta, image, self.epoch, marked=(record.topic_id,))
        )
        await self._write(delta, image, operations, committed)
        numbers = range(removed.partition_count)
        await self.remove_nodes(removed.name, numbers, committed)

    def _divide(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note the topics whose partitions will be created in several writes."""
        for topic_id, changes in delta.topics.changed.items():
            if changes.adds_partitions and topic_id not in self._unfinished:
                self._unfinished[topic_id] = UnfinishedTopic(image.topics_by_id[topic_id])

    def _unfinished_after(self, delta: MetadataDelta, image: MetadataImage) -> list[TopicName]:
        """Return the topics that have their node, but not all partitions, after a change."""
        names = []
        for topic_id, each in self._unfinished.items():
            after = image.topics_by_id.get(topic_id)
            has_node = each.is_written or topic_id in delta.topics.changed
            if (
                has_node
                and after is not None
                and after.partition_count < each.whole.partition_count
            ):
                names.append(each.whole.name)
        return names

    async def remove_nodes(
        self, name: TopicName, numbers: Sequence[int], committed: Committed
    ) -> None:
        """Remove the nodes of a topic whose deletion is marked, in as many writes as needed."""
        last = [*znodes.delete_parents_operations(name), Delete(znodes.delete_mark_path(name))]
        groups = (znodes.delete_partition_operations(name, number) for number in numbers)
        for operations in self._writer.combined(chain(groups, [last])):
            await self._write_nothing(operations, committed)

    async def resume_deletions(self) -> None:
        """Remove the nodes of topics whose deletion a previous controller has begun."""
        for each in await self._store.children(znodes.DELETE_TOPICS):
            name = TopicName(each)
            mark = znodes.delete_mark_path(name)
            if not znodes.is_delete_mark((await self._store.get(mark)).data):
                logger.warning(
                    "removed the node %s, which another program has created: topic %s is not "
                    "deleted. Delete topics with DeleteTopics",
                    mark,
                    name,
                )
                await self._write_nothing([Delete(mark)], Committed(0))
                continue
            children = await self._store.children(f"{znodes.topic_path(name)}/partitions")
            logger.info("completing the deletion of topic %s", name)
            await self.remove_nodes(name, sorted(map(int, children)), Committed(0))

    def unfinished_topics(self) -> Collection[TopicImage]:
        """Return the topics that a previous controller has not completed, with all partitions."""
        return [each.whole for each in self._unfinished.values()]

    async def _write_nothing(self, operations: list[Operation], committed: Committed) -> None:
        """Write operations that do not change the image."""
        delta, image = await self._replayed([])
        await self._write(delta, image, operations, committed)

    async def _replayed(
        self, records: Sequence[MetadataRecord]
    ) -> tuple[MetadataDelta, MetadataImage]:
        """Return the changes, and the image after them at the next metadata offset."""
        delta = MetadataDelta(self.image)
        await in_slices(delta.replaying(records))
        provenance = MetadataProvenance(self._node_id, self.epoch, self.image.offset + 1)
        return delta, await in_slices(delta.applying(provenance))

    async def _write(
        self,
        delta: MetadataDelta,
        image: MetadataImage,
        operations: Sequence[Operation],
        committed: Committed,
    ) -> None:
        names = self._unfinished_after(delta, image)
        if self.has_ended:
            raise Deposed("This is no longer the controller.")
        try:
            failure = await self._writer.write(operations, image.offset, names)
        except StoreError as error:
            logger.error("the metadata store has other contents than expected: %r", error)
            text = "The metadata store has other contents than expected."
            raise Deposed(text, must_load=True) from error
        if failure is not None:
            raise Deposed(str(failure))
        if self.has_ended:
            # The session was suspended before the response. The change is in the store, and the
            # next controller reads it.
            raise Deposed("This is no longer the controller.")
        self.image = image
        for topic_id in delta.topics.changed:
            unfinished = self._unfinished.get(topic_id)
            if unfinished is not None:
                unfinished.is_written = True
                if image.topics_by_id[topic_id].partition_count == unfinished.whole.partition_count:
                    del self._unfinished[topic_id]
        committed.offset = image.offset
        committed.leaders |= elected_leaders(delta)
        try:
            await in_slices(self._publish(delta, image))
        except Exception as error:  # the feed lacks this change, and must not continue after it
            logger.exception(
                "bug in the publication of metadata offset %d. Report the traceback", image.offset
            )
            raise Deposed("A change was not published.", must_load=True) from error


def _freeing(items: list[Any]) -> Generator[None, None, None]:
    """Remove all but the first items in time slices. The interpreter frees a list in one slice."""
    while items[ELEMENTS_PER_SLICE:]:
        del items[-ELEMENTS_PER_SLICE:]
        yield


def _too_large() -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, "The change exceeds the limit of one write.")


def _checking_groups(
    records: Sequence[MetadataRecord], operations: Sequence[Operation], room: float
) -> Generator[None, None, None]:
    """Raise POLICY_VIOLATION if operations that must be in the same write exceed `room` bytes.

    Otherwise the writes before that one would change a part of the request. A topic and its configs
    are three operations. All others can be in a write of their own.
    """
    sizes: dict[str, int] = {}
    for number, operation in enumerate(operations, 1):
        sizes[operation.path] = operations_bytes([operation])
        if not number % ELEMENTS_PER_SLICE:
            yield
    largest = max(sizes.values(), default=0)
    for number, record in enumerate(records, 1):
        if isinstance(record, TopicRecord):
            path = znodes.topic_path(TopicName(record.name))
            configs = CONFIG_PATHS[ResourceType.TOPIC](record.name)
            together = (path, f"{path}/partitions", configs)
            largest = max(largest, sum(sizes.get(each, 0) for each in together))
        if not number % ELEMENTS_PER_SLICE:
            yield
    if largest > room:
        raise _too_large()


def _divided(records: Sequence[MetadataRecord], count: int) -> Sequence[Sequence[MetadataRecord]]:
    """Divide a change into at most `count` parts of about the same length, at least one.

    A new topic and its configs, and the configs of one resource, are written together.
    """
    cuts = [0]
    for part in range(1, count):
        cut = _cut(records, part * len(records) // count)
        if cut is not None and cut > cuts[-1]:
            cuts.append(cut)
    return [records[begin:end] for begin, end in pairwise([*cuts, len(records)])]


def _cut(records: Sequence[MetadataRecord], middle: int) -> int | None:
    """Return where to divide a change, near an index. None if it cannot be divided."""
    for distance in range(len(records)):
        for index in (middle + distance, middle - distance):
            if 0 < index < len(records) and not _belong(records[index - 1], records[index]):
                return index
    return None


def _belong(earlier: MetadataRecord, later: MetadataRecord) -> bool:
    if not isinstance(later, ConfigRecord):
        return False
    if isinstance(earlier, ConfigRecord):
        return (earlier.resource_type, earlier.resource_name) == (
            later.resource_type,
            later.resource_name,
        )
    return isinstance(earlier, TopicRecord)
